package suite

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
)

// TestUsers: several users, of whom one asks and another approves.
func TestUsers(t *testing.T) {
	if kernelABI() == 0 {
		t.Skip("this kernel has no Landlock: nothing runs")
	}
	alice, carol := who(t, "alice"), who(t, "carol")
	if out, err := exec.Command("usermod", "-aG", "pinfold", "bob").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bob := who(t, "bob")
	dir := alice.project(t)
	const asked = "find . -name gone -delete"

	row(t, "users", "nobody to ask", func(t *testing.T) string {
		if a := system.run(t, alice, dir, asked); errorCode(a) != "APPROVAL_REQUIRED" {
			t.Fatal(a)
		}
		return "APPROVAL_REQUIRED"
	})
	row(t, "users", "approved by another user", func(t *testing.T) string {
		alice.write(t, dir+"/gone", "x")
		asking, id := ask(t, alice, bob, dir, asked)
		for _, p := range []person{alice, carol} {
			if out, err := decide(p, "allow", id); err == nil {
				t.Errorf("%s could approve: %s", p.name, out)
			}
		}
		if !exists(dir + "/gone") {
			t.Error("it ran before it was approved")
		}
		if out, err := decide(bob, "allow", id); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if a := asking(); a.exit != 0 || exists(dir+"/gone") {
			t.Fatal(a)
		}
		return "bob's yes runs it; alice's own and carol's are refused"
	})
	row(t, "users", "denied by another user", func(t *testing.T) string {
		alice.write(t, dir+"/gone", "x")
		asking, id := ask(t, alice, bob, dir, asked)
		if out, err := decide(bob, "deny", id, "--reason", "not today"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if a := asking(); errorCode(a) != "APPROVAL_DENIED" || !exists(dir+"/gone") {
			t.Fatal(a)
		}
		return "APPROVAL_DENIED, nothing ran"
	})
	row(t, "users", "another's project and trace", func(t *testing.T) string {
		c := carol.command("/", "pinfold", "run", "--json", "--no-stdin", "--socket", system.socket, "--project", dir, "--", "echo x")
		if a := read(t, c); a.Error == nil {
			t.Error(a)
		}
		out, err := carol.command("/", "pinfold", "trace", "--socket", system.socket, "--json").Output()
		if err != nil || strings.Contains(string(out), dir) && strings.Contains(string(out), asked) {
			t.Errorf("%v: %s", err, out)
		}
		if _, err := carol.command("/", "cat", "/var/lib/pinfold/trace.ndjson").Output(); err == nil {
			t.Error("carol reads the trace")
		}
		return "are refused"
	})
	row(t, "users", "at once", func(t *testing.T) string {
		const each = 5 // one after another: an emulated processor is slow
		var users sync.WaitGroup
		for _, p := range []person{alice, bob, carol} {
			own := p.project(t)
			users.Go(func() {
				for range each {
					if a := system.run(t, p, own, "id -u"); a.Stdout != fmt.Sprintln(p.uid) {
						t.Errorf("%s: %v", p.name, a)
					}
				}
			})
		}
		users.Wait()
		return fmt.Sprintf("%d commands of each of 3 users, as who asked", each)
	})
}

// ask begins a request that waits, and returns its end and its approval's id.
func ask(t *testing.T, p, approver person, dir, text string) (end func() answer, id string) {
	t.Helper()
	c := p.command(dir, "pinfold", "run", "--json", "--no-stdin", "--socket", system.socket, "--project", dir, "--", text)
	ended := make(chan answer, 1)
	go func() { ended <- read(t, c) }()
	waitFor(t, 30*time.Second, "the question", func() bool {
		out, err := approver.command("/", "curl", "-sS", "--unix-socket", "/run/pinfold/control.sock", "http://pinfold/v1/approvals").Output()
		if err != nil {
			return false
		}
		var list api.ApprovalList
		decode(t, out, &list)
		for _, a := range list.Approvals {
			if a.Caller.UID == p.uid && a.State == "pending" {
				id = a.ID
			}
		}
		return id != ""
	})
	return func() answer { return <-ended }, id
}

func decide(p person, verb, id string, flags ...string) (string, error) {
	words := append([]string{"pinfold", "approvals", verb, "--socket", system.socket}, flags...)
	out, err := p.command("/", append(words, id)...).CombinedOutput()
	return string(out), err
}

// TestTools: ordinary work, as agents ask for it.
func TestTools(t *testing.T) {
	alice := who(t, "alice")
	work := []struct{ name, text, want string }{
		{"files", "mkdir -p sub && printf 'b\\na\\n' > sub/f && sort sub/f | head -1", "a\n"},
		{"search", "grep -rn a sub | cut -d: -f1,2 && find . -name f -type f", "sub/f:2\n./sub/f\n"},
		{"edit", "sed -i s/a/c/ sub/f && cat sub/f", "b\nc\n"},
		{"git", "git log --oneline | wc -l && git status --short", "1\n?? sub/\n"},
		{"python", "python3 -c 'import json, ssl, sqlite3, ctypes; print(json.dumps([1]))'", "[1]\n"},
		{"make and C", "make -s run", "hello\n"},
		{"pipes and jobs", "for i in 1 2 3; do echo $i & done | sort; wait", "1\n2\n3\n"},
		{"text tools", "awk '{n += $1} END {print n}' <<< $'1\\n2' && jq -r .a <<< '{\"a\": 3}'", "3\n3\n"},
	}
	for _, d := range daemons(t, alice) {
		dir := alice.project(t)
		alice.write(t, dir+"/hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n")
		alice.write(t, dir+"/Makefile", "run: hello\n\t./hello\n")
		for _, words := range [][]string{{"add", "."}, {"-c", "user.name=alice", "-c", "user.email=alice@example.org", "commit", "-qm", "one"}} {
			if out, err := alice.command(dir, append([]string{"git"}, words...)...).CombinedOutput(); err != nil {
				t.Fatalf("git %s: %v: %s", words[0], err, out)
			}
		}
		row(t, "ordinary tools", d.name+" daemon", func(t *testing.T) string {
			for _, w := range work {
				if a := d.run(t, alice, dir, w.text, "--timeout", "100s"); a.Stdout != w.want || a.exit != 0 {
					t.Errorf("%s: %v", w.name, a)
				}
			}
			var names []string
			for _, w := range work {
				names = append(names, w.name)
			}
			return strings.Join(names, ", ")
		})
	}
}
