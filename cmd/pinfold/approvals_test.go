package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asks starts a command that somebody has to approve, and returns the client,
// what it writes, and the approval's id.
func (c *testCaller) asks(t *testing.T, command string) (client *exec.Cmd, out *bytes.Buffer, id string) {
	t.Helper()
	client, out = c.command(filepath.Join(bin, "pinfold"), "run", command), &bytes.Buffer{}
	problems, err := os.CreateTemp("", "pinfold-asks-")
	if err != nil {
		t.Fatal(err)
	}
	defer problems.Close()
	name := problems.Name()
	t.Cleanup(func() { os.Remove(name) })
	client.Stdout, client.Stderr = out, problems
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Process.Kill() })
	eventually(t, "it waits for approval", func() bool {
		data, _ := os.ReadFile(name)
		_, rest, found := strings.Cut(string(data), "approvals show ")
		id = strings.TrimSpace(rest)
		return found && strings.HasSuffix(rest, "\n")
	})
	return client, out, id
}

// TestApprovals proves with real users and sockets that root's yes and no count,
// that who asked can neither see nor decide it, and another user neither; that an
// approval decides once; and what the approver is shown.
func TestApprovals(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("takes three users; a user's own daemon is TestApprovalsUser")
	}
	d := startDaemon(t)
	callers := d.callers(t)
	if len(callers) < 2 {
		t.Skip("there is no user " + testUser)
	}
	root, asker := callers[0], callers[1]
	stranger := &testCaller{name: "stranger", project: "/", daemon: d, credential: &syscall.Credential{Uid: 65534, Gid: 65534}}

	client, _, id := asker.asks(t, "mv foo.go bar.go")
	shown, problems, status := root.pinfold("approvals", "show", id[:20])
	for _, part := range []string{"mv foo.go bar.go", testUser, asker.project, "deletes or moves", "may write:", "pending"} {
		if !strings.Contains(shown, part) {
			t.Errorf("%q is not in\n%s%s(%d)", part, shown, problems, status)
		}
	}
	for _, other := range []*testCaller{asker, stranger} {
		for _, args := range [][]string{{"approvals"}, {"approvals", "allow", id}, {"halt"}} {
			if out, problems, status := other.pinfold(args...); status == exitOK || strings.Contains(out+problems, "foo.go") {
				t.Errorf("%s: %v: status %d\n%s%s", other.name, args, status, out, problems)
			}
		}
	}
	if _, problems, status := root.pinfold("approvals", "allow", id); status != exitOK {
		t.Fatalf("allow: %s", problems)
	}
	if err := client.Wait(); err != nil {
		t.Errorf("the approved command: %v", err)
	}
	if _, err := os.Stat(filepath.Join(asker.project, "bar.go")); err != nil {
		t.Errorf("it did not run: %v", err)
	}
	if _, problems, status := root.pinfold("approvals", "deny", id); status == exitOK || !strings.Contains(problems, "used already, by root") {
		t.Errorf("once more: status %d, %s", status, problems)
	}

	client, _, id = asker.asks(t, "mv bar.go baz.go")
	if _, problems, status := root.pinfold("approvals", "deny", "--reason", "keep it", id); status != exitOK {
		t.Fatalf("deny: %s", problems)
	}
	if _ = client.Wait(); client.ProcessState.ExitCode() != exitRefused {
		t.Errorf("the denied command: status %d", client.ProcessState.ExitCode())
	}
	if records := string(d.records(t)); !strings.Contains(records, `"act":"deny"`) || !strings.Contains(records, "keep it") || !strings.Contains(records, `"act":"start"`) {
		t.Errorf("the trace does not say it:\n%s", records)
	}

	client, _, id = root.asks(t, "mv foo.go bar.go")
	if _, problems, status := root.pinfold("approvals", "allow", id); status == exitOK || !strings.Contains(problems, "who asked cannot approve") {
		t.Errorf("root approves itself: status %d, %s", status, problems)
	}
	if _, problems, status := root.pinfold("halt"); status != exitOK {
		t.Errorf("halt: %s", problems)
	}
	if err := client.Wait(); err == nil {
		t.Error("a command that waited ran after a halt")
	}
	if _, problems, status := asker.pinfold("run", "true"); status != exitFailed || !strings.Contains(problems, "stopped everything") {
		t.Errorf("halted: status %d, %s", status, problems)
	}
	if _, problems, status := root.pinfold("resume"); status != exitOK {
		t.Errorf("resume: %s", problems)
	}
	if _, problems, status := asker.pinfold("run", "true"); status != exitOK {
		t.Errorf("resumed: status %d, %s", status, problems)
	}
}

// TestApprovalsSandbox proves that no command reaches the daemon: its sockets do
// not exist in the sandbox, by no path and no descriptor.
func TestApprovalsSandbox(t *testing.T) {
	d := startDaemon(t)
	for _, c := range d.callers(t) {
		const try = `import os, socket, sys
found = [s for s in sys.argv[1:] if os.path.exists(s)]
for s in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(s)
        found.append("connected " + s)
    except OSError as e:
        pass
for fd in range(3, 256):
    try:
        os.fstat(fd)
        found.append("descriptor %d" % fd)
    except OSError:
        pass
for line in open("/proc/net/unix"):
    if "pinfold-canary" not in line and "pinfold" in line or "agent.sock" in line or "control.sock" in line:
        found.append(line)
print("found", found)`
		if err := os.WriteFile(filepath.Join(c.project, "try.py"), []byte(try), 0o644); err != nil {
			t.Fatal(err)
		}
		out, problems, status := c.pinfold("run", "python3 try.py "+d.socket+" "+filepath.Join(filepath.Dir(d.socket), "control.sock")+" /run/pinfold/agent.sock /run/pinfold/control.sock")
		if status == exitRefused { // the paths lie outside the project: let the program name them
			script := strings.ReplaceAll(try, "sys.argv[1:]", "['"+d.socket+"', '"+filepath.Join(filepath.Dir(d.socket), "control.sock")+"']")
			if err := os.WriteFile(filepath.Join(c.project, "try.py"), []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			out, problems, status = c.pinfold("run", "python3 try.py")
		}
		if status != exitOK || out != "found []\n" {
			t.Errorf("%s: status %d, %s%s", c.name, status, out, problems)
		}
	}
}
