package confine

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHostsEnds: sockets with somebody behind them and FIFOs that lie in the
// project are empty files for a command that may open sockets, wherever they are
// and whenever they came; what a dead server left can be removed.
func TestHostsEnds(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		if b.m.abi >= abiPathnameSockets {
			t.Skip("Landlock does it")
		}
		needs(t, "python3")
		listen := func(name, network string) {
			t.Helper()
			path := filepath.Join(b.project, name)
			writeFile(t, b.caller, filepath.Join(filepath.Dir(path), "x"), "", 0o644)
			// the name of a socket has 108 bytes
			dir, err := os.Open(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			short := filepath.Join(procFD(int(dir.Fd())), filepath.Base(path))
			if network == "unixgram" {
				c, err := net.ListenUnixgram(network, &net.UnixAddr{Name: short, Net: network})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
			} else {
				l, err := net.ListenUnix(network, &net.UnixAddr{Name: short, Net: network})
				if err != nil {
					t.Fatal(err)
				}
				l.SetUnlinkOnClose(false)
				t.Cleanup(func() { l.Close() })
				if name == "dead" {
					l.Close()
				}
			}
			own(t, b.caller, path)
			os.Chmod(path, 0o777)
		}
		try := func(names ...string) {
			t.Helper()
			code := `
import stat
for n in ` + fmt.Sprintf("%q", strings.Join(names, " ")) + `.split():
    for kind in (1, 2, 5):
        try: socket.socket(1, kind).connect(n); escape(n)
        except OSError: pass
    if not stat.S_ISREG(os.stat(n).st_mode) or open(n).read(): escape("is no empty file: " + n)
    blocked(lambda: os.rename(n, n + ".x"), n)
    blocked(lambda: os.link(n, n + ".x"), n)
`
			r := b.python(t, widest, code)
			if strings.Contains(r.out, "ESCAPE") || r.ExitCode != 0 {
				t.Errorf("%+v", r)
			}
			slices.Sort(names)
			if !slices.Equal(r.Masked, names) {
				t.Errorf("masked %q, want %q", r.Masked, names)
			}
		}
		listen("s", "unix")
		listen("a/b/c/d", "unixgram")
		listen("packet", "unixpacket")
		listen("dead", "unix")
		if err := unix.Mkfifo(b.project+"/a/fifo", 0o666); err != nil {
			t.Fatal(err)
		}
		own(t, b.caller, b.project+"/a/fifo")
		try("s", "a/b/c/d", "packet", "a/fifo")
		listen("a/b/late", "unix")
		try("s", "a/b/c/d", "packet", "a/fifo", "a/b/late")
		os.Remove(b.project + "/a/fifo")
		try("s", "a/b/c/d", "packet", "a/b/late")
		if r := b.run(t, widest, "rm dead && mkfifo own && (echo hello > own & read x < own && echo $x)"); r.out != "hello\n" {
			t.Errorf("what nobody listens on is in the way: %+v", r)
		}
		os.Remove(b.project + "/own")
		if b.caller.UID != 0 { // to whom no directory is shut
			os.Chmod(b.project+"/a/b", 0)
			r := b.python(t, widest, `
blocked(lambda: os.chmod("a/b", 0o700), "open a directory up")
blocked(lambda: os.rename("a/b", "b2"), "move it")
blocked(lambda: socket.socket(1).connect("a/b/late"), "late")
`)
			os.Chmod(b.project+"/a/b", 0o755)
			if strings.Contains(r.out, "ESCAPE") || r.ExitCode != 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestHostsEndsAreFoundQuickly: a project of 10,000 files in 1,000 directories.
func TestHostsEndsAreFoundQuickly(t *testing.T) {
	for name, c := range callers(t) {
		t.Run(name, func(t *testing.T) {
			project := newProject(t, c, c.Home)
			for i := range 1000 {
				dir := fmt.Sprintf("%s/%d/%d", project, i%30, i)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				for j := range 10 {
					os.WriteFile(fmt.Sprintf("%s/%d", dir, j), nil, 0o644)
				}
			}
			time.Sleep(2 * endsSettled)
			fd, err := unix.Open(project, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			var e projectEnds
			var took [2]time.Duration
			for i := range took {
				begin := time.Now()
				ends, shut, err := e.find(c, fd)
				if took[i] = time.Since(begin); err != nil || len(ends)+len(shut) != 0 {
					t.Errorf("%v %v %v", ends, shut, err)
				}
			}
			t.Logf("first %v, then %v", took[0], took[1])
			if took[0] > 400*time.Millisecond || took[1] > 50*time.Millisecond {
				t.Errorf("first %v, then %v", took[0], took[1])
			}
		})
	}
}
