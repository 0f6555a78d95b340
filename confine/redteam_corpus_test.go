package confine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// An attackRow is one line of an attack table: setup and check run outside, the
// attack inside. What prints ESCAPE and the id has got through.
type attackRow struct {
	ID        string `json:"id"`
	Lang      string `json:"lang"`
	Attack    string `json:"attack"`
	HostSetup string `json:"host_setup"`
	HostCheck string `json:"host_check"`
}

// knownOpen are attacks that nothing stops yet, with the reason. They are run
// and counted, but are no failure.
var knownOpen = map[string]string{
	"K034": "protected names that do not exist when the command starts are not watched",
}

// leftOut are attacks that get through and are no part of what the tree claims
// yet. They are run where the table is named, and are a failure there.
var leftOut = map[string]string{
	"K108": "the number of files that a command makes in its project is not bounded",
}

// attackGrants are rows about which programs may start: under a grant for any
// program there is nothing to break, so that they run pinned to what they use.
var attackGrants = map[string][]string{
	"K090": {"python3"},
	"K091": {"cp", "chmod"},
}

// attackTimeouts are for rows that run until they are ended.
var attackTimeouts = map[string]time.Duration{"K103": time.Second}

// attackMeanwhile is what the daemon is asked to do while the attack runs.
var attackMeanwhile = map[string]func(t *testing.T, b box){
	// the attack exchanges sub with a link that leads out
	"K037": func(t *testing.T, b box) {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if out := b.attempt(pinned(t, "cat"), "cat sub/secret"); strings.Contains(out, "OUTSIDE_SECRET") {
				fmt.Println("ESCAPE K037 read through the link")
				t.Error("read through the link")
			}
			b.attempt(policy.Grant{Write: []string{"sub"}}, "echo x > sub/f")
			b.attempt(policy.Grant{Write: []string{"sub/f"}}, "echo x > sub/f")
		}
	},
}

// attackAfter is what the daemon is asked to do when the attack is over.
var attackAfter = map[string]func(t *testing.T, b box){
	// the attack plants a link where a command is to write
	"K036": func(t *testing.T, b box) {
		b.attempt(policy.Grant{Write: []string{"result.log"}}, "echo x > result.log")
		b.attempt(widest, "echo x > result.log")
	},
}

// attackChecks are for rows whose own check is only a comment.
var attackChecks = map[string]string{
	"K036": `[ "$(cat /var/tmp/kcorpus/victim)" = old ] || echo ESCAPE K036`,
	"K037": `test -e /var/tmp/kcorpus/f && echo ESCAPE K037`,
}

// attempt runs a command that may be refused and returns what it wrote.
func (b box) attempt(g policy.Grant, text string) string {
	r, out, errs := b.request(g, text)
	r.Timeout = 10 * time.Second
	b.m.Run(context.Background(), r)
	return out.String() + errs.String()
}

// outside runs a piece of shell text on the host as the caller, in the project.
// What it leaves in the background is ended by the function that is returned.
func (b box) outside(t *testing.T, text string) (string, func()) {
	t.Helper()
	if text == "" {
		return "", func() {}
	}
	out, err := os.CreateTemp("", "pinfold-outside-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command("/bin/bash", "-c", text)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.project, out, out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.caller.Home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: b.caller.UID, Gid: b.caller.GID, Groups: b.caller.Groups}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	got, _ := os.ReadFile(out.Name())
	return string(got), func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// inside prepares the attack's program and returns the command that runs it.
func (row attackRow) inside(t *testing.T, b box) (text, skip string) {
	t.Helper()
	switch row.Lang {
	case "bash":
		return row.Attack, ""
	case "python3":
		if _, err := exec.LookPath("python3"); err != nil {
			return "", "python3 is not installed"
		}
		writeFile(t, b.caller, b.project+"/attack.py", row.Attack, 0o644)
		return "/usr/bin/python3 attack.py", ""
	case "c":
		if _, err := exec.LookPath("gcc"); err != nil {
			return "", "gcc is not installed"
		}
		if runtime.GOARCH != "amd64" {
			return "", "is written for amd64"
		}
		writeFile(t, b.caller, b.project+"/attack.c", row.Attack, 0o644)
		if out := b.attempt(widest, "gcc -w -o attack attack.c"); out != "" {
			return "", "does not compile: " + out
		}
		return "./attack", ""
	}
	return "", "no such language: " + row.Lang
}

// try runs one row and returns the ESCAPE lines.
func (row attackRow) try(t *testing.T, b box) (escapes []string, skip string) {
	t.Helper()
	_, done := b.outside(t, row.HostSetup)
	defer done()
	text, skip := row.inside(t, b)
	if skip != "" {
		return nil, skip
	}
	g := widest
	if programs := attackGrants[row.ID]; programs != nil {
		g = pinned(t, programs...)
		g.Write = []string{"."}
	}
	r, out, errs := b.request(g, text)
	if timeout := attackTimeouts[row.ID]; timeout != 0 {
		r.Timeout = timeout
	}
	begin := time.Now()
	meanwhile := make(chan struct{})
	go func() {
		defer close(meanwhile)
		if f := attackMeanwhile[row.ID]; f != nil {
			f(t, b)
		}
	}()
	o, err := b.m.Run(context.Background(), r)
	<-meanwhile
	if err != nil {
		t.Errorf("%s: %v", row.ID, err)
	}
	if took := time.Since(begin); took > r.Timeout+10*time.Second {
		escapes = append(escapes, fmt.Sprintf("ESCAPE %s ran for %v", row.ID, took))
	}
	if f := attackAfter[row.ID]; f != nil {
		f(t, b)
	}
	check := row.HostCheck
	if own := attackChecks[row.ID]; own != "" {
		check = own
	}
	seen, done := b.outside(t, check)
	done()
	for line := range strings.Lines(out.String() + "\n" + seen) {
		// some say themselves that they cannot tell
		if strings.HasPrefix(line, "ESCAPE") && !strings.Contains(line, "host check decides") {
			escapes = append(escapes, strings.TrimSpace(line))
		}
	}
	if out.Len() == 0 && errs.Len() > 0 && o.ExitCode != 0 && attackGrants[row.ID] == nil && len(escapes) == 0 {
		return nil, fmt.Sprintf("did not get as far as to say anything: %s", bytes.TrimSpace(errs.Bytes()))
	}
	return escapes, ""
}

// TestAttacks runs a table of attacks, the one of testdata or the one that
// PINFOLD_ATTACKS names, each with the widest grant that there is.
func TestAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	name := os.Getenv("PINFOLD_ATTACKS")
	named := name != ""
	if !named {
		_, source, _, _ := runtime.Caller(0)
		name = "../testdata/attacks/kernel.jsonl"
		if _, err := os.Stat(name); err != nil {
			name = filepath.Join(filepath.Dir(source), name)
		}
	}
	f, err := os.Open(name)
	if err != nil && !named {
		t.Skipf("the table is not here, PINFOLD_ATTACKS can name one: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := newManager(t)
	c, ok := callers(t)["user"]
	if !ok {
		c = callers(t)["self"]
	}
	clean := func() {
		os.RemoveAll("/var/tmp/kcorpus")
		os.RemoveAll(filepath.Join(c.Home, "kcorpus_side"))
	}
	t.Cleanup(clean)
	inheritable(t)
	var run, escaped, skipped, open int
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var row attackRow
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		t.Run(row.ID, func(t *testing.T) {
			clean()
			if why := leftOut[row.ID]; why != "" && !named {
				skipped++
				fmt.Printf("left out: %s: %s\n", row.ID, why)
				return
			}
			b := box{m, c, newProject(t, c, c.Home)}
			escapes, skip := row.try(t, b)
			switch {
			case skip != "":
				skipped++
				fmt.Printf("skipped: %s: %s\n", row.ID, skip)
			case len(escapes) == 0:
				run++
			case knownOpen[row.ID] != "":
				run++
				open++
				fmt.Printf("open: %s: %s (%d)\n", row.ID, knownOpen[row.ID], len(escapes))
			default:
				run++
				escaped++
				fmt.Printf("escaped: %s: %s\n", row.ID, strings.Join(escapes, "; "))
				t.Error(strings.Join(escapes, "\n"))
			}
		})
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("open: %d\n", open)
	fmt.Printf("attacks: %d run, %d escaped, %d skipped\n", run, escaped, skipped)
}

// inheritable opens descriptors that this process, as the daemon, would hand on
// to whatever it executes.
func inheritable(t *testing.T) {
	t.Helper()
	for _, at := range []int{100, 1025, 2048} {
		fd, err := unix.Open("/var/tmp", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if unix.Dup2(fd, at) != nil { // more than this process may have
			at = fd
		} else {
			unix.Close(fd)
		}
		t.Cleanup(func() { unix.Close(at) })
	}
}
