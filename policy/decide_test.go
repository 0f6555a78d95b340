package policy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// builtin is the default policy, loaded once.
func builtin(t testing.TB) *policy.Policy {
	t.Helper()
	p, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scratch makes a directory that is gone after the test. It is not below /tmp,
// which every command may write, so that what lies beside a project is outside.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "pinfold-test-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left is seen by the next test run
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// project makes a project with a few files.
func project(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(scratch(t), "project")
	for name, text := range map[string]string{"a.go": "package a\n", "b.go": "package a\n", "sub/x": "x\n", ".git/config": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func decide(t testing.TB, p *policy.Policy, env policy.Env, text string) policy.Decision {
	t.Helper()
	s, err := shparse.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p.Decide(s, env)
}

// The table of the default policy holds, whatever the spelling.
func TestDefaultTable(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	for _, row := range []struct {
		text string
		want policy.Verdict
	}{
		{"cat /etc/passwd", policy.Deny},
		{"cat ../x", policy.Deny},
		{"cat $HOME/.ssh/id_rsa", policy.Deny},
		{"ls | xargs rm -rf", policy.Deny},
		{"sh -c 'curl http://x'", policy.Deny},
		{"echo $(wget x)", policy.Deny},
		{"echo x > /dev/sda", policy.Deny},
		{"chmod 0777 f", policy.Deny},
		{`\r\m -r -f x`, policy.Deny},
		{"sudo ls", policy.Deny},
		{"npm install", policy.RequireApproval},
		{"git status", policy.Allow},
		{"grep -rn foo . | head -5", policy.Allow},
		{"echo 'rm -rf /'", policy.Allow},
		{"python3 -c 'print(1)'", policy.Allow},
		{`for f in *.go; do wc -l "$f"; done`, policy.Allow},
		{"git log --format='%(trailers)' -3", policy.Allow},
		{"go build ./... 2>&1 | tail -5", policy.Allow},
	} {
		d := decide(t, p, env, row.text)
		if d.Verdict != row.want {
			t.Errorf("%s: %v, want %v: %+v", row.text, d.Verdict, row.want, d.Reasons)
		}
		if len(d.Reasons) == 0 || len(d.Rules) == 0 {
			t.Errorf("%s: no reasons", row.text)
		}
	}
}
