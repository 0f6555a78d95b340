package suite

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKilled: a daemon that is killed is started again, the trace says what was
// cut off, and nothing of it is left.
func TestKilled(t *testing.T) {
	if kernelABI() == 0 {
		t.Skip("this kernel has no Landlock: nothing runs")
	}
	alice := who(t, "alice")
	dir := alice.project(t)
	row(t, "crash", "kill -9 of the daemon, with runs", func(t *testing.T) string {
		const runs = 3
		var clients sync.WaitGroup
		for range runs {
			c := alice.command(dir, "pinfold", "run", "--no-stdin", "--project", dir, "--timeout", "10m", "--", "sleep 599")
			clients.Go(func() { _ = c.Run() })
		}
		waitFor(t, time.Minute, "the runs", func() bool { return len(sleepers(t)) == runs })
		before := output("systemctl", "show", "-P", "MainPID", "pinfold.service")
		if out, err := exec.Command("kill", "-9", before).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		clients.Wait()
		waitFor(t, time.Minute, "the end of the runs", func() bool { return len(sleepers(t)) == 0 })
		if a := system.run(t, alice, dir, "echo again"); a.Stdout != "again\n" {
			t.Fatal(a)
		}
		if after := output("systemctl", "show", "-P", "MainPID", "pinfold.service"); after == before {
			t.Error("it is the old daemon")
		}
		for _, group := range cgroupsLeft(t) {
			if strings.HasPrefix(filepath.Base(group), "pinfold-"+before+"-") {
				t.Errorf("left behind: %s", group)
			}
		}
		said := output("journalctl", "-b", "-u", "pinfold.service", "--no-pager", "-o", "cat")
		if !strings.Contains(said, fmt.Sprintf("%d interrupted runs", runs)) {
			t.Errorf("the repair is not reported: %s", said)
		}
		if text, status := verify(t, system.state); status != 0 {
			t.Errorf("verify: %d %s", status, text)
		}
		return fmt.Sprintf("started again; %d runs ended and closed as interrupted; nothing left; the trace verifies", runs)
	})
}

func sleepers(t *testing.T) []string {
	t.Helper()
	out, _ := exec.Command("pgrep", "-f", "^sleep 599").Output()
	return strings.Fields(string(out))
}

// verify is pinfold trace verify, and its exit status.
func verify(t *testing.T, state string) (string, int) {
	t.Helper()
	c := exec.Command("pinfold", "trace", "verify", "--state", state)
	out, _ := c.CombinedOutput()
	return strings.TrimSpace(string(out)), c.ProcessState.ExitCode()
}

// A cut is a daemon whose trace lies on a disk of its own when the power is cut.
type cut struct {
	disk   int
	user   bool
	always bool
}

var cuts = []cut{{1, false, true}, {2, false, false}, {3, true, true}, {4, true, false}}

func (c cut) String() string {
	who, sync := "system", "default"
	if c.user {
		who = "user"
	}
	if c.always {
		sync = `trace.sync = "always"`
	}
	return who + " daemon, " + sync
}

func (c cut) dir() string   { return fmt.Sprintf("/cut/%d", c.disk) }
func (c cut) state() string { return c.dir() + "/state" }

func (c cut) mount(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(c.dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	disk := fmt.Sprintf("/dev/disk/by-id/virtio-DISK%d", c.disk)
	if out, err := exec.Command("mount", disk, c.dir()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// start starts the daemon on the disk, and returns it.
func (c cut) start(t *testing.T, p person) daemon {
	t.Helper()
	d := daemon{c.String(), fmt.Sprintf("/run/cut%d/agent.sock", c.disk), c.state()}
	words := []string{"--unit", fmt.Sprintf("cut%d", c.disk), "-q", "-p", "Delegate=yes", "-p", fmt.Sprintf("RuntimeDirectory=cut%d", c.disk)}
	if c.user {
		words = append(words, "--uid", p.name, "--setenv", "HOME="+p.home)
		if err := os.MkdirAll(c.state(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(c.state(), int(p.uid), int(p.gid)); err != nil {
			t.Fatal(err)
		}
	}
	words = append(words, "pinfoldd", "--socket", d.socket, "--state", c.state())
	if c.user {
		words = append(words, "--user", "--idle", "0")
	}
	if c.always {
		words = append(words, "--trace-sync", "always")
	}
	if out, err := exec.Command("systemd-run", words...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	waitFor(t, time.Minute, d.name, func() bool { return exists(d.socket) })
	return d
}

// acksEach is how many commands each daemon acknowledges before the power is cut.
const acksEach = 25

// TestCut runs commands until the power is cut. Each that was acknowledged is a
// line for the host:
//
//	ack	<disk>	<run>	<milliseconds since the machine started>
func TestCut(t *testing.T) {
	if kernelABI() == 0 {
		t.Skip("this kernel has no Landlock: nothing runs")
	}
	alice := who(t, "alice")
	var enough, clients sync.WaitGroup
	for _, c := range cuts {
		c.mount(t)
		d := c.start(t, alice)
		dir := alice.project(t)
		enough.Add(1)
		clients.Go(func() {
			for n := 0; ; n++ {
				a := d.run(t, alice, dir, "echo "+strconv.Itoa(n))
				if a.Run == "" {
					t.Errorf("%s: %v", d.name, a)
					return
				}
				fmt.Printf("ack\t%d\t%s\t%d\n", c.disk, a.Run, uptime(t).Milliseconds())
				if n == acksEach {
					enough.Done()
				}
			}
		})
	}
	enough.Wait()
	fmt.Println("cut the power")
	clients.Wait()
}

func uptime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// lossLimit is how old a lost record may be: the daemon flushes within a second of
// a record, and the flush itself takes time on an emulated disk.
const lossLimit = 1500 * time.Millisecond

// TestAfterCut looks at what the power cut left, in another boot.
func TestAfterCut(t *testing.T) {
	acks := readAcks(t)
	alice := who(t, "alice")
	for _, c := range cuts {
		row(t, "power cut", c.String(), func(t *testing.T) string {
			c.mount(t)
			said, status := verify(t, c.state())
			if status != 0 && status != 1 {
				t.Errorf("verify: %d %s", status, said)
			}
			text, err := os.ReadFile(c.state() + "/trace.ndjson")
			if err != nil {
				t.Fatal(err)
			}
			var lost []ack
			for _, a := range acks[c.disk] {
				if !strings.Contains(string(text), `"`+a.run+`"`) {
					lost = append(lost, a)
				}
			}
			last := acks[c.disk][len(acks[c.disk])-1].at
			oldest := time.Duration(0)
			if len(lost) > 0 {
				oldest = last - lost[0].at
			}
			if c.always && len(lost) > 0 || oldest > lossLimit {
				t.Errorf("%d acknowledged runs are lost, the oldest %v before the cut", len(lost), oldest)
			}
			c.start(t, alice)
			after, status := verify(t, c.state())
			if status != 0 {
				t.Errorf("after the next start verify says: %s", after)
			}
			found := fmt.Sprintf("%d acknowledged, %d lost", len(acks[c.disk]), len(lost))
			if len(lost) > 0 {
				found += fmt.Sprintf(", the oldest of the last %.1f s", oldest.Seconds())
			}
			return found + "; verify: " + summary(said) + "; the next start mends it"
		})
	}
}

// summary is what verify says, without numbers of this one trace.
func summary(said string) string {
	lines := strings.Split(said, "\n")
	if strings.Contains(said, "a crash tore a record") {
		return "a torn end"
	}
	return lines[len(lines)-1]
}

type ack struct {
	run string
	at  time.Duration
}

// readAcks reads the lines of TestCut that reached the host, by disk.
func readAcks(t *testing.T) map[int][]ack {
	t.Helper()
	f, err := os.Open(job + "/acks")
	if err != nil {
		t.Skip("the power was not cut before")
	}
	defer f.Close()
	acks := map[int][]ack{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Split(sc.Text(), "\t")
		if len(fields) != 4 {
			continue // the line that was being written
		}
		disk, err1 := strconv.Atoi(fields[1])
		ms, err2 := strconv.Atoi(fields[3])
		if err1 != nil || err2 != nil {
			continue
		}
		acks[disk] = append(acks[disk], ack{fields[2], time.Duration(ms) * time.Millisecond})
	}
	for _, c := range cuts {
		if len(acks[c.disk]) < acksEach {
			t.Fatalf("%v: only %d acknowledged", c, len(acks[c.disk]))
		}
		if !slices.IsSortedFunc(acks[c.disk], func(a, b ack) int { return int(a.at - b.at) }) {
			t.Errorf("%v: not in order", c)
		}
	}
	return acks
}
