package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gitProject makes a repository with a protected file that differs between its
// branches: "feature" changes a workflow and adds one, "plain" does not.
const gitProject = `set -e
git init -q -b main .
git config user.name t; git config user.email t@localhost
mkdir -p .github/workflows src
echo one >.github/workflows/ci.yml; echo one >src/a; echo one >src/b
git add -A; git commit -qm first
git switch -qc feature
echo two >.github/workflows/ci.yml; echo new >.github/workflows/new.yml; echo two >src/a
git add -A; git commit -qm second
git switch -qc plain main
echo three >src/b; git commit -qam third
git switch -q main
`

// workspaceDaemon starts a daemon whose policy is the workspace profile.
func workspaceDaemon(t *testing.T) (*testDaemon, []*testCaller) {
	t.Helper()
	d := startDaemon(t)
	d.restart(t, "profile = \"workspace\"\n")
	return d, d.callers(t)
}

// TestGitHooks: the repository's own hooks run, wherever its configuration has
// them, with no more rights than other code of the project's, and one that fails
// stops the commit.
func TestGitHooks(t *testing.T) {
	_, callers := workspaceDaemon(t)
	for _, c := range callers {
		for _, row := range []struct{ setup, hooks string }{{"", ".git/hooks"}, {"git config core.hooksPath .husky/_; mkdir -p .husky/_; ", ".husky/_"}} {
			hook := "git config user.name t; git config user.email t@localhost; " + row.setup + "printf '#!/bin/sh\\ntouch hooked; echo x >.git/config; test ! -e fail\\n' >" + row.hooks + "/pre-commit; chmod +x " + row.hooks + "/pre-commit"
			if out, err := c.command("bash", "-c", hook).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, problems, status := c.pinfold("run", "--unattended", "git commit -q --allow-empty -m hooked; git log -1 --format=%s; touch fail; git commit -q --allow-empty -m failed; git log -1 --format=%s")
			if status != 0 || out != "hooked\nhooked\n" || strings.Count(problems, ".git/config") != 2 {
				t.Errorf("%s: %s: status %d\n%s%s", c.name, row.hooks, status, out, problems)
			}
			if out, err := c.command("bash", "-c", "rm hooked fail; git config user.name").CombinedOutput(); err != nil || string(out) != "t\n" {
				t.Errorf("%s: %s: %v %s", c.name, row.hooks, err, out)
			}
		}
	}
}

// TestGitAllOrNothing runs git commands that rewrite the work tree, under the
// workspace profile. Where one would change a protected file it is asked about
// and nothing has changed; with a yes, or where it would not, the project ends up
// as the host's own git leaves it.
func TestGitAllOrNothing(t *testing.T) {
	rows := []struct {
		name, setup, command string
		verdict              string // "allow"; "protected", where a protected file is asked about; "ask", where something else is
	}{
		{"switch", "", "git switch feature", "protected"},
		{"switch to what is alike", "", "git switch plain", "allow"},
		{"switch back", "git switch -q feature; git switch -q main", "git switch -", "protected"},
		{"new branch", "", "git switch -c topic", "allow"},
		{"new branch elsewhere", "", "git checkout -b topic feature", "protected"},
		{"checkout", "", "git checkout feature", "protected"},
		{"checkout of what is alike", "", "git checkout plain", "ask"},
		{"checkout of a path", "echo x >.github/workflows/ci.yml", "git checkout -- .github", "protected"},
		{"checkout of another path", "echo x >src/a; echo x >.github/workflows/ci.yml", "git checkout -- src", "ask"},
		{"restore", "echo x >.github/workflows/ci.yml", "git restore .", "protected"},
		{"restore from a branch", "", "git restore --source=feature .", "protected"},
		{"merge", "", "git merge -q feature", "protected"},
		{"merge of what is alike", "", "git merge -q plain", "allow"},
		{"cherry-pick", "", "git cherry-pick feature", "protected"},
		{"cherry-pick of what is alike", "", "git cherry-pick plain", "allow"},
		{"revert", "git switch -q feature", "git revert --no-edit HEAD", "protected"},
		{"rebase", "git switch -q plain", "git rebase -q feature", "protected"},
		{"rebase of what changes it", "git switch -q feature", "git rebase -q plain", "protected"},
		{"reset", "", "git reset -q --hard feature", "protected"},
		{"reset of a change", "echo x >src/a", "git reset -q --hard", "ask"},
		{"stash", "echo x >.github/workflows/ci.yml; echo x >src/a", "git stash -q", "protected"},
		{"stash of what is alike", "echo x >src/a", "git stash -q", "allow"},
		{"stash pop", "echo x >.github/workflows/ci.yml; git stash -q", "git stash pop -q", "protected"},
		{"patch", "git diff main feature >p", "git apply p", "protected"},
		{"patch of what is alike", "git diff main plain >p", "git apply p", "allow"},
		{"mailed patch", "git format-patch -q --stdout main..feature >p", "git am -q p", "protected"},
		{"below a directory", "", "cd src && git switch feature", "protected"},
		{"elsewhere", "", "git -C src switch -q feature", "protected"},
	}
	d, callers := workspaceDaemon(t)
	approver := callers[0]
	asker := callers[len(callers)-1]
	for i, row := range rows {
		if testing.Short() && i%5 != 0 {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			c := *asker
			c.project = filepath.Join(d.root, "git", strings.ReplaceAll(row.name, " ", "-"))
			git := func(dir, script string) string {
				t.Helper()
				cmd := c.command("bash", "-c", script)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				return string(out)
			}
			if err := os.MkdirAll(c.project, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.credential != nil {
				if err := os.Chown(filepath.Dir(c.project), int(c.credential.Uid), int(c.credential.Gid)); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(c.project, int(c.credential.Uid), int(c.credential.Gid)); err != nil {
					t.Fatal(err)
				}
			}
			git(c.project, gitProject+row.setup)
			const state = `git status --porcelain=v1 -b; git log --format=%s -5; git stash list; find . -path ./.git -prune -o -type f -print | sort | xargs sha256sum`
			before := git(c.project, state)
			git(filepath.Dir(c.project), "cp -a "+filepath.Base(c.project)+" "+filepath.Base(c.project)+".host")
			git(c.project+".host", row.command)
			want := git(c.project+".host", state)

			if row.verdict == "allow" {
				if out, problems, status := c.pinfold("run", "--unattended", row.command); status != exitOK {
					t.Fatalf("status %d\n%s%s", status, out, problems)
				}
			} else {
				shown, _, status := c.pinfold("check", row.command)
				if named := strings.Contains(shown, "writes a protected path: .github/workflows/"); status != exitAsk || named != (row.verdict == "protected") {
					t.Errorf("status %d\n%s", status, shown)
				}
				if _, problems, status := c.pinfold("run", "--unattended", row.command); status != exitRefused {
					t.Errorf("status %d\n%s", status, problems)
				}
				if after := git(c.project, state); after != before {
					t.Errorf("it was refused, and changed\n%sto\n%s", before, after)
				}
				if c.credential == nil {
					return // a user's own yes takes a terminal
				}
				client, out, id := c.asks(t, row.command)
				if _, problems, status := approver.pinfold("approvals", "allow", id); status != exitOK {
					t.Fatalf("allow: %s", problems)
				}
				if err := client.Wait(); err != nil {
					t.Errorf("the approved command: %v\n%s", err, out)
				}
			}
			if got := git(c.project, state); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
