package server

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

// unreadCode is the fake policy, for which every command runs code that was not
// read.
type unreadCode struct{ fakePolicy }

func (p unreadCode) Examine(s *shparse.Script, env policy.Env) policy.Explanation {
	return policy.Explanation{Decision: p.Decide(s, env), Opaque: true}
}

// TestFileSwapped proves that a yes to a command that runs code which was not read
// is none any more when a file of the project was changed after it was asked,
// however it was changed; and that the approver is shown what changed last.
func TestFileSwapped(t *testing.T) {
	f := serve(t, func(c *Config) { c.Policy = unreadCode{} })
	script := filepath.Join(f.project, "sub", "run.sh")
	if err := os.Mkdir(filepath.Dir(script), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	info, err := os.Stat(script)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(){
		"same size and times": func() {
			write("two")
			must(os.Chtimes(script, info.ModTime(), info.ModTime()))
		},
		"replaced": func() {
			must(os.WriteFile(script+".new", []byte("one"), 0o644))
			must(os.Chtimes(script+".new", info.ModTime(), info.ModTime()))
			must(os.Rename(script+".new", script))
		},
		"linked": func() { must(os.Remove(script)); must(os.Symlink("/etc/passwd", script)) },
		"directory": func() {
			must(os.Rename(filepath.Dir(script), f.project+"/old"))
			must(os.Mkdir(filepath.Dir(script), 0o755))
		},
		"added": func() { must(os.WriteFile(filepath.Join(f.project, "conftest.py"), nil, 0o644)) },
		"mode":  func() { must(os.Chmod(script, 0o755)) },
		"git hook": func() {
			must(os.MkdirAll(filepath.Join(f.project, ".git", "hooks"), 0o755))
			must(os.WriteFile(filepath.Join(f.project, ".git", "hooks", "pre-commit"), nil, 0o755))
		},
	} {
		must(os.RemoveAll(filepath.Dir(script)))
		must(os.MkdirAll(filepath.Dir(script), 0o755))
		write("one")
		w, a := f.ask(t, "ask it")
		if !slices.ContainsFunc(a.Changed, func(c api.ChangedFile) bool { return c.Path == "sub/run.sh" && time.Since(c.At) < time.Hour }) {
			t.Errorf("%s: shown is %+v", name, a.Changed)
		}
		change()
		f.decide(t, a.ID, yes)
		_, err := w.wait(t)
		if e := apiError(t, err, api.ApprovalStale); !strings.Contains(e.Message, "files of the project") {
			t.Errorf("%s: %+v", name, e)
		}
		_ = os.RemoveAll(f.project + "/old")
	}
	if len(f.confiner.ran) != 0 {
		t.Errorf("ran %+v", f.confiner.ran)
	}
	must(os.MkdirAll(filepath.Join(f.project, ".git"), 0o755))
	w, a := f.ask(t, "ask it")
	must(os.WriteFile(filepath.Join(f.project, ".git", "index"), nil, 0o644)) // somebody looks at it with git status
	f.decide(t, a.ID, yes)
	if _, err := w.wait(t); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
}

// TestLookThroughOpensNothing proves that a project is looked through without any
// file being opened, whatever lies there, within bounds: FIFOs, sockets, links to
// what the daemon could read, a file of 100 GB, more names than are looked at.
func TestLookThroughOpensNothing(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666),
		os.Symlink("/etc/shadow", filepath.Join(dir, "shadow")),
		os.Symlink("/", filepath.Join(dir, "root")),
		os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o644),
		os.Truncate(filepath.Join(dir, "sparse"), 100<<30),
		os.WriteFile(filepath.Join(dir, "unreadable"), []byte("x"), 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan footprint, 1)
	go func() {
		print, err := lookThrough(dir)
		if err != nil {
			t.Error(err)
		}
		got <- print
	}()
	select {
	case p := <-got:
		if p.hash == "" || p.part || len(p.changed) != 5 {
			t.Errorf("%+v", p)
		}
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
	deep := dir
	for range maxDeep + 2 {
		deep = filepath.Join(deep, "d")
		if err := os.Mkdir(deep, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := lookThrough(dir); err != nil || !p.part {
		t.Errorf("too deep: %+v, %v", p, err)
	}
}

// TestApprovedIsFresh proves that an approved command gets a sandbox in which
// nothing of earlier commands is, unless the approver keeps theirs; and that he is
// shown the background runs beside it, and can end them.
func TestApprovedIsFresh(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		if r.Text == "serve" {
			select {
			case <-ctx.Done():
			case <-r.Signals:
			}
		}
		return confine.Outcome{}, nil
	})
	if _, err := f.exec("x"); err != nil {
		t.Fatal(err)
	}
	beside := f.background(t, "serve")
	for _, d := range []api.ApprovalDecision{yes, {Decision: api.DecideAllow, Keep: true}, {Decision: api.DecideAllow, EndBeside: true}} {
		w, a := f.ask(t, "ask it")
		if len(a.Beside) != 1 || a.Beside[0].Run != beside.Run || a.Beside[0].Command != "serve" {
			t.Errorf("shown beside is %+v", a.Beside)
		}
		f.decide(t, a.ID, d)
		if _, err := w.wait(t); err != nil {
			t.Fatal(err)
		}
		if ran := f.confiner.ran[len(f.confiner.ran)-1]; ran.Text != "ask it" || ran.Fresh == d.Keep {
			t.Errorf("with %+v it ran %+v", d, ran)
		}
		_, r, err := f.client.Run(context.Background(), beside.Run, 0, 0)
		if ended := r.State == api.RunEnded; err != nil || ended != d.EndBeside {
			t.Errorf("with %+v the run beside it is %s, %v", d, r.State, err)
		}
	}
	if f.confiner.ran[0].Fresh {
		t.Error("an allowed command is fresh")
	}
}
