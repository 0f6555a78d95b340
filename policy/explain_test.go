package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// An explanation underlines the part that a reason is about, and says what to
// do instead and what the grant is.
func TestExplain(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	for _, row := range []struct {
		text string
		want []string
	}{
		{"ls && cat /etc/passwd", []string{
			"denied, high risk\n",
			"  ls && cat /etc/passwd\n            ^^^^^^^^^^^\n",
			"denied: names a path outside the project: /etc/passwd [deny-outside]",
			"instead: use paths inside the project",
		}},
		{"echo\techo x > .envrc", []string{"needs approval, high risk", "\t       ^^^^^^^^\n", "may write the protected .envrc"}},
		{"python3 x.py", []string{"allowed, medium risk", "what bounds it is this grant"}},
		{"ls", []string{"writes nothing in the project", "may run /usr/bin/ls", "no network"}},
		{"echo x > a.go", []string{"may write a.go", "may run no program but the shell"}},
		{"echo a\n  cat 'ü' ../x", []string{"  cat 'ü' ../x\n            ^^^^\n"}},
	} {
		got := policy.Explain(row.text, decide(t, p, env, row.text))
		for _, want := range row.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q: explained as\n%s\nwithout %q", row.text, got, want)
			}
		}
	}
}

// The summary names what runs unasked and what is denied, and is short.
func TestSummary(t *testing.T) {
	for _, profile := range []string{"default", "workspace"} {
		p, err := policy.Load(policy.Source{Name: "site", Text: "profile = '" + profile + "'"})
		if err != nil {
			t.Fatal(err)
		}
		got := p.Summary()
		for _, want := range []string{"Run unasked: ", " ls, ", "git status", "Denied: ", "curl", "names a path outside the project"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the summary lacks %q:\n%s", profile, want, got)
			}
		}
		if len(got) > 4000 {
			t.Errorf("%s: the summary has %d bytes", profile, len(got))
		}
	}
}
