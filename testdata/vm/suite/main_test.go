// Package suite is what the VM suite checks in a virtual machine, as root, with
// the package installed (see ../README.md). Each row of the table in RESULTS.md
// is a subtest that says on a line of its own what was found:
//
//	row	<group>	<name>	<what holds>
//
// A row that fails is one whose outcome is "FAILED". On a machine that somebody
// uses the tests change too much: they run only where $PINFOLD_VM_JOB is set.
package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
)

// job is the directory of the job disk.
var job = os.Getenv("PINFOLD_VM_JOB")

func TestMain(m *testing.M) {
	if job == "" {
		fmt.Println("skipped: this is for a virtual machine, see testdata/vm/README.md")
		return
	}
	os.Exit(m.Run())
}

// row runs a check and says what it found.
func row(t *testing.T, group, name string, check func(t *testing.T) string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		outcome := "FAILED"
		defer func() {
			if t.Failed() {
				outcome = "FAILED"
			}
			fmt.Printf("row\t%s\t%s\t%s\n", group, name, outcome)
		}()
		if found := check(t); found != "" {
			outcome = found
		} else {
			t.Error("nothing was found")
		}
	})
}

// A person is a user of the machine.
type person struct {
	name     string
	uid, gid uint32
	groups   []uint32
	home     string
}

func who(t *testing.T, name string) person {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	p := person{name: name, uid: number(u.Uid), gid: number(u.Gid), home: u.HomeDir}
	ids, err := u.GroupIds()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		p.groups = append(p.groups, number(id))
	}
	return p
}

// command is a program that the person starts, with an environment of his own.
func (p person) command(dir string, words ...string) *exec.Cmd {
	c := exec.Command(words[0], words[1:]...)
	c.Dir = dir
	c.Env = []string{"HOME=" + p.home, "USER=" + p.name, "LOGNAME=" + p.name, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"LANG=C.UTF-8", fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", p.uid)}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.gid, Groups: p.groups}}
	return c
}

// project makes a git repository of the person's.
func (p person) project(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(p.home, "project-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, int(p.uid), int(p.gid)); err != nil {
		t.Fatal(err)
	}
	if out, err := p.command(dir, "git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	return dir
}

// write makes a file of the person's.
func (p person) write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o644), os.Chown(path, int(p.uid), int(p.gid))); err != nil {
		t.Fatal(err)
	}
}

// A daemon is one that serves.
type daemon struct {
	name   string // as rows call it
	socket string
	state  string
}

var system = daemon{"system", "/run/pinfold/agent.sock", "/var/lib/pinfold"}

// ofUser is the person's own daemon, started by systemctl --user.
func ofUser(t *testing.T, p person) daemon {
	t.Helper()
	if out, err := exec.Command("loginctl", "enable-linger", p.name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := fmt.Sprintf("/run/user/%d", p.uid)
	waitFor(t, time.Minute, "the manager of "+p.name, func() bool {
		_, err := os.Stat(dir + "/systemd/private")
		return err == nil
	})
	c := p.command("/", "systemctl", "--user", "start", "pinfold.socket", "pinfold-control.socket")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return daemon{"user", dir + "/pinfold/agent.sock", p.home + "/.local/state/pinfold"}
}

func waitFor(t *testing.T, limit time.Duration, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ready(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// An answer is how a request ended: with a result or an error.
type answer struct {
	api.Result
	Error *api.Error `json:"error"`
	exit  int
	text  string
}

func (a answer) String() string { return fmt.Sprintf("exit %d: %s", a.exit, a.text) }

// run asks the daemon for a command, as the person.
func (d daemon) run(t *testing.T, p person, dir, text string, flags ...string) answer {
	t.Helper()
	words := append([]string{"pinfold", "run", "--json", "--no-stdin", "--unattended", "--socket", d.socket, "--project", dir}, flags...)
	return read(t, p.command(dir, append(words, "--", text)...))
}

func read(t *testing.T, c *exec.Cmd) answer {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	a := answer{exit: c.ProcessState.ExitCode(), text: out.String() + errs.String()}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatalf("%v: no answer: %s", c.Args, a.text)
	}
	return a
}

// python runs a program in the person's project, which may write there and start
// anything.
func (d daemon) python(t *testing.T, p person, dir, program string, flags ...string) answer {
	t.Helper()
	p.write(t, filepath.Join(dir, "attack.py"), program)
	return d.run(t, p, dir, "python3 attack.py", flags...)
}

// output is what a program prints, in one line.
func output(words ...string) string {
	out, _ := exec.Command(words[0], words[1:]...).CombinedOutput()
	return strings.Join(strings.Fields(string(out)), " ")
}
