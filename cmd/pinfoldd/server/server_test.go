package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
	"github.com/pinfold/pinfold/trace"
)

// A fakeConfiner runs commands by calling run.
type fakeConfiner struct {
	view   func() (confine.View, error)
	layers []confine.Layer

	noStart bool // every run fails before its start

	mu     sync.Mutex
	run    func(ctx context.Context, r confine.Request) (confine.Outcome, error)
	ran    []confine.Request
	ended  []string // sessions
	probes int
}

func (f *fakeConfiner) End(_ uint32, session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, session)
}

func (f *fakeConfiner) Run(ctx context.Context, r confine.Request) (confine.Outcome, error) {
	f.mu.Lock()
	f.ran = append(f.ran, r)
	run := f.run
	f.mu.Unlock()
	if r.Started != nil && !f.noStart {
		r.Started(confine.Receipt{Setting: "system", NoNewPrivs: true})
	}
	if run == nil {
		return confine.Outcome{}, nil
	}
	return run(ctx, r)
}

// set says how commands run from now on; nil is for nothing.
func (f *fakeConfiner) set(run func(ctx context.Context, r confine.Request) (confine.Outcome, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = run
}

func (f *fakeConfiner) Layers(context.Context, confine.Caller, string) []confine.Layer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probes++
	return f.layers
}

func (f *fakeConfiner) View(confine.Caller, string) (confine.View, error) {
	if f.view != nil {
		return f.view()
	}
	return confine.View{Home: "/home/x", Path: []string{"/usr/bin"}, Readable: []string{"/usr"}, Writable: []string{"/tmp"}}, nil
}

func (f *fakeConfiner) Sessions() int { return 1 }

// A fakePolicy decides by the first word of the text.
type fakePolicy struct {
	seen           func(policy.Env)
	*policy.Policy // for what no test asks
}

func (f fakePolicy) Decide(s *shparse.Script, env policy.Env) policy.Decision {
	if f.seen != nil {
		f.seen(env)
	}
	word, _, _ := strings.Cut(s.Text, " ")
	d := policy.Decision{Verdict: policy.Allow, Text: s.Text, Timeout: 10 * time.Second, Rules: []string{"rule-" + word}}
	r := policy.Reason{Rule: "rule-" + word, Message: "because of " + word, Span: policy.Span{Line: 1, Column: 1, Text: word}}
	switch word {
	case "deny":
		d.Verdict, d.Risk = policy.Deny, policy.High
		r.Suggest = "do something else"
	case "ask":
		d.Verdict, d.Risk = policy.RequireApproval, policy.Medium
	case "write":
		d.Grant.Write = []string{"."}
	case "panic":
		panic("in a decision")
	}
	r.Verdict, r.Risk = d.Verdict, d.Risk
	d.Reasons = []policy.Reason{r}
	return d
}

func (f fakePolicy) Examine(s *shparse.Script, env policy.Env) policy.Explanation {
	return policy.Explanation{Decision: f.Decide(s, env)}
}

func (f fakePolicy) Hash() string { return "hash" }

func (f fakePolicy) Writable() []string { return nil }

// A fixture is a server on a socket with a project of its own.
type fixture struct {
	*Server
	confiner *fakeConfiner
	client   *api.Client
	socket   string
	control  *api.Client // of the control socket
	project  string
	records  string // path of the trace
	log      *bytes.Buffer
}

func serve(t testing.TB, change func(*Config)) *fixture {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// Other users are to reach the socket.
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	f := &fixture{confiner: &fakeConfiner{}, socket: filepath.Join(dir, "s", "agent.sock"), project: filepath.Join(dir, "project"),
		records: filepath.Join(dir, "trace.ndjson"), log: &bytes.Buffer{}}
	for _, d := range []string{"s", "project", "state"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	records, _, err := trace.Open(trace.Options{Path: f.records, Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Confiner: f.confiner, Policy: fakePolicy{}, Trace: records, Version: "v", Build: "7-b", Setting: "system",
		StateDir: filepath.Join(dir, "state"), Socket: f.socket, Log: log.New(f.log, "", 0)}
	if change != nil {
		change(&config)
	}
	f.Server = New(config)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: f.socket})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	control, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: api.ControlSocket(f.socket)})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 2)
	go func() { served <- f.Serve(l) }()
	go func() { served <- f.ServeControl(control) }()
	f.client, f.control = api.NewClient(f.socket), api.NewClient(api.ControlSocket(f.socket))
	t.Cleanup(func() {
		f.client.Close()
		f.control.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := f.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		for range 2 {
			if err := <-served; err != nil {
				t.Errorf("serve: %v", err)
			}
		}
		records.Close()
	})
	return f
}

func (f *fixture) exec(command string) (*api.Result, error) {
	return f.client.Exec(context.Background(), api.ExecRequest{Project: f.project, Command: command})
}

// trace returns the records of commands.
func (f *fixture) trace(t testing.TB) []trace.Record {
	t.Helper()
	data, err := os.ReadFile(f.records)
	if err != nil {
		t.Fatal(err)
	}
	var records []trace.Record
	for line := range bytes.Lines(data) {
		var r trace.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Run != "" {
			records = append(records, r)
		}
	}
	return records
}

// raw makes one request as written.
func (f *fixture) raw(t testing.TB, method, path, body string) (int, http.Header, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", f.socket) }}}
	req, err := http.NewRequest(method, "http://pinfold"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func apiError(t testing.TB, err error, code api.Code) *api.Error {
	t.Helper()
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return e
}

func TestExec(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		_, _ = io.WriteString(r.Stdout, strings.Repeat("o", 9000))
		_, _ = io.WriteString(r.Stderr, "\xff")
		return confine.Outcome{ExitCode: 3, Receipt: confine.Receipt{Setting: "system", LandlockABI: 7, Layers: []string{"seccomp"}},
			Usage: confine.Usage{Wall: 1500 * time.Microsecond}}, nil
	})
	got, err := f.exec("write '<x>'")
	if err != nil {
		t.Fatal(err)
	}
	if !got.Success || *got.ExitCode != 3 || got.Signal != nil || got.Error != nil || got.StateChanged != nil {
		t.Errorf("got %+v", got)
	}
	if len(got.Stdout) != 8000 || got.Truncated != (api.Truncated{Stdout: 1000}) || got.Stderr != "/w==" || *got.Encoding != (api.Encoding{Stderr: "base64"}) {
		t.Errorf("output: %d, %q, %+v, %+v", len(got.Stdout), got.Stderr, got.Truncated, got.Encoding)
	}
	if got.Decision.Text != "write '<x>'" || got.Decision.Policy != "hash" || !slices.Equal(got.Grant.Write, []string{"."}) ||
		got.Receipt.LandlockABI != 7 || got.Usage.WallMS != 1.5 {
		t.Errorf("got %+v, %+v, %+v, %+v", got.Decision, got.Grant, got.Receipt, got.Usage)
	}
	r := f.confiner.ran[0]
	if r.Project != f.project || r.Dir != "." || r.Text != "write '<x>'" || r.Timeout != 10*time.Second || r.Caller.UID != uint32(os.Geteuid()) || r.Caller.Name == "" {
		t.Errorf("ran %+v", r)
	}
	records := f.trace(t)
	if len(records) != 2 {
		t.Fatalf("%d records", len(records))
	}
	d, e := records[0], records[1]
	if d.Event != "decided" || d.Run != got.Run || d.Tool != "run_shell" || d.Args.Command != "write '<x>'" || !d.Approved || d.ApprovalRequired ||
		d.PolicyDecision != "allow" || d.RiskLevel != "low" || d.RiskReason != "because of write" || d.ErrorType != "" || d.Caller.PID != os.Getpid() ||
		d.Caller.Executable == "" || d.Project != f.project || d.Text != "write '<x>'" || d.Grant == nil || d.TimeoutMS != 10000 {
		t.Errorf("decided: %+v", d)
	}
	if e.Event != "finished" || e.Run != got.Run || *e.ExitCode != 3 || e.ErrorType != "" || e.Output != (trace.Output{StdoutBytes: 9000, StderrBytes: 1}) ||
		*e.Truncated != (api.Truncated{Stdout: 1000}) || e.Receipt.LandlockABI != 7 || e.Usage.WallMS != 1.5 {
		t.Errorf("finished: %+v", e)
	}
}

func TestExecOptions(t *testing.T) {
	f := serve(t, nil)
	if err := os.MkdirAll(filepath.Join(f.project, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/b", filepath.Join(f.project, "link")); err != nil {
		t.Fatal(err)
	}
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		_, _ = io.WriteString(r.Stdout, "0123456789")
		return confine.Outcome{ExitCode: -1, Signal: "SIGSEGV"}, nil
	})
	limit := 4
	got, err := f.client.Exec(context.Background(), api.ExecRequest{Project: f.project, Command: "x", Cwd: "link", TimeoutMS: 1234, OutputLimit: &limit})
	if err != nil || got.Stdout != "0189" || got.Truncated.Stdout != 6 || got.ExitCode != nil || *got.Signal != "SIGSEGV" || !got.Success {
		t.Errorf("got %+v, %v", got, err)
	}
	if r := f.confiner.ran[0]; r.Dir != "a/b" || r.Timeout != 1234*time.Millisecond {
		t.Errorf("ran %+v", r)
	}
}

func TestRefusals(t *testing.T) {
	f := serve(t, nil)
	for _, c := range []struct {
		command string
		code    api.Code
		status  int
		verdict string
	}{
		{"deny it", api.PermissionDenied, 403, "deny"},
		{"ask it", api.ApprovalRequired, 403, "require_approval"},
		{"(", api.ParseError, 400, "deny"},
	} {
		status, _, body := f.raw(t, "POST", "/v1/exec", fmt.Sprintf(`{"project":%q,"command":%q,"unattended":true}`, f.project, c.command))
		var a api.ErrorAnswer
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatal(err)
		}
		if status != c.status || a.Success || a.Error.Code != c.code || a.StateChanged || a.Error.Retryable || a.Error.RecommendedAction == "" ||
			a.Error.At == nil || a.Error.At.Line != 1 || a.Error.At.Column != 1 {
			t.Errorf("%s: %d %s", c.command, status, body)
		}
		if (a.Decision != nil) != (c.code != api.ParseError) {
			t.Errorf("%s: decision %+v", c.command, a.Decision)
		}
		records := f.trace(t)
		r := records[len(records)-1]
		if r.Event != "decided" || r.Run != a.Run || r.Approved || r.ApprovalRequired != (c.code == api.ApprovalRequired) ||
			r.PolicyDecision != c.verdict || r.ErrorType != strings.ToLower(string(c.code)) || r.RiskReason != a.Error.Message || r.Args.Command != c.command {
			t.Errorf("%s: recorded %+v", c.command, r)
		}
	}
	if len(f.confiner.ran) != 0 {
		t.Errorf("ran %+v", f.confiner.ran)
	}
	_, err := f.exec("deny it")
	if e := apiError(t, err, api.PermissionDenied); e.Rule != "rule-deny" || e.RecommendedAction != "do something else" {
		t.Errorf("got %+v", e)
	}
}

func TestEndedEarly(t *testing.T) {
	f := serve(t, nil)
	for _, c := range []struct {
		ended   confine.Ended
		command string
		code    api.Code
		changed bool
	}{
		{confine.EndedTimeout, "read", api.Timeout, false},
		{confine.EndedTimeout, "write", api.Timeout, true},
		{confine.EndedOutput, "write", api.LimitExceeded, true},
		{confine.EndedKeeper, "write", api.Interrupted, true},
	} {
		f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
			_, _ = io.WriteString(r.Stdout, "so far")
			return confine.Outcome{ExitCode: -1, Signal: "SIGTERM", Ended: c.ended}, nil
		})
		got, err := f.exec(c.command)
		e := apiError(t, err, c.code)
		if got == nil || got.Success || got.Stdout != "so far" || got.StateChanged == nil || *got.StateChanged != c.changed || got.ExitCode != nil || e.Message == "" {
			t.Errorf("%s: got %+v", c.ended, got)
		}
		records := f.trace(t)
		if r := records[len(records)-1]; r.Event != "finished" || r.ErrorType != strings.ToLower(string(c.code)) || r.Detail == "" {
			t.Errorf("%s: recorded %+v", c.ended, r)
		}
	}
}

func TestNotStarted(t *testing.T) {
	f := serve(t, nil)
	for _, c := range []struct {
		err    error
		code   api.Code
		status int
		want   string
	}{
		{&confine.Unavailable{Layer: "landlock", Err: errors.New("ABI 1"), Fix: "a newer kernel"}, api.ConfinementUnavailable, 503, "landlock: ABI 1"},
		{confine.ErrBusy, api.Busy, 429, "sessions"},
		{&confine.ProjectError{Path: "/p", Err: unix.ESTALE}, api.InvalidArguments, 400, "project: cannot be used"},
		{errors.New("odd"), api.Internal, 500, "odd"},
	} {
		f.confiner.set(func(context.Context, confine.Request) (confine.Outcome, error) { return confine.Outcome{}, c.err })
		status, _, body := f.raw(t, "POST", "/v1/exec", fmt.Sprintf(`{"project":%q,"command":"x"}`, f.project))
		if status != c.status || !strings.Contains(body, string(c.code)) || !strings.Contains(body, c.want) {
			t.Errorf("%v: %d %s", c.err, status, body)
		}
		records := f.trace(t)
		if r := records[len(records)-1]; r.Event != "finished" || r.ErrorType != strings.ToLower(string(c.code)) || r.Receipt != nil {
			t.Errorf("%v: recorded %+v", c.err, r)
		}
		err := f.client.Stream(context.Background(), api.ExecRequest{Project: f.project, Command: "x"}, func(e *api.Event) error {
			if e.Event == api.EventFinished && (e.Success || e.Error.Code != c.code) {
				t.Errorf("%v: finished %+v", c.err, e)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: events: %v", c.err, err)
		}
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	f := serve(t, nil)
	big := `{"project":"/p","command":"` + strings.Repeat("x", api.MaxRequest) + `"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/exec", `{"project":"/p"}`, 400, `"command: is missing"`},
		{"POST", "/v1/exec", big, 413, `"body: must be at most 1048576 bytes"`},
		{"POST", "/v1/check", `{}`, 400, `"project: is missing"`},
		{"GET", "/v1/exec", ``, 405, `"method: this path takes another method"`},
		{"GET", "/v1/exec/", ``, 404, `NOT_FOUND`},
		{"GET", "/../etc/passwd", ``, 404, `NOT_FOUND`},
		{"GET", "/v1/trace?limit=0", ``, 400, `"limit: must be a whole number from 1 to 1000"`},
		{"GET", "/v1/trace?limit=1&limit=2", ``, 400, `"query: names a parameter more than once"`},
		{"GET", "/v1/trace?uid=0", ``, 400, `"query: has a parameter that GET /v1/openapi.yaml does not list`},
		{"GET", "/v1/trace?run=x", ``, 400, `"run: must be the id of a run"`},
		{"GET", "/v1/trace?%zz", ``, 400, `"query: is not well formed"`},
	} {
		status, head, body := f.raw(t, c.method, c.path, c.body)
		if status != c.status || !strings.Contains(body, c.want) || head.Get("Content-Type") != api.JSON || head.Get(api.HeaderBuild) != "7-b" {
			t.Errorf("%s %s: %d %.200s", c.method, c.path, status, body)
		}
	}
	if len(f.confiner.ran)+len(f.trace(t)) != 0 {
		t.Error("something was decided")
	}
}

func TestLargestRequestIsServed(t *testing.T) {
	f := serve(t, nil)
	frame := fmt.Sprintf(`{"project":%q,"command":""}`, f.project)
	status, _, body := f.raw(t, "POST", "/v1/exec", strings.Replace(frame, `""`, `"`+strings.Repeat("x", api.MaxRequest-len(frame))+`"`, 1))
	if status != 200 {
		t.Errorf("%d %.200s", status, body)
	}
}

func TestEvents(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		for _, piece := range []string{"a", "\xe2\x82", "\xac", "\xff", "\xe2"} { // € in two pieces, then bytes
			_, _ = io.WriteString(r.Stdout, piece)
		}
		_, _ = io.WriteString(r.Stderr, "e")
		return confine.Outcome{ExitCode: 1}, nil
	})
	var kinds []string
	var stdout, stderr string
	var last api.Event
	var sequence int64
	err := f.client.Stream(context.Background(), api.ExecRequest{Project: f.project, Command: "x"}, func(e *api.Event) error {
		kinds = append(kinds, e.Event)
		switch e.Event {
		case api.EventStdout:
			stdout += e.Data
		case api.EventStderr:
			stderr += e.Data
		}
		if e.Sequence != 0 {
			if sequence++; e.Sequence != sequence {
				t.Errorf("sequence %d after %d", e.Sequence, sequence-1)
			}
		}
		last = *e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"decided", "started", "stdout", "stdout", "stdout", "stderr", "stdout", "finished"}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
	if stdout != "a€\xff\xe2" || stderr != "e" || *last.ExitCode != 1 || !last.Success || last.Receipt == nil || last.Truncated != (api.Truncated{}) {
		t.Errorf("got %q, %q, %+v", stdout, stderr, last)
	}
	if err := f.client.Stream(context.Background(), api.ExecRequest{Project: f.project, Command: "deny it"}, nil); err == nil {
		t.Error("a refusal has events")
	} else {
		apiError(t, err, api.PermissionDenied)
	}
}

// waits returns a run that lasts until it is canceled.
func waits(started chan<- struct{}) func(context.Context, confine.Request) (confine.Outcome, error) {
	return func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		started <- struct{}{}
		<-ctx.Done()
		_, _ = io.WriteString(r.Stdout, "so far")
		return confine.Outcome{ExitCode: -1, Signal: "SIGTERM", Ended: confine.EndedCaller}, nil
	}
}

func TestCancelEndsTheRun(t *testing.T) {
	for _, accept := range []string{api.JSON, api.NDJSON} {
		f := serve(t, nil)
		started := make(chan struct{}, 1)
		f.confiner.set(waits(started))
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-started
			cancel()
		}()
		var out string
		var err error
		if accept == api.JSON {
			var got *api.Result
			if got, err = f.client.Exec(ctx, api.ExecRequest{Project: f.project, Command: "x"}); got != nil {
				out = got.Stdout
			}
			apiError(t, err, api.Interrupted)
		} else if err = f.client.Stream(ctx, api.ExecRequest{Project: f.project, Command: "x"}, func(e *api.Event) error {
			out += e.Data
			return nil
		}); err != nil {
			t.Error(err)
		}
		if out != "so far" {
			t.Errorf("%s: the answer of a canceled run has %q", accept, out)
		}
		if records := f.trace(t); len(records) != 2 || records[1].ErrorType != trace.Interrupted {
			t.Errorf("%s: recorded %+v", accept, records)
		}
		cancel()
	}
}

// TestVanishedClient: the connection closes without a word.
func TestVanishedClient(t *testing.T) {
	f := serve(t, nil)
	started := make(chan struct{}, 1)
	f.confiner.set(waits(started))
	c, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"project":%q,"command":"x"}`, f.project)
	fmt.Fprintf(c, "POST /v1/exec HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	<-started
	c.Close()
	eventually(t, func() bool { return len(f.trace(t)) == 2 })
	if r := f.trace(t)[1]; r.ErrorType != trace.Interrupted {
		t.Errorf("recorded %+v", r)
	}
	f.confiner.set(nil)
	if _, err := f.exec("x"); err != nil {
		t.Errorf("the next command: %v", err)
	}
}

func eventually(t testing.TB, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("did not come about within 10 s")
		}
	}
}

// TestClientThatDoesNotRead: its command ends and is recorded all the same.
func TestClientThatDoesNotRead(t *testing.T) {
	f := serve(t, nil)
	f.writeTime = 200 * time.Millisecond
	lost := make(chan error, 1)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		piece := bytes.Repeat([]byte("x"), 64<<10)
		for range 1000 {
			if _, err := r.Stdout.Write(piece); err != nil {
				lost <- err
				break
			}
		}
		return confine.Outcome{}, nil
	})
	c, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := fmt.Sprintf(`{"project":%q,"command":"x"}`, f.project)
	fmt.Fprintf(c, "POST /v1/exec HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	select {
	case <-lost:
	case <-time.After(60 * time.Second):
		t.Fatal("the command waits for a client that does not read")
	}
	eventually(t, func() bool { return len(f.trace(t)) == 2 })
	eventually(t, func() bool { return f.active.Load() == 0 })
}

// TestSlowReaderGetsAll: a client that reads slowly holds the command up, and
// loses nothing.
func TestSlowReaderGetsAll(t *testing.T) {
	f := serve(t, nil)
	const pieces = 100
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		for i := range pieces {
			if _, err := io.WriteString(r.Stdout, strings.Repeat(strconv.Itoa(i%10), 64<<10)); err != nil {
				return confine.Outcome{}, err
			}
		}
		return confine.Outcome{}, nil
	})
	total := 0
	err := f.client.Stream(context.Background(), api.ExecRequest{Project: f.project, Command: "x"}, func(e *api.Event) error {
		total += len(e.Data)
		time.Sleep(time.Millisecond)
		return nil
	})
	if err != nil || total != pieces*64<<10 {
		t.Errorf("%d bytes, %v", total, err)
	}
}

func TestTooManyAtOnce(t *testing.T) {
	f := serve(t, nil)
	started := make(chan struct{}, DefaultCaps.Runs)
	f.confiner.set(waits(started))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for range DefaultCaps.Runs {
		wg.Go(func() {
			_, _ = f.client.Exec(ctx, api.ExecRequest{Project: f.project, Command: "x"})
		})
		<-started
	}
	_, err := f.exec("x")
	if e := apiError(t, err, api.Busy); !e.Retryable {
		t.Errorf("got %+v", e)
	}
	if int64(len(f.trace(t))) != DefaultCaps.Runs {
		t.Error("what was refused as busy is on the trace")
	}
	cancel()
	wg.Wait()
	f.confiner.set(nil)
	if _, err := f.exec("x"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestManyClients(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		_, _ = io.WriteString(r.Stdout, r.Text)
		return confine.Outcome{}, nil
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				command := fmt.Sprintf("echo %d-%d", i, j)
				if got, err := f.exec(command); err != nil || got.Stdout != command || got.Decision.Text != command {
					t.Errorf("%s: got %+v, %v", command, got, err)
				}
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(f.records)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := trace.Verify(bytes.NewReader(data)); err != nil || !r.OK() || r.Records != 401 || len(r.Open) != 0 {
		t.Errorf("trace: %+v, %v", r, err)
	}
}

func TestNoTraceNoRun(t *testing.T) {
	f := serve(t, nil)
	f.Trace.Close()
	_, err := f.exec("x")
	if e := apiError(t, err, api.TraceUnavailable); !e.Retryable {
		t.Errorf("got %+v", e)
	}
	if len(f.confiner.ran) != 0 {
		t.Error("it ran")
	}
}

func TestPanics(t *testing.T) {
	f := serve(t, nil)
	_, err := f.exec("panic x")
	apiError(t, err, api.Internal)
	f.confiner.set(func(context.Context, confine.Request) (confine.Outcome, error) { panic("in a run") })
	if _, err := f.exec("x"); err == nil {
		t.Error("answered")
	}
	if records := f.trace(t); len(records) != 2 || records[1].ErrorType != "internal" {
		t.Errorf("recorded %+v", records)
	}
	f.confiner.set(nil)
	if _, err := f.exec("x"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestHangingFileSystem(t *testing.T) {
	f := serve(t, nil)
	f.judgeTime = 50 * time.Millisecond
	release := make(chan struct{})
	f.confiner.view = func() (confine.View, error) {
		<-release
		return confine.View{}, nil
	}
	_, err := f.exec("x")
	apiError(t, err, api.Timeout)
	f.runsMu.Lock()
	held := f.runs[uint32(os.Geteuid())]
	f.runsMu.Unlock()
	if held != 1 {
		t.Errorf("%d slots are held by what hangs", held)
	}
	close(release)
	eventually(t, func() bool {
		f.runsMu.Lock()
		defer f.runsMu.Unlock()
		return len(f.runs) == 0
	})
}

func TestShutdownEndsRuns(t *testing.T) {
	f := serve(t, nil)
	started := make(chan struct{}, 1)
	f.confiner.set(waits(started))
	go func() {
		<-started
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if err := f.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	_, err := f.exec("x")
	apiError(t, err, api.Interrupted)
	if records := f.trace(t); len(records) != 2 || records[1].ErrorType != trace.Interrupted {
		t.Errorf("recorded %+v", records)
	}
}

func TestAwaitIdle(t *testing.T) {
	f := serve(t, nil)
	started := make(chan struct{}, 1)
	f.confiner.set(waits(started))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _, _ = f.client.Exec(ctx, api.ExecRequest{Project: f.project, Command: "x"}) }()
	<-started
	idle := make(chan struct{})
	go func() {
		f.AwaitIdle(context.Background(), 100*time.Millisecond)
		close(idle)
	}()
	select {
	case <-idle:
		t.Fatal("idle while a command runs")
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	select {
	case <-idle:
	case <-time.After(60 * time.Second):
		t.Fatal("never idle")
	}
}

func TestCheck(t *testing.T) {
	f := serve(t, nil)
	for command, verdict := range map[string]string{"ls": "allow", "ask x": "require_approval", "deny x": "deny"} {
		got, err := f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: command})
		if err != nil || !got.Success || got.Decision.Verdict != verdict || got.Grant == nil {
			t.Errorf("%s: got %+v, %v", command, got, err)
		}
	}
	_, err := f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: "("})
	apiError(t, err, api.ParseError)
	if len(f.confiner.ran)+len(f.trace(t)) != 0 {
		t.Error("a check ran or was recorded")
	}
}

func TestStatusIsCached(t *testing.T) {
	f := serve(t, nil)
	f.confiner.layers = []confine.Layer{{Name: "landlock", OK: true, Detail: "ABI 7"}, {Name: "seccomp", Fix: "a newer kernel"}}
	for range 3 {
		got, err := f.client.Status(context.Background())
		if err != nil || got.Ready || len(got.Layers) != 2 || got.Layers[1].Fix != "a newer kernel" || got.Setting != "system" ||
			got.Build != "7-b" || got.Policy != "hash" || got.Sessions != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if f.confiner.probes != 1 {
		t.Errorf("%d probes", f.confiner.probes)
	}
}

func TestHealthAndDescription(t *testing.T) {
	f := serve(t, func(c *Config) { c.OnDemand = true })
	got, err := f.client.Health(context.Background())
	if err != nil || got != (api.Daemon{PID: os.Getpid(), UID: uint32(os.Geteuid()), Build: "7-b", OnDemand: true}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if status, head, body := f.raw(t, "GET", "/v1/openapi.yaml", ""); status != 200 || body != api.OpenAPI || head.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d %v", status, head)
	}
}

func TestTraceOverTheSocket(t *testing.T) {
	f := serve(t, nil)
	a, err := f.exec("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.exec("y"); err != nil {
		t.Fatal(err)
	}
	all, err := f.client.Trace(context.Background(), "", 0)
	if err != nil || len(all.Records) != 4 || !all.Complete {
		t.Errorf("got %+v, %v", all, err)
	}
	one, err := f.client.Trace(context.Background(), a.Run, 10)
	if err != nil || len(one.Records) != 2 || !bytes.Contains(one.Records[0], []byte(a.Run)) {
		t.Errorf("got %+v, %v", one, err)
	}
	latest, err := f.client.Trace(context.Background(), "", 1)
	if err != nil || len(latest.Records) != 1 || latest.Complete {
		t.Errorf("got %+v, %v", latest, err)
	}
}

func TestProjects(t *testing.T) {
	var env policy.Env
	f := serve(t, func(c *Config) { c.Policy = fakePolicy{seen: func(e policy.Env) { env = e }} })
	base := filepath.Dir(f.project)
	for name, target := range map[string]string{"link": "project", "etc": "/etc", "file": "project/file", "none": "nowhere", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.project, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../state", filepath.Join(f.project, "out")); err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"repo/.git/hooks", "bare/HEAD", "bare/objects", "bare/refs"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ project, cwd, want string }{
		{project: f.project},
		{project: f.project + "/"},
		{project: base + "/link"},
		{project: base + "/state/../link"},
		{project: "/", want: "project: must not be a directory that many share"},
		{project: "/usr/bin", want: "project: must not be a part of the system"},
		{project: "/proc/self/cwd", want: "project: must not be a part of the system"},
		{project: "/run/x", want: "project: must not be a part of the system"},
		{project: base + "/etc", want: "project: must not be a part of the system"},
		{project: "/tmp", want: "project: must not be a directory that many share"},
		{project: "/bin", want: "project: must not be a part of the system"},
		{project: home, want: "project: must not be"},
		{project: base + "/file", want: "project: must be a directory that exists"},
		{project: base + "/none", want: "project: must be a directory that exists"},
		{project: base + "/loop", want: "project: cannot be followed: too many levels of symbolic links"},
		{project: base + "/state", want: "project: must not hold, or lie in, what is pinfold's own"},
		{project: base, want: "project: must not hold, or lie in, what is pinfold's own"},
		{project: base + "/s", want: "project: must not hold, or lie in, what is pinfold's own"},
		{project: base + "/repo/.git", want: "project: must not be a git directory"},
		{project: base + "/repo/.git/hooks", want: "project: must not be a git directory"},
		{project: base + "/bare/objects", want: "project: must not be a git directory"},
		{project: f.project, cwd: "none", want: "cwd: must be a directory that exists"},
		{project: f.project, cwd: "file", want: "cwd: must be a directory that exists"},
		{project: f.project, cwd: "out", want: "cwd: must lie inside the project"},
	} {
		_, err := f.client.Exec(context.Background(), api.ExecRequest{Project: c.project, Command: "x", Cwd: c.cwd})
		if c.want == "" {
			if err != nil || env.Project != f.project || env.Dir != "." {
				t.Errorf("%s: %v, %+v", c.project, err, env)
			}
			continue
		}
		if e := apiError(t, err, api.InvalidArguments); len(e.Fields) != 1 || !strings.HasPrefix(e.Fields[0], c.want) {
			t.Errorf("%s, %s: got %q, want %s", c.project, c.cwd, e.Fields, c.want)
		}
	}
}

// TestHiddenHomes: what a home hides is no project, but for agents' work trees.
func TestHiddenHomes(t *testing.T) {
	for path, want := range map[string]bool{
		"/home/a/.ssh": true, "/home/a/.config/nvim": true, "/home/a/.cursor": true, "/home/a/.cursor/worktrees": true,
		"/home/a/.cursor/worktrees/p": false, "/home/a/p": false, "/home/a/p/.hidden": false, "/home/a": false, "/srv/.x": false, "/home/ab/.x": false,
	} {
		if got := inHiddenHome(path, "/home/a"); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// as calls f on a thread with another user's credentials, which the kernel then
// sees at the other end of the connections that f makes.
func as(t *testing.T, uid, gid uint32, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root is needed to be somebody else")
	}
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
			{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)}} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				done <- errno
				return
			}
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// request makes one request on a connection of its own, on this thread.
func (f *fixture) request(t *testing.T, method, path, body string) string {
	t.Helper()
	c, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func TestIdentityIsTheKernels(t *testing.T) {
	const other, group = 54321, 54322
	f := serve(t, nil)
	mine := filepath.Join(filepath.Dir(f.project), "mine")
	if err := os.Mkdir(mine, 0o755); err != nil {
		t.Fatal(err)
	}
	ask := func(project string) string {
		return f.request(t, "POST", "/v1/exec", fmt.Sprintf(`{"project":%q,"command":"x"}`, project))
	}
	as(t, other, group, func() {
		if got := ask(mine); !strings.Contains(got, "project: must be a directory that you own") {
			t.Errorf("another's project: %s", got)
		}
	})
	if err := os.Chown(mine, other, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(mine, "locked"), 0o700); err != nil { // root's
		t.Fatal(err)
	}
	as(t, other, group, func() {
		if got := ask(mine); !strings.Contains(got, `"success":true`) {
			t.Errorf("own project: %s", got)
		}
		if got := f.request(t, "POST", "/v1/exec", fmt.Sprintf(`{"project":%q,"command":"x","cwd":"locked/x"}`, mine)); !strings.Contains(got, "cwd: cannot be followed: permission denied") {
			t.Errorf("a directory that the caller may not search: %s", got)
		}
		if got := f.request(t, "GET", "/v1/status", ""); !strings.Contains(got, `"success":true`) {
			t.Errorf("status: %s", got)
		}
	})
	if c := f.confiner.ran[0].Caller; c.UID != other || c.GID != group || len(c.Groups) != 0 || c.Name != "54321" || c.Home != "/nonexistent" {
		t.Errorf("ran as %+v", c)
	}
	if _, err := f.exec("x"); err != nil { // root's own
		t.Fatal(err)
	}
	as(t, other, group, func() {
		var own api.TraceAnswer
		if err := json.Unmarshal([]byte(f.request(t, "GET", "/v1/trace", "")), &own); err != nil || len(own.Records) != 2 {
			t.Errorf("%d records, %v", len(own.Records), err)
		}
	})
	if _, err := f.client.Exec(context.Background(), api.ExecRequest{Project: mine, Command: "x"}); err == nil {
		t.Error("root runs in another's project")
	}
}

func TestOnlyUID(t *testing.T) {
	uid := uint32(os.Geteuid())
	f := serve(t, func(c *Config) { c.OnlyUID = &uid })
	if _, err := f.exec("x"); err != nil {
		t.Error(err)
	}
	as(t, 54321, 54321, func() {
		if got := f.request(t, "GET", "/healthz", ""); !strings.Contains(got, "PERMISSION_DENIED") {
			t.Errorf("got %s", got)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	f := serve(t, nil)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range DefaultCaps.Connections {
		c, err := net.Dial("unix", f.socket)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	extra, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	if _, err := extra.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("one too many: %v", err)
	}
	conns[0].Close()
	conns = conns[1:]
	eventually(t, func() bool {
		_, err := f.exec("x")
		return err == nil
	})
}

func BenchmarkExec(b *testing.B) {
	f := serve(b, nil)
	if _, err := f.exec("x"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := f.exec("x"); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCallersAndProjects: who is not in the group of callers is not served, and
// a project lies where the site says.
func TestCallersAndProjects(t *testing.T) {
	p := peer{uid: 1, gid: 2, groups: []uint32{3, 4}}
	for gid, want := range map[uint32]bool{2: true, 3: true, 4: true, 1: false, 5: false} {
		if got := p.member(gid); got != want {
			t.Errorf("group %d: %v", gid, got)
		}
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "inside")
	for _, d := range []string{in, out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := confine.Caller{UID: uint32(os.Geteuid()), Home: "/nonexistent"}
	for project, want := range map[string]bool{in: true, out: false} {
		_, _, failed := findProject(project, c, "/none", "/none/s", "/none/p", []string{in})
		if (failed == nil) != want {
			t.Errorf("%s: %v", project, failed)
		}
	}
}
