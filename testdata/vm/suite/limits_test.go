package suite

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pinfold/pinfold/api"
)

// nil0 is the signal that only asks whether a process is there.
const nil0 = syscall.Signal(0)

func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestLimits: the kernel bounds memory and processes of each command, in a cgroup
// of its own, for root and for a user, by both daemons.
func TestLimits(t *testing.T) {
	alice := who(t, "alice")
	for _, d := range daemons(t, alice) {
		people := []person{alice}
		if d.name == "system" {
			people = append(people, who(t, "root"))
		}
		for _, p := range people {
			checkLimits(t, "limits, "+d.name+" daemon, "+p.name, d, p)
		}
	}
}

func checkLimits(t *testing.T, group string, d daemon, p person) {
	dir := p.project(t)
	row(t, group, "memory", func(t *testing.T) string {
		kills := oomKills(t, d, p)
		a := d.python(t, p, dir, "parts = []\nfor n in range(400):\n    parts.append(bytearray(1 << 20)); print(n + 1, flush=True)\n", "--memory", "100")
		if a.Error == nil || a.Error.Code != "OUT_OF_MEMORY" {
			t.Fatal(a)
		}
		fits := d.python(t, p, dir, "x = bytearray(40 << 20); print(len(x))", "--memory", "100")
		if fits.Stdout != fmt.Sprintln(40<<20) || fits.Receipt.Limits.MemoryHeld != "cgroup-v2" {
			t.Fatal(fits)
		}
		if oomKills(t, d, p) == kills {
			t.Error("it was not the kernel that ended it")
		}
		return "100 MiB held by " + fits.Receipt.Limits.MemoryHeld + "; the kernel ends what takes 400, as OUT_OF_MEMORY"
	})
	row(t, group, "memory of the next command", func(t *testing.T) string {
		for range 3 { // the cgroup of a slot that ran out is used again
			if a := d.run(t, p, dir, "echo fine"); a.Stdout != "fine\n" {
				t.Fatal(a)
			}
		}
		return "is not charged for the last"
	})
	row(t, group, "processes", func(t *testing.T) string {
		a := d.python(t, p, dir, `
import os, time
n = 0
try:
    while n < 200:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except OSError as e: print("refused after", n, e.strerror)
`, "--processes", "50")
		held := "ended as " + string(errorCode(a))
		if strings.Contains(a.Stdout, "refused after") {
			held = "the next is refused"
		} else if a.Error == nil || a.Error.Code != "LIMIT_EXCEEDED" {
			t.Fatal(a)
		}
		r := d.run(t, p, dir, "echo x")
		if r.Receipt == nil || r.Receipt.Limits.ProcessesHeld != "cgroup-v2" {
			t.Fatal(r)
		}
		return "50 held by " + r.Receipt.Limits.ProcessesHeld + "; " + held
	})
	row(t, group, "processor time", func(t *testing.T) string {
		a := d.python(t, p, dir, "while True: pass\n", "--cpu", "2", "--timeout", "100s")
		if a.Error == nil || a.Error.Code != "LIMIT_EXCEEDED" {
			t.Fatal(a)
		}
		return "2 s of --cpu end as LIMIT_EXCEEDED"
	})
	row(t, group, "time", func(t *testing.T) string {
		if a := d.run(t, p, dir, "sleep 60", "--timeout", "2s"); a.Error == nil || a.Error.Code != "TIMEOUT" {
			t.Fatal(a)
		}
		return "2 s of --timeout end as TIMEOUT"
	})
	row(t, group, "what is left", func(t *testing.T) string {
		a := d.python(t, p, dir, `
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid", "w").write("x"); time.sleep(600)
    os._exit(0)
while not os.path.exists("pid"): time.sleep(0.01)
print("left")
`)
		if a.Stdout != "left\n" || a.EndedChildren != 1 {
			t.Fatal(a)
		}
		return "a daemonised process is ended with its command"
	})
}

// oomKills is how many processes the kernel has ended beneath the daemon's cgroup
// for want of memory.
func oomKills(t *testing.T, d daemon, p person) (n int) {
	t.Helper()
	c := exec.Command("systemctl", "show", "-P", "ControlGroup", "pinfold.service")
	if d.name == "user" {
		c = p.command("/", "systemctl", "--user", "show", "-P", "ControlGroup", "pinfold.service")
	}
	group, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	events, err := os.ReadFile("/sys/fs/cgroup" + strings.TrimSpace(string(group)) + "/memory.events")
	if err != nil {
		t.Fatal(err)
	}
	_, kills, _ := strings.Cut(string(events), "\noom_kill ")
	if _, err := fmt.Sscan(kills, &n); err != nil {
		t.Fatalf("%v: %s", err, events)
	}
	return n
}

func errorCode(a answer) api.Code {
	if a.Error == nil {
		return "no error"
	}
	return a.Error.Code
}

// cgroupsLeft are the cgroups of sessions beneath the service.
func cgroupsLeft(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob("/sys/fs/cgroup" + output("systemctl", "show", "-P", "ControlGroup", "pinfold.service") + "/pinfold-*")
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
