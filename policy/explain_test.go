package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

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
