package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// The profile workspace allows what needs no more than the grant of python3,
// and nothing else.
func TestWorkspace(t *testing.T) {
	p, err := policy.Load(policy.Source{Name: "site.toml", Text: `profile = "workspace"`})
	if err != nil {
		t.Fatal(err)
	}
	env := policytest.Env(project(t))
	for text, want := range map[string]policy.Verdict{
		"npm test":                      policy.Allow,
		"cargo build":                   policy.Allow,
		"cp a.go c.go":                  policy.Allow,
		"git add . && git commit -m x":  policy.Allow,
		"touch x":                       policy.Allow,
		"rm a.go":                       policy.Allow,
		"mv a.go c.go":                  policy.Allow,
		"./sub/x":                       policy.Allow,
		"bash sub/x":                    policy.Allow,
		"source sub/x && pytest":        policy.Allow,
		"node x.js":                     policy.Allow,
		"rm -r sub":                     policy.RequireApproval,
		"find . -delete":                policy.RequireApproval,
		"git push":                      policy.RequireApproval,
		"git reset --hard":              policy.RequireApproval,
		"git clean -fd":                 policy.RequireApproval,
		"npm install":                   policy.RequireApproval,
		"no-such-command":               policy.RequireApproval,
		"touch .envrc":                  policy.RequireApproval,
		"PATH=.:$PATH ls":               policy.RequireApproval,
		"rm -rf sub":                    policy.Deny,
		"curl http://x":                 policy.Deny,
		"cp /etc/passwd x":              policy.Deny,
		"cp a.go .git/hooks/pre-commit": policy.Deny,
		"sudo ls":                       policy.Deny,
		"cp a.go ../x":                  policy.Deny,
		"bash -c 'cat /etc/passwd'":     policy.Deny,
	} {
		d := decide(t, p, env, text)
		if d.Verdict != want {
			t.Errorf("%s: %v, want %v: %+v", text, d.Verdict, want, d.Reasons)
		}
		if d.Verdict == policy.Allow && len(d.Grant.Protected)+len(d.Grant.Net.Hosts) > 0 {
			t.Errorf("%s: the grant is wider than that of python3: %+v", text, d.Grant)
		}
	}
}

// A site switches built-in rules off by name, adds rules, and chooses what
// happens to commands that no rule names.
func TestSite(t *testing.T) {
	env := policytest.Env(project(t))
	for _, row := range []struct {
		site, text string
		want       policy.Verdict
	}{
		{`[builtin]` + "\n" + `disable = ["deny-rm-rf"]`, "rm -rf sub", policy.RequireApproval},
		{`default = "always_allow"`, "touch x", policy.Allow},
		{`default = "allow"`, "no-such-command", policy.RequireApproval},
		{`default = "deny"`, "touch x", policy.Deny},
		{`default = "always_ask"`, "touch x", policy.RequireApproval},
		{"[[rule]]\nid = 'a'\nverdict = 'allow'\ncommand = ['touch']\nreason = 'r'\nmatch = ['touch x']\nnot_match = ['ls']", "touch x", policy.Allow},
		{"[[rule]]\nid = 'a'\nverdict = 'allow'\ncommand = ['touch']\nreason = 'r'\nmatch = ['touch x']", "touch /etc/x", policy.Deny},
		{"[[rule]]\nid = 'a'\nverdict = 'allow'\ncommand = ['no-such-command']\nreason = 'r'\nmatch = ['ls']", "ls", policy.Deny},
		{"[[rule]]\nid = 'a'\nverdict = 'deny'\ncommand = ['git']\nsubcommand = ['log']\nreason = 'r'\nmatch = ['git -C sub log']\nnot_match = ['git status']", "git log", policy.Deny},
	} {
		p, err := policy.Load(policy.Source{Name: "site.toml", Text: row.site})
		if err != nil {
			if row.site != "[[rule]]\nid = 'a'\nverdict = 'allow'\ncommand = ['no-such-command']\nreason = 'r'\nmatch = ['ls']" {
				t.Errorf("%s: %v", row.site, err)
			}
			continue
		}
		if d := decide(t, p, env, row.text); d.Verdict != row.want {
			t.Errorf("%s\n%s: %v, want %v: %+v", row.site, row.text, d.Verdict, row.want, d.Reasons)
		}
	}
}

// What is wrong in a policy file is an error that says where and what.
func TestWrongPolicies(t *testing.T) {
	for site, want := range map[string]string{
		"profle = 'workspace'":                               "site.toml:1:1: unknown key \"profle\"",
		"\nprofile = 'lax'":                                  "site.toml:2:12: unknown profile",
		"default = 'auto'":                                   "want deny, require_approval or allow",
		"[builtin]\ndisable = ['deny-rm']":                   "site.toml:2:13: builtin: no rule \"deny-rm\"",
		"readable = ['x']":                                   "want the absolute path",
		"[[rule]]\nid = 'a'\nverdict = 'allow'":              "no reason",
		"[[rule]]\nid = 'a'\nreason = 'r'\ncommand = ['ls']": "no examples",
		"[[rule]]\nid = 'a'\nreason = 'r'\ncommand = ['ls']\nmatch = ['cat']":                       "the rule does not apply",
		"[[rule]]\nid = 'a'\nreason = 'r'\ncommand = ['ls']\nmatch = ['ls']\nnot_match = ['ls -l']": "the rule applies",
		"[[rule]]\nid = 'a'\nreason = 'r'\neffects = ['flies']\nmatch = ['ls']":                     "unknown effect \"flies\"",
		"[[rule]]\nid = 'a'\nreason = 'r'\neffects = ['reads']\nplaces = ['moon']\nmatch = ['ls']":  "unknown place \"moon\"",
		"[[rule]]\nid = 'ask-deletes'\nreason = 'r'\ncommand = ['ls']\nmatch = ['ls']":              "defined twice",
		"[[rule]]\nid = 'a'\nreason = 'r'\nplaces = ['git']\nmatch = ['ls']":                        "places need effects",
		"[places]\nnull = ['/dev/sda']":                                                             "places are built in",
		"= x":                                                                                       "site.toml",
	} {
		_, err := policy.Load(policy.Source{Name: "site.toml", Text: site})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", site, err, want)
		}
	}
}

// A project's own file can deny and ask, never allow.
func TestTighten(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	q, err := p.Tighten(policy.Source{Name: ".pinfold.toml", Text: "[[rule]]\nid = 'no-log'\nverdict = 'deny'\ncommand = ['git']\nsubcommand = ['log']\nreason = 'r'\nmatch = ['git log']"})
	if err != nil {
		t.Fatal(err)
	}
	if d := decide(t, q, env, "git log"); d.Verdict != policy.Deny {
		t.Errorf("git log: %v", d.Verdict)
	}
	if d := decide(t, p, env, "git log"); d.Verdict != policy.Allow {
		t.Errorf("the policy itself has changed: git log: %v", d.Verdict)
	}
	if q.Hash() == p.Hash() {
		t.Error("another policy with the same hash")
	}
	for _, text := range []string{
		"profile = 'workspace'", "default = 'allow'", "readable = ['/x']", "writable = ['/x']", "[builtin]\ndisable = ['deny-rm-rf']",
		"[[rule]]\nid = 'a'\nverdict = 'allow'\ncommand = ['touch']\nreason = 'r'\nmatch = ['touch x']", "[places]\nnull = ['/x']",
	} {
		if _, err := p.Tighten(policy.Source{Name: ".pinfold.toml", Text: text}); err == nil || !strings.Contains(err.Error(), "can only tighten") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
