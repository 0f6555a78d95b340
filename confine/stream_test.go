package confine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// do runs a request that a change has been made to.
func (b box) do(t *testing.T, g policy.Grant, text string, change func(*Request)) result {
	t.Helper()
	r, out, errs := b.request(g, text)
	change(&r)
	o, err := b.m.Run(context.Background(), r)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return result{o, out.String(), errs.String()}
}

// TestStdin: what is given is read, through a pipe that ends; without it there is
// nothing to read, at once.
func TestStdin(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		long := strings.Repeat("0123456789abcde\n", 64<<10) // more than a pipe holds
		for _, row := range []struct {
			text, in, out string
			grant         policy.Grant
		}{
			{"cat", "a\x00b\xff\n", "a\x00b\xff\n", pinned(t, "cat")},
			{"cat", "", "", widest},
			{"wc -c", long, "1048576\n", pinned(t, "wc")},
			{"read x; echo $x; read y < /dev/stdin; echo $y", "one\ntwo\n", "one\n\n", policy.Grant{}},
			{"head -n 1", long, "0123456789abcde\n", pinned(t, "head")}, // reads no further
			{"exec 0<&-; echo closed", long, "closed\n", policy.Grant{}},
			{"[ -p /dev/stdin ] && echo pipe", "x", "pipe\n", policy.Grant{}},
			{"[ -S /dev/stdin ] || echo none", "x", "none\n", policy.Grant{}},
		} {
			got := b.do(t, row.grant, row.text, func(r *Request) { r.Stdin = strings.NewReader(row.in) })
			if row.text == "read x; echo $x; read y < /dev/stdin; echo $y" {
				// the pipe may be opened anew by its owner, and gives what is left
				row.out = "one\ntwo\n"
			}
			if got.out != row.out || got.err != "" {
				t.Errorf("%s: got %q %q %+v", row.text, got.out, got.err, got.Outcome)
			}
		}
		if got := b.run(t, pinned(t, "cat"), "cat; echo $?"); got.out != "0\n" {
			t.Errorf("without: %+v", got)
		}
	})
}

// TestStdinNeverDelays: a stdin that nobody writes, and that does not end, keeps
// no command from ending.
func TestStdinNeverDelays(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		for _, tty := range []*Window{nil, {80, 24}} {
			r, w := io.Pipe()
			begin := time.Now()
			got := b.do(t, policy.Grant{}, "echo end", func(q *Request) { q.Stdin, q.TTY = r, tty })
			if strings.TrimSpace(got.out) != "end" || time.Since(begin) > 20*time.Second {
				t.Errorf("%+v after %v", got, time.Since(begin))
			}
			w.Close()
		}
	})
}

func TestMerge(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		got := b.do(t, policy.Grant{}, "for i in 1 2 3; do echo o$i; echo e$i >&2; done", func(r *Request) { r.Merge = true })
		if got.out != "o1\ne1\no2\ne2\no3\ne3\n" || got.err != "" {
			t.Errorf("%+v", got)
		}
	})
}

// TestSlowReader: output that nobody takes keeps no command from ending.
func TestSlowReader(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		taken := make(chan struct{})
		gone := make(chan struct{})
		got := make(chan result, 1)
		go func() {
			got <- b.do(t, policy.Grant{}, "echo 1; echo 2", func(r *Request) {
				r.Stdout = writerFunc(func(p []byte) (int, error) { <-taken; return len(p), nil })
				r.Gone = func() { close(gone) }
			})
		}()
		select {
		case <-gone:
		case <-time.After(60 * time.Second):
			t.Error("the command waits for its reader")
		}
		close(taken)
		if r := <-got; r.ExitCode != 0 || r.Ended != EndedItself {
			t.Errorf("%+v", r)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFinalDir: the shell's directory at its end, without a trace in what the
// text sees of itself.
func TestFinalDir(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/sub/deep/file", "", 0o644)
		writeFile(t, b.caller, b.project+"/a b/file", "", 0o644)
		os.Symlink("sub/deep", b.project+"/link")
		for text, want := range map[string]string{
			"true":                                   ".",
			"cd sub":                                 "sub",
			"cd sub/deep; exit 3":                    "sub/deep",
			"cd link":                                "sub/deep",
			"cd 'a b'":                               "a b",
			"(cd sub)":                               ".",
			"cd sub & wait":                          ".",
			"cd sub; cd /tmp":                        "",
			"cd /":                                   "",
			"cd sub; trap 'cd deep' EXIT":            "sub/deep",
			"cd sub && exec true":                    "sub",
			"mkdir gone && cd gone && rmdir ../gone": "",
			"mkdir $'x\\ny' && cd x*":                "",
			"mkdir $'\\xff' && cd $'\\xff'":          "",
			"cd sub; kill -KILL $$":                  "sub",
			"cd sub; sleep 100 & exit":               "sub",
		} {
			if got := b.run(t, widest, text); got.FinalDir != want {
				t.Errorf("%s: %q, want %q (%+v)", text, got.FinalDir, want, got)
			}
		}
		got := b.run(t, policy.Grant{}, `trap -p; echo "$BASH_EXECUTION_STRING"; (exit 7); echo $?; umask`)
		if got.out != "trap -p; echo \"$BASH_EXECUTION_STRING\"; (exit 7); echo $?; umask\n7\n0022\n" {
			t.Errorf("the text sees something: %q", got.out)
		}
	})
}

// TestFinalDirIsParsed: what an init says of the directory is a name, and nothing
// else comes through.
func TestFinalDirIsParsed(t *testing.T) {
	c := &command{s: &session{project: "/home/me/p"}}
	for dir, want := range map[string]string{
		"/home/me/p": ".", "/home/me/p/a": "a", "/home/me/p/..a": "..a",
		"": "", "a": "", "/": "", "/home/me": "", "/home/me/pp": "", "/home/me/p/..": "", "/home/me/p/../q": "",
		"/home/me/p/a/": "", "/home/me/p/a\n": "", "/home/me/p/\xff": "", "(unreachable)/home/me/p": "", "/home/me/p/\u0085": "",
	} {
		if got := c.relative(dir); got != want {
			t.Errorf("%q: %q, want %q", dir, got, want)
		}
	}
}

func TestOutlived(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		for text, want := range map[string]int{
			"true":                                0,
			"sleep 0 & wait":                      0,
			"sleep 100 & sleep 100 & sleep 100 &": 3,
			"setsid sleep 100 & (sleep 100 & exec sleep 100) & sleep 0.2": 3,
			"sleep 100 & kill -STOP $!":                                   1,
		} {
			if got := b.run(t, widest, text); got.Outlived != want {
				t.Errorf("%s: %d, want %d", text, got.Outlived, want)
			}
		}
	})
}

// TestTerminal: a terminal of the command's own, for every kind of grant.
func TestTerminal(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		tty := func(in string) func(*Request) {
			return func(r *Request) { r.TTY, r.Stdin = &Window{Columns: 77, Rows: 33}, strings.NewReader(in) }
		}
		plain := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
		if got := b.do(t, policy.Grant{}, `[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo $TERM >&2`, tty("")); !strings.Contains(plain(got.out), "xterm-256color\n") {
			t.Errorf("pinned: %+v", got)
		}
		if got := b.do(t, pinned(t, "stty"), `stty size; stty size < /dev/tty`, tty("")); plain(got.out) != "33 77\n33 77\n" {
			t.Errorf("size: %+v", got)
		}
		if got := b.do(t, widest, `tty; stty -echo; cat; ps -o tty= -p $$`, tty("hello\n")); !strings.Contains(plain(got.out), "/dev/pts/0\n") || !strings.Contains(plain(got.out), "hello\n") ||
			!strings.Contains(got.out, "pts/0") {
			t.Errorf("cat: %+v", got)
		}
		// ^C at the terminal is for what runs in the foreground. bash loses one that
		// comes while it starts, and a child one that comes before it executes its
		// program: it is typed once bash is ready, and there are many children.
		typed, keyboard := io.Pipe()
		ready := &atWord{word: "ready", do: func() { keyboard.Write([]byte{3}) }}
		got := b.do(t, widest, `trap 'echo caught; exit 5' INT; echo ready; for i in {1..600}; do sleep 0.1; done; echo no`, func(r *Request) {
			tty("")(r)
			ready.to, r.Stdin, r.Stdout = r.Stdout, typed, ready
		})
		keyboard.Close()
		if got.ExitCode != 5 || !strings.Contains(got.out, "caught") {
			t.Errorf("interrupt: %+v", got)
		}
		// nothing can be typed into it from inside
		if got := b.do(t, widest, `python3 -c "import fcntl,termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"`, tty("")); !strings.Contains(got.out, "not permitted") && !strings.Contains(got.out, "Operation") {
			t.Errorf("TIOCSTI: %+v", got)
		}
	})
}

// An atWord passes text on, and does something when a word has come.
type atWord struct {
	word string
	do   func()
	to   io.Writer
	seen strings.Builder
	once sync.Once
}

func (w *atWord) Write(b []byte) (int, error) {
	w.seen.Write(b)
	if strings.Contains(w.seen.String(), w.word) {
		w.once.Do(func() { go w.do() })
	}
	return w.to.Write(b)
}

func TestTerminalIsResized(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		resize := make(chan Window, 1)
		var mu sync.Mutex
		var out bytes.Buffer
		got := b.do(t, widest, `trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done`, func(r *Request) {
			r.TTY, r.Resize = &Window{80, 24}, resize
			r.Stdout = writerFunc(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				if bytes.Contains(p, []byte("ready")) {
					resize <- Window{Columns: 101, Rows: 51}
				}
				return out.Write(p)
			})
		})
		if got.ExitCode != 0 || !strings.Contains(out.String(), "51 101") {
			t.Errorf("%+v %q", got, out.String())
		}
	})
}

func TestSignals(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		for _, row := range []struct {
			text   string
			signal syscall.Signal
			exit   int
			named  string
		}{
			{`trap 'exit 3' USR1; echo ready; while :; do sleep 0.05; done`, unix.SIGUSR1, 3, ""},
			{`trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done`, unix.SIGTERM, 4, ""},
			{`trap 'exit 5' HUP; echo ready; while :; do sleep 0.05; done`, unix.SIGHUP, 5, ""},
			{`echo ready; sleep 100`, unix.SIGINT, -1, "SIGINT"},
			{`trap '' TERM; echo ready; sleep 100`, unix.SIGKILL, -1, "SIGKILL"},
			{`echo ready; sleep 0.3`, unix.SIGSTOP, 0, ""}, // is not passed on
		} {
			signals := make(chan syscall.Signal, 1)
			got := b.do(t, widest, row.text, func(r *Request) {
				r.Signals = signals
				r.Stdout = writerFunc(func(p []byte) (int, error) { signals <- row.signal; return len(p), nil })
			})
			if got.ExitCode != row.exit || got.Signal != row.named || got.Ended != EndedItself {
				t.Errorf("%s: %+v", row.text, got.Outcome)
			}
		}
		// one that comes before the command runs waits for it
		signals := make(chan syscall.Signal, 1)
		signals <- unix.SIGTERM
		if got := b.do(t, widest, `sleep 100`, func(r *Request) { r.Signals = signals }); got.Signal != "SIGTERM" {
			t.Errorf("early: %+v", got.Outcome)
		}
	})
}

// TestSessionServer: a server that one command started is there for the next one
// of the session, on its loopback, until its own end.
func TestSessionServer(t *testing.T) {
	needs(t, "python3")
	each(t, func(t *testing.T, b box) {
		ctx, cancel := context.WithCancel(context.Background())
		r, _, _ := b.request(widest, `exec python3 -u -m http.server 8123 --bind 127.0.0.1`)
		ready := make(chan struct{})
		r.Stdout = writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("Serving")) {
				close(ready)
			}
			return len(p), nil
		})
		done := make(chan error, 1)
		go func() { _, err := b.m.Run(ctx, r); done <- err }()
		<-ready
		ask := `python3 -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/').status)"`
		if got := b.run(t, widest, ask); got.out != "200\n" {
			t.Errorf("%+v", got)
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := b.run(t, widest, ask); got.out != "" {
			t.Errorf("after its end: %+v", got)
		}
	})
}
