package server

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/policy"
)

// maxAbreast is how many commands of one batch run side by side.
const maxAbreast = 4

// A batch is several commands of a session, asked for together. They are judged
// in their order, each when all that may have changed the project before it have
// ended.
type batch struct {
	server  *Server
	session *session
	peer    *peer
	req     *api.BatchRequest
	results []api.BatchResult
	failed  atomic.Bool // and stop_on_error was asked for
	abreast chan struct{}
	running sync.WaitGroup
}

// batch answers POST /v1/sessions/{id}/batch.
func (s *Server) batch(w http.ResponseWriter, r *http.Request, p *peer, n *session) *failure {
	req, f := read(w, r, api.ParseBatch)
	if f != nil {
		return f
	}
	ctx, cancel, ok := s.halted.begin(r.Context())
	if !ok {
		return haltedNow()
	}
	defer cancel()
	if !n.hold() {
		return errNoSession()
	}
	defer n.drop()
	ctx, leave := n.within(ctx)
	defer leave()
	b := &batch{server: s, session: n, peer: p, req: &req, results: make([]api.BatchResult, len(req.Commands)), abreast: make(chan struct{}, maxAbreast)}
	for i := range req.Commands {
		b.next(ctx, i)
	}
	b.running.Wait()
	s.answer(w, http.StatusOK, &api.BatchAnswer{Success: true, Results: b.results})
	return nil
}

// next starts the command i when its turn has come. When it returns, the command
// has ended or only reads.
func (b *batch) next(ctx context.Context, i int) {
	b.abreast <- struct{}{}
	goesOn := false
	done := func() { <-b.abreast }
	defer func() {
		if !goesOn {
			done()
		}
	}()
	if b.failed.Load() {
		b.refused(i, refuse(&api.Error{Code: api.Interrupted, Message: "not started: a command before it in the batch failed", Retryable: true}))
		return
	}
	sl, f := b.server.enter(ctx, b.peer.uid)
	if f != nil {
		b.refused(i, f)
		return
	}
	o := b.order(i, sl)
	v, share, f := b.server.consider(ctx, o)
	if f != nil {
		sl.drop()
		b.refused(i, f)
		return
	}
	run := func() {
		defer sl.drop()
		b.run(ctx, i, o, v, share)
	}
	if grant := b.session.bound(v.decision.Grant); v.err == nil && v.decision.Verdict == policy.Allow && grant.ReadOnly() {
		goesOn = true
		b.running.Go(func() { defer done(); run() })
		return
	}
	b.running.Wait()
	run()
}

// order returns the command i as one that was asked for by itself.
func (b *batch) order(i int, sl *slot) *order {
	c := &b.req.Commands[i]
	return &order{id: newRun(), peer: b.peer, caller: b.server.users.caller(b.peer), session: b.session, slot: sl, req: &api.ExecRequest{
		Session: b.session.id, Command: c.Command, Cwd: c.Cwd, TimeoutMS: c.TimeoutMS, OutputLimit: c.OutputLimit, ReadsOnly: c.ReadsOnly, Unattended: b.req.Unattended}}
}

func (b *batch) run(ctx context.Context, i int, o *order, v verdict, share *allowance) {
	j, f := b.server.admit(ctx, o, v, share)
	if f != nil {
		b.refused(i, f)
		return
	}
	defer j.verdict.release()
	j.entry = b.server.newRunning(o, v.project)
	result, f := j.finish(o.req.OutputLimit)
	if f != nil {
		b.refused(i, f)
		return
	}
	b.results[i].Result = result
	if result.Error != nil || result.ExitCode == nil || *result.ExitCode != 0 {
		b.fail()
	}
}

// refused says that the command i was not started.
func (b *batch) refused(i int, f *failure) {
	b.results[i].Refused = &api.ErrorAnswer{Error: f.err, StateChanged: f.changed, Run: f.run, Decision: f.decision}
	b.fail()
}

// fail says that a command failed.
func (b *batch) fail() {
	if b.req.StopOnError {
		b.failed.Store(true)
	}
}
