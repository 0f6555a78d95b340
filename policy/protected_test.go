package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// Whatever the spelling, to write a protected path is asked about, and the yes
// opens it alone; what steers git, in a bare repository too, is not written.
func TestProtectedWrites(t *testing.T) {
	dir := project(t)
	for _, name := range []string{".vscode", "sub/.git", "bare/objects", "bare/refs", "bare/hooks", "plain/hooks", ".github/workflows"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".envrc", "sub/.envrc", "bare/HEAD", "bare/config", ".env", ".env.example"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(".envrc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, profile := range []string{"default", "workspace"} {
		p := site(t, "profile = '"+profile+"'")
		for text, opened := range map[string][]string{
			"echo x > .envrc": {".envrc"}, "echo x > link": {".envrc"}, "echo x > .envr?": {".envrc"}, "tee .env[r]c": {".envrc"}, "tee {.envrc,a}": {".envrc"},
			"echo x > sub/../.vscode/y/z": {".vscode/y/z"}, "x=.envrc; echo x > $x": {".envrc"}, "cd sub && echo x > .envrc": {"sub/.envrc"},
			"for d in a sub; do echo x > $d/.envrc; done": {"a/.envrc", "sub/.envrc"}, "sed -i s/a/b/ */.envrc": {"bare/.envrc", "plain/.envrc", "sub/.envrc"},
			"echo x > \"$d/.envrc\"": nil, "echo x > $d/.vscode/x": nil, "echo x > ${d}/a/.github/workflows/$y.yml": nil, "tee \"$(cat a.go)/.mcp.json\"": nil,
			"rm -r .github": {".github"}, "mv .github x": {".github"}, "mkdir .vscode/x": {".vscode/x"}, "echo x > .git/HEAD": {".git/HEAD"},
			"echo x >> .env": {".env"}, "cp a.go .env": {".env"}, "rm .env": {".env"},
		} {
			d := decide(t, p, policytest.Env(dir), text)
			if d.Verdict != policy.RequireApproval || !slices.Equal(d.Grant.Protected, opened) {
				t.Errorf("%s: %s: %v, opens %q, want %q", profile, text, d.Verdict, d.Grant.Protected, opened)
			}
			if d.Risk != policy.High {
				t.Errorf("%s: %s: %s risk", profile, text, d.Risk)
			}
		}
		for _, text := range []string{
			"echo x > sub/.git", "echo x > .git/config", "echo x > .git/config.worktree", "echo x > .git/hooks/pre-commit", "echo x > .git/info/attributes",
			"echo x > .git/commondir", "echo x > .git/objects/info/alternates", "echo x > .git/modules/a/modules/b/config", "echo x > .git/worktrees/w/gitdir",
			"echo x > .git/worktrees/w/config.worktree", "echo x > $x/.git/config", "echo x > $x/.git/hooks/$y", "echo x > bare/config", "echo x > bare/hooks/post-update",
			"tee bare/conf?g", "cp a.go bare/info/attributes", "echo x > .git", "x=.git; echo x > $x/config", "cd .git && echo x > config", "rm -r .git",
		} {
			if d := decide(t, p, policytest.Env(dir), text); d.Verdict != policy.Deny {
				t.Errorf("%s: %s: %v", profile, text, d.Verdict)
			}
		}
		expect(t, p, dir, rowOf{"echo x > .env.example", allow}, rowOf{"echo x > sub/.env", allow}, rowOf{"cat .env .envrc .git/config bare/config", allow},
			rowOf{"echo x > plain/hooks/x", allow}, rowOf{"echo x > plain/config", allow}, rowOf{"echo x > \"$d/a.go\"", allow}, rowOf{"mkdir -p .github", allow})
	}
}
