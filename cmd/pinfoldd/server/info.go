package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

const (
	layersLife = time.Minute      // how long a probe of the layers is believed
	probeTime  = 20 * time.Second // for such a probe
)

// health answers GET /healthz.
func (s *Server) health(w http.ResponseWriter, _ *http.Request, _ *peer) *failure {
	s.answer(w, http.StatusOK, struct {
		Success bool `json:"success"`
	}{true})
	return nil
}

// openAPI answers GET /v1/openapi.yaml.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request, _ *peer) *failure {
	s.text(w, "application/yaml", api.OpenAPI)
	return nil
}

// policySchema answers GET /v1/policy/schema.json.
func (s *Server) policySchema(w http.ResponseWriter, _ *http.Request, _ *peer) *failure {
	s.text(w, "application/schema+json", policy.Schema)
	return nil
}

// text sends a text as it is.
func (s *Server) text(w http.ResponseWriter, contentType, text string) {
	head := w.Header()
	head.Set("Content-Type", contentType)
	head.Set("Content-Length", strconv.Itoa(len(text)))
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.writeTime))
	_, _ = io.WriteString(w, text) // the client may be gone
}

// policySummary answers GET /v1/policy/summary.
func (s *Server) policySummary(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	project, invalid := projectQuery(r.URL.RawQuery)
	if invalid != nil {
		return refuse(invalid)
	}
	sl, f := s.enter(r.Context(), p.uid)
	if f != nil {
		return f
	}
	defer sl.drop()
	v := s.judge(r.Context(), question{caller: s.users.caller(p), project: project, command: "true"}, sl)
	if v.err != nil {
		return refuse(v.err)
	}
	answer := &api.PolicySummary{
		Success: true, Project: v.project, Policy: v.policy, Tightened: v.policy != v.site.Hash(), Text: v.summary(),
		Rules: wireRules(v.rules.Rules()), Readable: notNil(v.readable), Writable: notNil(v.writable),
	}
	if accepts(r, "text/plain") {
		s.text(w, "text/plain; charset=utf-8", answer.Text)
		return nil
	}
	s.answer(w, http.StatusOK, answer)
	return nil
}

// summary says in plain words what commands may do in the project.
func (v *verdict) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Project: %s\n", v.project)
	b.WriteString(v.rules.Summary())
	fmt.Fprintf(&b, "Commands may write, as far as they need: the project but protected paths; and %s.\n", strings.Join(v.writable, ", "))
	if roots := v.rules.Readable(); len(roots) > 0 {
		fmt.Fprintf(&b, "Commands see besides: %s.\n", strings.Join(roots, ", "))
	}
	fmt.Fprintf(&b, "A command ends after %v, a build or test after %v, unless the request says otherwise.\n", policy.DefaultTimeout, policy.BuildTimeout)
	b.WriteString("What needs approval waits up to 5 minutes for a person who may approve, unless the request says unattended. POST /v1/check, or pinfold explain, says how a command would be decided.\n")
	if v.policy != v.site.Hash() {
		fmt.Fprintf(&b, "The project's own %s is part of this.\n", projectFile)
	}
	return b.String()
}

// projectQuery reads the query of a request that is about a project.
func projectQuery(raw string) (string, *api.Error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", api.InvalidField("query", "is not well formed")
	}
	list := values["project"]
	if len(values) != len(list) || len(list) > 1 {
		return "", api.InvalidField("query", "takes one parameter, project")
	}
	if len(list) == 0 {
		return "", api.InvalidField("project", "is missing")
	}
	if wrong := api.CheckProject(list[0]); wrong != "" {
		return "", api.InvalidField("project", wrong)
	}
	return list[0], nil
}

// status answers GET /v1/status.
func (s *Server) status(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	sl, f := s.enter(r.Context(), p.uid)
	if f != nil {
		return f
	}
	defer sl.drop()
	answer := &api.Status{
		Success: true, Version: s.Version, Build: s.Build, Setting: s.Setting, OnDemand: s.OnDemand,
		Policy: s.sitePolicy().Hash(), Ready: true, Layers: []api.Layer{},
	}
	for _, l := range s.probe(r.Context(), p) {
		answer.Layers = append(answer.Layers, api.Layer{Name: l.Name, OK: l.OK, Detail: l.Detail, Fix: l.Fix})
		answer.Ready = answer.Ready && l.OK
	}
	answer.Sessions, answer.LeftOut = s.Confiner.Sessions(), s.leftOut(p)
	s.answer(w, http.StatusOK, answer)
	return nil
}

// leftOut returns the site's roots that commands of the peer do not see as the
// policy says.
func (s *Server) leftOut(p *peer) []api.LeftOut {
	project, err := s.probeProject(p)
	if err != nil {
		return []api.LeftOut{} // a layer says so
	}
	view, err := s.Confiner.View(s.users.caller(p), project)
	if err != nil {
		return []api.LeftOut{}
	}
	return wireLeftOut(view.LeftOut)
}

// A layerCache remembers what the probes of the layers found.
type layerCache struct {
	mu    sync.Mutex // held while probing: one probe at a time
	byUID map[uint32]probed
}

type probed struct {
	layers []confine.Layer
	until  time.Time
}

// probe returns the layers that commands of the peer have here.
func (s *Server) probe(ctx context.Context, p *peer) []confine.Layer {
	s.layers.mu.Lock()
	defer s.layers.mu.Unlock()
	if known, ok := s.layers.byUID[p.uid]; ok && time.Now().Before(known.until) {
		return known.layers
	}
	project, err := s.probeProject(p)
	if err != nil {
		return []confine.Layer{{Name: "state directory", Detail: err.Error(), Fix: "let the daemon make directories in its state directory"}}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	layers := s.Confiner.Layers(ctx, s.users.caller(p), project)
	if ctx.Err() == nil {
		s.metrics.probed(layers)
		if len(s.layers.byUID) >= 1024 {
			clear(s.layers.byUID)
		}
		s.layers.byUID[p.uid] = probed{layers, time.Now().Add(layersLife)}
	}
	return layers
}

// probeProject returns an empty directory of the peer's own.
func (s *Server) probeProject(p *peer) (string, error) {
	parent := filepath.Join(s.StateDir, "probe")
	dir := filepath.Join(parent, strconv.FormatUint(uint64(p.uid), 10))
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{parent, 0o711}, {dir, 0o700}} {
		if err := os.Mkdir(d.path, d.mode); err != nil && !os.IsExist(err) {
			return "", err
		}
	}
	// Only the daemon writes in there, so that nobody can have put a link there.
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", fmt.Errorf("%s: is not a directory", dir)
	}
	if st.Uid != p.uid || st.Gid != p.gid {
		return dir, os.Lchown(dir, int(p.uid), int(p.gid))
	}
	return dir, nil
}

// readTrace answers GET /v1/trace.
func (s *Server) readTrace(w http.ResponseWriter, r *http.Request, p *peer) *failure {
	return s.traceOf(w, r, p, false)
}

// traceOf answers with the peer's records, or those of all.
func (s *Server) traceOf(w http.ResponseWriter, r *http.Request, p *peer, all bool) *failure {
	q, invalid := traceQuery(r.URL.RawQuery)
	if invalid != nil {
		return refuse(invalid)
	}
	q.UID, q.All = p.uid, all
	sl, f := s.enter(r.Context(), p.uid)
	if f != nil {
		return f
	}
	defer sl.drop()
	records, complete, err := s.Trace.Read(r.Context(), q)
	if err != nil {
		s.Log.Printf("the trace cannot be read: %v", err)
		return refuse(&api.Error{Code: api.TraceUnavailable, Message: "the trace could not be read", Retryable: true})
	}
	if records == nil {
		records = []json.RawMessage{}
	}
	s.answer(w, http.StatusOK, &api.TraceAnswer{Success: true, Records: records, Complete: complete})
	return nil
}

// traceQuery reads the query of a trace request.
func traceQuery(raw string) (trace.Query, *api.Error) {
	q := trace.Query{Limit: api.DefaultTraceLimit}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, api.InvalidField("query", "is not well formed")
	}
	for name, list := range values {
		switch {
		case len(list) > 1:
			return q, api.InvalidField("query", "names a parameter more than once")
		case name == "run":
			q.Run = list[0]
			if !isRun(q.Run) {
				return q, api.InvalidField("run", "must be the id of a run")
			}
		case name == "limit":
			q.Limit, err = strconv.Atoi(list[0])
			if err != nil || q.Limit < 1 || q.Limit > api.MaxTraceLimit {
				return q, api.InvalidField("limit", fmt.Sprintf("must be a whole number from 1 to %d", api.MaxTraceLimit))
			}
		case name == "project":
			q.Project = list[0]
		case name == "verdict":
			q.Verdict = list[0]
		case name == "rule":
			q.Rule = list[0]
		case name == "command":
			q.Command = list[0]
		case name == "error":
			q.Error = list[0]
		case name == "since" || name == "until":
			at, err := time.Parse(time.RFC3339, list[0])
			if err != nil {
				return q, api.InvalidField(name, "must be a time such as 2026-01-31T12:00:00Z")
			}
			if name == "since" {
				q.Since = at
			} else {
				q.Until = at
			}
		default:
			return q, api.InvalidField("query", "has a parameter that GET /v1/openapi.yaml does not list")
		}
	}
	return q, nil
}

// isRun reports whether s looks like what newRun returns.
func isRun(s string) bool {
	if len(s) != 28 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
