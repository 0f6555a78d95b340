package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// Examining decides as deciding does, and shows every part with what it does
// and what the rules say of it.
func TestExamine(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	examine := func(text string) policy.Explanation {
		t.Helper()
		s, err := shparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		e := p.Examine(s, env)
		if d := p.Decide(s, env); d.Verdict != e.Decision.Verdict || !slices.Equal(d.Rules, e.Decision.Rules) || !slices.Equal(d.Reasons, e.Decision.Reasons) {
			t.Errorf("%s: decided as %+v, examined as %+v", text, d, e.Decision)
		}
		return e
	}
	part := func(e policy.Explanation, text string) policy.Part {
		t.Helper()
		i := slices.IndexFunc(e.Parts, func(p policy.Part) bool { return p.Span.Text == text })
		if i < 0 {
			t.Fatalf("no part %q in %+v", text, e.Parts)
		}
		return e.Parts[i]
	}

	e := examine("ls && ls sub && cat /etc/passwd > out")
	if got := part(e, "/etc/passwd"); got.Verdict != policy.Deny || !slices.Equal(got.Effects, []policy.Effect{{Name: "reads", Place: "outside", Detail: "/etc/passwd"}}) ||
		len(got.Reasons) != 1 || got.Reasons[0].Rule != "deny-outside" {
		t.Errorf("/etc/passwd: %+v", got)
	}
	if got := part(e, "> out"); got.Verdict != policy.Allow || got.Effects[0] != (policy.Effect{Name: "writes", Place: "project", Detail: "out"}) {
		t.Errorf("> out: %+v", got)
	}
	both := 0
	for _, part := range e.Parts {
		if part.Span.Text == "ls" && part.Verdict == policy.Allow && part.Reasons[0].Rule == "allow-reading" {
			both++
		}
	}
	if both != 2 || e.Opaque {
		t.Errorf("ls is shown %d times, opaque: %v: %+v", both, e.Opaque, e.Parts)
	}

	for text, want := range map[string]string{
		"rm -rf sub":     `the site's policy can switch the rule off: [builtin] disable = ["deny-rm-rf"]`,
		"touch x":        `the site's policy can allow it: profile = "workspace"`,
		"cat ../x":       "use paths inside the project; nothing else is visible here",
		"no-such-thing.": `the site's policy can allow it: a [[rule]] with verdict = "allow" that names the command`,
	} {
		if got := examine(text).Remedies; !slices.Contains(got, want) {
			t.Errorf("%s: what would make it allowed: %q, without %q", text, got, want)
		}
	}
	if e := examine("python3 a.py"); !e.Opaque || e.Remedies != nil {
		t.Errorf("python3: %+v", e)
	}
	if e := examine(strings.Repeat("ls a.go;", 2000)); len(e.Parts) > 200 {
		t.Errorf("%d parts", len(e.Parts))
	}
}

// Every rule says where it stands.
func TestRules(t *testing.T) {
	site := policy.Source{Name: "site.toml", Text: "profile = 'workspace'\n\n[[rule]]\nid = 'mine'\nverdict = 'deny'\ncommand = ['ls']\nreason = 'r'\nmatch = ['ls']\nnot_match = ['cat']"}
	p, err := policy.Load(site)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]policy.Rule{}
	for _, r := range p.Rules(site) {
		if found[r.ID] = r; !strings.Contains(r.Source, ".toml:") {
			t.Errorf("rule %s stands in %q", r.ID, r.Source)
		}
	}
	if got := found["mine"]; got.Source != "site.toml:4" || got.Subject != "ls" || got.Examples != 2 || got.Verdict != policy.Deny {
		t.Errorf("mine: %+v", got)
	}
	if got := found["workspace-publishes"]; !strings.HasPrefix(got.Source, "workspace.toml:") {
		t.Errorf("workspace-publishes: %+v", got)
	}
	if got := found["deny-rm-rf"]; !strings.HasPrefix(got.Source, "default.toml:") || got.Subject != "rm; options recursive, force" {
		t.Errorf("deny-rm-rf: %+v", got)
	}
}
