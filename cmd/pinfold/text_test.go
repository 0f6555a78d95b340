package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
)

// TestQuote asks bash what the quoted words mean.
func TestQuote(t *testing.T) {
	words := []string{"", "a", "a b", "it's", `"`, "$HOME", "`id`", "*", "~", "-n", "a=b", "#", "!", "{a,b}", "\\", "a\nb", "\t", "if", "done", "é", "(", ";", "&&", "[", "%s", "\x01"}
	// The words are operands, so that keywords are no syntax: first words are checked below.
	out, err := exec.Command("bash", "-c", `for w in `+quoteAll(words)+`; do printf '%s\0' "$w"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); strings.Join(got, "|") != strings.Join(words, "|") {
		t.Errorf("got %q, want %q", got, words)
	}
	for _, word := range []string{"if", "coproc", "a=b", "!", "{", "[["} {
		out, _ := exec.Command("bash", "-c", quoteAll([]string{word, "x"})).CombinedOutput()
		if !strings.Contains(string(out), "command not found") {
			t.Errorf("%s is not taken for the name of a command: %s", word, out)
		}
	}
	if got := quoteAll([]string{"git", "log", "--format=%h", "-3"}); got != "git log '--format=%h' -3" {
		t.Errorf("got %s", got)
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 😀":  "plain é 😀",
		"a\x1b[31mb": `a\x1b[31mb`,
		"a\nb\tc":    `a\nb\tc`,
		"\u202egnp":  `\u202egnp`,
		"a\u200bb":   `a\u200bb`,
		"\xff":       `\xff`,
		"\ufffd":     "\ufffd",
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestPointAt(t *testing.T) {
	for _, c := range []struct {
		command string
		at      api.At
		want    string
	}{
		{"ls | curl x", api.At{Line: 1, Column: 6, Text: "curl x"}, "  | ls | curl x\n  |      ^^^^^^\n"},
		{"é\tcurl", api.At{Line: 1, Column: 4, Text: "curl"}, "  | é\\tcurl\n  |    ^^^^\n"},
		{"a\nb curl\nc", api.At{Line: 2, Column: 3, Text: "curl"}, "  | b curl\n  |   ^^^^\n"},
		{"if", api.At{Line: 1, Column: 3}, "  | if\n  |   ^\n"},
		{"if", api.At{Line: 1, Column: 30}, "  | if\n  |   ^\n"},
		{"if", api.At{Line: 2, Column: 1}, ""},
		{"if", api.At{}, ""},
		{strings.Repeat("x", 100) + "y" + strings.Repeat("z", 100), api.At{Line: 1, Column: 101, Text: "y"},
			"  | …" + strings.Repeat("x", 36) + "y" + strings.Repeat("z", 34) + "…\n  | " + strings.Repeat(" ", 37) + "^\n"},
	} {
		if got := pointAt(c.command, &c.at); got != c.want {
			t.Errorf("%q at %+v: got\n%swant\n%s", c.command, c.at, got, c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	e := &api.Error{Code: api.PermissionDenied, Message: "network\x1b client", Rule: "r", At: &api.At{Line: 1, Column: 1, Text: "curl"}, RecommendedAction: "stay"}
	want := "denied: network\\x1b client\n  | curl x\n  | ^^^^\n  at line 1, column 1 (rule r)\n  what to do: stay\n"
	if got := explain(e, "curl x"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestGrantInWords(t *testing.T) {
	got := grantInWords(&api.Grant{Write: []string{"src", "."}, Protected: []string{".git/hooks"}, Exec: []string{"/usr/bin/git", "/bin/bash", "/usr/bin/ls"}})
	want := "may write: src, the whole project (and the session's own /tmp)\nmay write, though protected: .git/hooks\nmay run:   bash, git, ls\nnetwork:   none\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := grantInWords(&api.Grant{ExecAny: true}); !strings.Contains(got, "any program") || !strings.Contains(got, "nothing in the project") || !strings.Contains(got, "loopback") {
		t.Errorf("got\n%s", got)
	}
}

func TestIsOlder(t *testing.T) {
	for _, c := range []struct {
		daemon, own string
		want        bool
	}{
		{"100-a", "100-a", false},
		{"100-a", "200-b", true},
		{"200-b", "100-a", false},
		{"100-a", "100-b", true}, // an edited tree
		{"dev", "100-a", true},
		{"", "dev", true},
		{"100-a", "dev", false},
	} {
		if got := isOlder(c.daemon, c.own); got != c.want {
			t.Errorf("daemon %s, own %s: got %v", c.daemon, c.own, got)
		}
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"30": 30 * time.Second, "0.5": 500 * time.Millisecond, "2m": 2 * time.Minute, "1h": time.Hour} {
		var s seconds
		if err := s.Set(text); err != nil || s.d != want {
			t.Errorf("%s: got %v, %v", text, s.d, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "2h", "x", "1e99", "NaN", "1us"} {
		var s seconds
		if err := s.Set(text); err == nil {
			t.Errorf("%s: got %v", text, s.d)
		}
	}
}

func TestProjectOf(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", filepath.Join(root, "home"))
	for _, dir := range []string{"home/repo/.git", "home/repo/a/b", "home/plain", "home/.git"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "home/repo/a/.git"), []byte("gitdir: x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"home/repo":     "home/repo",
		"home/repo/a":   "home/repo/a",
		"home/repo/a/b": "home/repo/a",
		"home/plain":    "home/plain", // a repository in the home is not meant
	} {
		if got, err := projectOf("", filepath.Join(root, dir)); err != nil || got != filepath.Join(root, want) {
			t.Errorf("%s: got %s, %v", dir, got, err)
		}
	}
	if got, err := projectOf("/x/../y", "/z"); err != nil || got != "/y" {
		t.Errorf("got %s, %v", got, err)
	}
	for _, c := range [][3]string{{"/p", "/p", ""}, {"/p", "/p/a/b", "a/b"}, {"/p", "/q", ""}, {"/p", "/pq", ""}} {
		if got := relative(c[0], c[1], false); got != c[2] {
			t.Errorf("%s in %s: got %s", c[1], c[0], got)
		}
	}
}
