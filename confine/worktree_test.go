package confine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linked makes a repository with two linked work trees beside it, and returns
// boxes whose project is the first of those, and the repository itself.
func linked(t *testing.T, b box) (tree, repository box) {
	t.Helper()
	parent := newProject(t, b.caller, b.caller.Home)
	tree, repository = b, b
	tree.project, repository.project = filepath.Join(parent, "tree"), filepath.Join(parent, "repository")
	b.project = parent
	b.host(t, `git init -q -b main repository; cd repository
echo a > a; mkdir .vscode; echo '{}' > .vscode/settings.json; git add -A; git commit -qm first; git branch topic
git worktree add -q -b tree ../tree; git worktree add -q -b other ../other`)
	return tree, repository
}

const commit = "git -c user.name=t -c user.email=t@localhost commit -q"

// TestLinkedWorktree proves that git works in a project that is a linked work
// tree, and that nothing that steers git can be changed there: in the repository
// that it belongs to, in its own part of that, in the other work trees.
func TestLinkedWorktree(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		tree, repository := linked(t, b)
		r := tree.run(t, widest, "git status --porcelain && echo x > n && git add n && "+commit+" -m second && git switch -q topic && git switch -q tree && echo y > a && git stash -q && git stash pop -q && git checkout -q -- a && git log --format=%s && git status --porcelain")
		if r.ExitCode != 0 || r.out != "second\nfirst\n" || len(r.Created) > 0 {
			t.Errorf("%s: %d %q %q %v", b.caller.Name, r.ExitCode, r.out, r.err, r.Created)
		}
		if log := tree.host(t, "git log --format=%s; git status --porcelain; git -C ../repository log --format=%s tree"); log != "second\nfirst\nsecond\nfirst\n" {
			t.Errorf("%s: on the host: %q", b.caller.Name, log)
		}
		if r := tree.run(t, pinned(t, "git"), "git log --format=%s -1; git -c user.name=t -c user.email=t@l commit --allow-empty -m x"); r.out != "second\n" || r.ExitCode == 0 {
			t.Errorf("%s: read-only: %d %q %q", b.caller.Name, r.ExitCode, r.out, r.err)
		}
		const all = "cd ..; find repository/.git -type f ! -name index ! -path '*/logs/*' ! -name COMMIT_EDITMSG | sort | xargs sha256sum; find repository/.git | sort | grep -v -e objects/ -e COMMIT_EDITMSG"
		before := tree.host(t, all)
		git := filepath.Join(repository.project, ".git")
		for _, attack := range []string{
			"echo x >> GIT/config", "rm GIT/config", "git config core.fsmonitor x", "echo x > GIT/hooks/post-checkout", "rm -r GIT/hooks", "mv GIT/hooks GIT/h", "mv GIT GIT2",
			"echo x > GIT/info/exclude", "mkdir -p GIT/objects/info && echo /tmp > GIT/objects/info/alternates", "rm -r GIT/objects/info", "mv GIT/objects/info GIT/objects/i",
			"echo x > GIT/worktrees/tree/commondir", "rm GIT/worktrees/tree/commondir", "mv GIT/worktrees/tree/gitdir GIT/worktrees/tree/g", "echo x > GIT/worktrees/other/HEAD",
			"rm -r GIT/worktrees/other", "echo x > GIT/packed-refs", "echo x > GIT/HEAD", "echo x > GIT/x", "echo x > .git", "rm .git", "mv GIT/worktrees/tree GIT/worktrees/t", "git worktree prune && false",
			"cat ../repository/a", "echo x > ../other/x", "echo '{}' > .vscode/new",
		} {
			if r := tree.run(t, widest, strings.ReplaceAll(attack, "GIT", git)); r.ExitCode == 0 {
				t.Errorf("%s: %q succeeded: %s", b.caller.Name, attack, r.out)
			}
		}
		for _, name := range []string{"config.worktree", "modules", "hooks"} {
			r := tree.run(t, widest, "mkdir -p "+git+"/worktrees/tree/"+name)
			if r.ExitCode != 0 || len(r.Created) != 1 || r.Created[0].Path != git+"/worktrees/tree/"+name {
				t.Errorf("%s: %s: %d %q %v", b.caller.Name, name, r.ExitCode, r.err, r.Created)
			}
		}
		if after := tree.host(t, all); after != before {
			t.Errorf("%s: it is\n%s\nand was\n%s", b.caller.Name, after, before)
		}
		// The repository's other work trees are there for its own git, too.
		if r := repository.run(t, widest, "git worktree prune -v; git worktree list | wc -l"); r.ExitCode != 0 || r.out != "3\n" {
			t.Errorf("%s: %d %q %q", b.caller.Name, r.ExitCode, r.out, r.err)
		}
		if list := repository.host(t, "git worktree list | wc -l"); list != "3\n" {
			t.Errorf("%s: work trees on the host: %s", b.caller.Name, list)
		}
		// One that is added while the session lasts.
		repository.host(t, "git worktree add -q ../late")
		if r := repository.run(t, widest, "git worktree prune; git worktree list | wc -l"); r.out != "4\n" {
			t.Errorf("%s: %q %q", b.caller.Name, r.out, r.err)
		}
		// One that is moved, to beneath another.
		repository.host(t, "git worktree move ../late ../other/late")
		if r := repository.run(t, widest, "git worktree prune; git worktree list | wc -l"); r.out != "4\n" {
			t.Errorf("%s: %q %q", b.caller.Name, r.out, r.err)
		}
		tree.host(t, "rm -r "+git+"/objects/info")
		r = tree.run(t, widest, "mkdir "+git+"/objects/info; echo /tmp > "+git+"/objects/info/alternates")
		if _, err := os.Lstat(git + "/objects/info"); err == nil || len(r.Created) != 1 {
			t.Errorf("%s: objects/info stays: %v, %v", b.caller.Name, err, r.Created)
		}
	})
}

// TestForgedGitFile proves that a file ".git" opens nothing that does not name
// the project back.
func TestForgedGitFile(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		tree, repository := linked(t, b)
		git := filepath.Join(repository.project, ".git")
		forged := b
		forged.project = newProject(t, b.caller, b.caller.Home)
		for name, make := range map[string]string{
			"another's own directory": "echo 'gitdir: GIT/worktrees/tree' > .git",
			"the repository":          "echo 'gitdir: GIT' > .git",
			"a link":                  "ln -s TREE/.git .git",
			"a directory of its own":  "mkdir -p w/worktrees/x; echo GIT > w/worktrees/x/commondir; echo $PWD/.git > w/worktrees/x/gitdir; echo 'gitdir: '$PWD/w/worktrees/x > .git",
			"the root":                "echo 'gitdir: /' > .git",
			"a device":                "echo 'gitdir: /dev/zero' > .git",
		} {
			forged.host(t, "rm -rf .git w; "+strings.NewReplacer("GIT", git, "TREE", tree.project).Replace(make))
			r := forged.run(t, pinned(t, "ls", "cat"), "cat "+git+"/config; ls "+git)
			if strings.Contains(r.out, "core") || strings.Contains(r.out, "HEAD") {
				t.Errorf("%s: %s: %q", b.caller.Name, name, r.out)
			}
		}
		// A repository that names a work tree which is none shows nothing of it.
		secret := filepath.Join(filepath.Dir(repository.project), "other", ".git")
		if err := os.Remove(secret); err != nil {
			t.Fatal(err)
		}
		writeFile(t, b.caller, secret, "SECRET", 0o644)
		if r := repository.run(t, pinned(t, "cat"), "cat "+secret); r.out != "" {
			t.Errorf("%s: %q", b.caller.Name, r.out)
		}
	})
}

// TestNestedWorktreesAreShown: each is there for git, in whatever order they come.
func TestNestedWorktreesAreShown(t *testing.T) {
	others := map[string]string{}
	for _, dir := range []string{"/home/u/wt", "/home/u/wt/a", "/home/u/wt/a/b", "/home/u/x"} {
		others[dir+"/.git"] = "gitdir: x\n"
	}
	for range 20 {
		b := &base{made: map[string]bool{"/home/u": true}}
		gitLinks{others: others}.show(b)
		files := 0
		for _, o := range b.ops {
			if o.kind == opFile {
				files++
			}
		}
		if files != len(others) {
			t.Fatalf("%d of %d are shown", files, len(others))
		}
	}
}
