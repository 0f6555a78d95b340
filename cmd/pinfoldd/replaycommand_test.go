package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReplay replays decisions under a policy that allows more and asks more,
// with records that cannot be replayed among them.
func TestReplay(t *testing.T) {
	site := filepath.Join(t.TempDir(), "site.toml")
	if err := os.WriteFile(site, []byte(`[[rule]]
id = "no-ls"
verdict = "require_approval"
command = "ls"
risk = "low"
reason = "not here"
match = ["ls"]
not_match = ["cat a"]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := newReplay("", site)
	if err != nil {
		t.Fatal(err)
	}
	record := func(command, verdict, more string) string {
		return fmt.Sprintf(`{"event":"decided","args":{"command":%q},"policy_decision":%q,"project":"/srv/none","cwd":"."%s}`+"\n", command, verdict, more)
	}
	lines := record("ls", "allow", "") + record("cat a", "allow", "") + record("sudo ls", "deny", "") +
		record("echo [REDACTED:value]", "allow", `,"redacted":true`) + record("ls", "deny", "") + record("'x", "deny", "")
	if err := r.read(strings.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	if r.decisions != 6 || r.redacted != 1 || r.untrue != 1 || r.approvals != 1 || len(r.changes) != 1 || !strings.Contains(r.summary(), "now require_approval by no-ls") {
		t.Errorf("got %s, %+v", r.summary(), r)
	}
	start := time.Now()
	if err := r.read(strings.NewReader(strings.Repeat(lines, 1000))); err != nil {
		t.Fatal(err)
	}
	t.Logf("6,000 decisions in %v", time.Since(start))
}
