package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen returns a socket's listener and its path.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, socket
}

// daemon serves h and counts connections.
func daemon(t *testing.T, h http.HandlerFunc) (*Client, *atomic.Int32) {
	t.Helper()
	l, socket := listen(t)
	var conns atomic.Int32
	s := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}}
	go func() { _ = s.Serve(l) }()
	c := NewClient(socket)
	t.Cleanup(func() { c.Close(); s.Close() })
	return c, &conns
}

func TestCallsShareAConnection(t *testing.T) {
	c, conns := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/v1/exec":
			var req ExecRequest
			_ = json.Unmarshal(body, &req)
			if req.Command == "deny" {
				w.WriteHeader(403)
				fmt.Fprint(w, `{"success":false,"error":{"code":"PERMISSION_DENIED","message":"no"}}`)
				return
			}
			// Long enough to be sent in chunks.
			fmt.Fprintf(w, `{"success":true,"run":"r","exit_code":0,"usage":{},"stdout":%q}`, strings.Repeat("x", 100_000))
		case "/v1/trace":
			fmt.Fprintf(w, `{"success":true,"records":[],"complete":%v}`, r.URL.RawQuery == "limit=3&run=a")
		default:
			fmt.Fprint(w, `{"success":true}`)
		}
	})
	ctx := context.Background()
	for range 3 {
		if got, err := c.Exec(ctx, ExecRequest{Command: "x"}); err != nil || len(got.Stdout) != 100_000 {
			t.Fatalf("got %+v, %v", got, err)
		}
		if _, err := c.Exec(ctx, ExecRequest{Command: "deny"}); err == nil || err.Error() != "PERMISSION_DENIED: no" {
			t.Fatal(err)
		}
		if got, err := c.Trace(ctx, "a", 3); err != nil || !got.Complete {
			t.Fatalf("got %+v, %v", got, err)
		}
		if _, err := c.Health(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections", conns.Load())
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := c.Exec(ctx, ExecRequest{Command: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if conns.Load() > 8 {
		t.Errorf("%d connections for 8 at once", conns.Load())
	}
}

func TestClosedConnectionIsNotReused(t *testing.T) {
	c, conns := daemon(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, `{"success":true}`)
	})
	for range 2 {
		if _, err := c.Status(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if conns.Load() != 2 {
		t.Errorf("%d connections", conns.Load())
	}
}

func TestTextThatIsNoTextIsNotSent(t *testing.T) {
	c, conns := daemon(t, func(http.ResponseWriter, *http.Request) {})
	_, err := c.Exec(context.Background(), ExecRequest{Command: "\xff"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != InvalidArguments {
		t.Error(err)
	}
	if conns.Load() != 0 {
		t.Error("it was sent")
	}
}

// TestAnswersThatAreWrong: whatever answers, the client neither hangs nor
// panics nor takes it for success.
func TestAnswersThatAreWrong(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for name, answer := range map[string]string{
		"nothing":              "",
		"no HTTP":              "SSH-2.0-x\r\n\r\n",
		"HTTP/1.0":             "HTTP/1.0 200 OK\r\n\r\n{}",
		"no status":            "HTTP/1.1 OK\r\n\r\n",
		"cut in the head":      head + "Content-Le",
		"long line":            head + "X: " + strings.Repeat("x", 9000) + "\r\n\r\n",
		"many headers":         head + strings.Repeat("X: y\r\n", 100) + "\r\n",
		"negative length":      head + "Content-Length: -1\r\n\r\n",
		"short body":           head + "Content-Length: 100\r\n\r\n{}",
		"no JSON":              head + "Content-Length: 2\r\n\r\nhi",
		"odd chunk":            head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
		"negative chunk":       head + "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}",
		"chunk without end":    head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx",
		"cut in a chunk":       head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{",
		"error without one":    "HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
		"failure without one":  head + "Content-Length: 17\r\n\r\n{\"success\":false}",
		"failure of no status": "HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, socket := listen(t)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				c.Close()
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			if got, err := NewClient(socket).Status(ctx); err == nil {
				t.Errorf("got %+v", got)
			}
			if ctx.Err() != nil {
				t.Error("hangs")
			}
		})
	}
}

func TestEventsThatEndEarly(t *testing.T) {
	c, _ := daemon(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", NDJSON)
		fmt.Fprint(w, `{"event":"decided"}`+"\n"+`{"event":"stdout","data":"/w==","encoding":"base64"}`+"\n")
	})
	var data string
	err := c.Stream(context.Background(), ExecRequest{Command: "x"}, func(e *Event) error {
		data += e.Data
		return nil
	})
	if err == nil || data != "\xff" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestCanceledCallGivesUp(t *testing.T) {
	release := make(chan struct{})
	c, _ := daemon(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done() // the half-closed connection is seen
		close(release)
		fmt.Fprint(w, `{"success":false,"error":{"code":"INTERRUPTED","message":"x"},"run":"r","usage":{}}`)
	})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	got, err := c.Exec(ctx, ExecRequest{Command: "x"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != Interrupted || got == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	<-release
	if _, err := c.Exec(ctx, ExecRequest{Command: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was canceled before: %v", err)
	}
}

func TestAbsentDaemon(t *testing.T) {
	if _, err := NewClient(filepath.Join(t.TempDir(), "none")).Connect(context.Background()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	l, socket := listen(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := NewClient(socket).Connect(context.Background()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Error(err)
	}
}

// TestForeignSocketIsRefused: somebody else listens where the daemon should.
func TestForeignSocketIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed to be somebody else")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o777)
	}
	served := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 54321, 54321, 54321); errno != 0 {
			close(served)
			return
		}
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Error(err)
		}
		served <- l
	}()
	l := <-served
	if l == nil {
		t.Fatal("nobody listens")
	}
	defer l.Close()
	_, err := NewClient(socket).Connect(context.Background())
	if e, ok := errors.AsType[*PeerError](err); !ok || e.UID != 54321 {
		t.Errorf("got %v", err)
	}
}

func TestUserSocket(t *testing.T) {
	dir := t.TempDir()
	fallback := fmt.Sprintf("/tmp/pinfold-%d/agent.sock", os.Geteuid())
	for _, c := range []struct {
		name, dir string
		mode      os.FileMode
		want      string
	}{
		{"own", dir, 0o700, dir + "/pinfold/agent.sock"},
		{"writable by others", dir, 0o770, fallback},
		{"relative", "run", 0o700, fallback},
		{"not there", dir + "/none", 0o700, fallback},
		{"not set", "", 0o700, fallback},
	} {
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		t.Setenv("XDG_RUNTIME_DIR", c.dir)
		if got := UserSocket(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
