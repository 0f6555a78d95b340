package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace"
)

const (
	maxHeaders = 16 << 10         // bytes of a request's head
	maxDrain   = 8 << 20          // bytes of a body that is too large that are read for nothing
	readTime   = 10 * time.Second // for a request's head, and again for its body
	keepTime   = 2 * time.Minute  // a connection without a request
	writeTime  = 10 * time.Second // for each 64 KiB of an answer: a client must read 6.4 KiB a second
	latestTime = 2 * time.Second  // for the last connections, when the server is shut down
	judgeTime  = 5 * time.Second  // for what is looked up in the project
)

// Caps bound what one caller may have under way.
type Caps struct {
	Runs        int64         // commands at once, checks included
	Waiting     int64         // requests that wait for one of them to end
	Wait        time.Duration // and for how long
	Connections int64         // open at once
	Sessions    int64         // open at once
	Pending     int64         // approvals that wait
}

// DefaultCaps hold where the configuration says nothing else.
var DefaultCaps = Caps{Runs: 16, Waiting: 16, Wait: 2 * time.Second, Connections: 64, Sessions: 8, Pending: 8}

// A Confiner runs commands: a [confine.Manager].
type Confiner interface {
	Run(ctx context.Context, r confine.Request) (confine.Outcome, error)
	Layers(ctx context.Context, c confine.Caller, project string) []confine.Layer
	View(c confine.Caller, project string) (confine.View, error)
	Sessions() int
	End(uid uint32, session string)
}

// Config is what a server is made of.
type Config struct {
	Confiner Confiner
	Policy   Decider // the site's, until SetPolicy
	Trace    *trace.Log
	Version  string // of the daemon
	Build    string // id of the daemon's build
	// Setting is "system" or "user": which promises hold. A user's own daemon
	// makes the lesser ones also when that user is root.
	Setting  string
	OnDemand bool // started by a client
	// OnlyUID, if not nil, is the only user that is served.
	OnlyUID *uint32
	// StateDir is the daemon's directory, which callers can pass through, and
	// Socket is where it listens; symlinks are followed in both. No project may
	// hold either of them, nor lie in StateDir. Nor may it hold PolicyFile, where
	// the site's policy is or would be; "" when there is none.
	StateDir, Socket, PolicyFile string
	// Projects, if not nil, are directories, symlinks followed: every project must
	// be one of them or lie beneath one.
	Projects []string
	// Callers, if not nil, is a group: only its members and root are served.
	Callers *uint32
	// Caps are bounds for one caller; the zero value means DefaultCaps.
	Caps Caps
	// Reload reads the site's policy again, and puts it in force by SetPolicy
	// when it is good.
	Reload func() (Reload, error)
	// Authority says who may approve and control.
	Authority Authority
	// Log gets what an administrator should know; never a command.
	Log *log.Logger
}

// A Server serves the API. Make it with New.
type Server struct {
	Config
	http     *http.Server
	control  *http.Server
	cancel   context.CancelFunc // ends every run
	users    users
	layers   layerCache
	policies policies
	metrics  *metrics

	sessions  sessions
	approvals *approvals
	gates     gates
	halted    halted

	registry registry
	base     context.Context // of every run; ended by cancel

	runsMu sync.Mutex
	runs   map[uint32]int64         // by uid
	queued map[uint32]int64         // by uid, requests that wait for a slot
	freed  map[uint32]chan struct{} // by uid: closed when a slot is free; only while somebody waits

	writeTime, judgeTime, sessionIdle time.Duration // the constants, but in tests

	accepting accepting
	open      atomic.Int64 // connections

	active atomic.Int64 // requests being served
	last   atomic.Int64 // when the last one ended, in Unix nanoseconds
}

// New returns a server that serves nothing yet.
func New(c Config) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	c.Caps = cmp.Or(c.Caps, DefaultCaps)
	s := &Server{Config: c, base: ctx, cancel: cancel, runs: map[uint32]int64{}, writeTime: writeTime, judgeTime: judgeTime, sessionIdle: sessionIdle, queued: map[uint32]int64{},
		freed: map[uint32]chan struct{}{}}
	s.SetPolicy(c.Policy)
	s.users.known = map[uint32]account{}
	s.layers.byUID = map[uint32]probed{}
	s.last.Store(time.Now().UnixNano())
	s.metrics = newMetrics(s)
	s.approvals = newApprovals(s.recordApproval)
	s.approvals.most = cmp.Or(c.Caps.Pending, DefaultCaps.Pending)
	s.gates.all = map[string]*gate{}
	listening := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler:           h,
			ReadHeaderTimeout: readTime,
			IdleTimeout:       keepTime,
			MaxHeaderBytes:    maxHeaders,
			ConnContext:       withPeer,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ErrorLog:          c.Log,
		}
	}
	s.http, s.control = listening(s), listening(http.HandlerFunc(s.controlHandler))
	return s
}

// Serve serves the connections of l until Shutdown, and then returns nil.
func (s *Server) Serve(l *net.UnixListener) error { return s.serve(s.http, l) }

func (s *Server) serve(h *http.Server, l *net.UnixListener) error {
	s.accepting.add(l)
	defer s.accepting.loops.Done()
	err := h.Serve(newListener(l, s.Caps.Connections, &s.open))
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Alive returns when what every command needs can be had: it does not when the
// server is stuck.
func (s *Server) Alive() {
	s.runsMu.Lock()
	_ = len(s.runs)
	s.runsMu.Unlock()
	s.Confiner.Sessions()
	_ = s.Trace.Problem()
}

// Shutdown stops accepting, ends every run and waits until each is recorded and
// answered, or ctx ends. Connections that nobody has accepted stay in the queue of
// a socket that systemd keeps, for the next daemon.
func (s *Server) Shutdown(ctx context.Context) error {
	s.accepting.end()
	s.cancel()
	// An http.Server that shuts down drops requests that it reads from then on:
	// what was accepted last is answered before.
	s.http.SetKeepAlivesEnabled(false)
	s.control.SetKeepAlivesEnabled(false)
	for end := time.Now().Add(latestTime); s.open.Load() > 0 && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	err := errors.Join(s.http.Shutdown(ctx), s.control.Shutdown(ctx))
	ended := make(chan struct{})
	go func() { s.closeAll(); s.registry.live.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	return err
}

// accepting is where connections are accepted.
type accepting struct {
	mu        sync.Mutex
	listeners []*net.UnixListener
	loops     sync.WaitGroup
	ended     bool
}

func (a *accepting) add(l *net.UnixListener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loops.Add(1)
	a.listeners = append(a.listeners, l)
	if a.ended {
		_ = l.Close()
	}
}

// end stops it, and returns when every connection that was accepted is served.
func (a *accepting) end() {
	a.mu.Lock()
	a.ended = true
	for _, l := range a.listeners {
		_ = l.Close()
	}
	a.mu.Unlock()
	a.loops.Wait()
}

// AwaitIdle returns when no request has been served for d, or ctx ends.
func (s *Server) AwaitIdle(ctx context.Context, d time.Duration) {
	for wait := d; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = d - time.Since(time.Unix(0, s.last.Load()))
		if s.active.Load() > 0 {
			wait = d
		}
		if wait <= 0 {
			return
		}
	}
}

// A handler answers one kind of request. The error that it returns is the
// answer.
type handler func(s *Server, w http.ResponseWriter, r *http.Request, p *peer) *failure

// A failure is an answer that is an error.
type failure struct {
	err      *api.Error
	status   int // 0 for the code's own
	run      string
	decision *api.Decision
	changed  bool
}

// routes maps method and path to what answers.
var routes = map[string]map[string]handler{
	"/v1/exec":               {http.MethodPost: (*Server).exec},
	"/v1/check":              {http.MethodPost: (*Server).check},
	"/v1/sessions":           {http.MethodGet: (*Server).listSessions, http.MethodPost: (*Server).openSession},
	"/v1/runs":               {http.MethodGet: (*Server).listRuns},
	"/v1/status":             {http.MethodGet: (*Server).status},
	"/v1/trace":              {http.MethodGet: (*Server).readTrace},
	"/v1/policy/summary":     {http.MethodGet: (*Server).policySummary},
	"/v1/policy/schema.json": {http.MethodGet: (*Server).policySchema},
	"/v1/openapi.yaml":       {http.MethodGet: (*Server).openAPI},
	"/healthz":               {http.MethodGet: (*Server).health},
}

// ServeHTTP implements [http.Handler]. The connection must be one that the
// server's own listener accepted.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.answered(w, func() *failure { return s.route(w, r) })
}

// answered has a request answered, with the failure if there is one.
func (s *Server) answered(w http.ResponseWriter, handle func() *failure) {
	s.active.Add(1)
	defer func() {
		s.last.Store(time.Now().UnixNano())
		s.active.Add(-1)
	}()
	head := w.Header()
	head.Set(api.HeaderBuild, s.Build)
	if s.OnDemand {
		head.Set(api.HeaderOnDemand, "1")
	}
	if f := handle(); f != nil {
		s.fail(w, f)
	}
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) *failure {
	p, ok := r.Context().Value(peerKey{}).(*peer)
	if !ok {
		return refuse(&api.Error{Code: api.PermissionDenied, Message: "it is not known who you are"})
	}
	if s.OnlyUID != nil && p.uid != *s.OnlyUID {
		return refuse(&api.Error{Code: api.PermissionDenied, Message: "this daemon serves only the user who started it",
			RecommendedAction: "use the system daemon, or start one of your own"})
	}
	if s.Callers != nil && p.uid != 0 && !p.member(*s.Callers) {
		return refuse(&api.Error{Code: api.PermissionDenied, Message: "you may not send commands to this daemon",
			RecommendedAction: "ask who runs this machine to add you to the group of callers, and log in again"})
	}
	if strings.HasPrefix(r.URL.Path, runPath) {
		return s.aboutRun(w, r, p)
	}
	if strings.HasPrefix(r.URL.Path, sessionPath) {
		return s.aboutSession(w, r, p)
	}
	return s.dispatch(routes[r.URL.Path], w, r, p)
}

// dispatch has the request answered by the path's method.
func (s *Server) dispatch(methods map[string]handler, w http.ResponseWriter, r *http.Request, p *peer) *failure {
	if methods == nil {
		return nothingHere()
	}
	h, ok := methods[r.Method]
	if !ok {
		return anotherMethod()
	}
	return h(s, w, r, p)
}

func nothingHere() *failure {
	return refuse(&api.Error{Code: api.NotFound, Message: "there is nothing at this path",
		RecommendedAction: "GET /v1/openapi.yaml lists what there is"})
}

func anotherMethod() *failure {
	return &failure{err: api.InvalidField("method", "this path takes another method"), status: http.StatusMethodNotAllowed}
}

func refuse(e *api.Error) *failure { return &failure{err: e} }

// buffers holds *bytes.Buffer for answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, f *failure) {
	if f.status == 0 {
		f.status = f.err.Code.Status()
	}
	if f.status == http.StatusOK { // the code of a run that ended, but there was none
		f.status = http.StatusServiceUnavailable
	}
	if f.err.Code == api.Internal {
		s.Log.Printf("internal error: %s", f.err.Message)
	}
	s.answer(w, f.status, &api.ErrorAnswer{Error: f.err, StateChanged: f.changed, Run: f.run, Decision: f.decision})
}

// answer sends v as JSON, within writeTime for each 64 KiB.
func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	b := buffers.Get().(*bytes.Buffer)
	defer func() {
		if b.Cap() <= 256<<10 {
			b.Reset()
			buffers.Put(b)
		}
	}()
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		s.Log.Printf("internal error: encode %T: %v", v, err)
		return // nothing was written: net/http closes without an answer
	}
	head := w.Header()
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(s.writeTime))
	if head.Get(api.HeaderRun) == "" { // else the head has gone ahead
		head.Set("Content-Type", api.JSON)
		head.Set("Content-Length", strconv.Itoa(b.Len()))
		w.WriteHeader(status)
	}
	for first := true; b.Len() > 0; first = false {
		if !first {
			_ = rc.SetWriteDeadline(time.Now().Add(s.writeTime))
		}
		if _, err := w.Write(b.Next(writePiece)); err != nil {
			return // the client is gone
		}
	}
}

// read reads the request's body and parses it.
func read[T any](w http.ResponseWriter, r *http.Request, parse func(body []byte) (T, *api.Error)) (req T, f *failure) {
	body, f := readBody(w, r)
	if f != nil {
		return req, f
	}
	req, invalid := parse(body)
	if invalid != nil {
		return req, refuse(invalid)
	}
	return req, nil
}

// readBody reads the request's body, at most [api.MaxRequest] bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *failure) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(readTime))
	tooLarge := func() *failure {
		// Most clients read no answer before they have written everything.
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
		w.Header().Set("Connection", "close")
		return &failure{err: api.InvalidField("body", "must be at most "+strconv.Itoa(api.MaxRequest)+" bytes"),
			status: http.StatusRequestEntityTooLarge}
	}
	if r.ContentLength > api.MaxRequest {
		return nil, tooLarge()
	}
	var body []byte
	var err error
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
		if err == nil {
			_, err = r.Body.Read(make([]byte, 1)) // sees the end, so that the connection is watched
			if errors.Is(err, io.EOF) {
				err = nil
			}
		}
	} else {
		body, err = io.ReadAll(io.LimitReader(r.Body, api.MaxRequest+1))
	}
	_ = rc.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, refuse(api.InvalidField("body", "did not arrive whole within "+readTime.String()))
	}
	if len(body) > api.MaxRequest {
		return nil, tooLarge()
	}
	return body, nil
}

// A slot is the right to use the daemon for one command. It is held by the
// request and by what it may leave behind, and free when all have dropped it.
type slot struct {
	holders atomic.Int32
	free    func()
}

func (s *slot) hold() { s.holders.Add(1) }

func (s *slot) drop() {
	if s.holders.Add(-1) == 0 {
		s.free()
	}
}

// enter takes a slot of the caller's, held once. When there is none it waits for
// one a while, with others of the caller's; more than those are refused at once.
func (s *Server) enter(ctx context.Context, uid uint32) (*slot, *failure) {
	s.runsMu.Lock()
	defer s.runsMu.Unlock()
	var late *time.Timer
	for s.runs[uid] >= s.Caps.Runs {
		if late == nil {
			if s.queued[uid] >= s.Caps.Waiting {
				return nil, s.tooMany()
			}
			s.queued[uid]++
			defer func() {
				if s.queued[uid]--; s.queued[uid] == 0 {
					delete(s.queued, uid)
				}
			}()
			late = time.NewTimer(s.Caps.Wait)
			defer late.Stop()
		}
		if s.freed[uid] == nil {
			s.freed[uid] = make(chan struct{})
		}
		freed := s.freed[uid]
		s.runsMu.Unlock()
		waited := false
		select {
		case <-freed:
		case <-late.C:
			waited = true
		case <-ctx.Done():
			waited = true
		}
		s.runsMu.Lock()
		if waited {
			return nil, s.tooMany()
		}
	}
	s.runs[uid]++
	sl := &slot{free: func() { s.leave(uid) }}
	sl.hold()
	return sl, nil
}

// leave gives a slot back.
func (s *Server) leave(uid uint32) {
	s.runsMu.Lock()
	defer s.runsMu.Unlock()
	if s.runs[uid]--; s.runs[uid] == 0 {
		delete(s.runs, uid)
	}
	if freed := s.freed[uid]; freed != nil {
		close(freed)
		delete(s.freed, uid)
	}
}

func (s *Server) tooMany() *failure {
	return refuse(&api.Error{Code: api.Busy, Message: "you have " + strconv.FormatInt(s.Caps.Runs, 10) + " commands under way, which is the most",
		Retryable: true, RecommendedAction: "wait for one of them to end; GET /v1/runs lists them"})
}
