package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/api"
)

// TestSessions proves with the real daemon and kernel what a session gives its
// commands, what it keeps from them, and that nothing of it is left.
func TestSessions(t *testing.T) {
	d := startDaemon(t)
	for _, c := range d.callers(t) {
		t.Run(c.name, func(t *testing.T) {
			open := func(args ...string) string {
				t.Helper()
				out, problems, status := c.pinfold(append([]string{"session", "open"}, args...)...)
				if status != exitOK {
					t.Fatalf("open %q: %s(%d)", args, problems, status)
				}
				return strings.TrimSpace(out)
			}
			ran := func(id, command string, status int, want string) {
				t.Helper()
				out, problems, got := c.pinfold("run", "--session", id, command)
				if got != status || !strings.Contains(out+problems, want) {
					t.Errorf("%s: status %d, want %d with %q in\n%s%s", command, got, status, want, out, problems)
				}
			}
			s := open("--env", "STAGE=a b", "--runs", "6")
			ran(s, `python3 -c 'import os; open(os.environ["TMPDIR"] + "/mine", "w").write("[" + os.environ["STAGE"] + "]")'; pwd`, exitOK, c.project)
			list := `python3 -c 'import os; print(os.listdir(os.environ["TMPDIR"]), os.environ.get("STAGE"))'`
			ran(s, list, exitOK, "['mine'] a b")
			for _, other := range [][]string{{"run", list}, {"run", "--session", open(), list}} {
				if out, problems, status := c.pinfold(other...); status != exitOK || out != "[] None\n" {
					t.Errorf("%q: its /tmp is another's: %s%s", other, out, problems)
				}
			}

			readOnly := open("--read-only", "--disable", "git log")
			ran(readOnly, "echo x > made", exitRefused, "the session is read-only")
			ran(readOnly, "git log", exitRefused, "is disabled in this session")
			ran(readOnly, "git status --short", exitOK, "")
			ran(readOnly, "python3 -c 'open(\"made\", \"w\")'", 1, "Read-only file system")
			ran(readOnly, "python3 -c 'import os; open(os.path.expanduser(\"~/.cache/made\"), \"w\")'", 1, "Error")
			ran(readOnly, `python3 -c 'import os; open(os.environ["TMPDIR"] + "/sorted", "w")'`, exitOK, "")
			if _, err := os.Stat(filepath.Join(c.project, "made")); err == nil {
				t.Error("it was made")
			}

			background, problems, status := c.pinfold("run", "--session", s, "--background", "sleep 300")
			if status != exitOK {
				t.Fatalf("background: %s", problems)
			}
			batch := c.command(filepath.Join(bin, "pinfold"), "session", "batch", "--json", s)
			batch.Stdin = strings.NewReader("cat foo.go\necho y > made\ncat made\n")
			out, err := batch.Output()
			var answer api.BatchAnswer
			if err != nil || json.Unmarshal(out, &answer) != nil || len(answer.Results) != 3 || answer.Results[2].Result == nil || answer.Results[2].Result.Stdout != "y\n" {
				t.Errorf("batch: %s, %v", out, err)
			}
			ran(s, "true", exitRefused, "budget of runs is spent")
			if out, problems, status := c.pinfold("session", "show", s); status != exitOK || !strings.Contains(out, "6 of 6 runs") || !strings.Contains(out, "active:   1") {
				t.Errorf("show: %s%s", out, problems)
			}
			if out, problems, status := c.pinfold("session", "close", s); status != exitOK || !strings.Contains(out, "active:   0") {
				t.Errorf("close: %s%s", out, problems)
			}
			if out, _, _ := c.pinfold("runs", "show", strings.TrimSpace(background)); !strings.Contains(out, "interrupted") {
				t.Errorf("what ran in it: %s", out)
			}
			ran(s, "true", exitFailed, "no such session")
			if out, problems, status := c.pinfold("session", "list"); status != exitOK || strings.Contains(out, s) || !strings.Contains(out, readOnly) {
				t.Errorf("list: %s%s", out, problems)
			}
		})
	}
}
