package suite

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/pinfold/pinfold/api"
)

func kernelABI() int {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return abi
}

// TestMachine says what the machine is.
func TestMachine(t *testing.T) {
	facts := [][2]string{
		{"kernel", output("uname", "-r")},
		{"system", strings.SplitN(output("systemctl", "--version"), " (", 2)[0] + ", " + output("sh", "-c", ". /etc/os-release; echo $PRETTY_NAME")},
		{"pinfold", output("pinfold", "--version")},
		{"Landlock ABI", strconv.Itoa(kernelABI())},
		{"security modules", output("cat", "/sys/kernel/security/lsm")},
		{"cgroup controllers", output("cat", "/sys/fs/cgroup/cgroup.controllers")},
	}
	for _, f := range facts {
		row(t, "machine", f[0], func(*testing.T) string { return f[1] })
	}
}

// TestNoLandlock: without Landlock the daemon runs nothing, and names it.
func TestNoLandlock(t *testing.T) {
	if kernelABI() != 0 {
		t.Skip("this kernel has Landlock")
	}
	alice := who(t, "alice")
	dir := alice.project(t)
	for _, d := range []daemon{system, {name: "user"}} {
		row(t, "without Landlock", d.name+" daemon", func(t *testing.T) string {
			c := alice.command(dir, "pinfold", "run", "--unattended", "--project", dir, "--", "echo x > ran")
			if d.socket == "" {
				c = alice.command(dir, "pinfoldd", "--user", "--socket", alice.home+"/s/agent.sock")
			} else {
				c.Args = slices.Insert(c.Args, 2, "--socket", d.socket)
			}
			c.WaitDelay = time.Second
			kill := time.AfterFunc(90*time.Second, func() { _ = c.Process.Kill() })
			defer kill.Stop()
			out, err := c.CombinedOutput()
			if err == nil {
				t.Errorf("it was served: %s", out)
			}
			if _, err := os.Stat(dir + "/ran"); err == nil {
				t.Error("the command ran")
			}
			said := string(out)
			if d.socket != "" {
				journal, _ := exec.Command("journalctl", "-b", "-u", "pinfold.service", "--no-pager", "-o", "cat").Output()
				said += "\n" + string(journal)
			}
			if !strings.Contains(said, "landlock") {
				t.Errorf("landlock is not named: %s", said)
			}
			return "refused: " + lineWith(said, "landlock")
		})
	}
}

func lineWith(text, word string) string {
	for _, sep := range []string{"\n", "pinfoldd: "} {
		for _, line := range strings.Split(text, sep) {
			if strings.Contains(line, word) {
				text = line
				break
			}
		}
	}
	return strings.TrimSpace(text)
}

// daemons are those that every layer is looked at with.
func daemons(t *testing.T, p person) []daemon {
	if kernelABI() == 0 {
		t.Skip("this kernel has no Landlock: nothing runs")
	}
	return []daemon{system, ofUser(t, p)}
}

// TestService: the unit serves, and systemd keeps it so.
func TestService(t *testing.T) {
	if kernelABI() == 0 {
		t.Skip("this kernel has no Landlock: nothing runs")
	}
	alice := who(t, "alice")
	dir := alice.project(t)
	row(t, "service", "socket activation", func(t *testing.T) string {
		if out, err := exec.Command("systemctl", "stop", "pinfold.service").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if a := system.run(t, alice, dir, "echo up"); a.Stdout != "up\n" {
			t.Error(a)
		}
		if after := output("systemctl", "is-active", "pinfold.service"); after != "active" {
			t.Errorf("the service is %s", after)
		}
		return "a command starts the service"
	})
	row(t, "service", "delegated cgroup", func(t *testing.T) string {
		dir := "/sys/fs/cgroup" + output("systemctl", "show", "-P", "ControlGroup", "pinfold.service")
		handed, err := os.ReadFile(dir + "/cgroup.subtree_control")
		if err != nil {
			t.Fatal(err)
		}
		if leaf, _ := os.ReadFile(dir + "/daemon/cgroup.procs"); len(leaf) == 0 {
			t.Error("the daemon is not in a leaf of its own")
		}
		return "daemon in its leaf; handed on: " + strings.TrimSpace(string(handed))
	})
	row(t, "service", "reload", func(t *testing.T) string {
		if out, err := exec.Command("systemctl", "reload", "pinfold.service").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return "systemctl reload"
	})
}

// layersOf are the probes of a receipt by their layer, in the order of status.
func layersOf(layers []api.Layer, probed []string) (rows [][2]string) {
	held := map[string][]string{}
	var order []string
	for _, l := range layers {
		if slices.Contains(probed, l.Name) {
			if held[l.Detail] == nil {
				order = append(order, l.Detail)
			}
			held[l.Detail] = append(held[l.Detail], l.Name)
		}
	}
	for _, layer := range order {
		rows = append(rows, [2]string{layer, strings.Join(held[layer], ", ")})
	}
	return rows
}

// TestLayers: each layer is on the receipt of a command, for both daemons.
func TestLayers(t *testing.T) {
	alice := who(t, "alice")
	dir := alice.project(t)
	for _, d := range daemons(t, alice) {
		var status api.Status
		row(t, "layers, "+d.name+" daemon", "doctor", func(t *testing.T) string {
			out, err := alice.command(dir, "pinfold", "doctor", "--socket", d.socket).CombinedOutput()
			if err != nil {
				t.Errorf("doctor: %v: %s", err, out)
			}
			status = statusOf(t, alice, d)
			for _, l := range status.Layers {
				if !l.OK {
					t.Errorf("%+v", l)
				}
			}
			return fmt.Sprintf("%d checks, all hold", len(status.Layers))
		})
		pinned, wide := d.run(t, alice, dir, "echo x"), d.python(t, alice, dir, "print('x')")
		for _, a := range []answer{pinned, wide} {
			if a.Receipt == nil || a.Stdout != "x\n" {
				t.Fatal(a)
			}
		}
		probed := append(slices.Clone(pinned.Receipt.Layers), wide.Receipt.Layers...)
		rows := layersOf(status.Layers, probed)
		if len(rows) < 10 {
			t.Errorf("few layers: %v of %v", rows, probed)
		}
		for _, r := range rows {
			row(t, "layers, "+d.name+" daemon", r[0], func(t *testing.T) string { return "probed: " + r[1] })
		}
		for _, l := range status.Layers {
			if strings.Contains(l.Detail, "for want of") {
				row(t, "layers, "+d.name+" daemon", l.Name, func(t *testing.T) string { return "held by the " + l.Detail })
			}
		}
		row(t, "layers, "+d.name+" daemon", "receipt", func(t *testing.T) string {
			r := pinned.Receipt
			if want := min(kernelABI(), 11); r.LandlockABI != want {
				t.Errorf("Landlock ABI %d, the kernel has %d", r.LandlockABI, want)
			}
			if r.UID != alice.uid || r.Setting != d.name || !r.NoNewPrivs || strings.Trim(r.Capabilities, "0") != "" || len(r.Namespaces) != 7 {
				t.Errorf("%+v", r)
			}
			return fmt.Sprintf("Landlock ABI %d, %d and %d seccomp filters, %d namespaces, no capability",
				r.LandlockABI, pinned.Receipt.Seccomp, wide.Receipt.Seccomp, len(r.Namespaces))
		})
	}
}

func statusOf(t *testing.T, p person, d daemon) (s api.Status) {
	t.Helper()
	out, err := p.command("/", "curl", "-sS", "--unix-socket", d.socket, "http://pinfold/v1/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	decode(t, out, &s)
	return s
}

// A right is something that Landlock learned to hold later than the oldest ABI
// that is served: the attack is blocked on every kernel, and by what says the row.
type right struct {
	name    string
	abi     int
	with    string // what holds from that ABI on
	without string // what holds before
	attack  string // python: prints GOT THROUGH, or BLOCKED with the reason
}

var rights = []right{
	{"truncate", 3, "Landlock, read-only mount", "read-only mount", `
try: os.truncate(".git/config", 0); print("GOT THROUGH")
except OSError as e: print("BLOCKED", e.strerror)`},
	{"TCP", 4, "network namespace; pinned grants have Landlock besides", "network namespace", `
try: socket.create_connection(("127.0.0.1", 22), 5); print("GOT THROUGH")
except OSError as e: print("BLOCKED", e.strerror)`},
	{"device ioctl", 5, "Landlock, seccomp, minimal /dev", "seccomp, minimal /dev", `
import fcntl, pty
try: fcntl.ioctl(pty.openpty()[1], 0x5412, b"x"); print("GOT THROUGH")
except OSError as e: print("BLOCKED", e.strerror)
if os.path.exists("/dev/vda"): print("GOT THROUGH to a disk")`},
	{"signals", 6, "Landlock, pid namespace", "pid namespace", `
try: os.kill(VICTIM, 9); print("GOT THROUGH")
except OSError as e: print("BLOCKED", e.strerror)`},
	{"abstract sockets", 6, "Landlock, network namespace", "network namespace", `
try: socket.socket(socket.AF_UNIX).connect("\0pinfold-vm"); print("GOT THROUGH")
except OSError as e: print("BLOCKED", e.strerror)`},
	{"pathname sockets", 9, "Landlock", "a mask over the socket", `
try: socket.socket(socket.AF_UNIX).connect("outside.sock"); print("GOT THROUGH")
except OSError as e: print("BLOCKED", e.strerror)`},
	{"UDP", 10, "network namespace; pinned grants have Landlock besides", "network namespace", `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    s.sendto(b"x", ("127.0.0.1", 5353)); print("sent")
except OSError as e: print("BLOCKED", e.strerror)
print("BLOCKED unless it arrives")`},
}

// TestRights: what newer kernels' Landlock holds is held on older ones too. Each
// attack's control is that the person herself gets through outside.
func TestRights(t *testing.T) {
	alice := who(t, "alice")
	dir := alice.project(t)
	ds := daemons(t, alice)
	victim := alice.command("/", "sleep", "3600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	arrived := listenOutside(t, alice, dir)
	prelude := fmt.Sprintf("import os, socket\nVICTIM = %d\n", victim.Process.Pid)

	for _, d := range ds {
		for _, r := range rights {
			row(t, "by Landlock since, "+d.name+" daemon", fmt.Sprintf("%s (ABI %d)", r.name, r.abi), func(t *testing.T) string {
				a := d.python(t, alice, dir, prelude+r.attack)
				if strings.Contains(a.Stdout, "GOT THROUGH") || !strings.Contains(a.Stdout, "BLOCKED") || arrived() {
					t.Errorf("%v", a)
				}
				if config, _ := os.ReadFile(dir + "/.git/config"); len(config) == 0 {
					t.Error("the configuration is gone")
				}
				if err := victim.Process.Signal(nil0); err != nil {
					t.Errorf("the victim: %v", err)
				}
				if kernelABI() >= r.abi {
					return "blocked by " + r.with
				}
				return "not in Landlock here; blocked by " + r.without
			})
		}
	}
	row(t, "by Landlock since, control", "the same attacks unconfined", func(t *testing.T) string {
		got := 0
		for _, r := range rights {
			if r.name == "device ioctl" { // legacy_tiocsti may be off, and no user has a disk
				continue
			}
			alice.write(t, dir+"/attack.py", prelude+r.attack)
			out, _ := alice.command(dir, "python3", "attack.py").CombinedOutput()
			time.Sleep(100 * time.Millisecond)
			if !strings.Contains(string(out), "GOT THROUGH") && !arrived() {
				t.Errorf("%s is no attack: %s", r.name, out)
			}
			got++
		}
		return fmt.Sprintf("%d of %d get through", got, len(rights)-1)
	})
}

// listenOutside opens what the attacks aim at, and returns what tells whether a
// datagram has arrived since the last call.
func listenOutside(t *testing.T, p person, dir string) (arrived func() bool) {
	t.Helper()
	socket := filepath.Join(dir, "outside.sock")
	for _, name := range []string{"@pinfold-vm", socket} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	if err := os.Chown(socket, int(p.uid), int(p.gid)); err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	var mu sync.Mutex
	n := 0
	go func() {
		for buf := make([]byte, 10); ; {
			if _, _, err := udp.ReadFrom(buf); err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
		}
	}()
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		was := n
		n = 0
		return was > 0
	}
}
