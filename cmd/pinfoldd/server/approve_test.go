package server

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

// asking is a request that somebody has to approve, under way.
type waiting struct {
	result *api.Result
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// ask sends a request that has to be approved, and returns when it waits.
func (f *fixture) ask(t *testing.T, command string) (*waiting, *api.Approval) {
	t.Helper()
	before := len(f.pending())
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(w.done)
		client := api.NewClient(f.socket)
		defer client.Close()
		w.result, w.err = client.Exec(ctx, api.ExecRequest{Project: f.project, Command: command})
	}()
	t.Cleanup(cancel)
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		if list := f.pending(); len(list) > before {
			return w, list[len(list)-1]
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing waits for approval")
		}
	}
}

func (f *fixture) pending() []*api.Approval {
	return f.approvals.list(func(a *api.Approval) bool { return a.State == api.StatePending })
}

func (w *waiting) wait(t *testing.T) (*api.Result, error) {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(60 * time.Second):
		t.Fatal("the request does not end")
	}
	return w.result, w.err
}

// decide decides as somebody who may.
func (f *fixture) decide(t *testing.T, id string, d api.ApprovalDecision) {
	t.Helper()
	if _, failed := f.approvals.decide(id, bob, anybody, d); failed != nil {
		t.Fatal(failed)
	}
}

// TestApproved proves that what is approved runs, that what was asked, who said
// yes and that it ran are on the trace, in this order, and that a no reaches who
// asked with its reason.
func TestApproved(t *testing.T) {
	f := serve(t, nil)
	w, a := f.ask(t, "ask it")
	if a.Decision.Text != "ask it" || a.Caller.UID != uint32(os.Geteuid()) || a.Project != f.project || len(a.Binding) != 64 {
		t.Errorf("shown is %+v", a)
	}
	if len(f.confiner.ran) != 0 {
		t.Error("it ran before anybody said yes")
	}
	f.decide(t, a.ID, yes)
	if r, err := w.wait(t); err != nil || !r.Success || r.Run != a.Run {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(f.confiner.ran) != 1 || f.confiner.ran[0].Text != "ask it" {
		t.Errorf("ran %+v", f.confiner.ran)
	}
	var events []string
	for _, r := range f.trace(t) {
		events = append(events, r.Event)
		if r.Event == "decided" && (!r.Approved || !r.ApprovalRequired || r.Approval != a.ID || r.Approver == nil || r.Approver.User != "bob") {
			t.Errorf("recorded %+v", r)
		}
	}
	if want := []string{"approval", "approval", "approval", "decided", "finished"}; !slices.Equal(events, want) {
		t.Errorf("recorded %v, want %v", events, want)
	}

	w, a = f.ask(t, "ask again")
	f.decide(t, a.ID, no)
	_, err := w.wait(t)
	if e := apiError(t, err, api.ApprovalDenied); !strings.Contains(e.Message, no.Reason) {
		t.Errorf("%+v", e)
	}
	if len(f.confiner.ran) != 1 {
		t.Error("what was denied ran")
	}
}

// TestApprovalEvents proves that a client with events gets to know what waits,
// and how it ended.
func TestApprovalEvents(t *testing.T) {
	f := serve(t, nil)
	for _, c := range []struct {
		decision api.ApprovalDecision
		want     []string
	}{
		{yes, []string{"approval", "decided", "started", "finished"}},
		{no, []string{"approval", "finished"}},
	} {
		var events []string
		var failed *api.Error
		err := f.client.Stream(context.Background(), api.ExecRequest{Project: f.project, Command: "ask it"}, func(e *api.Event) error {
			events = append(events, e.Event)
			if e.Event == api.EventApproval {
				f.decide(t, e.Approval.ID, c.decision)
			}
			failed = e.Error
			return nil
		})
		if err != nil || !slices.Equal(events, c.want) || (failed != nil) != (c.decision.Decision == api.DecideDeny) {
			t.Errorf("%v, %v, %v; want %v", events, failed, err, c.want)
		}
	}
}

// TestApprovalStale proves that a yes is for what was shown: when the policy or
// the project's directory is another one by the time it runs, nothing runs, and
// a denial stays one.
func TestApprovalStale(t *testing.T) {
	f := serve(t, nil)
	w, a := f.ask(t, "ask it")
	f.SetPolicy(otherHash{})
	f.decide(t, a.ID, yes)
	_, err := w.wait(t)
	apiError(t, err, api.ApprovalStale)

	f.SetPolicy(fakePolicy{})
	w, a = f.ask(t, "ask it")
	if err := os.Rename(f.project, f.project+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.project, 0o755); err != nil {
		t.Fatal(err)
	}
	f.decide(t, a.ID, yes)
	_, err = w.wait(t)
	apiError(t, err, api.ApprovalStale)

	w, a = f.ask(t, "ask it")
	f.SetPolicy(denies{})
	f.decide(t, a.ID, yes)
	_, err = w.wait(t)
	apiError(t, err, api.PermissionDenied)
	if len(f.confiner.ran) != 0 {
		t.Errorf("ran %+v", f.confiner.ran)
	}
}

// otherHash is the fake policy by another name.
type otherHash struct{ fakePolicy }

func (otherHash) Hash() string { return "another" }

// denies is the fake policy, but that it denies all.
type denies struct{ fakePolicy }

func (d denies) Decide(s *shparse.Script, env policy.Env) policy.Decision {
	decision := d.fakePolicy.Decide(s, env)
	decision.Verdict = policy.Deny
	return decision
}

func (d denies) Examine(s *shparse.Script, env policy.Env) policy.Explanation {
	return policy.Explanation{Decision: d.Decide(s, env)}
}

// TestBinding proves that a yes holds for the very program: its contents, and
// the file that it is.
func TestBinding(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	v := verdict{project: "/p"}
	v.decision.Text, v.decision.Programs = "it", []string{program}
	bind := func() string {
		t.Helper()
		b, err := binding(&v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := bind()
	if bind() != first {
		t.Error("the same is not the same")
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	write("two")
	if err := os.Chtimes(program, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if bind() == first {
		t.Error("other contents with the same times and size are the same")
	}
	for what, change := range map[string]func(){
		"text":    func() { v.decision.Text = "that" },
		"project": func() { v.project = "/q" },
		"inode":   func() { v.root = confine.Identity{Ino: 7} },
		"dir":     func() { v.dir = "sub" },
		"policy":  func() { v.policy = "p" },
		"grant":   func() { v.decision.Grant.ExecAny = true },
	} {
		before := bind()
		change()
		if bind() == before {
			t.Errorf("another %s is the same", what)
		}
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if b, err := binding(&v); err == nil {
		t.Errorf("without the program: %s", b)
	}
}

// TestApprovalGone proves that a client that goes away withdraws what it asked.
func TestApprovalGone(t *testing.T) {
	f := serve(t, nil)
	w, a := f.ask(t, "ask it")
	w.cancel()
	for deadline := time.Now().Add(60 * time.Second); len(f.pending()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it still waits")
		}
	}
	if _, failed := f.approvals.decide(a.ID, bob, anybody, yes); codeOf(failed) != api.ApprovalStale {
		t.Errorf("a yes afterwards: %v", failed)
	}
	if len(f.confiner.ran) != 0 {
		t.Error("it ran")
	}
}

// TestControlSelf proves that who asked cannot approve over the control socket,
// and that the daemon of a machine does not let just anybody on it.
func TestControlSelf(t *testing.T) {
	uid := uint32(os.Geteuid())
	for name, change := range map[string]func(*Config){
		"system": func(c *Config) { c.Authority = Authority{System: true, Group: &uid} },
		"user":   func(c *Config) { c.OnlyUID = &uid },
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, change)
			if gid := uint32(os.Getegid()); name == "system" && uid != 0 {
				f.Authority.Group = &gid
			}
			_, a := f.ask(t, "ask it")
			_, list, err := f.control.Approvals(context.Background())
			if err != nil || len(list.Approvals) != 1 || list.Approvals[0].ID != a.ID {
				t.Fatalf("%+v, %v", list, err)
			}
			_, err = f.control.Decide(context.Background(), a.ID, api.ApprovalDecision{Decision: api.DecideAllow})
			apiError(t, err, api.PermissionDenied)
			if got := f.pending(); len(got) != 1 {
				t.Errorf("%+v", got)
			}
			_, err = f.control.Decide(context.Background(), "nothing", api.ApprovalDecision{Decision: api.DecideAllow})
			apiError(t, err, api.NotFound)
			_, err = f.client.Approval(context.Background(), a.ID)
			apiError(t, err, api.NotFound) // the agents' socket has none of this
		})
	}
	f := serve(t, func(c *Config) { other := uid + 1; c.OnlyUID = &other })
	_, _, err := f.control.Approvals(context.Background())
	apiError(t, err, api.PermissionDenied)
}

// TestHalt proves that a halt ends what runs and what waits, lets nothing start,
// and is on the trace; and that after a resume all is as before.
func TestHalt(t *testing.T) {
	uid := uint32(os.Geteuid())
	f := serve(t, func(c *Config) { c.OnlyUID = &uid })
	running := make(chan struct{})
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		close(running)
		<-ctx.Done()
		return confine.Outcome{ExitCode: -1, Ended: confine.EndedCaller}, nil
	})
	ended := make(chan error, 1)
	go func() {
		client := api.NewClient(f.socket)
		defer client.Close()
		_, err := client.Exec(context.Background(), api.ExecRequest{Project: f.project, Command: "long"})
		ended <- err
	}()
	<-running
	w, _ := f.ask(t, "ask it")
	if err := f.control.Halt(context.Background()); err != nil {
		t.Fatal(err)
	}
	apiError(t, <-ended, api.Interrupted)
	_, err := w.wait(t)
	apiError(t, err, api.Interrupted)
	_, err = f.exec("short")
	apiError(t, err, api.Halted)
	f.confiner.set(nil)
	if err := f.control.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.exec("short"); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(f.records)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), `"event":"halt"`); n != 2 {
		t.Errorf("%d halts are recorded", n)
	}
}

// TestApprovedAlone proves that an approved run waits for the others in its
// project that may write, and that none of those starts while it runs.
func TestApprovedAlone(t *testing.T) {
	f := serve(t, nil)
	var now, most atomic.Int32
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		n := now.Add(1)
		defer now.Add(-1)
		if r.Text == "ask it" {
			time.Sleep(20 * time.Millisecond)
			if now.Load() > 1 {
				most.Store(n + 1)
			}
		} else {
			time.Sleep(5 * time.Millisecond)
		}
		_, _ = io.WriteString(r.Stdout, "x")
		return confine.Outcome{}, nil
	})
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			client := api.NewClient(f.socket)
			defer client.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := client.Exec(context.Background(), api.ExecRequest{Project: f.project, Command: "write it"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		w, a := f.ask(t, "ask it")
		f.decide(t, a.ID, yes)
		if _, err := w.wait(t); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	all.Wait()
	if n := most.Load(); n > 0 {
		t.Error("another run that may write ran beside an approved one")
	}
	if len(f.gates.all) > 0 {
		t.Errorf("%d gates are left", len(f.gates.all))
	}
}

// TestApprovalList proves that the list comes again whenever it changes.
func TestApprovalList(t *testing.T) {
	uid := uint32(os.Geteuid())
	f := serve(t, func(c *Config) { c.OnlyUID = &uid })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lists := make(chan *api.ApprovalList, 16)
	go func() {
		_ = f.control.WatchApprovals(ctx, func(l *api.ApprovalList) error { lists <- l; return nil })
	}()
	if l := <-lists; len(l.Approvals) != 0 {
		t.Errorf("at first: %+v", l)
	}
	_, a := f.ask(t, "ask it")
	if l := <-lists; len(l.Approvals) != 1 || l.Approvals[0].State != api.StatePending {
		t.Errorf("then: %+v", l)
	}
	f.decide(t, a.ID, no)
	if l := <-lists; len(l.Approvals) != 1 || l.Approvals[0].State != api.StateDenied {
		t.Errorf("at last: %+v", l)
	}
	if data, err := json.Marshal(a); err != nil || strings.Contains(string(data), "side") {
		t.Errorf("%s, %v", data, err)
	}
}
