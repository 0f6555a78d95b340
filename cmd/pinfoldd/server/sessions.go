package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

const (
	sessionIdle = time.Hour // without a request, or a command under way
)

// sessions are those that are open. There is one look-up, by owner and id: what
// is another's is not there.
type sessions struct {
	mu  sync.Mutex
	all map[sessionID]*session
}

type sessionID struct {
	owner uint32
	id    string
}

// A session is what its owner has said of the commands to come. Its zero pointer
// is the session of a request that names none, which says nothing.
type session struct {
	id       string
	owner    uint32
	project  string // symlinks followed
	readOnly bool
	disabled []string
	budget   api.Budget
	env      []string // "NAME=value", sorted
	created  time.Time
	expires  time.Time
	idle     time.Duration
	end      context.CancelFunc
	ctx      context.Context // of every command
	timers   [2]*time.Timer  // of its time, and of idleness

	mu     sync.Mutex
	used   time.Time
	active int
	closed bool
	gone   chan struct{} // closed when it is closed and nothing is active
	spent  spending
	begun  map[*allowance]time.Time

	rules map[string]Decider // by the hash of the policy that they narrow
}

// errNoSession is the answer for a session that is not there, and for one that is
// another's.
func errNoSession() *failure {
	return refuse(&api.Error{Code: api.NotFound, Message: "you have no such session", RecommendedAction: "GET /v1/sessions lists those that you have"})
}

// take returns the caller's session with one more active in it, which has to be
// dropped; nil for the id "".
func (g *sessions) take(owner uint32, id string) (*session, *failure) {
	if id == "" {
		return nil, nil
	}
	g.mu.Lock()
	s := g.all[sessionID{owner, id}]
	g.mu.Unlock()
	if s == nil || !s.hold() {
		return nil, errNoSession()
	}
	return s, nil
}

// hold counts one more that is active; false when the session is closed.
func (s *session) hold() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.active++
	}
	return !s.closed
}

func (s *session) drop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.used = time.Now()
	if s.closed && s.active == 0 {
		close(s.gone)
	}
}

// add makes the session known, unless its owner has too many.
func (g *sessions) add(s *session, most int64) *api.Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var n int64
	for id := range g.all {
		if id.owner == s.owner {
			n++
		}
	}
	if n >= most {
		return &api.Error{Code: api.Busy, Message: "you have as many sessions as you may", Retryable: true, RecommendedAction: "close one; GET /v1/sessions lists them"}
	}
	if g.all == nil {
		g.all = map[sessionID]*session{}
	}
	g.all[sessionID{s.owner, s.id}] = s
	return nil
}

// of returns the caller's sessions, the oldest first.
func (g *sessions) of(owner uint32) (list []*session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, s := range g.all {
		if id.owner == owner {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *session) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id)) })
	return list
}

// openSession answers POST /v1/sessions.
func (s *Server) openSession(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	req, f := read(w, r, api.ParseSession)
	if f != nil {
		return f
	}
	sl, f := s.enter(r.Context(), p.uid)
	if f != nil {
		return f
	}
	defer sl.drop()
	now := time.Now()
	ttl := cmp.Or(time.Duration(req.TTL)*time.Second, api.DefaultTTL)
	n := &session{id: newRun(), owner: p.uid, readOnly: req.ReadOnly, disabled: req.Disabled, created: now, used: now, expires: now.Add(ttl), idle: s.sessionIdle,
		gone: make(chan struct{}), begun: map[*allowance]time.Time{}, rules: map[string]Decider{}}
	if req.Budget != nil {
		n.budget = *req.Budget
	}
	for name, value := range req.Env {
		n.env = append(n.env, name+"="+value)
	}
	slices.Sort(n.env)
	// What is wrong with it is found out as with a command: as the caller, in
	// bounded time.
	v := s.judge(r.Context(), question{caller: s.users.caller(p), project: req.Project, session: n, command: n.declares()}, sl)
	if failed := n.wrong(&v); failed != nil {
		return refuse(failed)
	}
	n.project = v.project
	if failed := s.keepSession(n, p); failed != nil {
		return refuse(failed)
	}
	return s.showSession(w, n)
}

// declares returns the command that would do what the session's variables do.
func (s *session) declares() string {
	var b strings.Builder
	b.WriteString("true")
	for _, e := range s.env {
		name, value, _ := strings.Cut(e, "=")
		b.WriteString("\nexport " + name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'")
	}
	return b.String()
}

// notInCommand is what is wrong with a variable; the rule's id follows. Values are
// not repeated.
const notInCommand = "is not allowed, as it would not be in a command, by the rule "

// wrong returns why the session cannot be opened: v is the verdict on what it
// declares.
func (s *session) wrong(v *verdict) *api.Error {
	switch {
	case v.err != nil && v.err.Code == api.ParseError:
		return api.InvalidField("env", "has a value that no command could give a variable")
	case v.err != nil:
		return v.err
	case len(s.env) == 0 || v.decision.Verdict == policy.Allow:
		return nil
	}
	reason := decisive(&v.decision)
	if reason == nil {
		return api.InvalidField("env", "is not allowed")
	}
	next := 2 // line in declares
	for _, e := range s.env {
		if next += 1 + strings.Count(e, "\n"); reason.Span.Line < next {
			name, _, _ := strings.Cut(e, "=")
			return api.InvalidField("env."+name, notInCommand+reason.Rule)
		}
	}
	return api.InvalidField("env", notInCommand+reason.Rule)
}

// keepSession opens the session, when that can be recorded.
func (s *Server) keepSession(n *session, p *peer) *api.Error {
	n.ctx, n.end = context.WithCancel(s.base)
	if failed := s.sessions.add(n, cmp.Or(s.Caps.Sessions, DefaultCaps.Sessions)); failed != nil {
		n.end()
		return failed
	}
	record := s.sessionRecord(n)
	record.Caller = trace.Caller{UID: p.uid, GID: p.gid, PID: p.pid, Executable: p.executable}
	if err := s.Trace.SessionOpened(record); err != nil {
		s.Log.Printf("the trace cannot be written: %v", err)
		s.sessions.remove(n)
		n.end()
		return &api.Error{Code: api.TraceUnavailable, Message: "the session could not be recorded, so it was not opened", Retryable: true}
	}
	s.active.Add(1) // a daemon with a session is not idle
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timers[0] = time.AfterFunc(time.Until(n.expires), func() { s.closeSession(n, api.EndExpired) })
	n.timers[1] = time.AfterFunc(n.idle, func() { s.expireIdle(n) })
	return nil
}

func (s *Server) sessionRecord(n *session) trace.Session {
	r := trace.Session{Session: n.id, Caller: trace.Caller{UID: n.owner}, Project: n.project, ReadOnly: n.readOnly, Disabled: n.disabled, Env: n.names(), Expires: n.expires}
	if n.budget != (api.Budget{}) {
		r.Budget = &n.budget
	}
	return r
}

func (g *sessions) remove(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, sessionID{s.owner, s.id})
}

// expireIdle closes the session when nothing has been asked of it for long enough,
// and else looks again later.
func (s *Server) expireIdle(n *session) {
	n.mu.Lock()
	left := n.idle - time.Since(n.used)
	if n.active > 0 {
		left = n.idle
	}
	if left > 0 && !n.closed {
		n.timers[1].Reset(left)
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	s.closeSession(n, api.EndIdle)
}

// closeSession ends every command of the session and then the session; what
// closes it first does.
func (s *Server) closeSession(n *session, why string) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		<-n.gone
		return
	}
	n.closed = true
	if n.active == 0 {
		close(n.gone)
	}
	for _, t := range n.timers {
		if t != nil {
			t.Stop()
		}
	}
	n.mu.Unlock()
	s.sessions.remove(n)
	n.end()
	<-n.gone
	s.approvals.withdraw(func(a *api.Approval) bool { return a.Session == n.id })
	s.Confiner.End(n.owner, n.id)
	r := s.sessionRecord(n)
	r.Why, r.Spent = why, n.now().Spent
	if err := s.Trace.SessionClosed(r); err != nil {
		s.Log.Printf("the trace cannot be written: %v", err)
	}
	s.last.Store(time.Now().UnixNano())
	s.active.Add(-1)
}

// closeAll closes every session, because the daemon ends.
func (s *Server) closeAll() {
	s.sessions.mu.Lock()
	all := slices.Collect(maps.Values(s.sessions.all))
	s.sessions.mu.Unlock()
	for _, n := range all {
		s.closeSession(n, api.EndDaemon)
	}
}

// names returns the names of the session's variables.
func (s *session) names() []string {
	names := []string{}
	for _, e := range s.env {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	return names
}

// now returns the session as it travels.
func (s *session) now() *api.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &api.Session{ID: s.id, Project: s.project, ReadOnly: s.readOnly, Disabled: notNil(s.disabled), Env: s.names(), Spent: s.soFar().wire(),
		Created: s.created.UTC(), Expires: s.expires.UTC(), Active: s.active}
	if s.budget != (api.Budget{}) {
		b := s.budget
		out.Budget = &b
	}
	if out.IdleUntil = s.used.Add(s.idle).UTC(); s.active > 0 || out.IdleUntil.After(out.Expires) {
		out.IdleUntil = out.Expires
	}
	return out
}

func (s *Server) showSession(w http.ResponseWriter, n *session) *failure {
	s.answer(w, http.StatusOK, &api.SessionAnswer{Success: true, Session: n.now()})
	return nil
}

// listSessions answers GET /v1/sessions.
func (s *Server) listSessions(w http.ResponseWriter, _ *http.Request, p *peer) *failure {
	answer := &api.SessionList{Success: true, Sessions: []*api.Session{}}
	for _, n := range s.sessions.of(p.uid) {
		answer.Sessions = append(answer.Sessions, n.now())
	}
	s.answer(w, http.StatusOK, answer)
	return nil
}

// sessionPath is where the sessions are, each with its id.
const sessionPath = "/v1/sessions/"

// sessionRoutes maps what stands after the id of a session, and the method, to
// what answers.
var sessionRoutes = map[string]map[string]func(s *Server, w http.ResponseWriter, r *http.Request, p *peer, n *session) *failure{
	"": {
		http.MethodGet: func(s *Server, w http.ResponseWriter, _ *http.Request, _ *peer, n *session) *failure {
			return s.showSession(w, n)
		},
		http.MethodDelete: func(s *Server, w http.ResponseWriter, _ *http.Request, _ *peer, n *session) *failure {
			s.closeSession(n, api.EndClosed)
			return s.showSession(w, n)
		},
	},
	"batch": {http.MethodPost: (*Server).batch},
}

// aboutSession answers the requests that are about one session.
func (s *Server) aboutSession(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	id, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, sessionPath), "/")
	methods := sessionRoutes[what]
	if methods == nil {
		return nothingHere()
	}
	h := methods[r.Method]
	if h == nil {
		return anotherMethod()
	}
	s.sessions.mu.Lock()
	n := s.sessions.all[sessionID{p.uid, id}]
	s.sessions.mu.Unlock()
	if n == nil {
		return errNoSession()
	}
	return h(s, w, r, p, n)
}

// open reports whether it is open, or was: else it is to be opened.
func (s *session) open() bool { return s != nil && s.ctx != nil }

// within returns a context that ends with ctx, or with the session.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if s == nil {
		return ctx, cancel
	}
	detach := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { detach(); cancel() }
}

// how is what a yes holds for besides the command.
func (s *session) how() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(", session %s, environment %q", s.id, s.env)
}

// name returns the session's id, "" for none.
func (s *session) name() string {
	if s == nil {
		return ""
	}
	return s.id
}

// variables returns the session's, "NAME=value".
func (s *session) variables() []string {
	if s == nil {
		return nil
	}
	return s.env
}

// narrowed returns the policy without what the session may not use.
func (s *session) narrowed(rules Decider) (Decider, *api.Error) {
	if s == nil || len(s.disabled) == 0 {
		return rules, nil
	}
	if !s.open() { // what it names is looked at, and not in the way of env
		if _, err := rules.Disable(s.disabled); err != nil {
			return nil, api.InvalidField("disabled", err.Error())
		}
		return rules, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.rules[rules.Hash()]; known != nil {
		return known, nil
	}
	// a rule that a new policy of the site has no more allows nothing
	names := slices.DeleteFunc(slices.Clone(s.disabled), func(name string) bool {
		_, err := rules.Disable([]string{name})
		return err != nil
	})
	narrowed, err := rules.Disable(names)
	if err != nil {
		return nil, &api.Error{Code: api.Internal, Message: "disable in a session: " + err.Error()}
	}
	if len(s.rules) >= 4 {
		clear(s.rules)
	}
	s.rules[rules.Hash()] = narrowed
	return narrowed, nil
}

// refusal returns the error of a decision in the session, nil of one that allows.
func (s *session) refusal(d *policy.Decision) *api.Error {
	e := refusal(d)
	if s == nil || d.Verdict != policy.Deny {
		return e
	}
	for i := range d.Reasons {
		r := &d.Reasons[i]
		if r.Verdict != policy.Deny || !policy.IsDisabled(r.Rule) && !(s.readOnly && r.Rule == policy.RuleReadsOnly) {
			continue
		}
		message := r.Message
		if r.Rule == policy.RuleReadsOnly {
			message += ": the session is read-only"
		}
		return &api.Error{Code: api.ToolNotAllowed, Message: clean(message), Rule: r.Rule, At: &api.At{Line: r.Span.Line, Column: r.Span.Column, Text: clean(r.Span.Text)},
			RecommendedAction: "go on without it, or in a session that may do it"}
	}
	return e
}

// bound returns the grant without what the session may never have, whatever was
// decided: it is the second of two checks, and does not know of the first.
func (s *session) bound(g policy.Grant) policy.Grant {
	if s != nil && s.readOnly {
		g.Write, g.Protected = nil, nil
	}
	return g
}
