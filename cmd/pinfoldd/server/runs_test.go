package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
)

// untilSignal is a command that writes what it reads, and ends by a signal or
// with its context.
func untilSignal(ctx context.Context, r confine.Request) (confine.Outcome, error) {
	if r.Stdin != nil {
		go io.Copy(r.Stdout, r.Stdin)
	}
	select {
	case sig := <-r.Signals:
		return confine.Outcome{ExitCode: -1, Signal: unix.SignalName(sig)}, nil
	case <-ctx.Done():
		return confine.Outcome{ExitCode: -1, Signal: "SIGTERM", Ended: confine.EndedCaller}, nil
	}
}

func (f *fixture) background(t *testing.T, command string) *api.BackgroundAnswer {
	t.Helper()
	_, a, err := f.client.Background(context.Background(), api.ExecRequest{Project: f.project, Command: command, StdinStream: true})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBackground(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(untilSignal)
	a := f.background(t, "true")
	if a.State != api.RunRunning || !a.Background || !a.Stdin || a.Receipt == nil || a.Decision == nil || a.Grant == nil {
		t.Errorf("%+v", a)
	}
	ctx := context.Background()
	if err := f.client.WriteStdin(ctx, a.RunInfo.Run, []byte("one\xff"), false); err != nil {
		t.Fatal(err)
	}
	_, r, err := f.client.Run(ctx, a.RunInfo.Run, 0, 10*time.Second)
	if err != nil || len(r.Output) != 1 || r.Output[0] != (api.Piece{Stream: "stdout", Data: "b25l/w==", Encoding: "base64"}) || r.Cursor != 4 {
		t.Errorf("%+v %v", r, err)
	}
	if _, r, err = f.client.Run(ctx, a.RunInfo.Run, 4, 0); err != nil || len(r.Output) != 0 || r.Cursor != 4 || r.Result != nil {
		t.Errorf("%+v %v", r, err)
	}
	if len(f.trace(t)) != 1 {
		t.Error("its end was recorded before it ended")
	}
	if err := f.client.Signal(ctx, a.RunInfo.Run, "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	for r.Result == nil { // waits for the end, too
		if _, r, err = f.client.Run(ctx, a.RunInfo.Run, r.Cursor, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if r.State != api.RunEnded || r.Result.Signal == nil || *r.Result.Signal != "SIGUSR1" {
		t.Errorf("%+v", r)
	}
	apiError(t, f.client.Signal(ctx, a.RunInfo.Run, "SIGTERM"), api.InvalidArguments)
	apiError(t, f.client.WriteStdin(ctx, a.RunInfo.Run, []byte("x"), false), api.InvalidArguments)
	if records := f.trace(t); len(records) != 2 || records[1].Run != a.RunInfo.Run || *records[1].Signal != "SIGUSR1" || records[0].TimeoutMS != api.MaxTimeout.Milliseconds() {
		t.Errorf("%+v", records)
	}
}

// TestBackgroundIsTheCallers: another's run is not found, in the same bytes as
// one that there is not, whatever is asked about it.
func TestBackgroundIsTheCallers(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(untilSignal)
	a := f.background(t, "true")
	f.registry.mu.Lock()
	f.registry.runs[a.RunInfo.Run].owner++ // somebody else's from now on
	f.registry.mu.Unlock()
	none := strings.Repeat("0", len(a.RunInfo.Run))
	for _, row := range [][3]string{
		{"GET", "", ""}, {"GET", "?cursor=1&wait_ms=100", ""}, {"POST", "/signal", `{"signal":"SIGKILL"}`}, {"POST", "/stdin", `{"data":"x"}`},
		{"POST", "/resize", `{"columns":1,"rows":1}`}, {"POST", "/signal", "no JSON"},
	} {
		s1, h1, b1 := f.raw(t, row[0], "/v1/runs/"+a.RunInfo.Run+row[1], row[2])
		s2, h2, b2 := f.raw(t, row[0], "/v1/runs/"+none+row[1], row[2])
		h1.Del("Date")
		h2.Del("Date")
		if s1 != 404 || s1 != s2 || b1 != b2 || fmt.Sprint(h1) != fmt.Sprint(h2) || strings.Contains(b1, a.RunInfo.Run) {
			t.Errorf("%s %s: %d %s, none: %d %s", row[0], row[1], s1, b1, s2, b2)
		}
	}
	if _, all, err := f.client.Runs(context.Background()); err != nil || len(all.Runs) != 0 {
		t.Errorf("%+v %v", all, err)
	}
}

// TestBackgroundThatDoesNotStart is answered like any other.
func TestBackgroundThatDoesNotStart(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(context.Context, confine.Request) (confine.Outcome, error) {
		return confine.Outcome{}, &confine.Unavailable{Layer: "landlock", Err: errors.New("not here")}
	})
	f.confiner.noStart = true
	_, _, err := f.client.Background(context.Background(), api.ExecRequest{Project: f.project, Command: "true"})
	apiError(t, err, api.ConfinementUnavailable)
	if records := f.trace(t); len(records) != 2 || records[1].ErrorType != "confinement_unavailable" {
		t.Errorf("%+v", records)
	}
}

// TestBackgroundEndsWithTheDaemon: in order, and recorded.
func TestBackgroundEndsWithTheDaemon(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(untilSignal)
	f.background(t, "true")
	f.background(t, "true")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	records := f.trace(t)
	if len(records) != 4 || records[2].ErrorType != "interrupted" || records[3].ErrorType != "interrupted" {
		t.Errorf("%+v", records)
	}
}

// TestBackgroundOutlivesItsRequest, and holds a slot of its caller's while it does.
func TestBackgroundOutlivesItsRequest(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(untilSignal)
	for range DefaultCaps.Runs {
		f.background(t, "true")
	}
	f.client.Close()
	f.Caps.Wait = 10 * time.Millisecond
	_, err := f.exec("true")
	apiError(t, err, api.Busy)
	_, all, err := f.client.Runs(context.Background())
	if err != nil || int64(len(all.Runs)) != DefaultCaps.Runs {
		t.Fatalf("%+v %v", all, err)
	}
	for _, r := range all.Runs {
		if err := f.client.Signal(context.Background(), r.Run, "SIGTERM"); err != nil {
			t.Error(err)
		}
	}
	f.Caps.Wait = DefaultCaps.Wait
	f.confiner.set(nil)
	if _, err := f.exec("true"); err != nil { // waits for a slot
		t.Error(err)
	}
}

func TestRing(t *testing.T) {
	r := newRing()
	w := &ringWriter{ring: r, name: "stdout"}
	e := &ringWriter{ring: r, name: "stderr"}
	io.WriteString(w, "a\xc3")
	io.WriteString(e, "b")
	io.WriteString(w, "\xa4")
	w.flush()
	out, next, dropped, wait := r.from(0)
	if fmt.Sprint(out) != "[{stdout a } {stderr b } {stdout ä }]" || next != 4 || dropped != 0 || wait != nil {
		t.Errorf("%v %d %d", out, next, dropped)
	}
	if out, next, _, wait := r.from(4); len(out) != 0 || next != 4 || wait == nil {
		t.Errorf("%v %d", out, next)
	}
	if _, next, _, _ := r.from(1 << 40); next != 4 {
		t.Errorf("a cursor beyond the end leads to %d", next)
	}
	// all of it is read, and what is too old is said to be lost
	total := int64(4)
	for i := range 5000 {
		line := fmt.Sprintf("%05d%s\n", i, strings.Repeat("x", 994))
		io.WriteString([]io.Writer{w, e}[i%2], line)
		total += int64(len(line))
	}
	var got int64
	cursor, lost := int64(4), int64(0)
	for {
		out, next, dropped, _ := r.from(cursor)
		if len(out) == 0 {
			break
		}
		for _, p := range out {
			got += int64(len(p.Data))
		}
		lost += dropped
		if next-cursor-dropped > maxPart+8<<10 {
			t.Errorf("a part of %d bytes", next-cursor)
		}
		cursor = next
	}
	if cursor != total || got+lost != total-4 || got > api.RingBytes || got < api.RingBytes-8<<10 {
		t.Errorf("read %d, lost %d of %d", got, lost, total)
	}
	// small pieces cost no more than large ones
	for i := range 100_000 {
		io.WriteString([]io.Writer{w, e}[i%2], "x")
	}
	if len(r.pieces) > maxPieces {
		t.Errorf("%d pieces", len(r.pieces))
	}
}

func TestFeed(t *testing.T) {
	f := newFeed([]byte("begin "), false)
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.put(ctx, bytes.Repeat([]byte("x"), maxFeed-10), false); err != nil {
		t.Fatal(err)
	}
	full := make(chan error, 1)
	go func() { full <- f.put(ctx, bytes.Repeat([]byte("y"), 100), true) }()
	select {
	case err := <-full:
		t.Errorf("there was no room, but %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	all, err := io.ReadAll(f)
	if err != nil || len(all) != 6+maxFeed-10+100 || <-full != nil {
		t.Errorf("%d bytes, %v", len(all), err)
	}
	if err := f.put(ctx, nil, false); !errors.Is(err, errFeedClosed) {
		t.Error(err)
	}
	f = newFeed(make([]byte, maxFeed), false)
	go cancel()
	if err := f.put(ctx, []byte("x"), false); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.end()
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, errFeedEnded) {
		t.Error(err)
	}
}

// TestStdinOfRequests: given with the request, or while the command runs; then
// the head of a JSON answer says which run it is.
func TestStdinOfRequests(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		if r.Stdin == nil {
			return confine.Outcome{ExitCode: 9}, nil
		}
		n, _ := io.Copy(r.Stdout, r.Stdin)
		return confine.Outcome{ExitCode: int(n)}, nil
	})
	ctx := context.Background()
	req := api.ExecRequest{Project: f.project, Command: "true", Stdin: "AAEC", StdinEncoding: "base64"}
	if r, err := f.client.Exec(ctx, req); err != nil || *r.ExitCode != 3 || r.Stdout != "\x00\x01\x02" {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := f.exec("true"); err != nil || *r.ExitCode != 9 {
		t.Errorf("%+v %v", r, err)
	}
	req = api.ExecRequest{Project: f.project, Command: "true", Stdin: "1", StdinStream: true}
	_, r, err := f.client.ExecStdin(ctx, req, func(run string) {
		f.client.WriteStdin(ctx, run, []byte("2"), false)
		f.client.WriteStdin(ctx, run, []byte("3"), true)
	})
	if err != nil || r.Stdout != "123" {
		t.Errorf("%+v %v", r, err)
	}
	// what fails after the head is an error all the same
	f.confiner.set(func(context.Context, confine.Request) (confine.Outcome, error) {
		return confine.Outcome{}, &confine.Unavailable{Layer: "x", Err: errors.New("y")}
	})
	_, _, err = f.client.ExecStdin(ctx, req, func(string) {})
	apiError(t, err, api.ConfinementUnavailable)
	if f.log.Len() > 0 {
		t.Errorf("log: %s", f.log)
	}
}

// TestLimitsOfRequests reach the run, and what ended it is a code with words.
func TestLimitsOfRequests(t *testing.T) {
	f := serve(t, nil)
	for ended, code := range map[confine.Ended]api.Code{
		confine.EndedMemory: api.OutOfMemory, confine.EndedProcesses: api.LimitExceeded, confine.EndedCPU: api.LimitExceeded,
		confine.EndedDisk: api.LimitExceeded, confine.EndedFiles: api.LimitExceeded, confine.EndedReserve: api.LimitExceeded,
		confine.EndedOutput: api.LimitExceeded, confine.EndedTimeout: api.Timeout,
	} {
		f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
			io.WriteString(r.Stdout, "so far")
			return confine.Outcome{ExitCode: -1, Signal: "SIGKILL", Ended: ended, Receipt: confine.Receipt{Limits: r.Limits}}, nil
		})
		r, err := f.client.Exec(context.Background(), api.ExecRequest{Project: f.project, Command: "write", Limits: &api.LimitsRequest{
			MemoryBytes: 1 << 20, Processes: 2, CPUMS: 3, FileBytes: 4, DiskBytes: 1 << 20, Files: 5}})
		e := apiError(t, err, code)
		if r.Stdout != "so far" || e.RecommendedAction == "" || strings.Contains(e.Message, "%!") || !*r.StateChanged {
			t.Errorf("%s: %+v %+v", ended, r, e)
		}
		l := r.Receipt.Limits
		if l.MemoryBytes != 1<<20 || l.Processes != 2 || l.CPUMS != 3 || l.FileBytes != 4 || l.DiskBytes != 1<<20 || l.Files != 5 {
			t.Errorf("%+v", l)
		}
	}
}

// TestTerminalOfRequests has a size, which can be changed.
func TestTerminalOfRequests(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		fmt.Fprint(r.Stdout, *r.TTY, <-r.Resize)
		return confine.Outcome{}, nil
	})
	ctx := context.Background()
	var out string
	err := f.client.Stream(ctx, api.ExecRequest{Project: f.project, Command: "true", TTY: true, Columns: 100}, func(e *api.Event) error {
		switch e.Event {
		case api.EventStarted:
			return f.client.Resize(ctx, e.Run, 7, 8)
		case api.EventStdout:
			out += e.Data
		}
		return nil
	})
	if err != nil || out != "{100 24} {7 8}" {
		t.Errorf("%q %v", out, err)
	}
}

// TestSlowClientDoesNotDelayTheEnd: the outcome is recorded when the command is
// gone, whether its client reads or not.
func TestSlowClientDoesNotDelayTheEnd(t *testing.T) {
	f := serve(t, nil)
	f.writeTime = time.Hour // not what ends it
	gone := make(chan struct{})
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		go func() { time.Sleep(300 * time.Millisecond); r.Gone(); close(gone) }()
		for range 3 << 20 / 1024 { // more than the queue and the socket hold
			r.Stdout.Write(make([]byte, 1024))
		}
		<-gone
		return confine.Outcome{}, nil
	})
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: f.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"project":"` + f.project + `","command":"true"}`
	fmt.Fprintf(c, "POST /v1/exec HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for deadline := time.Now().Add(60 * time.Second); len(f.trace(t)) < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end is not recorded")
		}
	}
}

// TestApprovalHoldsForStdin: two requests that would give a command something
// else to read, or another way to run, are not the same to whoever approves.
func TestApprovalHoldsForStdin(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range []api.ExecRequest{{}, {Stdin: "x"}, {Stdin: "y"}, {StdinStream: true}, {TTY: true}, {Background: true}} {
		v := verdict{how: howOf(&r)}
		b, err := binding(&v)
		if err != nil || seen[b] {
			t.Errorf("%+v: %v, or like another", r, err)
		}
		seen[b] = true
	}
}
