package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

// gitGrant is what policy grants to a git command that changes the work tree:
// git alone may be executed, besides what the tests show files with.
func gitGrant(t *testing.T) policy.Grant {
	g := pinned(t, "git", "cat", "od")
	g.Exec = append(g.Exec, "/usr/lib/git-core/git")
	g.Write = []string{"."}
	return g
}

// onHost runs a shell text on the host, as the caller.
func (b box) onHost(t *testing.T, text string) string {
	t.Helper()
	cmd := exec.Command("/bin/bash", "-c", "set -e\n"+text)
	cmd.Dir = b.project
	cmd.Env = []string{"HOME=" + b.caller.Home, "PATH=/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM=1"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: b.caller.UID, Gid: b.caller.GID, Groups: b.caller.Groups}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("on the host: %s: %v\n%s", text, err, out)
	}
	return string(out)
}

// eachAtHome is each, with a home that the test may fill.
func eachAtHome(t *testing.T, f func(t *testing.T, b box)) {
	each(t, func(t *testing.T, b box) {
		b.caller.Home = newProject(t, b.caller, b.caller.Home)
		b.project = newProject(t, b.caller, b.caller.Home)
		f(t, b)
	})
}

// TestGitKnowsTheCaller: commits have the caller's name and address, conditions
// and includes of his configuration count, and nothing else of it comes along.
func TestGitKnowsTheCaller(t *testing.T) {
	eachAtHome(t, func(t *testing.T, b box) {
		home := b.caller.Home
		writeFile(t, b.caller, home+"/.gitconfig", `[user]
	name = "Ann \"A\" O'Example; # \\ x"
	email = ann@example.com
[core]
	excludesFile = ~/ignored
	autocrlf = input
	fsmonitor = /bin/false
	pager = /bin/false
	hooksPath = /nowhere
[init]
	defaultBranch = trunk
[alias]
	x = !false
[includeIf "gitdir:`+b.project+`/"]
	path = work.inc
`, 0o600)
		writeFile(t, b.caller, home+"/work.inc", "[user]\n\temail = ann@work.example\n", 0o600)
		writeFile(t, b.caller, home+"/ignored", "*.log\n", 0o600)
		writeFile(t, b.caller, home+"/secret", "a secret of the caller's\n", 0o600)
		b.onHost(t, "git init -q .; git config core.excludesFile "+home+"/secret; git config --unset core.excludesFile; echo x > a; echo x > a.log; printf 'a\\r\\n' > crlf")
		r := b.run(t, gitGrant(t), `git add -A 2>/dev/null && git commit -q -m first && git log --format='%an|%ae|%cn' && git ls-files && git symbolic-ref HEAD && git cat-file blob :crlf | od -An -c`)
		want := "Ann \"A\" O'Example; # \\ x|ann@work.example|Ann \"A\" O'Example; # \\ x\na\ncrlf\nrefs/heads/trunk\n   a  \\n\n"
		if r.out != want || r.ExitCode != 0 {
			t.Errorf("exit %d\n%q, want\n%q\n%s", r.ExitCode, r.out, want, r.err)
		}
		if r := b.run(t, gitGrant(t), `git config --system --list`); strings.Contains(r.out, "false") || strings.Contains(r.out, "nowhere") {
			t.Errorf("came along: %s", r.out)
		}
	})
}

// TestGitSettingsOfTheRepository: a repository cannot have a file of the caller's
// shown by naming it as its own excludes.
func TestGitSettingsOfTheRepository(t *testing.T) {
	eachAtHome(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.caller.Home+"/.gitconfig", "[user]\n\tname = A\n", 0o600)
		writeFile(t, b.caller, b.caller.Home+"/secret", "a secret of the caller's\n", 0o600)
		b.onHost(t, "git init -q .; git config core.excludesFile "+b.caller.Home+"/secret; git config user.name B")
		r := b.run(t, widest, "cat /etc/gitignore; cat /etc/gitconfig")
		if strings.Contains(r.out, "secret") || !strings.Contains(r.out, `name = "A"`) || strings.Contains(r.out, `name = "B"`) {
			t.Errorf("inside: %s", r.out)
		}
		os.Remove(b.project + "/.git/config")
		if err := syscall.Mkfifo(b.project+"/.git/config", 0o600); err != nil {
			t.Fatal(err)
		}
		u := gitUserOf(b.caller, b.project)
		if len(u.settings) != 0 {
			t.Errorf("from a repository whose configuration is a FIFO: %v", u.settings)
		}
	})
}

// TestGitCommands: what people do with git all day works, under a grant that can
// execute git alone, and leaves a sound repository. Pulling from a directory starts
// a shell and needs the widest.
func TestGitCommands(t *testing.T) {
	eachAtHome(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.caller.Home+"/.gitconfig", "[user]\n\tname = A\n\temail = a@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n", 0o600)
		setup := `git init -q . && echo 1 > a && echo 1 > b && git add . && git commit -q -m 1
			git checkout -q -b topic && echo 2 > b && git commit -q -a -m 2 && git checkout -q main && echo 2 > a && git commit -q -a -m 3
			git init -q --bare remote.git && git push -q remote.git topic:main 2>/dev/null`
		base := newProject(t, b.caller, b.caller.Home)
		box{b.m, b.caller, base}.onHost(t, setup)
		for _, row := range []struct{ text, want string }{
			{"git pull -q --no-edit --no-rebase remote.git main && cat a b", "2\n2\n"},
			{"echo 3 > c && git add c && git commit -q -m 4 && git log --format=%s -1", "4\n"},
			{"git checkout -q topic && cat b", "2\n"},
			{"git switch -q topic && cat b", "2\n"},
			{"git switch -q -c new && git symbolic-ref --short HEAD", "new\n"},
			{"git merge -q --no-edit topic && cat a b", "2\n2\n"},
			{"git rebase -q topic && cat a b && git status --porcelain -uno", "2\n2\n"},
			{"git cherry-pick topic >/dev/null && cat b", "2\n"},
			{"git revert --no-edit HEAD >/dev/null && cat a", "1\n"},
			{"echo 9 > a && git stash -q && cat a && git stash pop -q && cat a", "2\n9\n"},
			{"echo 9 > a && git reset -q --hard && cat a", "2\n"},
			{"git reset -q --soft HEAD~1 && git diff --cached --name-only", "a\n"},
			{"echo 9 > a && git restore a && cat a", "2\n"},
			{"git worktree add -q wt topic && cat wt/b && git -C wt log --format=%s -1", "2\n2\n"},
			{"git gc -q && git fsck && git log --format=%s -1", "3\n"},
			{"git tag v1 && git branch x && git branch --list x && git tag", "  x\nv1\n"},
			{"git format-patch --stdout -1 topic > p && git am -q p && cat b", "2\n"},
			{"git diff main topic -- b > p && git apply p && cat b", "2\n"},
		} {
			b := box{b.m, b.caller, newProject(t, b.caller, b.caller.Home)}
			b.onHost(t, "cp -a "+base+"/. . && git update-index -q --refresh")
			before := b.onHost(t, "cat .git/config")
			grant := gitGrant(t)
			if strings.HasPrefix(row.text, "git pull") {
				grant = widest
			}
			r := b.run(t, grant, row.text)
			if r.out != row.want || r.ExitCode != 0 {
				t.Errorf("%s: exit %d %q, want %q\n%s", row.text, r.ExitCode, r.out, row.want, r.err)
			}
			b.onHost(t, "git fsck --no-dangling 2>&1")
			if after := b.onHost(t, "cat .git/config"); after != before {
				t.Errorf("%s: changed the configuration:\n%s", row.text, after)
			}
			if left, _ := filepath.Glob(b.project + "/.git/*.lock"); len(left) > 0 {
				t.Errorf("%s: left %v", row.text, left)
			}
		}
	})
}
