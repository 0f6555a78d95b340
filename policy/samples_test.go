package policy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// Facts are checked against the programs: testdata/samples.toml has commands
// that only read and commands that write, and all of them are run.

// A sampleFile is testdata/samples.toml.
type sampleFile struct {
	Setup  string   `toml:"setup"` // fills the project
	Reads  []sample `toml:"reads"`
	Writes []sample `toml:"writes"`
	Absent []string `toml:"absent"` // commands of which there is no sample, because nothing installs them
}

// A sample is one command, or several of the same kind.
type sample struct {
	Run    []string `toml:"run"`
	Needs  []string `toml:"needs"`  // programs or files besides the first word
	Exit   int      `toml:"exit"`   // expected status
	Varies bool     `toml:"varies"` // prints something else each time
}

// sampleUser is who samples run as when the test runs as root.
const sampleUser = "pinfold-test"

// A bench is where samples run: a manager, a caller, and his project.
type bench struct {
	policy   *policy.Policy
	manager  *confine.Manager
	caller   confine.Caller
	env      policy.Env
	pristine map[string]string // what the project is like before a sample
}

func sampleCaller(t *testing.T) confine.Caller {
	t.Helper()
	u, err := user.Current()
	if err == nil && os.Geteuid() == 0 {
		u, err = user.Lookup(sampleUser)
	}
	if err != nil {
		t.Fatalf("user %s is needed (useradd -m %s): %v", sampleUser, sampleUser, err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return confine.Caller{UID: uint32(uid), GID: uint32(gid), Groups: []uint32{uint32(gid)}, Name: u.Username, Home: u.HomeDir}
}

// newBench makes a project in the caller's home and fills it.
func newBench(t *testing.T, setup string) *bench {
	t.Helper()
	b := &bench{policy: builtin(t), caller: sampleCaller(t)}
	state := t.TempDir()
	for dir := state; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o711)
	}
	var err error
	if b.manager, err = confine.New(confine.Config{StateDir: state}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.manager.Close() })
	project, err := os.MkdirTemp(b.caller.Home, "pinfold-samples-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(project); os.RemoveAll(project + ".orig") })
	if err := os.Chown(project, int(b.caller.UID), int(b.caller.GID)); err != nil {
		t.Fatal(err)
	}
	view, err := b.manager.View(b.caller, project)
	if err != nil {
		t.Fatal(err)
	}
	b.env = policy.Env{Project: project, Dir: ".", Home: view.Home, Path: view.Path,
		Readable: view.Readable, Writable: view.Writable, Files: policytest.Files{}}
	if r := b.run(t, everything, setup); r.ExitCode != 0 {
		t.Fatalf("setup: exit %d: %s", r.ExitCode, r.err)
	}
	b.copyTree(t, project, project+".orig")
	b.pristine = b.tree(t)
	return b
}

var everything = policy.Grant{ExecAny: true, Write: []string{"."}}

// ran is how a sample ended and what it printed.
type ran struct {
	confine.Outcome
	out, err string
}

func (b *bench) run(t *testing.T, g policy.Grant, text string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	o, err := b.manager.Run(context.Background(), confine.Request{Caller: b.caller, Project: b.env.Project, Dir: ".",
		Text: text, Grant: g, Timeout: 30 * time.Second, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return ran{o, out.String(), errs.String()}
}

// decide decides a sample as if its command were allowed.
func (b *bench) decide(t *testing.T, text string) policy.Decision {
	t.Helper()
	s, err := shparse.Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	p, err := b.policy.AllowAlso([]string{firstWord(text)})
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(s, b.env)
}

func firstWord(text string) string { return strings.Fields(text)[0] }

// builtins are words of bash that samples begin with.
var builtins = map[string]bool{"command": true, "type": true, "time": true}

func exists(program string) bool {
	st, err := os.Stat(program)
	return err == nil && st.Mode().IsRegular()
}

// installed reports whether commands inside find the programs of a sample.
func (b *bench) installed(programs ...string) bool {
	for _, p := range programs {
		if builtins[p] || filepath.IsAbs(p) && exists(p) {
			continue
		}
		if !slices.ContainsFunc(b.env.Path, func(dir string) bool {
			return exists(filepath.Join(dir, p))
		}) {
			return false
		}
	}
	return true
}

// copyTree makes the directory to be like from.
func (b *bench) copyTree(t *testing.T, from, to string) {
	t.Helper()
	text := `mkdir -p "$2" && find "$2" -mindepth 1 -delete && cp -a "$1/." "$2"`
	if out, err := exec.Command("sh", "-c", text, "sh", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy the project: %v: %s", err, out)
	}
}

// restore makes the project what it was before the first sample.
func (b *bench) restore(t *testing.T) {
	t.Helper()
	b.copyTree(t, b.env.Project+".orig", b.env.Project)
	b.pristine = b.tree(t)
}

// tree returns what there is in the project: contents and metadata, but for the
// times of reading.
func (b *bench) tree(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(b.env.Project, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(b.env.Project, path)
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		text := fmt.Sprint(st.Mode, st.Uid, st.Gid, st.Nlink, st.Ino, st.Mtim, st.Ctim)
		switch d.Type() {
		case 0:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", st.Size, sha256.Sum256(content))
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + target
		}
		found[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// changed lists the names that differ from what the project was like before.
func (b *bench) changed(t *testing.T) []string {
	t.Helper()
	before, after := b.pristine, b.tree(t)
	var names []string
	for name := range after {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func readSamples(t *testing.T) sampleFile {
	t.Helper()
	var file sampleFile
	meta, err := toml.DecodeFile("testdata/samples.toml", &file)
	if err != nil {
		t.Fatal(err)
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		t.Fatalf("samples.toml: unknown key %q", extra[0].String())
	}
	return file
}

// Samples that only read are granted reading alone, change nothing even under
// the widest grant, and print the same under their own as under that: so the
// facts name every program that they start. Samples of writers write.
func TestSamples(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of commands")
	}
	file := readSamples(t)
	b := newBench(t, file.Setup)
	reads, writes, skipped := 0, 0, map[string]bool{}
	run := func(s sample, count *int, check func(*testing.T, *bench, sample, string)) {
		for _, text := range s.Run {
			if programs := append([]string{firstWord(text)}, s.Needs...); !b.installed(programs...) {
				skipped[programs[0]] = true
				continue
			}
			*count++
			t.Run(text, func(t *testing.T) { check(t, b, s, text) })
		}
	}
	for _, s := range file.Reads {
		run(s, &reads, checkReads)
	}
	for _, s := range file.Writes {
		run(s, &writes, checkWrites)
	}
	t.Logf("samples: %d that read, %d that write; not installed: %d commands: %s",
		reads, writes, len(skipped), strings.Join(slices.Sorted(maps.Keys(skipped)), " "))
}

// gitCache is what git refreshes when it may: what it knows of the times of
// files.
var gitCache = []string{".git", ".git/index"}

func checkReads(t *testing.T, b *bench, s sample, text string) {
	d := b.decide(t, text)
	if d.Verdict != policy.Allow || !d.Grant.ReadOnly() || !d.Grant.Pinned() {
		t.Fatalf("decided %v with %+v: %+v", d.Verdict, d.Grant, d.Reasons)
	}
	own, wide := b.run(t, d.Grant, d.Text), b.run(t, everything, d.Text)
	if names := b.changed(t); len(names) > 0 && !slices.Equal(names, gitCache) {
		t.Errorf("changed %v: it does not only read", names)
		b.restore(t)
	}
	if own.ExitCode != s.Exit || wide.ExitCode != s.Exit {
		t.Errorf("exit %d under its own grant %v, %d under the widest, want %d: %s%s", own.ExitCode, d.Grant.Exec, wide.ExitCode, s.Exit, own.err, wide.err)
	}
	if own.out != wide.out && !s.Varies {
		t.Errorf("printed %.300q under its own grant, %.300q under the widest: %s", own.out, wide.out, own.err)
	}
	if own.err != wide.err && !s.Varies {
		t.Errorf("complained %.300q under its own grant, %.300q under the widest", own.err, wide.err)
	}
}

func checkWrites(t *testing.T, b *bench, s sample, text string) {
	d := b.decide(t, text)
	if d.Verdict == policy.Deny {
		t.Fatalf("denied: %+v", d.Reasons)
	}
	r := b.run(t, d.Grant, d.Text)
	if r.ExitCode != s.Exit {
		t.Errorf("exit %d under %+v, want %d: %s", r.ExitCode, d.Grant, s.Exit, r.err)
	}
	if len(b.changed(t)) == 0 {
		t.Errorf("changed nothing under %+v: %s", d.Grant, r.err)
	}
	b.restore(t)
}

// Every fact of a program has a sample, unless the list says that it has none.
func TestEveryFactIsSampled(t *testing.T) {
	file := readSamples(t)
	sampled := map[string]bool{}
	for _, s := range slices.Concat(file.Reads, file.Writes) {
		for _, text := range s.Run {
			sampled[firstWord(text)] = true
		}
	}
	p := builtin(t)
	for _, name := range p.MustBeSampled() {
		has := slices.ContainsFunc(p.Synonyms(name), func(n string) bool { return sampled[n] })
		switch listed := slices.Contains(file.Absent, name); {
		case !has && !listed:
			t.Errorf("%s: no sample", name)
		case has && listed:
			t.Errorf("%s: has a sample, and is listed to have none", name)
		}
	}
}
