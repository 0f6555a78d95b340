package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace"
)

// controlRoutes maps method and path of the control socket to what answers. A
// path that ends in "/" is one with an id.
var controlRoutes = map[string]map[string]handler{
	"/v1/approvals":  {http.MethodGet: (*Server).listApprovals},
	"/v1/approvals/": {http.MethodGet: (*Server).showApproval, http.MethodPost: (*Server).decideApproval, http.MethodDelete: (*Server).revokeApproval},
	"/v1/halt":       {http.MethodPost: (*Server).halt},
	"/v1/resume":     {http.MethodPost: (*Server).resume},
	"/v1/reload":     {http.MethodPost: (*Server).reload},
	"/v1/trace":      {http.MethodGet: (*Server).readAllTrace},
	"/metrics":       {http.MethodGet: (*Server).readMetrics},
	"/healthz":       {http.MethodGet: (*Server).health},
}

// ServeControl serves the connections of l, the control socket, until Shutdown,
// and then returns nil. Only those who may approve, or who run the daemon, are
// answered.
func (s *Server) ServeControl(l *net.UnixListener) error {
	return s.serve(s.control, l)
}

// controlHandler answers on the control socket.
func (s *Server) controlHandler(w http.ResponseWriter, r *http.Request) {
	s.answered(w, func() *failure {
		p, ok := r.Context().Value(peerKey{}).(*peer)
		if !ok {
			return refuse(&api.Error{Code: api.PermissionDenied, Message: "it is not known who you are"})
		}
		if failed := s.Authority.mayControl(p, s.OnlyUID); failed != nil {
			return refuse(failed)
		}
		path := r.URL.Path
		if i := strings.LastIndexByte(path, '/'); controlRoutes[path] == nil && i > 0 {
			path = path[:i+1]
		}
		return s.dispatch(controlRoutes[path], w, r, p)
	})
}

// approver returns the peer as one who decides.
func (s *Server) approver(p *peer) api.Approver {
	return api.Approver{UID: p.uid, User: s.users.caller(p).Name, PID: p.pid}
}

// idOf returns the id at the end of the request's path.
func approvalID(r *http.Request) string { return r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] }

// listApprovals answers GET /v1/approvals: with those there are, or, for NDJSON,
// with the list whenever it changes, a line each time.
func (s *Server) listApprovals(w http.ResponseWriter, r *http.Request, _ *peer) *failure {
	all := func(*api.Approval) bool { return true }
	if !accepts(r, api.NDJSON) {
		s.answer(w, http.StatusOK, &api.ApprovalList{Success: true, Approvals: s.approvals.list(all)})
		return nil
	}
	changes, stop := s.approvals.watch()
	defer stop()
	events := newStream(w, s.writeTime)
	defer events.close()
	for {
		events.event(&api.ApprovalList{Success: true, Approvals: s.approvals.list(all)})
		select {
		case <-changes:
		case <-r.Context().Done():
			return nil
		}
	}
}

// showApproval answers GET /v1/approvals/{id}.
func (s *Server) showApproval(w http.ResponseWriter, r *http.Request, _ *peer) *failure {
	id := approvalID(r)
	list := s.approvals.list(func(a *api.Approval) bool { return a.ID == id })
	if len(list) == 0 {
		return refuse(errNoApproval)
	}
	s.answer(w, http.StatusOK, &api.ApprovalAnswer{Success: true, Approval: list[0]})
	return nil
}

// decideApproval answers POST /v1/approvals/{id}.
func (s *Server) decideApproval(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	d, f := read(w, r, api.ParseApprovalDecision)
	if f != nil {
		return f
	}
	a, failed := s.approvals.decide(approvalID(r), s.approver(p), s.may(p), d)
	return s.approvalAnswer(w, a, failed)
}

// revokeApproval answers DELETE /v1/approvals/{id}.
func (s *Server) revokeApproval(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	a, failed := s.approvals.revoke(approvalID(r), s.approver(p), s.may(p))
	return s.approvalAnswer(w, a, failed)
}

func (s *Server) may(p *peer) mayDecide {
	return func(owner uint32, side []process) *api.Error { return s.Authority.mayDecide(p, owner, side) }
}

func (s *Server) approvalAnswer(w http.ResponseWriter, a *api.Approval, failed *api.Error) *failure {
	if failed != nil {
		return refuse(failed)
	}
	s.answer(w, http.StatusOK, &api.ApprovalAnswer{Success: true, Approval: a})
	return nil
}

// readAllTrace answers GET /v1/trace on the control socket: the records of all.
func (s *Server) readAllTrace(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	return s.traceOf(w, r, p, true)
}

// A halted says whether commands may start. While it is halted none does, and
// those that run are ended.
type halted struct {
	mu   sync.Mutex
	is   bool
	ctx  context.Context // ends when everything is to end
	stop context.CancelFunc
}

// begin returns a context that ends with ctx, or when everything is halted, and
// false when it is.
func (h *halted) begin(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is {
		return nil, nil, false
	}
	if h.ctx == nil {
		h.ctx, h.stop = context.WithCancel(context.Background())
	}
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(h.ctx, cancel)
	return ctx, func() { detach(); cancel() }, true
}

// now reports whether everything is halted.
func (h *halted) now() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.is
}

// set halts or resumes, and reports whether that changed anything.
func (h *halted) set(to bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is == to {
		return false
	}
	h.is = to
	if to && h.stop != nil {
		h.stop()
		h.ctx, h.stop = nil, nil
	}
	return true
}

// halt answers POST /v1/halt.
func (s *Server) halt(w http.ResponseWriter, _ *http.Request, p *peer) *failure {
	// First it is so, then it is recorded: a full trace must not keep anybody
	// from stopping everything.
	if s.halted.set(true) {
		s.approvals.withdraw(func(*api.Approval) bool { return true })
		s.recordHalt(true, p)
	}
	return s.health(w, nil, p)
}

// resume answers POST /v1/resume.
func (s *Server) resume(w http.ResponseWriter, _ *http.Request, p *peer) *failure {
	if s.halted.set(false) {
		s.recordHalt(false, p)
	}
	return s.health(w, nil, p)
}

// A Reload is what came of reading the site's policy again.
type Reload struct {
	Policy  string // hash of the policy in force
	Changed bool
	LeftOut []confine.LeftOut
}

// reload answers POST /v1/reload.
func (s *Server) reload(w http.ResponseWriter, _ *http.Request, p *peer) *failure {
	by := s.approver(p)
	s.Log.Printf("the policy is read again for %s (uid %d, process %d)", by.User, by.UID, by.PID)
	r, err := s.Reload()
	if err != nil {
		return refuse(&api.Error{Code: api.InvalidArguments, Message: "the policy was not reloaded, the old one stays in force: " + err.Error(),
			RecommendedAction: "correct the file; pinfold policy check FILE says whether it is good"})
	}
	s.answer(w, http.StatusOK, &api.ReloadAnswer{Success: true, Policy: r.Policy, Changed: r.Changed, LeftOut: wireLeftOut(r.LeftOut)})
	return nil
}

func (s *Server) recordHalt(halt bool, p *peer) {
	by := s.approver(p)
	what := "resumed"
	if halt {
		what = "halted"
	}
	s.Log.Printf("%s by %s (uid %d, process %d)", what, by.User, by.UID, by.PID)
	if err := s.Trace.Halted(trace.Halt{Halt: halt, By: by}); err != nil {
		s.Log.Printf("the trace cannot be written: %v", err)
	}
}
