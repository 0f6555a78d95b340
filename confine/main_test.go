package confine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
)

// The suite runs as root's daemon (for a root caller and for an ordinary user)
// and, a second time, as an ordinary user without any privilege: see the
// Makefile.

// testUser is the ordinary user that root's tests run commands as.
const testUser = "pinfold-test"

var widest = policy.Grant{ExecAny: true, Write: []string{"."}}

// pinned is a read-only grant for the named programs.
func pinned(t *testing.T, programs ...string) policy.Grant {
	t.Helper()
	var g policy.Grant
	for _, p := range programs {
		// the system's, as PATH is inside
		path, err := filepath.EvalSymlinks("/usr/bin/" + p)
		if err != nil {
			t.Skipf("%s is not installed", p)
		}
		g.Exec = append(g.Exec, path)
	}
	return g
}

func callerNamed(t *testing.T, name string) Caller {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatalf("user %s is needed (useradd -m %s): %v", name, name, err)
	}
	number := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	c := Caller{UID: number(u.Uid), GID: number(u.Gid), Name: name, Home: u.HomeDir}
	groups, _ := u.GroupIds()
	for _, g := range groups {
		c.Groups = append(c.Groups, number(g))
	}
	return c
}

// callers are who the daemon that this test is can serve.
func callers(t *testing.T) map[string]Caller {
	t.Helper()
	if os.Geteuid() == 0 {
		return map[string]Caller{"root": callerNamed(t, "root"), "user": callerNamed(t, testUser)}
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Caller{"self": callerNamed(t, u.Username)}
}

// stateDir is a directory that every caller may pass through.
func stateDir(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	for dir := state; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o711)
	}
	return state
}

func newManager(t *testing.T) *Manager {
	t.Helper()
	m, err := New(Config{StateDir: stateDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	rules := builtin(t)
	m.SetPaths(rules.Protected(), rules.Hidden())
	return m
}

// builtin returns the built-in policy.
var builtin = func() func(t *testing.T) *policy.Policy {
	load := sync.OnceValues(policy.Default)
	return func(t *testing.T) *policy.Policy {
		t.Helper()
		p, err := load()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}()

// newProject makes an empty project of the caller's, in its home.
func newProject(t *testing.T, c Caller, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pinfold-project-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own(t, c, dir)
	return dir
}

func own(t *testing.T, c Caller, path string) {
	t.Helper()
	if err := os.Chown(path, int(c.UID), int(c.GID)); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, c Caller, path, content string, mode os.FileMode) {
	t.Helper()
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	own(t, c, dir)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	own(t, c, path)
}

// A box is a manager with a caller and a project.
type box struct {
	m       *Manager
	caller  Caller
	project string
}

// result is an outcome with its output.
type result struct {
	Outcome
	out, err string
}

func (b box) request(g policy.Grant, text string) (Request, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	return Request{Caller: b.caller, Project: b.project, Dir: ".", Text: text, Grant: g, Timeout: 60 * time.Second,
		Stdout: &out, Stderr: &errs}, &out, &errs
}

func (b box) run(t *testing.T, g policy.Grant, text string) result {
	t.Helper()
	r, out, errs := b.request(g, text)
	o, err := b.m.Run(context.Background(), r)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return result{o, out.String(), errs.String()}
}

// each runs the test for every caller, with a project in its home.
func each(t *testing.T, f func(t *testing.T, b box)) {
	m := newManager(t)
	for name, c := range callers(t) {
		t.Run(name, func(t *testing.T) { f(t, box{m, c, newProject(t, c, c.Home)}) })
	}
}

// eachLong is each for what takes long: with -short an ordinary user stands for
// all callers.
func eachLong(t *testing.T, f func(t *testing.T, b box)) {
	each(t, func(t *testing.T, b box) {
		if testing.Short() && b.caller.UID == 0 {
			t.Skip("takes long; an ordinary user stands for root with -short")
		}
		f(t, b)
	})
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

func TestRunsAndReturnsTheOutcome(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r := b.run(t, policy.Grant{}, `echo out; echo err >&2; exit 3`)
		if r.out != "out\n" || r.err != "err\n" || r.ExitCode != 3 || r.Ended != EndedItself {
			t.Errorf("got %+v", r)
		}
		if r.Receipt.UID != b.caller.UID || r.Receipt.Setting != b.m.Setting() || r.Receipt.LandlockABI < abiFloor {
			t.Errorf("receipt: %+v", r.Receipt)
		}
		for _, layer := range []string{"landlock-read", "landlock-write", "landlock-execute", "seccomp", "no-socket", "noexec", "project-read-only"} {
			if !slices.Contains(r.Receipt.Layers, layer) {
				t.Errorf("the receipt of a pinned grant lacks %s: %v", layer, r.Receipt.Layers)
			}
		}
		if r := b.run(t, policy.Grant{}, "kill -SEGV $$"); r.Signal != "SIGSEGV" || r.ExitCode != -1 {
			t.Errorf("killed by a signal: %+v", r)
		}
	})
}

// TestFilesBelongToTheCaller: what a command makes in the project is the
// caller's, with his groups in force.
func TestFilesBelongToTheCaller(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		if r := b.run(t, widest, "echo x > made; id -u; id -g"); r.ExitCode != 0 {
			t.Fatalf("%+v", r)
		}
		st, err := os.Stat(filepath.Join(b.project, "made"))
		if err != nil {
			t.Fatal(err)
		}
		if uid, gid := owner(st); uid != b.caller.UID || gid != b.caller.GID {
			t.Errorf("made by %d:%d, want %d:%d", uid, gid, b.caller.UID, b.caller.GID)
		}
	})
}

// TestLongScript: a text that does not fit into an argument runs all the same.
func TestLongScript(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		text := strings.Repeat(": "+strings.Repeat("x", 1000)+"\n", 300) + "echo $((6*7)) $0\n"
		if r := b.run(t, policy.Grant{}, text); !strings.HasPrefix(r.out, "42 ") {
			t.Errorf("got %+v", r)
		}
	})
}

func TestWriteGrants(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/sub/file", "old\n", 0o644)
		writeFile(t, b.caller, b.project+"/other", "old\n", 0o644)
		for _, row := range []struct {
			write []string
			text  string
			ok    bool
		}{
			{nil, "echo new > other", false},
			{nil, "echo new > fresh", false},
			{[]string{"other"}, "echo new > other", true},
			{[]string{"other"}, "echo new > sub/file", false},
			{[]string{"other"}, "echo new > fresh", false},
			{[]string{"sub"}, "echo new > sub/file", true},
			{[]string{"sub"}, "echo new > sub/fresh", true},
			{[]string{"sub"}, "echo new > other", false},
			{[]string{"."}, "echo new > other && echo new > fresh", true},
		} {
			r := b.run(t, policy.Grant{Write: row.write}, row.text)
			if (r.ExitCode == 0) != row.ok {
				t.Errorf("write %v: %s: exit %d %s, want ok %v", row.write, row.text, r.ExitCode, r.err, row.ok)
			}
		}
	})
}

// TestGrantedPlaceBecomesSymlink: a place that was swapped for a link after it
// was judged is refused, never followed.
func TestGrantedPlaceBecomesSymlink(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		os.Symlink("/etc", b.project+"/sub")
		r, _, _ := b.request(policy.Grant{Write: []string{"sub"}}, "true")
		_, err := b.m.Run(context.Background(), r)
		var p *ProjectError
		if !errors.As(err, &p) {
			t.Errorf("got %v, want a ProjectError", err)
		}
		r, _, _ = b.request(policy.Grant{Write: []string{"../x"}}, "true")
		if _, err := b.m.Run(context.Background(), r); err == nil {
			t.Error("a place outside the project was granted")
		}
	})
}

// TestProjectReplaced: a project that was replaced on the host is the one that
// the next command sees.
func TestProjectReplaced(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/name", "first\n", 0o644)
		if r := b.run(t, policy.Grant{}, `read x < name; echo $x`); r.out != "first\n" {
			t.Fatalf("%+v", r)
		}
		if err := os.Rename(b.project, b.project+".bak"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(b.project + ".bak") })
		writeFile(t, b.caller, b.project+"/name", "second\n", 0o644)
		if r := b.run(t, policy.Grant{}, `read x < name; echo $x`); r.out != "second\n" {
			t.Errorf("%+v", r)
		}
	})
}

func TestTimeout(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r, out, _ := b.request(widest, `trap 'echo asked; exit 7' TERM; echo begin; while :; do sleep 0.1; done`)
		r.Timeout = 300 * time.Millisecond
		o, err := b.m.Run(context.Background(), r)
		if err != nil || o.Ended != EndedTimeout || out.String() != "begin\nasked\n" {
			t.Errorf("polite: %+v %v %q", o, err, out)
		}
		r, _, _ = b.request(widest, `trap '' TERM; while :; do sleep 0.1; done`)
		r.Timeout = 200 * time.Millisecond
		begin := time.Now()
		o, err = b.m.Run(context.Background(), r)
		if err != nil || o.Ended != EndedTimeout || o.Signal != "SIGKILL" {
			t.Errorf("deaf: %+v %v", o, err)
		}
		if took := time.Since(begin); took < killGrace || took > 10*time.Second {
			t.Errorf("deaf: took %v", took)
		}
	})
}

func TestCanceled(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		ctx, cancel := context.WithCancel(context.Background())
		r, _, _ := b.request(widest, `sleep 1000`)
		r.Started = func(Receipt) { cancel() }
		o, err := b.m.Run(ctx, r)
		if err != nil || o.Ended != EndedCaller {
			t.Errorf("%+v %v", o, err)
		}
	})
}

func TestOutputLimit(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r, out, _ := b.request(pinned(t, "head"), `head -c 1000000000 /dev/zero`)
		r.OutputLimit = 4 << 20
		o, err := b.m.Run(context.Background(), r)
		if err != nil || o.Ended != EndedOutput || out.Len() < 4<<20 || out.Len() > 8<<20 {
			t.Errorf("%+v %v, %d bytes", o, err, out.Len())
		}
	})
}

// TestProjectBelowScratch: a project beneath /tmp is no more writable than any
// other, and there is still somewhere for temporary files.
func TestProjectBelowScratch(t *testing.T) {
	m := newManager(t)
	for name, c := range callers(t) {
		for _, parent := range scratch {
			t.Run(name+parent, func(t *testing.T) {
				dir := newProject(t, c, parent)
				deep := filepath.Join(dir, "deep")
				writeFile(t, c, deep+"/file", "old\n", 0o666)
				b := box{m, c, deep}
				r := b.run(t, policy.Grant{}, `echo new > file; echo x > "$TMPDIR/t" && echo temporary`)
				if r.out != "temporary\n" {
					t.Errorf("%+v", r)
				}
				if text, _ := os.ReadFile(deep + "/file"); string(text) != "old\n" {
					t.Error("the project was written")
				}
				r = b.run(t, widest, "mv "+dir+" "+dir+".x; rm -rf "+dir+"; echo still > file")
				if text, _ := os.ReadFile(deep + "/file"); string(text) != "still\n" {
					t.Errorf("the way to the project was changed: %q %+v", text, r)
				}
				if r := b.run(t, policy.Grant{}, "true"); r.ExitCode != 0 {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}
func owner(st os.FileInfo) (uid, gid uint32) {
	s := st.Sys().(*syscall.Stat_t)
	return s.Uid, s.Gid
}

func scan(s string, n *int) (int, error) { return fmt.Sscan(s, n) }

func pathsOf(left []LeftOut) (paths []string) {
	for _, l := range left {
		if l.Why == "" {
			continue
		}
		paths = append(paths, l.Path)
	}
	return paths
}

// TestSiteRoots: what the site shows besides can be read, or written too, and
// nothing more; the next command after a change sees the change.
func TestSiteRoots(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		shown, shared := newProject(t, b.caller, b.caller.Home), newProject(t, b.caller, b.caller.Home)
		writeFile(t, b.caller, shown+"/file", "shown\n", 0o644)
		text := `read x < ` + shown + `/file; echo "$x"; echo x > ` + shown + `/new; echo x > ` + shared + `/new && echo written`
		if r := b.run(t, widest, text); r.out != "\n" {
			t.Errorf("before: %+v", r)
		}
		link := shown + "-link"
		if err := os.Symlink(shown, link); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(link)
		left := b.m.SetRoots([]string{shown, "/etc", "/no/such", link}, []string{shared, b.caller.Home, "/"})
		if want := []string{"/etc", "/no/such", link, "/"}; !slices.Equal(pathsOf(left), want) {
			t.Errorf("left out whoever calls: %+v, want %q", left, want)
		}
		defer b.m.SetRoots(nil, nil)
		for _, g := range []policy.Grant{{}, widest} {
			if r := b.run(t, g, text); r.out != "shown\nwritten\n" {
				t.Errorf("after: %+v", r)
			}
		}
		if r := b.run(t, policy.Grant{}, "echo x > file"); r.ExitCode == 0 {
			t.Error("a writable root above the project made it writable")
		}
		v, err := b.m.View(b.caller, b.project)
		if err != nil || !slices.Contains(v.Readable, shown) || !slices.Contains(v.Writable, shared) || slices.Contains(v.Writable, b.caller.Home) {
			t.Errorf("view: %+v %v", v, err)
		}
		if want := []string{"/etc", "/no/such", link, b.caller.Home, "/"}; !slices.Equal(pathsOf(v.LeftOut), want) {
			t.Errorf("left out: %+v, want %q", v.LeftOut, want)
		}
	})
}
