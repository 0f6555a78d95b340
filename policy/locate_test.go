package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

// Whatever is wrong in a file, the error says file, line and column, and what
// would be valid.
func TestErrorsHaveAPlace(t *testing.T) {
	p := builtin(t)
	for text, want := range map[string]string{
		"\nprofle = 'x'":                  `x.toml:2:1: unknown key "profle": want one of profile, default, groups, commands, builtin, rule, readable, writable, protected, hidden, project`,
		"[[rule]]\nid = 'a'\nreson = 'r'": `x.toml:3:1: unknown key "rule.reson": want one of id, verdict, command`,
		"\n[[rule]]\n id = \"a\"\ncommand = ['ls']\nmatch = ['ls']":                                             `x.toml:3:2: rule "a": no reason`,
		"[[rule]]\nid = 'a'\nreason = 'r'\nverdict = 'auto'":                                                    `x.toml:4:12: unknown verdict "auto": want deny, require_approval or allow`,
		"[[rule]]\nid = 'a'\nreason = 'r'\neffects = ['flies']\nmatch = ['ls']":                                 `x.toml:4:13: rule "a": unknown effect "flies": want one of reads`,
		"[[rule]]\nid = 'a'\nreason = 'r'\ncommand = ['ls']\nmatch = ['ls', 'cat x']":                           `x.toml:5:17: rule a: match: "cat x": the rule does not apply`,
		"[[rule]]\nid = 'a'\nreason = 'r'\ncommand = ['ls']\nmatch = ['ls']\nnot_match = ['ls -l']":             `x.toml:6:15: rule a: not_match: "ls -l": the rule applies`,
		"[[rule]]\nid = 'deny-rm-rf'\nreason = 'r'\ncommand = ['ls']\nmatch = ['ls']":                           `x.toml:2:1: rule deny-rm-rf: defined twice`,
		"[[rule]]\nid = 'a'\nreason = 'r'\nplaces = ['moon']\neffects = ['reads']\nmatch = ['ls']\n# 'ls' moon": `x.toml:4:12: rule "a": unknown place "moon"`,
	} {
		source := policy.Source{Name: "x.toml", Text: text}
		_, site := policy.Load(source)
		_, project := p.Tighten(source)
		for who, err := range map[string]error{"site": site, "project": project} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "nil") {
				t.Errorf("%s: %q: error %v, want %s", who, text, err, want)
			}
		}
	}
}
