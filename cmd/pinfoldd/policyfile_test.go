package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

// policyDir returns a directory in which a policy may lie.
func policyDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pinfold-policy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A policy that somebody else can write, or could put there, is not taken.
func TestPolicyOfOthers(t *testing.T) {
	for _, row := range []struct {
		what string
		make func(dir, file string) error
		want string // "" for a good one
	}{
		{"good", func(_, _ string) error { return nil }, ""},
		{"group writes", func(_, file string) error { return os.Chmod(file, 0o664) }, "the file of a policy must not be writable by others, but has mode 0664; chmod go-w it"},
		{"others write", func(_, file string) error { return os.Chmod(file, 0o646) }, "must not be writable by others"},
		{"directory", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, "the directory of a policy must not be writable by others, but has mode 0777"},
		{"sticky directory", func(dir, _ string) error { return os.Chmod(dir, os.ModeSticky|0o777) }, ""},
		{"another's", func(_, file string) error { return os.Chown(file, 4242, 4242) }, "but belongs to uid 4242"},
		{"another's directory", func(dir, _ string) error { return os.Chown(dir, 4242, 4242) }, "the directory of a policy must belong to root"},
		{"no plain file", func(_, file string) error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return os.Mkdir(file, 0o755)
		}, "is no plain file"},
		{"too long", func(_, file string) error {
			return os.WriteFile(file, bytes.Repeat([]byte("#\n"), maxPolicyFile), 0o644)
		}, "is longer than 1 MiB"},
		{"missing", func(_, file string) error { return os.Remove(file) }, "no such file"},
	} {
		t.Run(row.what, func(t *testing.T) {
			dir := policyDir(t)
			file := filepath.Join(dir, "policy.toml")
			if err := os.WriteFile(file, []byte(`profile = "workspace"`), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, 0o644); err != nil { // whatever the umask
				t.Fatal(err)
			}
			if err := row.make(dir, file); err != nil {
				if os.IsPermission(err) {
					t.Skip("only root can give files away")
				}
				t.Fatal(err)
			}
			_, err := readOwned(file, "policy")
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}

// A file that is missing is the built-in policy, unless it was named.
func TestPolicyMissing(t *testing.T) {
	builtin, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	file := policyFile{path: filepath.Join(policyDir(t), "policy.toml")}
	if p, err := file.load(); err != nil || p.Hash() != builtin.Hash() {
		t.Errorf("got %v", err)
	}
	file.required = true
	if _, err := file.load(); err == nil {
		t.Error("a file that was named and is missing is taken")
	}
}

// No root of the site's may show commands what is the daemon's own.
func TestPolicyRoots(t *testing.T) {
	dir := policyDir(t)
	file := policyFile{path: filepath.Join(dir, "etc", "policy.toml"), state: filepath.Join(dir, "state"), sockets: filepath.Join(dir, "run")}
	for _, sub := range []string{"etc", "state/cache", "shared", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for root, good := range map[string]bool{"shared": true, "run": false, "": false, "etc": false, "state": false, "state/cache": false} {
		for _, key := range []string{"readable", "writable"} {
			text := key + " = ['" + filepath.Join(dir, root) + "']"
			if err := os.WriteFile(file.path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := file.load(); (err == nil) != good {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// TestReload: a good file takes the place of the old policy; a bad one leaves
// it, and the log and the trace say where it is wrong.
func TestReload(t *testing.T) {
	dir := policyDir(t)
	manager, err := confine.New(confine.Config{StateDir: dir})
	if err != nil {
		t.Skip(err) // where nothing can be confined there is no daemon
	}
	defer manager.Close()
	records, _, err := trace.Open(trace.Options{Path: filepath.Join(dir, "trace.ndjson"), Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	var logged bytes.Buffer
	var inForce *policy.Policy
	var wrongConfig error
	s := &siteRules{set: func(p *policy.Policy) { inForce = p }, file: policyFile{path: filepath.Join(dir, "policy.toml")}, manager: manager, records: records, log: log.New(&logged, "", 0),
		again: func() (confine.Bounds, error) { return confine.Bounds{}, wrongConfig }}
	first, err := s.file.load()
	if err != nil {
		t.Fatal(err)
	}
	s.adopt(first)
	reload := func(text string, mode os.FileMode, want string) {
		t.Helper()
		if err := os.WriteFile(s.file.path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(s.file.path, mode); err != nil {
			t.Fatal(err)
		}
		logged.Reset()
		answer, err := s.reload()
		if wrong := strings.Contains(want, ":") || strings.HasPrefix(want, "must"); (err != nil) != wrong || answer.Policy != s.hash || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", text, answer, err)
		}
		if !strings.Contains(logged.String(), want) {
			t.Errorf("logged %q, want %q", logged.String(), want)
		}
	}
	reload(`profile = "workspace"`, 0o644, "reloaded, was ")
	if inForce == nil || inForce.Hash() == first.Hash() || s.hash != inForce.Hash() {
		t.Fatalf("in force: %+v", inForce)
	}
	good := inForce
	reload("\nprofile = 'lax'", 0o644, "policy.toml:2:12: unknown profile \"lax\": want default or workspace")
	reload("= x", 0o644, "policy.toml:1:")
	reload(`profile = "default"`, 0o666, "must not be writable by others")
	if inForce != good || s.hash != good.Hash() {
		t.Error("a bad file has taken the place of a good one")
	}
	wrongConfig = errors.New("pinfold.toml:1:1: nonsense")
	reload(`profile = "default"`, 0o644, "pinfold.toml:1:1: nonsense")
	if inForce != good {
		t.Error("a policy is taken though the configuration is bad")
	}
	wrongConfig = nil
	reload(`profile = "workspace"`, 0o644, "nothing has changed")
	data, err := os.ReadFile(filepath.Join(dir, "trace.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	var loads []trace.PolicyLoad
	for line := range bytes.Lines(data) {
		var l trace.PolicyLoad
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == trace.EventPolicy {
			loads = append(loads, l)
		}
	}
	if len(loads) != 6 || loads[0].Policy != first.Hash() || loads[1].Policy != good.Hash() || loads[1].Problem != "" ||
		loads[2].Policy != good.Hash() || !strings.Contains(loads[2].Problem, "policy.toml:2:12") {
		t.Errorf("recorded: %+v", loads)
	}
	if r, err := trace.Verify(bytes.NewReader(data)); err != nil || !r.OK() {
		t.Errorf("the trace: %+v, %v", r, err)
	}
}

func TestReadCommands(t *testing.T) {
	got, err := readCommands(strings.NewReader("ls\n\n  git log  \n{\"id\": \"A\", \"command\": \"echo x\\necho y\"}\n{ echo z; }\n"))
	if want := "ls|git log|echo x\necho y|{ echo z; }"; err != nil || strings.Join(got, "|") != want {
		t.Errorf("got %q, %v", got, err)
	}
}
