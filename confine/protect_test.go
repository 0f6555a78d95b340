package confine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host runs shell text in the project as the caller, outside of any sandbox.
func (b box) host(t *testing.T, text string) string {
	t.Helper()
	cmd := exec.Command("bash", "-ec", text)
	cmd.Dir = b.project
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.caller.Home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost", "LC_ALL=C"}
	asCaller(cmd, b.caller)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("on the host: %v\n%s\n%s", err, text, out)
	}
	return string(out)
}

// asCaller has the program run as the caller.
func asCaller(cmd *exec.Cmd, c Caller) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}}
	}
}

// repository makes a git repository with a commit, a module and a nested one.
func repository(t *testing.T, b box) {
	t.Helper()
	b.host(t, `
git init -q -b main .
mkdir -p sub/deep .vscode sub/.claude .husky
echo '{}' > .vscode/settings.json
echo '{}' > sub/.claude/settings.json
echo 'echo hook' > .husky/pre-commit
echo a > a; echo b > sub/b; echo deep > sub/deep/c
echo SECRET=1 > .env; echo EXAMPLE=1 > .env.example; echo KEY > sub/id_rsa; echo tracked > .npmrc
printf '.env\nid_rsa\nnested\nnode_modules\n' > .gitignore
git add -f . ':!.env' ':!sub/id_rsa'
git commit -qm first
git init -q nested; echo n > nested/n; git -C nested add n; git -C nested commit -qm n
git worktree add -q -b wt wt`)
}

// TestProtectedNames proves that nothing that is protected can be changed, at
// any depth, in any way, under the widest grant; that its parents cannot be
// renamed away; and that all else can be worked on.
func TestProtectedNames(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		repository(t, b)
		before := b.host(t, "git config --list --local; find .git/hooks .vscode sub/.claude .husky nested/.git/config | sort")
		for _, attack := range []string{
			"echo x > .vscode/settings.json", "echo x > .vscode/new", "rm -r .vscode", "mv .vscode v", "chmod 777 .vscode/settings.json", "touch .vscode/settings.json",
			"echo x > sub/.claude/settings.json", "mv sub s", "rm -r sub/.claude", "mv sub/.claude sub/x", "ln -f a sub/.claude/settings.json",
			"echo x >> .git/config", "git config user.name x", "rm .git/config", "mv .git g", "mv a .git/config", "echo x > .git/hooks/pre-commit",
			"rm -r .git/hooks", "mv .git/hooks h", "echo x >> nested/.git/config", "mv nested n2", "mv nested/.git g", "echo x > nested/.git/hooks/pre-commit",
			"echo x > .git/info/exclude", "rm .git/info/exclude", "echo x > wt/.git", "rm wt/.git", "echo x > .git/worktrees/wt/gitdir", "echo /tmp > .git/worktrees/wt/commondir",
			"echo x > .husky/pre-commit",
		} {
			r := b.run(t, widest, attack)
			if r.ExitCode == 0 {
				t.Errorf("%s: %q succeeded: %s", b.caller.Name, attack, r.out)
			}
		}
		if after := b.host(t, "git config --list --local; find .git/hooks .vscode sub/.claude .husky nested/.git/config | sort"); after != before {
			t.Errorf("%s: it is\n%s\nand was\n%s", b.caller.Name, after, before)
		}
		b.host(t, "rm -rf g h; ls")
		r := b.run(t, widest, "echo x > sub/new && echo y >> a && git add a sub/new && git -c user.name=t -c user.email=t@l commit -qm second && git status --porcelain -uno && echo x > sub/deep/d && rm sub/deep/d && mkdir -p x/y && mv x z && rm -r z")
		if r.ExitCode != 0 || r.out != "" || len(r.Created) > 0 {
			t.Errorf("%s: ordinary work: %d, %q, %q, %v", b.caller.Name, r.ExitCode, r.out, r.err, r.Created)
		}
	})
}

// TestHiddenNames proves that what is hidden reads as empty under every grant,
// that what git tracks does not, and that the outcome says which.
func TestHiddenNames(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		repository(t, b)
		r := b.run(t, pinned(t, "cat", "head"), "cat .env sub/id_rsa; cat .env.example .npmrc")
		if r.out != "EXAMPLE=1\ntracked\n" || !slices.Equal(r.Hidden, []string{".env", "sub/id_rsa"}) {
			t.Errorf("%s: %q, hidden %v, %s", b.caller.Name, r.out, r.Hidden, r.err)
		}
		r = b.run(t, widest, "cat .env; cat .env 2>/dev/null | wc -c; echo x > .env; rm -f .env; git status --porcelain --ignored | grep -c env")
		if strings.Contains(r.out, "SECRET") || b.host(t, "cat .env") != "SECRET=1\n" {
			t.Errorf("%s: %q", b.caller.Name, r.out)
		}
	})
}

// gitPlants are ways to have the host's git run a program, each followed by what
// would start it. MARK is the file that the program makes.
var gitPlants = []struct{ name, plant, trigger string }{
	{"hook", "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch MARK\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout", "git checkout -q ."},
	{"new repository with fsmonitor", "git init -q evil; git -C evil config core.fsmonitor 'touch MARK; false'", "git -C evil status"},
	{"new repository, configuration by hand", "git init -q evil; printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' >> evil/.git/config", "git -C evil status"},
	{"new repository with an include", "git init -q evil; printf '[include]\\n\\tpath = ../../evil.cfg\\n' >> evil/.git/config; printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' > evil.cfg", "git -C evil status"},
	{"new repository with a hook", "git init -q evil; printf '#!/bin/sh\\ntouch MARK\\n' > evil/.git/hooks/post-checkout; chmod +x evil/.git/hooks/post-checkout; cd evil; echo x > x; git add x; git -c user.name=t -c user.email=t@l commit -qm x", "git -C evil checkout -q ."},
	{"gitlinked nested repository", "git init -q evil; cd evil; git -c user.name=t -c user.email=t@l commit -q --allow-empty -m x; cd ..; git add evil; printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' >> evil/.git/config", "git status"},
	{"nested repository's configuration", "printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' >> nested/.git/config", "git -C nested status"},
	{"commondir", "mkdir -p c/hooks; cp -r .git/refs .git/objects c/; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch MARK; false\"\\n' > c/config; echo ../c > .git/commondir", "git status"},
	{"config.worktree", "printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' > .git/config.worktree", "git -c extensions.worktreeConfig=true status"},
	{"a worktree's commondir", "mkdir -p c/hooks; cp -r .git/refs .git/objects c/; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch MARK; false\"\\n' > c/config; rm -f .git/worktrees/wt/commondir; echo ../../../c > .git/worktrees/wt/commondir", "git -C wt status"},
	{"a worktree's link", "mkdir -p fake; cp -r .git/objects .git/refs fake/; cp .git/HEAD fake/; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch MARK; false\"\\n' > fake/config; rm -f wt/.git; echo 'gitdir: ../fake' > wt/.git", "git -C wt status"},
	{"a bare repository", "git init -q --bare bare.git; printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n\\tbare = false\\n\\tworktree = ..\\n' >> bare.git/config", "git -C bare.git status"},
	{"a bare repository made by hand", "mkdir -p d/refs d/objects; echo 'ref: refs/heads/main' > d/HEAD; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch MARK; false\"\\n\\tworktree = ..\\n' > d/config", "git -C d status"},
	{"modules", "mkdir -p .git/modules/m; cp -r .git/refs .git/objects .git/HEAD .git/modules/m/; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch MARK; false\"\\n\\tworktree = ../../../m\\n' > .git/modules/m/config; mkdir m; echo 'gitdir: ../.git/modules/m' > m/.git", "git -C m status"},
	{"a .git file that leads into the project", "cp -r nested/.git g2 2>/dev/null; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch MARK; false\"\\n' > g2/config; mkdir e; echo 'gitdir: ../g2' > e/.git", "git -C e status"},
	{"the hooks that configuration points at", "mkdir -p .husky; printf '#!/bin/sh\\ntouch MARK\\n' > .husky/post-checkout; chmod +x .husky/post-checkout", "git -c core.hooksPath=.husky checkout -q ."},
	{"attributes with a filter of the host's", "echo '* filter=evil' > .git/info/attributes", "git -c filter.evil.clean='touch MARK; cat' -c core.attributesFile=/dev/null add -A"},
	{".git away and another in its place", "mv .git g && git init -q && printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' >> .git/config", "git status"},
	{"a renamed directory with a repository in it", "git init -q x1/y; printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' >> x1/y/.git/config; mv x1 x2", "git -C x2/y status"},
	{"deep and late", "mkdir -p q/w/e; (for i in $(seq 50); do mkdir -p q/w/e/$i; done); git init -q q/w/e/7/r; printf '[core]\\n\\tfsmonitor = \"touch MARK; false\"\\n' >> q/w/e/7/r/.git/config", "git -C q/w/e/7/r status"},
}

// TestGitPlants proves that after a command under the widest grant the host's
// git runs nothing that the command left, whatever it left and wherever.
func TestGitPlants(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		for _, p := range gitPlants {
			box := b
			box.project = newProject(t, b.caller, filepath.Dir(b.project))
			repository(t, box)
			mark := filepath.Join(box.project, "marked")
			r := box.run(t, widest, strings.ReplaceAll(p.plant, "MARK", mark))
			trigger := exec.Command("bash", "-c", strings.ReplaceAll(p.trigger, "MARK", mark))
			trigger.Dir = box.project
			trigger.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.caller.Home, "GIT_CONFIG_GLOBAL=/dev/null"}
			asCaller(trigger, b.caller)
			out, _ := trigger.CombinedOutput()
			if _, err := os.Lstat(mark); err == nil {
				t.Errorf("%s: %s: the host's git ran it; created %v, exposed %q\n%s%s", b.caller.Name, p.name, r.Created, r.Exposed, r.err, out)
			}
		}
	})
}

// TestCreatedNames proves that protected names that appear are taken away, at
// every depth, and reported; and that what a person's own work brings stays: a
// checkout, a new repository, a worktree, a clone.
func TestCreatedNames(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		repository(t, b)
		b.host(t, "git checkout -q -b other; mkdir -p .github/workflows; echo on > .github/workflows/ci.yml; echo x > sub/.envrc; git add -f .; git commit -qm other; git checkout -q main")
		for _, c := range []struct {
			command string
			taken   []string
		}{
			{"echo x > .envrc", []string{".envrc"}},
			{"mkdir -p n/e/w; echo x > n/e/w/.envrc; mkdir n/.vscode; echo x > n/.vscode/tasks.json", []string{"n/.vscode", "n/e/w/.envrc"}},
			{"ln -s /etc/passwd .mcp.json", []string{".mcp.json"}},
			{"mkdir t; mkdir t/.claude; mv t t2", []string{"t2/.claude"}},
			{"echo x > sub/.envrc; (sleep 0.1; echo y > sub/.envrc) & sleep 0.2", []string{"sub/.envrc"}},
			{"echo x > plain; mkdir -p node_modules/x; echo x > node_modules/x/.envrc", nil},
			{"git checkout -q other", nil},
			{"cd sub && echo x > y && rm y", nil},
			{"git init -q fresh && cd fresh && echo x > x && git add x && git -c user.name=t -c user.email=t@l commit -qm x", nil},
			{"git clone -q fresh clone", nil},
			{"git worktree add -q -b wt2 wt2 && git -C wt2 status", nil},
		} {
			r := b.run(t, widest, c.command)
			var taken []string
			for _, created := range r.Created {
				taken = append(taken, created.Path)
				if _, err := os.Lstat(filepath.Join(b.project, created.Path)); err == nil {
					t.Errorf("%s: %s is still there", c.command, created.Path)
				}
				at := created.To
				if !filepath.IsAbs(at) {
					at = filepath.Join(b.project, at)
				}
				if _, err := os.Lstat(at); err != nil {
					t.Errorf("%s: is not where it was put: %v", created.Path, err)
				}
				os.RemoveAll(at)
			}
			if r.ExitCode != 0 || !slices.Equal(taken, c.taken) || r.Exposed != "" {
				t.Errorf("%s: %s: status %d, taken %v, want %v, exposed %q\n%s", b.caller.Name, c.command, r.ExitCode, taken, c.taken, r.Exposed, r.err)
			}
		}
		if out := b.host(t, "git -C fresh status --porcelain; git -C clone log --oneline | wc -l; git -C wt2 status --porcelain; git status --porcelain | grep -v '^??' || true"); out != "1\n" {
			t.Errorf("%s: the repositories afterwards:\n%s", b.caller.Name, out)
		}
	})
}

// TestReplacedName proves that a run ends when somebody on the host replaces a
// file that is held, and that the outcome names it; and that it is held again
// for the next.
func TestReplacedName(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		repository(t, b)
		for name, replace := range map[string]string{
			".git/config": "git config user.name host", ".env": "echo SECRET=2 > e; mv e .env", "sub/.claude": "mv sub/.claude sub/c; mv sub/c sub/.claude",
		} {
			started := make(chan struct{})
			go func() {
				<-started
				time.Sleep(50 * time.Millisecond)
				b.host(t, replace)
			}()
			begin := time.Now()
			r := b.do(t, widest, "sleep 100", func(r *Request) { r.Timeout = 2 * time.Minute; r.Started = func(Receipt) { close(started) } })
			if r.Ended != EndedExposed || r.Exposed != name || time.Since(begin) > 40*time.Second {
				t.Errorf("%s: %s: ended by %q, exposed %q, after %v", b.caller.Name, name, r.Ended, r.Exposed, time.Since(begin))
			}
			if r := b.run(t, widest, fmt.Sprintf("echo x >> %s || cat %s", name, name)); strings.Contains(r.out, "SECRET") || r.Exposed != "" {
				t.Errorf("%s: afterwards: %q, %q", name, r.out, r.Exposed)
			}
		}
		if out := b.host(t, "cat .env; git config user.name"); out != "SECRET=2\nhost\n" {
			t.Errorf("%s: the host has %q", b.caller.Name, out)
		}
	})
}

// TestLeftLocks proves that the locks of a git that was killed are named.
func TestLeftLocks(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		repository(t, b)
		r := b.run(t, widest, "touch .git/index.lock; kill -9 $$")
		if !slices.Equal(r.Left, []string{".git/index.lock"}) {
			t.Errorf("%s: left %v", b.caller.Name, r.Left)
		}
		b.host(t, "rm .git/index.lock")
		if r := b.run(t, widest, "git add a"); len(r.Left) > 0 {
			t.Errorf("%s: left %v", b.caller.Name, r.Left)
		}
	})
}

// TestIndexEntries compares what is read of git's index with what git says.
func TestIndexEntries(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		for _, version := range []string{"2", "3", "4"} {
			box := b
			box.project = newProject(t, b.caller, filepath.Dir(b.project))
			box.host(t, "git init -q .; for i in $(seq 60); do mkdir -p d$i/e; echo $i > d$i/e/f$i; echo x > long-$i-name; done; git add .; echo n > new; git add -N new; git update-index --index-version "+version)
			data, err := os.ReadFile(filepath.Join(box.project, ".git/index"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := indexEntries(data, func(string) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for line := range strings.Lines(box.host(t, "git ls-files -s")) {
				fields := strings.Fields(line)
				n++
				if got[fields[3]] != fields[1] {
					t.Errorf("version %s: %s is %s, want %s", version, fields[3], got[fields[3]], fields[1])
				}
			}
			if n != len(got) || n != 121 {
				t.Errorf("version %s: %d entries, git has %d", version, len(got), n)
			}
		}
	})
}

// TestGitConfigReading compares what is read of a configuration with what git
// reads.
func TestGitConfigReading(t *testing.T) {
	const text = "# c\n[core]\n\tbare = false ; c\n\teditor = \"a b\" # c\n[remote \"o\\\"x\"]\n\turl = https://h/p \n\tfetch=+a:b\n[Alias] x = \"!f() { \\\"$@\\\"; }; f\"\n\tboth = one\\\ntwo\n\tflag\n[a.b]\n  c-d = 1\n"
	settings, err := parseGitConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&got, "%s=%s\n", s.name, s.value)
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "--file", file, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(string(out), "alias.flag\n", "alias.flag=\n", 1); got.String() != want {
		t.Errorf("read\n%s\ngit reads\n%s", got.String(), want)
	}
	for _, bad := range []string{"[core", "x = 1", "[core]\n= 1", "[core \"x]\n"} {
		if s, err := parseGitConfig([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, s)
		}
	}
}
