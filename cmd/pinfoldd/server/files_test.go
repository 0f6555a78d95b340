package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// makeTree makes a project with something of every kind, and a directory beside
// it, and returns both.
func makeTree(t *testing.T) (project, outside string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	project, outside = filepath.Join(root, "p"), filepath.Join(root, "o")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(project, "a/b"), 0o755))
	must(os.Mkdir(outside, 0o755))
	must(os.WriteFile(filepath.Join(project, "a/f"), nil, 0o644))
	must(os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
	must(os.WriteFile(filepath.Join(outside, "script"), []byte("#! /usr/bin/env  python3 -u\nx"), 0o755))
	must(os.WriteFile(filepath.Join(outside, "native"), []byte("\x7fELF"), 0o755))
	must(os.WriteFile(filepath.Join(outside, "empty"), nil, 0o755))
	must(os.WriteFile(filepath.Join(outside, "bang"), []byte("#!\n"), 0o755))
	must(unix.Mkfifo(filepath.Join(project, "fifo"), 0o644))
	must(unix.Mkfifo(filepath.Join(outside, "fifo"), 0o644))
	for name, target := range map[string]string{
		"rel": "a/b", "abs": filepath.Join(project, "a"), "out": outside, "up": "../o/secret", "file": "a/f", "loop1": "loop2", "loop2": "loop1",
		"self": ".", "dangling": "a/none/x", "tmp": "/tmp/x/../y", "proc": "/proc/self/cwd", "a/back": "../..", "intofile": "a/f/x", "root": "/",
	} {
		must(os.Symlink(target, filepath.Join(project, name)))
	}
	return project, outside
}

func TestFollow(t *testing.T) {
	project, _ := makeTree(t)
	base := filepath.Dir(project)
	tr := &tree{project: project, private: slices.Concat(alwaysPrivate, []string{"/var/tmp", "/tmp"})}
	for _, c := range []struct {
		path, real string
		kind       policy.Kind
		err        error
	}{
		{path: "a/f", real: "a/f", kind: policy.Regular},
		{path: "a/b/", real: "a/b", kind: policy.Directory},
		{path: "a//b/./../f", real: "a/f", kind: policy.Regular},
		{path: "rel", real: "a/b", kind: policy.Directory},
		{path: "rel/..", real: "a", kind: policy.Directory},
		{path: "rel/../f", real: "a/f", kind: policy.Regular},
		{path: "abs/f", real: "a/f", kind: policy.Regular},
		{path: "file", real: "a/f", kind: policy.Regular},
		{path: "self/self/self/a", real: "a", kind: policy.Directory},
		{path: "fifo", real: "fifo", kind: policy.Other},
		{path: "new", real: "new", kind: policy.Missing},
		{path: "new/newer/../x", real: "new/x", kind: policy.Missing},
		{path: "new/../a/f", real: "a/f", kind: policy.Regular},
		{path: "new/../../o/secret", real: "../o/secret", kind: policy.Regular},
		{path: "dangling", real: "a/none/x", kind: policy.Missing},
		{path: "out", real: "../o", kind: policy.Directory},
		{path: "up", real: "../o/secret", kind: policy.Regular},
		{path: "a/back", real: "..", kind: policy.Directory},
		{path: "a/back/o/secret", real: "../o/secret", kind: policy.Regular},
		{path: "../../../../../../..", real: "/", kind: policy.Directory},
		{path: "root/usr", real: "/usr", kind: policy.Directory},
		{path: "loop1", err: unix.ELOOP},
		{path: "loop1/x", err: unix.ELOOP},
		{path: "a/f/x", err: unix.ENOTDIR},
		{path: "a/f/..", err: unix.ENOTDIR},
		{path: "intofile", err: unix.ENOTDIR},
		{path: strings.Repeat("x", 256), err: unix.ENAMETOOLONG},
		{path: strings.Repeat("a/../", 400), err: unix.ENAMETOOLONG},
		// Places that a sandbox has of its own are taken as they are written.
		{path: "tmp", real: "/tmp/y", kind: policy.Missing},
		{path: "/tmp", real: "/tmp", kind: policy.Directory},
		{path: "/tmp/../etc/passwd", real: "/etc/passwd", kind: policy.Regular},
		{path: "/var/tmp/a/b", real: "/var/tmp/a/b", kind: policy.Missing},
		{path: "proc", real: "/proc/self/cwd", kind: policy.Missing},
		{path: "/proc/self/root/etc", real: "/proc/self/root/etc", kind: policy.Missing},
		{path: "/dev/stdin", real: "/dev/stdin", kind: policy.Missing},
	} {
		name := c.path
		if !filepath.IsAbs(name) {
			name = project + "/" + c.path
		}
		want := c.real
		if !filepath.IsAbs(want) {
			want = filepath.Join(project, want)
		}
		real, kind, err := tr.Follow(name)
		if c.err != nil {
			if !errors.Is(err, c.err) {
				t.Errorf("%.80s: got %s, %v, %v; want %v", c.path, real, kind, err, c.err)
			}
			continue
		}
		if strings.HasPrefix(base, "/tmp/") && !within(want, project) && !within(project, want) && strings.HasPrefix(want, "/tmp/") {
			continue // the test's own directory lies in a place that is private
		}
		if err != nil || real != want || kind != c.kind {
			t.Errorf("%.80s: got %s, %v, %v; want %s, %v", c.path, real, kind, err, want, c.kind)
		}
	}
}

// TestFollowBesideTheProject is TestFollow where nothing is private.
func TestFollowBesideTheProject(t *testing.T) {
	project, outside := makeTree(t)
	tr := &tree{project: project}
	for path, want := range map[string]string{
		"out": outside, "up": outside + "/secret", "a/back/o/secret": outside + "/secret", "new/../../o/secret": outside + "/secret",
	} {
		if real, _, err := tr.Follow(project + "/" + path); err != nil || real != want {
			t.Errorf("%s: got %s, %v; want %s", path, real, err, want)
		}
	}
}

func TestWalkLeaksNoDescriptor(t *testing.T) {
	project, _ := makeTree(t)
	tr := &tree{project: project}
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for range 20 {
		for _, name := range []string{"a/f", "rel/../f", "abs/f", "loop1", "new/x", "a/f/x", "intofile", "dangling", "a/back/..", "out", "root"} {
			_, _, _ = tr.Follow(project + "/" + name)
			_, _ = tr.List(project+"/"+name, 2)
			_, _ = tr.Program(project + "/" + name)
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func TestList(t *testing.T) {
	project, _ := makeTree(t)
	tr := &tree{project: project}
	names, err := tr.List(project+"/abs", 10)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"b", "back", "f"}) {
		t.Errorf("got %q, %v", names, err)
	}
	if names, err := tr.List(project+"/abs", 3); err != nil || len(names) != 3 {
		t.Errorf("as many as the limit: %q, %v", names, err)
	}
	if _, err := tr.List(project+"/abs", 2); err == nil {
		t.Error("more than the limit")
	}
	if names, err := tr.List(project+"/a/b", 2); err != nil || len(names) != 0 {
		t.Errorf("empty: %q, %v", names, err)
	}
	for _, name := range []string{"a/f", "fifo", "none"} {
		if _, err := tr.List(project+"/"+name, 2); err == nil {
			t.Errorf("%s was listed", name)
		}
	}
}

func TestProgram(t *testing.T) {
	project, outside := makeTree(t)
	tr := &tree{project: project}
	for name, want := range map[string]string{"script": "/usr/bin/env", "native": "", "empty": ""} {
		if got, err := tr.Program(outside + "/" + name); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := tr.Program(outside + "/fifo")
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a FIFO was read")
		}
	case <-time.After(60 * time.Second):
		t.Fatal("hangs on a FIFO")
	}
	for _, name := range []string{outside + "/bang", outside, outside + "/none", project + "/a/f", "relative"} {
		if got, err := tr.Program(name); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func BenchmarkFollow(b *testing.B) {
	project, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	deep := project + "/a/b/c"
	if err := os.MkdirAll(deep, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.Symlink("a/b/c", project+"/link"); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"a/b/c", "a/b/none", "link/x"} {
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			tr := &tree{project: project, private: alwaysPrivate}
			for b.Loop() {
				if _, _, err := tr.Follow(project + "/" + name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
