package policy

import (
	"fmt"
	"slices"
	"strings"
)

// disabledPrefix begins the ids of the rules that [Policy.Disable] adds.
const disabledPrefix = "disabled "

// IsDisabled reports whether the rule's id is that of a command that was
// disabled.
func IsDisabled(id string) bool { return strings.HasPrefix(id, disabledPrefix) }

// Disable returns the policy without the named commands and rules: a command, or
// its subcommand ("git commit"), is denied, and so is what a rule that allows
// speaks of. The error gives the number of the first that is neither a command
// that a fact describes nor such a rule.
func (p *Policy) Disable(names []string) (*Policy, error) {
	files := p.rules.files()
	for n, name := range names {
		if i := slices.IndexFunc(files, func(r *ruleFile) bool { return r.ID == name }); i >= 0 {
			if files[i].Verdict != Allow {
				return nil, fmt.Errorf("number %d is a rule that does not allow anything", n+1)
			}
			r := *files[i]
			r.ID, r.Verdict, r.Risk, r.Reason, r.Suggest = disabledPrefix+name, Deny, Medium, "disabled in this session", ""
			r.Replaces, r.Narrow, r.Widen = nil, nil, nil
			files = append(files, &r)
			continue
		}
		words := strings.Fields(name)
		if len(words) == 0 || strings.Join(words, " ") != name || !p.knows(words) {
			return nil, fmt.Errorf("number %d is neither a command that is known nor a rule that allows", n+1)
		}
		r := &ruleFile{ID: disabledPrefix + name, Verdict: Deny, Risk: Medium, Command: words[:1], Match: []string{name}, Reason: name + " is disabled in this session"}
		if len(words) > 1 {
			r.Subcommand = []string{strings.Join(words[1:], " ")}
		}
		files = append(files, r)
	}
	q := *p
	if err := q.setRules(files); err != nil {
		return nil, err
	}
	q.hash = hashText(p.hash, "disabled\x00"+strings.Join(names, "\x00"))
	return &q, nil
}

// knows reports whether a fact describes the command, and the subcommand if one
// is named.
func (p *Policy) knows(words []string) bool {
	f := p.facts[words[0]]
	for _, word := range words[1:] {
		if f == nil {
			return false
		}
		f = f.Sub[word]
	}
	return f != nil
}
