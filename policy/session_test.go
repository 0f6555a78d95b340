package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// TestDisable proves that what a session may not use is denied however it is
// reached, that nothing else changes, and that only what can be allowed can be
// named.
func TestDisable(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	q, err := p.Disable([]string{"grep", "git log", "allow-opaque", "rm"})
	if err != nil {
		t.Fatal(err)
	}
	if q.Hash() == p.Hash() {
		t.Error("it has the same hash")
	}
	for _, text := range []string{"grep x y", "ls | xargs grep x", "find . -exec grep x {} +", "sh -c 'grep x'", "git log", "git log -p", "python3 x.py", "make", "rm x", "env -u X make"} {
		d := decide(t, q, env, text)
		if d.Verdict != policy.Deny {
			t.Errorf("%s: %s by %v", text, d.Verdict, d.Rules)
		}
	}
	for _, text := range []string{"ls", "git status", "sed -n p x", "touch x", "git push"} {
		if before, after := decide(t, p, env, text), decide(t, q, env, text); before.Verdict != after.Verdict {
			t.Errorf("%s: %s, and was %s", text, after.Verdict, before.Verdict)
		}
	}
	for _, name := range []string{"no-such-thing", "deny-rm-rf", "ask-deletes", "default", "git nothing", "", " ls", "grep\n"} {
		if _, err := p.Disable([]string{"ls", name}); err == nil || !strings.Contains(err.Error(), "number 2") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
