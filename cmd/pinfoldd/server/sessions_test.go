package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
)

// open opens a session in the fixture's project.
func (f *fixture) open(t testing.TB, req api.SessionRequest) *api.Session {
	t.Helper()
	req.Project = f.project
	_, s, err := f.client.OpenSession(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// in runs a command in the session.
func (f *fixture) in(s *api.Session, command string) (*api.Result, error) {
	return f.client.Exec(context.Background(), api.ExecRequest{Session: s.ID, Command: command})
}

// events returns the records of the trace with the event.
func (f *fixture) events(t testing.TB, event string) (list []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(f.records)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r["event"] == event {
			list = append(list, r)
		}
	}
	return list
}

// TestSessionVariablesWithHosts: a command that may reach hosts gets the session's
// variables beside those of the registries.
func TestSessionVariablesWithHosts(t *testing.T) {
	f := serveReal(t, "[[rule]]\nid = 'page'\nverdict = 'allow'\ncommand = 'cat'\nreason = 'reads a page'\nwiden = { net = ['example.org'] }\nmatch = ['cat x']\n")
	s := f.open(t, api.SessionRequest{Env: map[string]string{"STAGE": "test"}})
	if _, err := f.client.Exec(context.Background(), api.ExecRequest{Session: s.ID, Command: "cat"}); err != nil {
		t.Fatal(err)
	}
	ran := f.confiner.ran[len(f.confiner.ran)-1]
	if len(ran.Grant.Net.Hosts) != 1 || !slices.Contains(ran.Env, "STAGE=test") {
		t.Errorf("ran with %q and %q", ran.Grant.Net.Hosts, ran.Env)
	}
}

// TestSession proves that a session's commands run in its project, with its
// variables and in a sandbox of its own, that all of it is on the trace, and that
// nothing is left of it when it was closed.
func TestSession(t *testing.T) {
	f := serveReal(t, "")
	s := f.open(t, api.SessionRequest{Env: map[string]string{"STAGE": "it's\na test", "NPM_TOKEN": "x"}, TTL: 60})
	if s.Project != f.project || len(s.ID) != 28 || !slices.Equal(s.Env, []string{"NPM_TOKEN", "STAGE"}) || s.Expires.Sub(s.Created) != time.Minute {
		t.Errorf("opened %+v", s)
	}
	if err := os.Mkdir(filepath.Join(f.project, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	result, err := f.client.Exec(context.Background(), api.ExecRequest{Session: s.ID, Command: "echo x", Cwd: "sub"})
	if err != nil {
		t.Fatal(err)
	}
	ran := f.confiner.ran[len(f.confiner.ran)-1]
	if ran.Project != f.project || ran.Dir != "sub" || ran.Session != s.ID || !slices.Equal(ran.Env, []string{"NPM_TOKEN=x", "STAGE=it's\na test"}) {
		t.Errorf("ran %+v", ran)
	}
	if _, err := f.exec("echo x"); err != nil {
		t.Fatal(err)
	}
	if ran := f.confiner.ran[len(f.confiner.ran)-1]; ran.Session != "" || ran.Env != nil {
		t.Errorf("without a session ran %+v", ran)
	}
	if answer, err := f.client.Check(context.Background(), api.CheckRequest{Session: s.ID, Command: "echo x"}); err != nil || answer.Decision.Verdict != "allow" {
		t.Errorf("check: %+v, %v", answer, err)
	}
	_, list, err := f.client.Sessions(context.Background())
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].ID != s.ID || list.Sessions[0].Spent.Runs != 1 || list.Sessions[0].Active != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if _, closed, err := f.client.CloseSession(context.Background(), s.ID); err != nil || closed.ID != s.ID {
		t.Errorf("closed %+v, %v", closed, err)
	}
	if !slices.Equal(f.confiner.ended, []string{s.ID}) {
		t.Errorf("ended %q", f.confiner.ended)
	}
	_, _, err = f.client.Session(context.Background(), s.ID)
	apiError(t, err, api.NotFound)
	_, err = f.in(s, "echo x")
	apiError(t, err, api.NotFound)

	opened, closed := f.events(t, "session_opened"), f.events(t, "session_closed")
	if len(opened) != 1 || opened[0]["session"] != s.ID || opened[0]["project"] != f.project || fmt.Sprint(opened[0]["env"]) != "[NPM_TOKEN STAGE]" {
		t.Errorf("recorded %v", opened)
	}
	if len(closed) != 1 || closed[0]["session"] != s.ID || closed[0]["why"] != "closed" {
		t.Errorf("recorded %v", closed)
	}
	for _, r := range f.trace(t) {
		if want := map[bool]string{true: s.ID}[r.Run == result.Run]; r.Event == "decided" && r.Session != want {
			t.Errorf("run %s is of session %q, want %q", r.Run, r.Session, want)
		}
	}
}

// TestSessionOwner proves that another's session answers as none does, byte by
// byte, to everything that can be asked of it.
func TestSessionOwner(t *testing.T) {
	f := serve(t, nil)
	s := f.open(t, api.SessionRequest{})
	as(t, 54321, 54321, func() {
		for _, c := range []struct{ method, path, body string }{
			{"GET", "/v1/sessions/%s", ""},
			{"DELETE", "/v1/sessions/%s", ""},
			{"POST", "/v1/exec", `{"session":%q,"command":"x"}`},
			{"POST", "/v1/check", `{"session":%q,"command":"x"}`},
		} {
			answer := func(id string) string {
				path, body := c.path, c.body
				if strings.Contains(path, "%") {
					path = fmt.Sprintf(path, id)
				} else {
					body = fmt.Sprintf(body, id)
				}
				return f.request(t, c.method, path, body)
			}
			others, none := answer(s.ID), answer(strings.Repeat("0", len(s.ID)))
			if others != none || !strings.Contains(others, "NOT_FOUND") {
				t.Errorf("%s %s: another's answers\n%sand none\n%s", c.method, c.path, others, none)
			}
		}
		if list := f.request(t, "GET", "/v1/sessions", ""); strings.Contains(list, s.ID) {
			t.Errorf("another is listed: %s", list)
		}
	})
	if _, err := f.in(s, "x"); err != nil {
		t.Errorf("its owner: %v", err)
	}
}

// TestSessionArguments proves that a session is opened as it was asked for or not
// at all, and that nothing in it can widen.
func TestSessionArguments(t *testing.T) {
	f := serveReal(t, "")
	for body, want := range map[string]string{
		`{}`:                                                     "project: is missing",
		`{"project":%q,"uid":0}`:                                 "uid: unknown field",
		`{"project":%q,"ttl":86401}`:                             "ttl: must be a whole number from 1 to 86400",
		`{"project":%q,"budget":{"runs":0}}`:                     "budget: runs: must be",
		`{"project":%q,"budget":{"dollars":1}}`:                  "budget: dollars: unknown field",
		`{"project":%q,"disabled":["nonesuch"]}`:                 "disabled: number 1 is neither",
		`{"project":%q,"disabled":["deny-rm-rf"]}`:               "disabled: number 1 is a rule",
		`{"project":%q,"disabled":["git nothing"]}`:              "disabled:",
		`{"project":%q,"disabled":[7]}`:                          "disabled: number 1 must be a string",
		`{"project":%q,"env":{"A=B":"x"}}`:                       "env: a variable must be named by",
		`{"project":%q,"env":{"1A":"x"}}`:                        "env: a variable must be named by",
		`{"project":%q,"env":{"A":"x","A":"y"}}`:                 "env: A given more than once",
		`{"project":%q,"env":{"A":"x","PATH":"/tmp"}}`:           "env.PATH: is not allowed",
		`{"project":%q,"env":{"A":"x\ny","LD_PRELOAD":"x"}}`:     "env.LD_PRELOAD: is not allowed",
		`{"project":%q,"env":{"GIT_SSH_COMMAND":"x"}}`:           "env.GIT_SSH_COMMAND: is not allowed",
		`{"project":%q,"env":{"HOME":"/root"}}`:                  "env.HOME: is not allowed",
		`{"project":%q,"env":{"BASH_ENV":"x"}}`:                  "env.BASH_ENV: is not allowed",
		`{"project":%q,"env":{"BASH_FUNC_ls%%%%":"() { id; }"}}`: "env: a variable must be named by",
		`{"project":%q,"env":{"A":"\u0007"}}`:                    "env.A: is not allowed",
		`{"project":%q,"env":{"A":"\u202e"}}`:                    "env.A: is not allowed",
		`{"project":%q,"session":"x"}`:                           "session: unknown field",
	} {
		if strings.Contains(body, "%q") {
			body = fmt.Sprintf(body, f.project)
		}
		status, _, got := f.raw(t, "POST", "/v1/sessions", body)
		if status != 400 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want %s", body, status, got, want)
		}
	}
	_, list, err := f.client.Sessions(context.Background())
	if err != nil || len(list.Sessions) != 0 || len(f.events(t, "session_opened")) != 0 {
		t.Errorf("opened %+v, %v", list, err)
	}
	for body, want := range map[string]string{
		`{"session":"x","project":%q,"command":"x"}`: "project: is not for a request with session",
		`{"command":"x"}`: "project: is missing",
	} {
		if strings.Contains(body, "%q") {
			body = fmt.Sprintf(body, f.project)
		}
		if status, _, got := f.raw(t, "POST", "/v1/exec", body); status != 400 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want %s", body, status, got, want)
		}
	}
}

// TestSessionDisabled proves that what a session may not use is refused by name,
// recorded, and not asked about, and that the project's own policy holds besides.
func TestSessionDisabled(t *testing.T) {
	f := serveReal(t, "")
	f.writeRules(t, strings.ReplaceAll(noEcho, "echo", "wc"))
	s := f.open(t, api.SessionRequest{Disabled: []string{"grep", "allow-git-reading", "allow-shell-words"}, Env: map[string]string{"A": "b"}})
	for command, code := range map[string]api.Code{
		"grep x y": api.ToolNotAllowed, "ls | xargs grep x": api.ToolNotAllowed, "git log": api.ToolNotAllowed, "wc x": api.PermissionDenied,
	} {
		_, err := f.in(s, command)
		if e := apiError(t, err, code); e.At == nil || e.Rule == "" {
			t.Errorf("%s: %+v", command, e)
		}
		if code != api.PermissionDenied {
			if _, err := f.exec(command); err != nil {
				t.Errorf("%s without the session: %v", command, err)
			}
		}
	}
	if _, err := f.in(s, "ls"); err != nil {
		t.Error(err)
	}
	refused := 0
	for _, r := range f.trace(t) {
		if r.Session == s.ID && r.ErrorType == "tool_not_allowed" && !r.Approved && len(r.Rules) > 0 {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d refusals are recorded", refused)
	}
	f.SetPolicy(loadPolicy(t, "[builtin]\ndisable = ['allow-git-reading']\n"))
	_, err := f.in(s, "grep x y")
	apiError(t, err, api.ToolNotAllowed)
}

// blind is a policy that forgets that a session only reads.
type blind struct{ fakePolicy }

func (blind) Disable([]string) (*policy.Policy, error) { return nil, errors.New("blind") }

// TestReadOnlyTwice proves that each of the two checks of a read-only session
// holds by itself: what writes is refused when it is judged; and when that fails,
// as here where the policy does not know of it, nothing is granted for writing.
func TestReadOnlyTwice(t *testing.T) {
	f := serveReal(t, "")
	s := f.open(t, api.SessionRequest{ReadOnly: true})
	for _, command := range []string{"echo x > y", "sed -i s/a/b/ y", "mkdir d", "touch .envrc"} {
		_, err := f.in(s, command)
		if e := apiError(t, err, api.ToolNotAllowed); !strings.Contains(e.Message, "read-only") {
			t.Errorf("%s: %+v", command, e)
		}
	}
	for _, command := range []string{"ls", "sort y > /tmp/z", "python3 -c 'print(1)'"} {
		result, err := f.in(s, command)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		} else if len(result.Grant.Write) > 0 {
			t.Errorf("%s is granted %q", command, result.Grant.Write)
		}
	}
	if len(f.pending()) > 0 {
		t.Error("somebody is asked")
	}

	f.SetPolicy(blind{})
	result, err := f.in(s, "write it")
	if err != nil {
		t.Fatal(err)
	}
	if result.Decision.Verdict != "allow" || len(result.Grant.Write) != 0 {
		t.Errorf("the second check: %+v %+v", result.Decision, result.Grant)
	}
	if ran := f.confiner.ran[len(f.confiner.ran)-1]; !ran.Grant.ReadOnly() {
		t.Errorf("it ran with %+v", ran.Grant)
	}
	for _, r := range f.trace(t) {
		if r.Run == result.Run && r.Event == "decided" && len(r.Grant.Write) > 0 {
			t.Errorf("recorded is %+v", r.Grant)
		}
	}
}

// TestBudget proves that a spent budget refuses new commands and nothing else:
// what waits for a yes has its share already, and what was not started costs
// nothing.
func TestBudget(t *testing.T) {
	f := serve(t, nil)
	s := f.open(t, api.SessionRequest{Budget: &api.Budget{Runs: 3}})
	_, err := f.in(s, "deny it")
	apiError(t, err, api.PermissionDenied)
	_, err = f.client.Exec(context.Background(), api.ExecRequest{Session: s.ID, Command: "ask it", Unattended: true})
	apiError(t, err, api.ApprovalRequired)
	if _, err := f.in(s, "x"); err != nil {
		t.Fatal(err)
	}
	long := make(chan struct{})
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		select {
		case <-long:
		case <-r.Signals:
		}
		return confine.Outcome{}, nil
	})
	background, err := f.clientBackground(s, "x")
	if err != nil {
		t.Fatal(err)
	}
	_, waiting, err := f.client.ExecNoWait(context.Background(), api.ExecRequest{Session: s.ID, Command: "ask it"})
	if err != nil || waiting == nil {
		t.Fatalf("%+v, %v", waiting, err)
	}
	_, err = f.in(s, "x")
	apiError(t, err, api.BudgetExhausted)
	_, err = f.in(s, "ask it")
	apiError(t, err, api.BudgetExhausted)
	if err := f.client.Signal(context.Background(), background.Run, "SIGTERM"); err != nil {
		t.Errorf("a signal: %v", err)
	}
	close(long)
	f.decide(t, waiting.Approval.ID, yes)
	f.awaitEnd(t, waiting.Run)
	f.awaitEnd(t, background.Run)
	_, now, err := f.client.Session(context.Background(), s.ID)
	if err != nil || now.Spent.Runs != 3 {
		t.Errorf("%+v, %v", now, err)
	}
	if _, _, err := f.client.CloseSession(context.Background(), s.ID); err != nil {
		t.Error(err)
	}
	refused := 0
	for _, r := range f.trace(t) {
		if r.ErrorType == "budget_exhausted" {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d refusals are recorded", refused)
	}
}

func (f *fixture) clientBackground(s *api.Session, command string) (*api.BackgroundAnswer, error) {
	_, answer, err := f.client.Background(context.Background(), api.ExecRequest{Session: s.ID, Command: command})
	return answer, err
}

// awaitEnd waits until the run has ended and returns it.
func (f *fixture) awaitEnd(t *testing.T, run string) *api.RunAnswer {
	t.Helper()
	var answer *api.RunAnswer
	eventually(t, func() bool {
		_, a, err := f.client.Run(context.Background(), run, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		answer = a
		return a.State == api.RunEnded
	})
	return answer
}

// TestBudgetOfTime proves that time adds up over commands, that each is bounded by
// what is left, and that the time of those under way counts.
func TestBudgetOfTime(t *testing.T) {
	f := serve(t, nil)
	used := confine.Usage{Wall: 30 * time.Second, User: 2 * time.Second, System: time.Second}
	f.confiner.set(func(context.Context, confine.Request) (confine.Outcome, error) {
		return confine.Outcome{Usage: used}, nil
	})
	for name, budget := range map[string]api.Budget{"wall": {WallSeconds: 65}, "cpu": {CPUSeconds: 7}} {
		s := f.open(t, api.SessionRequest{Budget: &budget})
		for i := range 3 {
			if _, err := f.client.Exec(context.Background(), api.ExecRequest{Session: s.ID, Command: "x", TimeoutMS: 60_000}); err != nil {
				t.Fatalf("%s: %d: %v", name, i, err)
			}
			ran := f.confiner.ran[len(f.confiner.ran)-1]
			want := map[string][]time.Duration{"wall": {60 * time.Second, 35 * time.Second, 5 * time.Second}, "cpu": {7 * time.Second, 4 * time.Second, time.Second}}[name][i]
			if got := map[string]time.Duration{"wall": ran.Timeout, "cpu": ran.Limits.CPU}[name]; got != want {
				t.Errorf("%s: the command %d may take %v, want %v", name, i, got, want)
			}
		}
		_, err := f.in(s, "x")
		apiError(t, err, api.BudgetExhausted)
	}
	s := &session{budget: api.Budget{WallSeconds: 1}, begun: map[*allowance]time.Time{}}
	a, failed := s.allow()
	if failed != nil {
		t.Fatal(failed)
	}
	if failed := a.start(&confine.Request{}); failed != nil {
		t.Fatal(failed)
	}
	s.begun[a] = time.Now().Add(-2 * time.Second)
	if _, failed := s.allow(); failed == nil || failed.Code != api.BudgetExhausted {
		t.Errorf("beside one that has used it up: %v", failed)
	}
}

// TestSessionEnds proves each way in which a session ends: it takes what runs in
// it, and what waits for somebody, with it.
func TestSessionEnds(t *testing.T) {
	blocked := func(ctx context.Context, _ confine.Request) (confine.Outcome, error) {
		<-ctx.Done()
		return confine.Outcome{ExitCode: -1, Ended: confine.EndedCaller}, nil
	}
	for why, c := range map[string]struct {
		ttl  int64
		end  func(f *fixture, s *api.Session)
		busy bool
	}{
		"closed": {60, func(f *fixture, s *api.Session) {
			if _, _, err := f.client.CloseSession(context.Background(), s.ID); err != nil {
				t.Error(err)
			}
		}, true},
		"expired": {1, func(*fixture, *api.Session) {}, true},
		"idle":    {60, func(*fixture, *api.Session) {}, false},
	} {
		t.Run(why, func(t *testing.T) {
			f := serve(t, nil)
			if why == "idle" {
				f.sessionIdle = 50 * time.Millisecond
			}
			f.confiner.set(blocked)
			s := f.open(t, api.SessionRequest{TTL: c.ttl})
			var run *api.BackgroundAnswer
			var waiting *api.WaitingAnswer
			if c.busy {
				var err error
				if run, err = f.clientBackground(s, "x"); err != nil {
					t.Fatal(err)
				}
				if _, waiting, err = f.client.ExecNoWait(context.Background(), api.ExecRequest{Session: s.ID, Command: "ask it"}); err != nil {
					t.Fatal(err)
				}
			}
			c.end(f, s)
			eventually(t, func() bool { return len(f.events(t, "session_closed")) == 1 })
			if got := f.events(t, "session_closed")[0]["why"]; got != why {
				t.Errorf("ended because of %v", got)
			}
			if _, _, err := f.client.Session(context.Background(), s.ID); err == nil {
				t.Error("it is still there")
			}
			if !c.busy {
				return
			}
			if r := f.awaitEnd(t, run.Run); r.Result.Error == nil || r.Result.Error.Code != api.Interrupted {
				t.Errorf("its run: %+v", r.Result)
			}
			if r := f.awaitEnd(t, waiting.Run); r.Result.Error == nil || r.Result.Error.Code != api.Interrupted {
				t.Errorf("what waited: %+v", r.Result)
			}
			if len(f.pending()) > 0 {
				t.Error("somebody is still asked")
			}
		})
	}
	f := serve(t, nil)
	f.sessionIdle = 50 * time.Millisecond
	f.confiner.set(func(ctx context.Context, _ confine.Request) (confine.Outcome, error) {
		time.Sleep(200 * time.Millisecond)
		return confine.Outcome{}, ctx.Err()
	})
	s := f.open(t, api.SessionRequest{})
	if _, err := f.in(s, "x"); err != nil {
		t.Errorf("a session with a command under way is not idle: %v", err)
	}
}

// TestSessionsAreFew proves that a caller has a bounded number of sessions, and
// that they are his own: another's are not in his way.
func TestSessionsAreFew(t *testing.T) {
	f := serve(t, nil)
	for range DefaultCaps.Sessions {
		f.open(t, api.SessionRequest{})
	}
	_, _, err := f.client.OpenSession(context.Background(), api.SessionRequest{Project: f.project})
	apiError(t, err, api.Busy)
	as(t, 54321, 54321, func() {
		mine := f.project + "-other"
		if err := os.Mkdir(mine, 0o755); err == nil {
			t.Error("it may write there") // as root it could not be told from the owner
		}
	})
	mine := f.project + "-other"
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Mkdir(mine, 0o755), os.Chown(mine, 54321, 54321)); err != nil {
			t.Fatal(err)
		}
		as(t, 54321, 54321, func() {
			if got := f.request(t, "POST", "/v1/sessions", fmt.Sprintf(`{"project":%q}`, mine)); !strings.Contains(got, `"success":true`) {
				t.Errorf("another: %s", got)
			}
		})
	}
	_, list, err := f.client.Sessions(context.Background())
	if err != nil || len(list.Sessions) != int(DefaultCaps.Sessions) {
		t.Fatalf("%d sessions, %v", len(list.Sessions), err)
	}
	if _, _, err := f.client.CloseSession(context.Background(), list.Sessions[0].ID); err != nil {
		t.Fatal(err)
	}
	f.open(t, api.SessionRequest{})
}

// TestNoWait proves that a command that has to be approved is answered at once
// when its client does not wait, lives without it, and can be fetched by its run
// when somebody has decided; and that what needs no yes is answered as ever.
func TestNoWait(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		_, _ = fmt.Fprint(r.Stdout, "hello")
		return confine.Outcome{ExitCode: 3}, nil
	})
	request := api.ExecRequest{Project: f.project, Command: "ask it"}
	asked := func() *api.WaitingAnswer {
		t.Helper()
		client := api.NewClient(f.socket)
		defer client.Close()
		result, waiting, err := client.ExecNoWait(context.Background(), request)
		if err != nil || result != nil || waiting == nil || waiting.State != api.RunWaiting || waiting.Approval.ID != waiting.Run {
			t.Fatalf("%+v, %+v, %v", result, waiting, err)
		}
		return waiting
	}
	w := asked()
	if _, r, err := f.client.Run(context.Background(), w.Run, 0, 0); err != nil || r.State != api.RunWaiting || r.Result != nil {
		t.Errorf("%+v, %v", r, err)
	}
	f.decide(t, w.Approval.ID, yes)
	r := f.awaitEnd(t, w.Run)
	if r.Result.ExitCode == nil || *r.Result.ExitCode != 3 || len(r.Output) != 1 || r.Output[0].Data != "hello" {
		t.Errorf("%+v %+v", r.Result, r.Output)
	}
	w = asked()
	f.decide(t, w.Approval.ID, no)
	if r := f.awaitEnd(t, w.Run); r.Result.Error == nil || r.Result.Error.Code != api.ApprovalDenied || !strings.Contains(r.Result.Error.Message, no.Reason) {
		t.Errorf("after a no: %+v", r.Result)
	}
	w = asked()
	if err := f.client.Signal(context.Background(), w.Run, "SIGTERM"); err != nil {
		t.Error(err)
	}
	if r := f.awaitEnd(t, w.Run); r.Result.Error == nil || r.Result.Error.Code != api.Interrupted {
		t.Errorf("withdrawn: %+v", r.Result)
	}
	for range DefaultCaps.Pending {
		asked()
	}
	_, _, err := f.client.ExecNoWait(context.Background(), request)
	apiError(t, err, api.Busy)

	request.Command = "x"
	if result, waiting, err := f.client.ExecNoWait(context.Background(), request); err != nil || waiting != nil || result == nil || result.Stdout != "hello" {
		t.Errorf("what needs no yes: %+v, %+v, %v", result, waiting, err)
	}
}
