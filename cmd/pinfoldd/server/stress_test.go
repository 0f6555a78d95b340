package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace"
)

// asEach calls f as n users, each on a thread of his own, with a project of his;
// without privilege the user who tests is all of them.
func (f *fixture) asEach(t *testing.T, n int, call func(i int, uid uint32, client *api.Client, project string)) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		uid, project := uint32(os.Geteuid()), f.project
		if uid == 0 {
			uid, project = uint32(60000+i), f.project+"-"+strconv.Itoa(i)
			if err := errors.Join(os.MkdirAll(project, 0o755), os.Chown(project, int(uid), int(uid))); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			if os.Geteuid() == 0 {
				runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
				for _, id := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
					if _, _, errno := unix.RawSyscall(id, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
						t.Error(errno)
						return
					}
				}
			}
			client := api.NewClient(f.socket) // which connects on this thread
			defer client.Close()
			call(i, uid, client, project)
		})
	}
	all.Wait()
}

// TestStress has callers open and close sessions, run commands, ask for approvals
// and cancel all of that at random, while approvers decide and the policy changes;
// in the end, with sessions open and approvals pending, the daemon goes. No decision is lost, doubled or crossed: each answer
// is to its own question, what nobody approved never runs, what was approved runs
// at most once, and every run that was let start has its end on the trace.
// PINFOLD_STRESS=full is 16 callers, who open some 700 sessions.
func TestStress(t *testing.T) {
	callers, rounds, each := 6, 2, 25
	caps := Caps{Runs: 64, Waiting: 256, Wait: 20 * time.Second, Connections: 256, Sessions: 16, Pending: 16}
	if os.Getenv("PINFOLD_STRESS") == "full" {
		callers, rounds, each = 16, 5, 300
	}
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) { stress(t, callers, each, caps) })
	}
}

func stress(t *testing.T, callers, each int, caps Caps) {
	f := serve(t, func(c *Config) { c.Caps = caps })
	var mu sync.Mutex
	started := map[string]int{} // by text
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		mu.Lock()
		started[r.Text]++
		mu.Unlock()
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		_, _ = fmt.Fprintf(r.Stdout, "%d %s %s", r.Caller.UID, r.Text, strings.Join(r.Env, ","))
		return confine.Outcome{}, ctx.Err()
	})
	over := make(chan struct{})
	var background sync.WaitGroup
	var most atomic.Int64
	for range 2 { // approvers, who sometimes want the same
		background.Go(func() { f.approveAll(over, &most) })
	}
	background.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
				f.SetPolicy(map[bool]Decider{true: fakePolicy{}, false: otherHash{}}[n%2 == 0])
			}
		}
	})
	var opened atomic.Int64
	f.asEach(t, callers, func(i int, uid uint32, client *api.Client, project string) {
		var sessions []string
		for n := range each {
			ctx, cancel := context.WithCancel(context.Background())
			if rand.IntN(5) == 0 {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
			}
			mine := fmt.Sprintf("%d-%d", i, n)
			req := api.ExecRequest{Project: project}
			env := ""
			if len(sessions) > 0 && rand.IntN(2) == 0 {
				req.Project, req.Session = "", sessions[rand.IntN(len(sessions))]
				env = "OF=" + strconv.Itoa(i)
			}
			switch rand.IntN(6) {
			case 0, 1:
				_, s, err := client.OpenSession(ctx, api.SessionRequest{Project: project, Env: map[string]string{"OF": strconv.Itoa(i)}})
				if err == nil {
					sessions = append(sessions, s.ID)
					opened.Add(1)
				} else {
					expect(t, err, ctx, api.Busy)
				}
				if len(sessions) > 12 {
					_, _, err := client.CloseSession(ctx, sessions[0])
					expect(t, err, ctx, api.NotFound) // a canceled one may have been closed all the same
					sessions = sessions[1:]
				}
			case 2:
				req.Command = "ask no " + mine
				_, err := client.Exec(ctx, req)
				if err == nil {
					t.Errorf("%s ran", req.Command)
				}
				expect(t, err, ctx, api.ApprovalDenied, api.ApprovalStale, api.NotFound, api.Busy)
			case 3:
				req.Command = "ask yes " + mine
				answer(t, ctx, client, req, uid, env)
			case 4:
				req.Command = "ask yes unseen " + mine
				_, _, err := client.ExecNoWait(ctx, req)
				expect(t, err, ctx, api.NotFound, api.Busy)
			default:
				req.Command = "write " + mine
				answer(t, ctx, client, req, uid, env)
			}
			cancel()
		}
	})
	close(over)
	background.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sessions, at most %d pending, %d started", opened.Load(), most.Load(), len(started))
	f.checkStress(t, started)
}

// answer runs the command and checks that the answer is to this question.
func answer(t *testing.T, ctx context.Context, client *api.Client, req api.ExecRequest, uid uint32, env string) {
	result, err := client.Exec(ctx, req)
	if err != nil {
		expect(t, err, ctx, api.ApprovalStale, api.NotFound, api.Busy)
		return
	}
	if want := fmt.Sprintf("%d %s %s", uid, req.Command, env); result.Stdout != want {
		t.Errorf("%q is answered with %q", want, result.Stdout)
	}
}

// expect checks that the error is none, that of a canceled request, or one of the
// codes.
func expect(t *testing.T, err error, ctx context.Context, codes ...api.Code) {
	if err == nil || ctx.Err() != nil {
		return
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		for _, code := range codes {
			if e.Code == code {
				return
			}
		}
	}
	t.Errorf("unexpected: %v", err)
}

// approveAll decides on everything by its text until it is over.
func (f *fixture) approveAll(over <-chan struct{}, most *atomic.Int64) {
	for {
		list := f.pending()
		most.Store(max(most.Load(), int64(len(list))))
		for _, a := range list {
			d := no
			if strings.HasPrefix(a.Decision.Text, "ask yes") {
				d = yes
			}
			_, _ = f.approvals.decide(a.ID, bob, anybody, d)
		}
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond):
		}
	}
}

// checkStress checks what ran against the trace.
func (f *fixture) checkStress(t *testing.T, started map[string]int) {
	for text, n := range started {
		if n != 1 || strings.HasPrefix(text, "ask no") {
			t.Errorf("%q ran %d times", text, n)
		}
	}
	decided, finished, acts := map[string]trace.Record{}, map[string]int{}, map[string][]string{}
	approved := map[string]bool{}
	for _, r := range f.trace(t) {
		switch r.Event {
		case trace.EventDecided:
			if _, twice := decided[r.Run]; twice {
				t.Errorf("run %s is decided twice", r.Run)
			}
			decided[r.Run] = r
		case trace.EventFinished:
			finished[r.Run]++
		case trace.EventApproval:
			acts[r.Run] = append(acts[r.Run], r.Act)
			approved[r.Run] = approved[r.Run] || r.Act == "allow"
		}
	}
	for run, r := range decided {
		if want := map[bool]int{true: 1}[r.Approved]; finished[run] != want {
			t.Errorf("run %s (%s): approved %v, finished %d times", run, r.Text, r.Approved, finished[run])
		}
		if strings.HasPrefix(r.Text, "ask") && r.Approved && (!approved[run] || !strings.HasPrefix(r.Text, "ask yes")) {
			t.Errorf("run %s (%s) was let start after %v", run, r.Text, acts[run])
		}
	}
	for run, list := range acts {
		state := api.StatePending
		for _, what := range list[1:] {
			if state = becomes[state][act(what)]; state == "" {
				t.Errorf("run %s: %v cannot happen", run, list)
				break
			}
		}
	}
	opened, closed := len(f.events(t, trace.EventSessionOpened)), len(f.events(t, trace.EventSessionClosed))
	if opened != closed {
		t.Errorf("%d sessions were opened and %d closed", opened, closed)
	}
}

// TestFlood proves that what one caller asks for is in his own way alone: while he
// has everything that he may have, runs, requests that wait, sessions and pending
// approvals, and asks for more without end, each command of another runs at once.
func TestFlood(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("takes two users")
	}
	f := serve(t, func(c *Config) { c.Caps = DefaultCaps; c.Caps.Wait = 50 * time.Millisecond })
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		if r.Text == "hang" {
			<-ctx.Done()
		}
		return confine.Outcome{}, nil
	})
	ctx, stop := context.WithCancel(context.Background())
	var flood sync.WaitGroup
	var refused atomic.Int64
	for n := range 40 {
		flood.Go(func() {
			client := api.NewClient(f.socket)
			defer client.Close()
			for ctx.Err() == nil {
				var err error
				switch n % 4 {
				case 0:
					_, _, err = client.OpenSession(ctx, api.SessionRequest{Project: f.project})
				case 1:
					_, _, err = client.ExecNoWait(ctx, api.ExecRequest{Project: f.project, Command: "ask it"})
				default:
					_, err = client.Exec(ctx, api.ExecRequest{Project: f.project, Command: "hang"})
				}
				if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.Busy {
					refused.Add(1)
				}
			}
		})
	}
	eventually(t, func() bool { return refused.Load() > 100 })
	f.asEach(t, 3, func(_ int, _ uint32, client *api.Client, project string) {
		for range 20 {
			if _, err := client.Exec(context.Background(), api.ExecRequest{Project: project, Command: "x"}); err != nil {
				t.Errorf("another: %v", err)
			}
		}
		_, s, err := client.OpenSession(context.Background(), api.SessionRequest{Project: project})
		if err != nil {
			t.Errorf("another's session: %v", err)
			return
		}
		if _, waiting, err := client.ExecNoWait(context.Background(), api.ExecRequest{Session: s.ID, Command: "ask it"}); err != nil || waiting == nil {
			t.Errorf("another's approval: %v", err)
		}
	})
	stop()
	flood.Wait()
}
