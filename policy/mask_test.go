package policy_test

import (
	"slices"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// TestWritingAMaskIsAskedAbout checks that what would put a mask in a secret's
// place is asked about, and what only looks for it is not.
func TestWritingAMaskIsAskedAbout(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	for text, asked := range map[string]bool{
		"echo 'TOKEN=[REDACTED:value]' > new.txt":    true,
		"sed -i 's/x/[REDACTED:github]/' a.go":       true,
		`python3 -c 'print("[REDACTED:value]")'`:     true,
		"echo 'cd [LOCAL_PATH]/x' > run.txt":         true,
		"cat > new.txt <<'E'\nK=[REDACTED:value]\nE": true,
		"grep -F '[REDACTED' a.go":                   false,
		"echo '[LOCAL_PATH]'":                        false,
		"echo 'REDACTED' > notes.txt":                false,
	} {
		d := decide(t, p, env, text)
		want := policy.Allow
		if asked {
			want = policy.RequireApproval
		}
		if d.Verdict != want || slices.Contains(d.Rules, "writes-mask") != asked {
			t.Errorf("%s: %v by %v", text, d.Verdict, d.Rules)
		}
	}
}
