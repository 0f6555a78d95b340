package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

// A question is a command to be judged.
type question struct {
	caller                confine.Caller
	project, command, cwd string
	explain, readsOnly    bool
	looksThrough          bool     // the project, for a command that runs code which was not read
	session               *session // whose project it is then
	how                   string   // what the run is given besides its text, see howOf
}

// A verdict is what came of a question. Where err is not nil, what comes after
// the step that failed is not set.
type verdict struct {
	project            string // symlinks followed
	root               confine.Identity
	session            *session // of the question
	policy             string   // hash of the policy that decided
	site, rules        Decider  // the site's policy, and the one that decided
	readable, writable []string // outside the project
	dir                string   // relative to the project
	decision           policy.Decision
	explanation        *policy.Explanation // when it was asked for
	err                *api.Error
	approval           *api.Approval // somebody's yes, when one was needed
	how                string        // of the question
	footprint          footprint     // of the project, when it was looked through
	leave              func()        // lets go of what the approved run holds
}

// asks reports whether somebody has to approve.
func (v *verdict) asks() bool { return v.err == nil && v.decision.Verdict == policy.RequireApproval }

// release lets go of what the run holds, when it holds anything.
func (v *verdict) release() {
	if v.leave != nil {
		v.leave()
	}
}

// isRefusal reports whether the error is about the command or the project's
// policy, not about the request: such a one is recorded.
func (v *verdict) isRefusal() bool {
	if v.err == nil {
		return false
	}
	switch v.err.Code {
	case api.ParseError, api.PermissionDenied, api.BudgetExhausted, api.ApprovalDenied, api.ApprovalTimeout, api.ApprovalStale:
		return true
	}
	return false
}

// judge answers the question within judgeTime: what hangs in the project's file
// system hangs on without the request, in the caller's slot.
func (s *Server) judge(ctx context.Context, q question, sl *slot) verdict {
	result := make(chan verdict, 1)
	sl.hold()
	go func() {
		defer sl.drop()
		defer func() {
			if p := recover(); p != nil {
				s.Log.Printf("panic in a decision: %v", p)
				result <- verdict{err: &api.Error{Code: api.Internal, Message: "the command could not be judged"}}
			}
		}()
		result <- s.judgeNow(ctx, q)
	}()
	late := time.NewTimer(s.judgeTime)
	defer late.Stop()
	select {
	case v := <-result:
		return v
	case <-ctx.Done():
		return verdict{err: &api.Error{Code: api.Interrupted, Message: "the request was canceled", Retryable: true}}
	case <-late.C:
		return verdict{err: &api.Error{Code: api.Timeout, Message: "the project's file system does not answer", Retryable: true,
			RecommendedAction: "see whether ls works in the project"}}
	}
}

// judgeNow finds the project, parses and decides.
func (s *Server) judgeNow(ctx context.Context, q question) (v verdict) {
	v.how, v.session = q.how, q.session
	if q.session.open() {
		q.project = q.session.project
		q.readsOnly = q.readsOnly || q.session.readOnly
	}
	internal := func(what string, err error) verdict {
		return verdict{err: &api.Error{Code: api.Internal, Message: fmt.Sprintf("%s: %v", what, err)}}
	}
	if err := q.caller.Do(func() error {
		v.project, v.root, v.err = findProject(q.project, q.caller, s.StateDir, s.Socket, s.PolicyFile, s.Projects)
		return nil
	}); err != nil {
		return internal("act as the caller", err)
	}
	if v.err != nil {
		return v
	}
	view, err := s.Confiner.View(q.caller, v.project) // acts as the caller itself
	if err != nil {
		return internal("see what the command would see", err)
	}
	git := &lookahead{server: s, question: q, answers: map[look]string{}}
	for {
		if err := q.caller.Do(func() error {
			s.decide(&v, q, view, git)
			return nil
		}); err != nil {
			return internal("act as the caller", err)
		}
		if git.look(ctx, &v) {
			continue
		}
		if q.looksThrough && v.err == nil && v.explanation != nil && v.explanation.Opaque {
			if err := q.caller.Do(func() (err error) { v.footprint, err = lookThrough(v.project); return err }); err != nil {
				return internal("look through the project", err)
			}
		}
		return v
	}
}

// decide parses and decides in the project of v, on a thread of the caller's.
func (s *Server) decide(v *verdict, q question, view confine.View, git *lookahead) {
	v.site = s.sitePolicy()
	v.policy = v.site.Hash()
	rules, wrong := s.policies.of(v.site, v.project, q.caller.UID)
	if wrong != nil {
		v.err = wrong
		return
	}
	if rules, wrong = q.session.narrowed(rules); wrong != nil {
		v.err = wrong
		return
	}
	v.rules, v.policy = rules, rules.Hash()
	v.readable, v.writable = view.Readable, view.Writable
	t := &tree{project: v.project, private: private(rules, view.Writable)}
	if v.dir, v.err = t.findDir(q.cwd); v.err != nil {
		return
	}
	script, err := shparse.Parse(q.command)
	if err != nil {
		v.err = parseError(err)
		return
	}
	env := policy.Env{
		Project: v.project, Dir: v.dir, Home: view.Home, Path: view.Path,
		Readable: view.Readable, Writable: view.Writable, ReadsOnly: q.readsOnly, Files: t, Git: git,
		Registries: newRegistries(q.caller, v.project, view.Writable),
	}
	if q.explain {
		e := rules.Examine(script, env)
		v.explanation, v.decision = &e, e.Decision
		return
	}
	v.decision = rules.Decide(script, env)
}

func parseError(err error) *api.Error {
	e := &api.Error{Code: api.ParseError, Message: clean(err.Error()), RecommendedAction: "correct the shell syntax"}
	if where, ok := errors.AsType[*shparse.Error](err); ok {
		e.Message = clean(where.Message)
		e.At = &api.At{Line: where.Line, Column: where.Column, Text: clean(where.Text)}
	}
	return e
}
