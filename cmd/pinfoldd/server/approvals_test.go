package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
)

// silently is a note of approvals that records nothing.
func silently(*api.Approval, act) error { return nil }

// given returns an approval to ask for.
func given(id string, uid uint32) api.Approval {
	return api.Approval{ID: id, Caller: api.ApprovalCaller{UID: uid}, Binding: "binding of " + id}
}

var yes, no = api.ApprovalDecision{Decision: api.DecideAllow}, api.ApprovalDecision{Decision: api.DecideDeny, Reason: "not now"}

// anybody may decide.
func anybody(uint32, []process) *api.Error { return nil }

// bob is an approver.
var bob = api.Approver{UID: 7, User: "bob", PID: 42}

// TestApprovalTable proves that in each state exactly the acts of the table are
// possible, and that what is refused changes nothing.
func TestApprovalTable(t *testing.T) {
	reach := map[string][]act{
		api.StatePending: {}, api.StateAllowed: {actAllow}, api.StateDenied: {actDeny}, api.StateExpired: {actExpire},
		api.StateWithdrawn: {actWithdraw}, api.StateUsed: {actAllow, actStart}, api.StateStale: {actAllow, actSpoil}, api.StateRevoked: {actAllow, actRevoke},
	}
	acts := []act{actAllow, actDeny, actExpire, actWithdraw, actStart, actSpoil, actRevoke}
	for state, way := range reach {
		for _, what := range acts {
			a := newApprovals(silently)
			p, failed := a.ask(given("x", 1), nil, "")
			if failed != nil {
				t.Fatal(failed)
			}
			for _, step := range way {
				a.happen(p, step)
			}
			if p.State != state {
				t.Fatalf("%v leads to %s, want %s", way, p.State, state)
			}
			a.happen(p, what)
			want := state
			if next := becomes[state][what]; next != "" {
				want = next
			}
			if p.State != want {
				t.Errorf("%s of one that is %s makes it %s, want %s", what, state, p.State, want)
			}
		}
	}
}

// TestApprovalDecided proves what each decision means for who waits.
func TestApprovalDecided(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(*approvals, *approval, context.CancelFunc)
		want   api.Code
	}{
		"yes":  {func(a *approvals, p *approval, _ context.CancelFunc) { _, _ = a.decide(p.ID, bob, anybody, yes) }, ""},
		"no":   {func(a *approvals, p *approval, _ context.CancelFunc) { _, _ = a.decide(p.ID, bob, anybody, no) }, api.ApprovalDenied},
		"gone": {func(_ *approvals, _ *approval, cancel context.CancelFunc) { cancel() }, api.Interrupted},
		"halted": {func(a *approvals, _ *approval, _ context.CancelFunc) {
			a.withdraw(func(*api.Approval) bool { return true })
		}, api.Interrupted},
		"too late": {func(a *approvals, p *approval, _ context.CancelFunc) { a.happen(p, actExpire) }, api.ApprovalTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApprovals(silently)
			p, _ := a.ask(given("x", 1), nil, "")
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			time.AfterFunc(10*time.Millisecond, func() { c.decide(a, p, cancel) })
			failed := a.await(ctx, p)
			if code := codeOf(failed); code != c.want {
				t.Errorf("%v, want %s", failed, c.want)
			}
		})
	}
}

func codeOf(e *api.Error) api.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

// TestApprovalOnce proves that a yes starts one run, and only what was approved.
func TestApprovalOnce(t *testing.T) {
	a := newApprovals(silently)
	p, _ := a.ask(given("x", 1), nil, "")
	if code := codeOf(a.use(p, p.Binding, "")); code != api.ApprovalStale {
		t.Errorf("used without a yes: %q", code)
	}
	if _, failed := a.decide("x", bob, anybody, yes); failed != nil {
		t.Fatal(failed)
	}
	if failed := a.use(p, p.Binding, ""); failed != nil {
		t.Error(failed)
	}
	if code := codeOf(a.use(p, p.Binding, "")); code != api.ApprovalStale {
		t.Errorf("used twice: %q", code)
	}
	q, _ := a.ask(given("y", 1), nil, "")
	_, _ = a.decide("y", bob, anybody, yes)
	if code := codeOf(a.use(q, "another", "")); code != api.ApprovalStale {
		t.Errorf("something else: %q", code)
	}
	if code := codeOf(a.use(q, q.Binding, "")); code != api.ApprovalStale {
		t.Errorf("after something else: %q", code)
	}
}

// TestApprovalSession proves that a yes for the session holds for exactly the
// same command of the same user, until it is revoked or its time is over.
func TestApprovalSession(t *testing.T) {
	a := newApprovals(silently)
	now := time.Now()
	a.now = func() time.Time { return now }
	p, _ := a.ask(given("x", 1), nil, "")
	if _, failed := a.decide("x", bob, anybody, api.ApprovalDecision{Decision: api.DecideAllow, Scope: api.ScopeSession}); failed != nil {
		t.Fatal(failed)
	}
	again := func(uid uint32, binding string) string {
		g := given(fmt.Sprint(rand.Uint64()), uid)
		g.Binding = binding
		q, failed := a.ask(g, nil, "")
		if failed != nil {
			t.Fatal(failed)
		}
		defer a.happen(q, actDeny)
		if q.State == api.StateAllowed {
			if failed := a.use(q, binding, ""); failed != nil {
				t.Error(failed)
			}
		}
		return q.State
	}
	for range 3 {
		if got := again(1, p.Binding); got != api.StateAllowed {
			t.Errorf("the same again is %s", got)
		}
	}
	if got := again(1, "another"); got != api.StatePending {
		t.Errorf("another command is %s", got)
	}
	if got := again(2, p.Binding); got != api.StatePending {
		t.Errorf("another user's is %s", got)
	}
	now = now.Add(api.ScopeLife + time.Second)
	if got := again(1, p.Binding); got != api.StatePending {
		t.Errorf("after its time it is %s", got)
	}
	q, _ := a.ask(given("z", 1), nil, "")
	_, _ = a.decide("z", bob, anybody, api.ApprovalDecision{Decision: api.DecideAllow, Scope: api.ScopeSession})
	if _, failed := a.revoke("z", bob, anybody); failed != nil {
		t.Fatal(failed)
	}
	if got := again(1, q.Binding); got != api.StatePending {
		t.Errorf("after it was revoked it is %s", got)
	}
}

// TestApprovalOwner proves that another's approval is not there, in the same
// words as one that does not exist.
func TestApprovalOwner(t *testing.T) {
	a := newApprovals(silently)
	_, _ = a.ask(given("x", 1), nil, "")
	_, other := a.find(2, "x")
	_, none := a.find(2, "nothing")
	if other == nil || !reflect.DeepEqual(other, none) {
		t.Errorf("%v and %v", other, none)
	}
}

// TestApprovalUnrecorded proves that what cannot be recorded does not count.
func TestApprovalUnrecorded(t *testing.T) {
	fails := act("")
	a := newApprovals(func(_ *api.Approval, what act) error {
		if what == fails {
			return errors.New("no space")
		}
		return nil
	})
	fails = "ask"
	if _, failed := a.ask(given("x", 1), nil, ""); codeOf(failed) != api.TraceUnavailable {
		t.Errorf("ask: %v", failed)
	}
	fails = actAllow
	p, _ := a.ask(given("x", 1), nil, "")
	if _, failed := a.decide("x", bob, anybody, yes); codeOf(failed) != api.TraceUnavailable || p.State != api.StatePending || p.Approver != nil {
		t.Errorf("allow: %v, %s", failed, p.State)
	}
	fails = actStart
	if _, failed := a.decide("x", bob, anybody, yes); failed != nil {
		t.Fatal(failed)
	}
	if failed := a.use(p, p.Binding, ""); codeOf(failed) != api.TraceUnavailable {
		t.Errorf("start: %v", failed)
	}
}

// TestApprovalFlood proves that one caller's questions are bounded, and leave
// room for another's.
func TestApprovalFlood(t *testing.T) {
	a := newApprovals(silently)
	for i := range int(DefaultCaps.Pending) {
		if _, failed := a.ask(given(fmt.Sprint(i), 1), nil, ""); failed != nil {
			t.Fatal(failed)
		}
	}
	if _, failed := a.ask(given("more", 1), nil, ""); codeOf(failed) != api.Busy {
		t.Errorf("%v", failed)
	}
	if _, failed := a.ask(given("other", 2), nil, ""); failed != nil {
		t.Errorf("another caller: %v", failed)
	}
	for i := range 3 * maxDecided {
		_, _ = a.ask(given(fmt.Sprint("d", i), 3), nil, "")
		_, _ = a.decide(fmt.Sprint("d", i), bob, anybody, no)
	}
	if n := len(a.all); n > maxDecided+int(DefaultCaps.Pending)+1 {
		t.Errorf("%d are kept", n)
	}
}

// TestApprovalRace proves with many approvers, askers that give up, and halts at
// once that each approval is decided once, and started at most once.
func TestApprovalRace(t *testing.T) {
	a := newApprovals(silently)
	var all sync.WaitGroup
	var counted, started atomic.Int32
	for i := range 200 {
		id, uid := fmt.Sprint(i), uint32(i)
		p, failed := a.ask(given(id, uid), nil, "")
		if failed != nil {
			t.Fatal(failed)
		}
		for n := range 3 {
			all.Go(func() {
				d := yes
				if n == 1 {
					d = no
				}
				if _, failed := a.decide(id, bob, anybody, d); failed == nil {
					counted.Add(1)
				}
			})
		}
		for range 2 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3))*time.Millisecond)
				defer cancel()
				if a.await(ctx, p) == nil && a.use(p, p.Binding, "") == nil {
					started.Add(1)
				}
			})
		}
	}
	all.Wait()
	if counted.Load() > 200 || started.Load() > counted.Load() {
		t.Errorf("%d decisions of 200, %d started", counted.Load(), started.Load())
	}
	for _, p := range a.list(func(*api.Approval) bool { return true }) {
		if p.State == api.StatePending {
			t.Errorf("%s still waits", p.ID)
		}
	}
}

// TestMayDecide proves who may approve: never who asked, in the system's daemon;
// there root and the group. In a user's own daemon that user, from a terminal
// apart from the asker's.
func TestMayDecide(t *testing.T) {
	group := uint32(900)
	system := Authority{System: true, Group: &group}
	for _, c := range []struct {
		name  string
		peer  peer
		owner uint32
		may   bool
	}{
		{"root", peer{uid: 0}, 1000, true},
		{"a member", peer{uid: 1001, gid: 1001, groups: []uint32{27, 900}}, 1000, true},
		{"a member by his own group", peer{uid: 1001, gid: 900}, 1000, true},
		{"somebody", peer{uid: 1001, gid: 1001}, 1000, false},
		{"who asked", peer{uid: 1000, groups: []uint32{900}}, 1000, false},
		{"root, who asked", peer{uid: 0}, 0, false},
	} {
		if failed := system.mayDecide(&c.peer, c.owner, nil); (failed == nil) != c.may {
			t.Errorf("%s: %v", c.name, failed)
		}
	}
	nobody := Authority{System: true}
	if failed := nobody.mayDecide(&peer{uid: 1001, gid: 0, groups: []uint32{0}}, 1000, nil); failed == nil {
		t.Error("without a group, group 0 may approve")
	}
}

// TestBesides proves which processes are apart from the asker's side.
func TestBesides(t *testing.T) {
	manager := process{pid: 10, start: 1}
	tmux := process{pid: 20, start: 2}
	shell := process{pid: 30, tty: 1, start: 3}
	agent := process{pid: 31, tty: 1, start: 4}
	client := process{pid: 32, tty: 1, start: 5}
	headless := process{pid: 40, start: 6}
	other := process{pid: 50, tty: 2, start: 7}
	for _, c := range []struct {
		name            string
		asker, approver []process
		apart           bool
	}{
		{"another pane", []process{client, agent, shell, tmux}, []process{{pid: 51, tty: 2, start: 9}, other, tmux}, true},
		{"the same process", []process{client, agent, shell, tmux}, []process{client, agent, shell, tmux}, false},
		{"a sibling below the agent", []process{client, agent, shell, tmux}, []process{{pid: 33, tty: 1, start: 9}, agent, shell, tmux}, false},
		{"below the agent with a terminal of its own", []process{client, agent, shell, tmux}, []process{{pid: 33, tty: 9, start: 9}, agent, shell, tmux}, false},
		{"no terminal", []process{client, agent, shell, tmux}, []process{{pid: 33, start: 9}, manager}, false},
		{"a headless agent, another terminal", []process{{pid: 41, start: 8}, headless, manager}, []process{other, tmux, manager}, true},
		{"below a headless agent", []process{{pid: 41, start: 8}, headless, manager}, []process{{pid: 42, tty: 9, start: 9}, headless, manager}, false},
		{"an agent that left its terminal", []process{{pid: 41, start: 8}, agent, shell, tmux}, []process{{pid: 42, tty: 9, start: 9}, agent, shell, tmux}, false},
		{"a pid that another had before", []process{client, agent, shell}, []process{other, {pid: 31, tty: 2, start: 99}}, true},
	} {
		if err := besides(asking(c.asker), c.approver); (err == nil) != c.apart {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if chain, err := ancestry(1 << 22); err == nil {
		t.Errorf("a process that is not there: %v", chain)
	}
}
