package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

// check answers POST /v1/check.
func (s *Server) check(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	req, f := read(w, r, api.ParseCheck)
	if f != nil {
		return f
	}
	session, f := s.sessions.take(p.uid, req.Session)
	if f != nil {
		return f
	}
	defer session.drop()
	sl, f := s.enter(r.Context(), p.uid)
	if f != nil {
		return f
	}
	defer sl.drop()
	v := s.judge(r.Context(), question{caller: s.users.caller(p), project: req.Project, command: req.Command, cwd: req.Cwd,
		explain: req.Explain, readsOnly: req.ReadsOnly, session: session}, sl)
	if v.err != nil {
		return refuse(v.err)
	}
	s.answer(w, http.StatusOK, &api.CheckAnswer{Success: true,
		Decision: wireDecision(&v.decision, v.policy), Grant: wireGrant(&v.decision.Grant),
		Explanation: wireExplanation(v.explanation)})
	return nil
}

// exec answers POST /v1/exec.
func (s *Server) exec(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	req, f := read(w, r, api.ParseExec)
	if f != nil {
		return f
	}
	ctx, cancel, ok := s.halted.begin(r.Context())
	if !ok {
		return haltedNow()
	}
	defer cancel()
	session, f := s.sessions.take(p.uid, req.Session)
	if f != nil {
		return f
	}
	defer session.drop()
	ctx, leave := session.within(ctx)
	defer leave()
	sl, f := s.enter(r.Context(), p.uid)
	if f != nil {
		return f
	}
	defer sl.drop()
	o := &order{req: &req, id: newRun(), peer: p, caller: s.users.caller(p), session: session, slot: sl}
	v, share, f := s.consider(ctx, o)
	if f != nil {
		return f
	}
	var events *stream
	if v.asks() && !req.Unattended {
		if req.Wait != nil {
			return s.ask(w, o, v, share)
		}
		if accepts(r, api.NDJSON) {
			events = newStream(w, s.writeTime)
			defer events.close()
			o.asked = func(a *api.Approval) { events.event(api.ApprovalEvent{Event: api.EventApproval, Approval: a}) }
		}
	}
	j, f := s.admit(ctx, o, v, share)
	if f != nil {
		if events != nil {
			events.event(refusedEvent(f))
			return nil
		}
		return f
	}
	defer j.verdict.release()
	j.entry = s.newRunning(o, v.project)
	if req.Background {
		return j.background(w, o)
	}
	if accepts(r, api.NDJSON) {
		if events == nil {
			events = newStream(w, s.writeTime)
			defer events.close()
		}
		j.stream(events)
		return nil
	}
	return j.collect(w, req.OutputLimit)
}

// An order is one command that a caller asks for, on its way to being a job.
type order struct {
	req     *api.ExecRequest
	id      string // of the run
	peer    *peer
	caller  confine.Caller
	session *session // nil when none was named
	slot    *slot
	asked   func(*api.Approval) // if not nil, hears of an approval that is waited for
}

func (o *order) question() question {
	return question{caller: o.caller, project: o.req.Project, command: o.req.Command, cwd: o.req.Cwd, readsOnly: o.req.ReadsOnly, session: o.session,
		how: howOf(o.req) + o.session.how()}
}

// consider judges the command, and takes its share of the session's budget unless
// it is refused. The failure is of one that is not even recorded.
func (s *Server) consider(ctx context.Context, o *order) (verdict, *allowance, *failure) {
	began := time.Now()
	v := s.judge(ctx, o.question(), o.slot)
	s.metrics.step(stepJudge, began)
	if v.err != nil && !v.isRefusal() {
		return v, nil, refuse(v.err)
	}
	var share *allowance
	if v.err == nil && v.decision.Verdict != policy.Deny {
		share, v.err = o.session.allow()
	}
	return v, share, nil
}

// admit has the command approved when it has to be, waits for its turn in the
// project, and puts the decision on the trace. The job's verdict has to be
// released.
func (s *Server) admit(ctx context.Context, o *order, v verdict, share *allowance) (*job, *failure) {
	refused := func(v verdict, f *failure) (*job, *failure) {
		v.release()
		share.end(confine.Usage{})
		return nil, f
	}
	if v.asks() && !o.req.Unattended {
		began := time.Now()
		v = s.approve(ctx, o, v)
		s.metrics.step(stepApprove, began)
	} else if v.err == nil && !v.decision.Grant.ReadOnly() {
		if v.leave, _ = s.gates.shared(ctx, v.project); v.leave == nil {
			return refused(v, refuse(&api.Error{Code: api.Interrupted, Message: "the request was canceled", Retryable: true}))
		}
	}
	j, f := s.record(o.req, o.id, o.peer, v)
	if f != nil {
		return refused(v, f)
	}
	j.ctx, j.caller, j.plain, j.req, j.share = ctx, o.caller, o.req.Plain, o.req, share
	return j, nil
}

func haltedNow() *failure {
	return refuse(&api.Error{Code: api.Halted, Message: "an administrator has stopped everything", Retryable: true,
		RecommendedAction: "wait until it is resumed"})
}

// refusedEvent is the end of events whose command was not started.
func refusedEvent(f *failure) api.FinishedEvent {
	return api.FinishedEvent{Event: api.EventFinished, Outcome: *notRun(f)}
}

// accepts reports whether the request asks for the media type by name.
func accepts(r *http.Request, mediaType string) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			if t, _, err := mime.ParseMediaType(part); err == nil && t == mediaType {
				return true
			}
		}
	}
	return false
}

// newRun returns the id of a run: 28 hexadecimal digits, the later the greater.
func newRun() string {
	var id [14]byte
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(id[6:]) // never fails
	return hex.EncodeToString(id[:])
}

// A job is a command that was allowed and recorded.
type job struct {
	server   *Server
	ctx      context.Context
	caller   confine.Caller
	verdict  verdict
	timeout  time.Duration
	plain    bool // without control sequences
	id       string
	decision *api.Decision
	grant    *api.Grant
	run      *trace.Run
	share    *allowance // of the session's budget
	req      *api.ExecRequest
	entry    *running
}

// record puts the decision on the trace. It returns a job when the command may
// run, and else the refusal.
func (s *Server) record(req *api.ExecRequest, id string, p *peer, v verdict) (*job, *failure) {
	d := &v.decision
	grant := v.session.bound(d.Grant)
	j := &job{server: s, verdict: v, id: id, timeout: d.Timeout, grant: wireGrant(&grant)}
	if req.Background {
		j.timeout = api.MaxTimeout
	}
	if req.TimeoutMS > 0 {
		j.timeout = time.Duration(req.TimeoutMS) * time.Millisecond
	}
	refused := v.err // one that is recorded
	switch {
	case refused == nil && v.approval != nil: // with somebody's yes
		j.decision = wireDecision(d, v.policy)
	case refused == nil:
		j.decision = wireDecision(d, v.policy)
		refused = v.session.refusal(d)
	default:
		// Nothing was judged, so that nothing is granted: the zero decision.
		j.decision = &api.Decision{Verdict: policy.Deny.String(), Risk: policy.High.String(), Rules: []string{}, Reasons: []api.Reason{}, Policy: v.policy}
	}
	var err error
	began := time.Now()
	if j.run, err = s.Trace.Decide(j.decided(req.Command, p, refused)); err != nil {
		s.Log.Printf("the trace cannot be written: %v", err)
		s.metrics.ended(j.decision.Verdict, string(api.TraceUnavailable))
		return nil, refuse(&api.Error{Code: api.TraceUnavailable, Message: "the decision could not be recorded, so nothing was run", Retryable: true,
			RecommendedAction: "tell the administrator: the daemon's log says why"})
	}
	s.metrics.step(stepRecord, began)
	if refused != nil {
		s.metrics.ended(j.decision.Verdict, string(refused.Code))
		if d.Verdict == policy.Deny && v.err == nil {
			s.metrics.denied(refused.Rule)
		}
		f := &failure{err: refused, run: j.id}
		if v.err == nil {
			f.decision = j.decision
		}
		return nil, f
	}
	return j, nil
}

// decided returns the trace's record of the decision; refused says why the
// command may not run, nil when it may.
func (j *job) decided(command string, p *peer, refused *api.Error) trace.Decided {
	d := trace.Decided{
		Run:            j.id,
		Session:        j.verdict.session.name(),
		Args:           trace.Args{Command: command},
		RiskLevel:      j.decision.Risk,
		Approved:       refused == nil,
		PolicyDecision: j.decision.Verdict,
		RiskReason:     riskReason(&j.verdict.decision),
		Caller:         trace.Caller{UID: p.uid, GID: p.gid, PID: p.pid, Executable: p.executable},
		Project:        j.verdict.project,
		Cwd:            j.verdict.dir,
		Text:           j.decision.Text,
		Rules:          j.decision.Rules,
		Reasons:        j.decision.Reasons,
		Grant:          j.grant,
		Policy:         j.decision.Policy,
		TimeoutMS:      j.timeout.Milliseconds(),
	}
	if j.verdict.approval != nil {
		d.ApprovalRequired = true
		d.Approval, d.Approver = j.verdict.approval.ID, j.verdict.approval.Approver
	}
	if refused != nil {
		d.ApprovalRequired = d.ApprovalRequired || refused.Code == api.ApprovalRequired
		d.ErrorType = errorType(refused)
		d.RiskReason = refused.Message
	}
	return d
}

// riskReason returns the first reason with the decision's risk.
func riskReason(d *policy.Decision) string {
	for _, r := range d.Reasons {
		if r.Risk == d.Risk && r.Verdict == d.Verdict {
			return r.Message
		}
	}
	for _, r := range d.Reasons {
		if r.Risk == d.Risk {
			return r.Message
		}
	}
	return ""
}

// errorType returns the trace's name of an error: the code in small letters.
func errorType(e *api.Error) string {
	if e == nil {
		return ""
	}
	return strings.ToLower(string(e.Code))
}

// start runs the command and records how it ended. The error says that nothing
// was started; the outcome's error, what ended it early. gone is called when no
// process is left. output says, once the
// command has ended, how much it wrote and what of that the answer leaves out.
func (j *job) start(stdout, stderr io.Writer, started func(*api.Receipt), gone func(), output func() (trace.Output, api.Truncated)) (*api.Outcome, *api.Error) {
	recorded := false
	var outcome *api.Outcome
	var failed *api.Error
	defer func() {
		if failed != nil {
			unchanged := false
			outcome = &api.Outcome{Error: failed, StateChanged: &unchanged, Provenance: api.Provenance{Source: api.CommandOutput}, Run: j.id, Decision: j.decision, Grant: j.grant}
		}
		j.server.registry.end(j.entry, outcome)
	}()
	defer func() {
		if !recorded { // a panic, which net/http takes from here
			_ = j.run.Finish(trace.Finished{ErrorType: errorType(&api.Error{Code: api.Internal}), Detail: "the daemon failed"})
		}
	}()
	r := confine.Request{
		Caller: j.caller, Project: j.verdict.project, Root: j.verdict.root, Dir: j.verdict.dir, Text: j.verdict.decision.Text,
		Grant: j.verdict.session.bound(j.verdict.decision.Grant), Timeout: j.timeout,
		Fresh:   j.verdict.approval != nil && !j.verdict.approval.Keep,
		Session: j.verdict.session.name(), Env: j.verdict.session.variables(),
		Merge: j.req.MergeStderr, Limits: wantedLimits(j.req.Limits), Signals: j.entry.signals, Gone: gone,
	}
	if len(r.Grant.Net.Hosts) > 0 {
		_ = j.caller.Do(func() error {
			r.Env = append(newRegistries(j.caller, j.verdict.project, j.verdict.writable).environment(), r.Env...)
			return nil
		})
	}
	if j.entry.in != nil {
		r.Stdin = j.entry.in
	}
	if j.req.TTY {
		r.TTY, r.Resize = &confine.Window{Columns: 80, Rows: 24}, j.entry.resize
		if j.req.Columns > 0 {
			r.TTY.Columns = uint16(j.req.Columns)
		}
		if j.req.Rows > 0 {
			r.TTY.Rows = uint16(j.req.Rows)
		}
	}
	if j.entry.ring != nil {
		r.OutputLimit = confine.NoOutputLimit // the ring forgets
	}
	streams := redactStreams(&r, stdout, stderr, j.plain, started != nil)
	r.Started = func(receipt confine.Receipt) {
		wire := wireReceipt(&receipt, j.server.Setting)
		j.entry.begun(wire)
		if started != nil {
			started(wire)
		}
	}
	var out confine.Outcome
	var err error
	if failed = j.share.start(&r); failed == nil {
		j.timeout = r.Timeout
		began := time.Now()
		out, err = j.server.Confiner.Run(j.ctx, r)
		j.server.metrics.step(stepRun, began)
	}
	redactions := streams.close()
	var final trace.Finished
	if err != nil {
		failed = j.server.notStarted(err)
	}
	j.share.end(out.Usage)
	if failed != nil {
		final.ErrorType, final.Detail = errorType(failed), failed.Message
	} else {
		outcome = j.outcome(&out)
		outcome.Redactions, final.Redactions = redactions, redactions
		var cut api.Truncated
		final.Output, cut = output()
		outcome.Truncated = cut
		if cut != (api.Truncated{}) {
			final.Truncated = &cut
		}
		final.ErrorType = errorType(outcome.Error)
		if outcome.Error != nil {
			final.Detail = outcome.Error.Message
		}
		final.ExitCode, final.Signal, final.Receipt, final.Usage = outcome.ExitCode, outcome.Signal, outcome.Receipt, outcome.Usage
		final.Network = outcome.Network
	}
	recorded = true
	j.server.metrics.ended(j.decision.Verdict, strings.ToUpper(final.ErrorType))
	if err := j.run.Finish(final); err != nil {
		j.server.Log.Printf("the outcome of a run waits to be recorded: %v", err)
	}
	return outcome, failed
}

// outcome returns how the command ended as it travels, without the streams.
func (j *job) outcome(out *confine.Outcome) *api.Outcome {
	o := &api.Outcome{
		Run: j.id, Decision: j.decision, Grant: j.grant,
		Receipt: wireReceipt(&out.Receipt, j.server.Setting), Usage: wireUsage(&out.Usage),
		Error: endedEarly(out.Ended, j.timeout, &out.Receipt.Limits), EndedChildren: out.Outlived,
		Provenance: api.Provenance{Source: api.CommandOutput}, Denied: wireDenied(out.Denied), Masked: cleanAll(out.Masked),
		Hidden: cleanAll(out.Hidden), ProtectedCreated: wireCreated(out.Created), ProtectedExposed: clean(out.Exposed), Left: cleanAll(out.Left),
		Network: wireNetwork(out.Network),
	}
	if out.FinalDir != "" {
		o.FinalDir = &out.FinalDir
	}
	o.Success = o.Error == nil
	if o.Error != nil {
		grant := j.verdict.session.bound(j.verdict.decision.Grant)
		changed := !grant.ReadOnly()
		o.StateChanged = &changed
	}
	if out.Signal != "" {
		o.Signal = &out.Signal
	} else if out.ExitCode >= 0 && out.Ended != confine.EndedKeeper {
		o.ExitCode = &out.ExitCode
	}
	return o
}

// notStarted returns the error of a command that was not started.
func (s *Server) notStarted(err error) *api.Error {
	if u, ok := errors.AsType[*confine.Unavailable](err); ok {
		s.metrics.missing.WithLabelValues(u.Layer).Set(1)
		return &api.Error{Code: api.ConfinementUnavailable, Message: u.Error(), RecommendedAction: firstOf(u.Fix, "pinfold doctor shows every layer and how to get it")}
	}
	if p, ok := errors.AsType[*confine.ProjectError](err); ok {
		return api.InvalidField("project", "cannot be used: "+p.Err.Error())
	}
	switch {
	case errors.Is(err, confine.ErrBusy):
		return &api.Error{Code: api.Busy, Message: err.Error(), Retryable: true, RecommendedAction: "wait for one of your commands to end"}
	case errors.Is(err, context.Canceled):
		return &api.Error{Code: api.Interrupted, Message: "the run was canceled before it started", Retryable: true}
	}
	return &api.Error{Code: api.Internal, Message: "the command could not be started: " + err.Error()}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// collect runs the job and answers with one JSON object.
func (j *job) collect(w http.ResponseWriter, outputLimit *int) *failure {
	if j.req.StdinStream { // who writes it has to know the run
		w.Header().Set(api.HeaderRun, j.id)
		w.Header().Set("Content-Type", api.JSON)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	result, f := j.finish(outputLimit)
	if f != nil {
		return f
	}
	j.server.answer(w, http.StatusOK, result)
	return nil
}

// finish runs the job and returns what came of it.
func (j *job) finish(outputLimit *int) (*api.Result, *failure) {
	limit := api.DefaultOutputLimit
	if outputLimit != nil {
		limit = *outputLimit
	}
	stdout, stderr := newExcerpt(limit), newExcerpt(limit)
	var result api.Result
	var encoding api.Encoding
	outcome, failed := j.start(stdout, stderr, nil, nil, func() (trace.Output, api.Truncated) {
		var cut api.Truncated
		result.Stdout, encoding.Stdout, cut.Stdout = stdout.result()
		result.Stderr, encoding.Stderr, cut.Stderr = stderr.result()
		return trace.Output{StdoutBytes: stdout.size, StderrBytes: stderr.size}, cut
	})
	if failed != nil {
		return nil, &failure{err: failed, run: j.id, decision: j.decision}
	}
	result.Outcome = *outcome
	if encoding != (api.Encoding{}) {
		result.Encoding = &encoding
	}
	return &result, nil
}

// stream runs the job and answers with events.
func (j *job) stream(s *stream) {
	s.event(api.DecidedEvent{Event: api.EventDecided, Run: j.id, Decision: j.decision, Grant: j.grant})
	stdout := &eventWriter{stream: s, kind: api.EventStdout}
	stderr := &eventWriter{stream: s, kind: api.EventStderr}
	outcome, failed := j.start(stdout, stderr, func(receipt *api.Receipt) {
		s.event(api.StartedEvent{Event: api.EventStarted, Run: j.id, Receipt: receipt})
	}, s.hurry, func() (trace.Output, api.Truncated) {
		return trace.Output{StdoutBytes: stdout.size, StderrBytes: stderr.size}, api.Truncated{}
	})
	if failed != nil {
		unchanged := false
		outcome = &api.Outcome{Error: failed, StateChanged: &unchanged, Provenance: api.Provenance{Source: api.CommandOutput}, Run: j.id, Decision: j.decision, Grant: j.grant}
	}
	stdout.flush()
	stderr.flush()
	s.event(api.FinishedEvent{Event: api.EventFinished, Outcome: *outcome})
}
