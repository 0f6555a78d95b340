package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace"
)

const (
	keepEnded = 10 * time.Minute // how long a background run that has ended is shown
	maxEnded  = 16               // of one caller
)

// A running is a run that requests can be about: every one under way, and those
// in the background that have ended a short while ago.
type running struct {
	owner   uint32
	info    api.RunInfo // State, Stdin, Receipt and Result are as below
	in      *feed       // nil when there is no stdin
	ring    *ring       // of a background run
	signals chan syscall.Signal
	resize  chan confine.Window
	ended   chan struct{}

	mu       sync.Mutex
	withdraw context.CancelFunc // while it waits for somebody's yes
	receipt  *api.Receipt
	result   *api.Outcome
	at       time.Time // of the end
}

// A registry finds runs by their owner and id.
type registry struct {
	mu   sync.Mutex
	runs map[string]*running
	live sync.WaitGroup // background runs under way
}

// add makes a run known.
func (g *registry) add(r *running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[string]*running{}
	}
	g.runs[r.info.Run] = r
}

// end says how a run ended. One that was not in the background is forgotten, and
// of the others those that ended long ago.
func (g *registry) end(r *running, result *api.Outcome) {
	r.in.end()
	r.mu.Lock()
	r.result, r.at = result, time.Now()
	r.mu.Unlock()
	if r.ring != nil {
		r.ring.end()
	}
	close(r.ended)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !r.info.Background {
		delete(g.runs, r.info.Run)
		return
	}
	g.forget(r.owner)
}

// drop forgets a run that was never started.
func (g *registry) drop(r *running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, r.info.Run)
}

// forget drops the runs of a caller that ended too long ago, or are too many.
func (g *registry) forget(owner uint32) {
	var ended []*running
	for _, r := range g.runs {
		if at := r.endedAt(); r.owner == owner && !at.IsZero() {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(a, b *running) int { return b.endedAt().Compare(a.endedAt()) })
	for i, r := range ended {
		if i >= maxEnded || time.Since(r.endedAt()) > keepEnded {
			delete(g.runs, r.info.Run)
		}
	}
}

func (r *running) isEnded() bool { return !r.endedAt().IsZero() }

func (r *running) endedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// of returns the caller's runs, the oldest first.
func (g *registry) of(owner uint32) []*running {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(owner)
	var out []*running
	for _, r := range g.runs {
		if r.owner == owner {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *running) int { return strings.Compare(a.info.Run, b.info.Run) })
	return out
}

// find returns the caller's run. Another's is not found, like none.
func (g *registry) find(owner uint32, id string) (*running, *failure) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.runs[id]
	if r == nil || r.owner != owner {
		return nil, refuse(&api.Error{Code: api.NotFound, Message: "you have no such run",
			RecommendedAction: "GET /v1/runs lists those that you have; of the others the trace tells"})
	}
	return r, nil
}

// now returns the run as it travels.
func (r *running) now() api.RunInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.info
	out.State, out.Receipt, out.Result, out.Stdin = api.RunRunning, r.receipt, r.result, r.in.open()
	if r.withdraw != nil {
		out.State = api.RunWaiting
	}
	if r.result != nil {
		out.State, out.Receipt = api.RunEnded, nil
	}
	return out
}

// newRunning makes the order's run known.
func (s *Server) newRunning(o *order, project string) *running {
	req := o.req
	r := &running{owner: o.peer.uid, ended: make(chan struct{}), signals: make(chan syscall.Signal, 8), info: api.RunInfo{
		Run: o.id, Background: req.Background || req.Wait != nil, TTY: req.TTY, Project: project, Session: o.session.name(), Command: clean(req.Command),
		StartedAt: time.Now().UTC().Format(time.RFC3339Nano)}}
	if data := req.Input(); len(data) > 0 || req.StdinStream || req.TTY {
		r.in = newFeed(data, !req.StdinStream)
	}
	if req.TTY {
		r.resize = make(chan confine.Window, 1)
	}
	if r.info.Background {
		r.ring = newRing()
	}
	s.registry.add(r)
	return r
}

// waits says that the run waits for somebody's yes, until withdraw is called; nil
// that it waits no more.
func (r *running) waits(withdraw context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdraw = withdraw
}

// end withdraws the run when it waits for somebody's yes, and reports whether it
// does.
func (r *running) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdraw == nil || r.result != nil {
		return false
	}
	r.withdraw()
	return true
}

// begun says that the shell starts.
func (r *running) begun(receipt *api.Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.receipt = receipt
}

// background starts the job and answers when it has started. It runs on without
// the request, in the caller's slot, until it ends, everything is halted, or the
// daemon ends. It is not alone in the project even when it was approved: nothing
// could run beside it for as long as it does.
func (j *job) background(w http.ResponseWriter, o *order) *failure {
	s := j.server
	begun := make(chan *api.Error, 1)
	s.apart(o, func(ctx context.Context) {
		j.ctx = ctx
		j.inBackground(begun)
	})
	if failed := <-begun; failed != nil {
		return &failure{err: failed, run: j.id, decision: j.decision}
	}
	s.answer(w, http.StatusOK, &api.BackgroundAnswer{Success: true, RunInfo: j.entry.now(), Decision: j.decision, Grant: j.grant})
	return nil
}

// apart calls f in a goroutine that goes on without the request, in the caller's
// slot and in its session. The context ends when the session or the daemon does,
// or everything is halted.
func (s *Server) apart(o *order, f func(ctx context.Context)) {
	ctx, cancel, ok := s.halted.begin(s.base)
	if !ok {
		ctx, cancel = context.WithCancel(s.base)
		cancel()
	}
	ctx, leave := o.session.within(ctx)
	if !o.session.hold() {
		leave() // it was closed meanwhile
	}
	o.slot.hold()
	s.active.Add(1)
	s.registry.live.Add(1)
	go func() {
		defer func() {
			leave()
			cancel()
			o.slot.drop()
			o.session.drop()
			s.last.Store(time.Now().UnixNano())
			s.active.Add(-1)
			s.registry.live.Done()
		}()
		f(ctx)
	}()
}

// ask has a command approved without its client, and answers when that is asked.
// Then it runs in the background.
func (s *Server) ask(w http.ResponseWriter, o *order, v verdict, share *allowance) *failure {
	entry := s.newRunning(o, v.project)
	asked, failed := make(chan *api.Approval, 1), make(chan *failure, 1)
	o.asked = func(a *api.Approval) { asked <- a }
	s.apart(o, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		entry.waits(cancel)
		j, f := s.admit(ctx, o, v, share)
		if f != nil {
			failed <- f
			s.registry.end(entry, notRun(f))
			return
		}
		defer j.verdict.release()
		j.entry, j.ctx = entry, ctx
		entry.waits(nil)
		j.inBackground(make(chan *api.Error, 1))
	})
	select {
	case a := <-asked:
		s.answer(w, http.StatusOK, &api.WaitingAnswer{Success: true, RunInfo: entry.now(), Approval: a})
		return nil
	case f := <-failed:
		s.registry.drop(entry)
		return f
	}
}

// notRun is the outcome of a run that was not started.
func notRun(f *failure) *api.Outcome {
	unchanged := false
	return &api.Outcome{Error: f.err, StateChanged: &unchanged, Provenance: api.Provenance{Source: api.CommandOutput}, Run: f.run, Decision: f.decision}
}

// inBackground runs the job to its end. begun hears once that it has started, or
// why not.
func (j *job) inBackground(begun chan<- *api.Error) {
	stdout := &ringWriter{ring: j.entry.ring, name: api.EventStdout}
	stderr := &ringWriter{ring: j.entry.ring, name: api.EventStderr}
	_, failed := j.start(stdout, stderr, func(*api.Receipt) { begun <- nil }, nil, func() (trace.Output, api.Truncated) {
		stdout.flush()
		stderr.flush()
		return trace.Output{StdoutBytes: stdout.size, StderrBytes: stderr.size}, api.Truncated{}
	})
	select {
	case begun <- failed:
	default: // it has begun
	}
}

// runRoutes maps what stands after the id of a run, and the method, to what
// answers.
var runRoutes = map[string]map[string]func(s *Server, w http.ResponseWriter, r *http.Request, run *running) *failure{
	"":       {http.MethodGet: (*Server).showRun},
	"signal": {http.MethodPost: (*Server).signalRun},
	"stdin":  {http.MethodPost: (*Server).writeStdin},
	"resize": {http.MethodPost: (*Server).resizeRun},
}

// runPath is where the runs are, each with its id.
const runPath = "/v1/runs/"

// aboutRun answers the requests that are about one run.
func (s *Server) aboutRun(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	id, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, runPath), "/")
	methods := runRoutes[what]
	if methods == nil {
		return nothingHere()
	}
	h := methods[r.Method]
	if h == nil {
		return anotherMethod()
	}
	run, f := s.registry.find(p.uid, id)
	if f != nil {
		return f
	}
	return h(s, w, r, run)
}

// listRuns answers GET /v1/runs.
func (s *Server) listRuns(w http.ResponseWriter, _ *http.Request, p *peer) *failure {
	answer := &api.RunsAnswer{Success: true, Runs: []api.RunInfo{}}
	for _, r := range s.registry.of(p.uid) {
		answer.Runs = append(answer.Runs, r.now())
	}
	s.answer(w, http.StatusOK, answer)
	return nil
}

// showRun answers GET /v1/runs/{id}.
func (s *Server) showRun(w http.ResponseWriter, r *http.Request, run *running) *failure {
	cursor, wait, invalid := outputQuery(r.URL.RawQuery)
	if invalid != nil {
		return refuse(invalid)
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	answer := &api.RunAnswer{Success: true, Output: []api.Piece{}}
	for waiting := run.ring != nil; waiting; {
		var more <-chan struct{}
		answer.Output, answer.Cursor, answer.Dropped, more = run.ring.from(cursor)
		if more == nil || wait == 0 {
			break
		}
		select {
		case <-more:
		case <-late.C:
			waiting = false
		case <-r.Context().Done():
			waiting = false
		}
	}
	answer.RunInfo = run.now()
	s.answer(w, http.StatusOK, answer)
	return nil
}

// outputQuery reads the query of a request for a run's output.
func outputQuery(raw string) (cursor int64, wait time.Duration, invalid *api.Error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return 0, 0, api.InvalidField("query", "is not well formed")
	}
	for name, list := range values {
		n, err := strconv.ParseInt(list[0], 10, 64)
		switch {
		case name != "cursor" && name != "wait_ms" || len(list) != 1:
			return 0, 0, api.InvalidField("query", "takes cursor and wait_ms, each once")
		case err != nil || n < 0 || name == "wait_ms" && n > api.MaxWait:
			return 0, 0, api.InvalidField(name, "must be a whole number from 0, of wait_ms to "+strconv.Itoa(api.MaxWait))
		case name == "cursor":
			cursor = n
		default:
			wait = time.Duration(n) * time.Millisecond
		}
	}
	return cursor, wait, nil
}

// hasEnded is the refusal of what only a run under way can be told.
func hasEnded() *failure {
	return &failure{err: api.InvalidField("run", "has ended"), status: http.StatusConflict}
}

// signalRun answers POST /v1/runs/{id}/signal.
func (s *Server) signalRun(w http.ResponseWriter, r *http.Request, run *running) *failure {
	req, f := read(w, r, api.ParseSignal)
	if f != nil {
		return f
	}
	if run.isEnded() {
		return hasEnded()
	}
	if req.Signal != "SIGCONT" && req.Signal != "SIGTSTP" && run.end() {
		s.answer(w, http.StatusOK, &api.DoneAnswer{Success: true})
		return nil
	}
	select {
	case run.signals <- unix.SignalNum(req.Signal):
	default:
		return refuse(&api.Error{Code: api.Busy, Message: "earlier signals wait to be delivered", Retryable: true})
	}
	s.answer(w, http.StatusOK, &api.DoneAnswer{Success: true})
	return nil
}

// writeStdin answers POST /v1/runs/{id}/stdin.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request, run *running) *failure {
	body, f := readBody(w, r)
	if f != nil {
		return f
	}
	data, last, invalid := api.ParseStdin(body)
	if invalid != nil {
		return refuse(invalid)
	}
	if run.in == nil {
		return &failure{err: api.InvalidField("run", "has no stdin; ask for stdin_stream when it starts"), status: http.StatusConflict}
	}
	switch err := run.in.put(r.Context(), data, last); {
	case errors.Is(err, errFeedEnded):
		return hasEnded()
	case errors.Is(err, errFeedClosed):
		return &failure{err: api.InvalidField("run", "has a stdin that was closed"), status: http.StatusConflict}
	case err != nil:
		return refuse(&api.Error{Code: api.Interrupted, Message: "the request was canceled", Retryable: true})
	}
	s.answer(w, http.StatusOK, &api.DoneAnswer{Success: true})
	return nil
}

// resizeRun answers POST /v1/runs/{id}/resize.
func (s *Server) resizeRun(w http.ResponseWriter, r *http.Request, run *running) *failure {
	req, f := read(w, r, api.ParseResize)
	if f != nil {
		return f
	}
	if run.resize == nil {
		return &failure{err: api.InvalidField("run", "has no terminal"), status: http.StatusConflict}
	}
	size := confine.Window{Columns: uint16(req.Columns), Rows: uint16(req.Rows)}
	if run.isEnded() {
		return hasEnded()
	}
	select {
	case <-run.ended:
		return hasEnded()
	case run.resize <- size:
	case <-r.Context().Done():
	}
	s.answer(w, http.StatusOK, &api.DoneAnswer{Success: true})
	return nil
}
