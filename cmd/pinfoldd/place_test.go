package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMakeDir(t *testing.T) {
	dir := t.TempDir()
	old := unix.Umask(0o077)
	err := makeDir(filepath.Join(dir, "a/b"), 0o711)
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b")); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if err := makeDir(filepath.Join(dir, "a/b"), 0o700); err != nil {
		t.Errorf("a second time: %v", err)
	}
	for name, prepare := range map[string]func(path string) error{
		"a file":           func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a symlink":        func(p string) error { return os.Symlink(dir, p) },
		"writable by all":  func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chmod(p, 0o777) },
		"writable by some": func(p string) error { _ = os.Mkdir(p, 0o700); return os.Chmod(p, 0o770) },
		"another's": func(p string) error {
			if os.Geteuid() != 0 {
				return os.Symlink("/root", p)
			}
			_ = os.Mkdir(p, 0o700)
			return os.Chown(p, 54321, 54321)
		},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := prepare(path); err != nil {
			t.Fatal(err)
		}
		if err := makeDir(path, 0o700); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestOneDaemonForASocket(t *testing.T) {
	name := filepath.Join(t.TempDir(), "agent.sock.lock")
	a, err := tryLock(name)
	if a == nil || err != nil {
		t.Fatal(a, err)
	}
	if b, err := tryLock(name); b != nil || err != nil {
		t.Errorf("a second one: %v, %v", b, err)
	}
	a.release()
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	b, err := tryLock(name)
	if b == nil || err != nil {
		t.Fatal(b, err)
	}
	b.release()
}

// TestOnDemandWaitsForTheOther: a daemon that finds another one at its socket
// says that it is served there.
func TestOnDemandWaitsForTheOther(t *testing.T) {
	o := options{user: true, socket: filepath.Join(t.TempDir(), "agent.sock")}
	held, err := tryLock(o.socket + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer held.release()
	if _, err := o.lock(context.Background(), &readiness{}); err == nil {
		t.Error("a daemon that was not started on demand goes on")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	time.AfterFunc(50*time.Millisecond, func() { // the other one is not quick
		l, err := net.Listen("unix", o.socket)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
	})
	if l, err := o.lock(context.Background(), &readiness{w}); l != nil || err != nil {
		t.Fatal(l, err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "ready\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		user bool
		mode os.FileMode
	}{{true, 0o600}, {false, 0o666}} {
		o := options{user: c.user, socket: filepath.Join(dir, "agent.sock")}
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: o.socket})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		stale.Close()
		l, err := o.listen()
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(o.socket); err != nil || info.Mode().Perm() != c.mode {
			t.Errorf("got %v, %v", info.Mode(), err)
		}
		l.Close()
		if _, err := os.Lstat(o.socket); !os.IsNotExist(err) {
			t.Errorf("left behind: %v", err)
		}
	}
	o := options{socket: filepath.Join(dir, "file")}
	if err := os.WriteFile(o.socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.listen(); err == nil {
		t.Error("a file was replaced")
	}
}

func TestComplete(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/x/state")
	o := defaults(true)
	if err := o.complete(); err != nil || o.state != "/x/state/pinfold" || o.idle != userIdle || !strings.HasSuffix(o.socket, "/agent.sock") {
		t.Errorf("got %+v, %v", o, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "/h")
	o = defaults(true)
	if err := o.complete(); err != nil || o.state != "/h/.local/state/pinfold" {
		t.Errorf("got %+v, %v", o, err)
	}
	o = options{user: true, socket: "/" + strings.Repeat("x", 108), state: "/s"}
	if err := o.complete(); err == nil {
		t.Error("a path that no socket can have")
	}
	if os.Geteuid() != 0 {
		if err := serve(&options{}, nil, nil); err == nil {
			t.Error("a machine's daemon that is not root's")
		}
	}
}
