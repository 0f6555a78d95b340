package server

import (
	"fmt"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/confine/door"
	"github.com/pinfold/pinfold/policy"
)

// The longest time is the same for who asks and for who decides.
var _ = [1]struct{}{}[api.MaxTimeout-policy.MaxTimeout]

// wireDecision returns the decision as it travels.
func wireDecision(d *policy.Decision, hash string) *api.Decision {
	return &api.Decision{
		Verdict:   d.Verdict.String(),
		Risk:      d.Risk.String(),
		Rules:     notNil(d.Rules),
		Reasons:   wireReasons(d.Reasons),
		TimeoutMS: d.Timeout.Milliseconds(),
		Text:      clean(d.Text),
		Policy:    hash,
	}
}

func wireReasons(reasons []policy.Reason) []api.Reason {
	out := make([]api.Reason, len(reasons))
	for i, r := range reasons {
		out[i] = api.Reason{
			Rule: r.Rule, Verdict: r.Verdict.String(), Risk: r.Risk.String(), Message: clean(r.Message), Suggest: r.Suggest,
			At: api.At{Line: r.Span.Line, Column: r.Span.Column, Text: clean(r.Span.Text)},
		}
	}
	return out
}

// wireExplanation returns the explanation as it travels; nil for none.
func wireExplanation(e *policy.Explanation) *api.Explanation {
	if e == nil {
		return nil
	}
	out := &api.Explanation{Parts: make([]api.Part, len(e.Parts)), Opaque: e.Opaque, Remedies: notNil(e.Remedies)}
	if e.Decision.Verdict != policy.Deny {
		out.Grant = e.Decision.Grant.Words()
	}
	for i, p := range e.Parts {
		part := api.Part{At: api.At{Line: p.Span.Line, Column: p.Span.Column, Text: clean(p.Span.Text)}, Verdict: p.Verdict.String(),
			Effects: make([]api.Effect, len(p.Effects)), Reasons: wireReasons(p.Reasons)}
		for k, seen := range p.Effects {
			part.Effects[k] = api.Effect{Effect: seen.Name, Place: seen.Place, Detail: clean(seen.Detail)}
		}
		out.Parts[i] = part
	}
	return out
}

func wireRules(rules []policy.Rule) []api.Rule {
	out := make([]api.Rule, len(rules))
	for i, r := range rules {
		out[i] = api.Rule{ID: r.ID, Verdict: r.Verdict.String(), Risk: r.Risk.String(), Subject: r.Subject, Reason: r.Reason}
	}
	return out
}

func wireLeftOut(list []confine.LeftOut) []api.LeftOut {
	out := make([]api.LeftOut, len(list))
	for i, l := range list {
		out[i] = api.LeftOut(l)
	}
	return out
}

func wireGrant(g *policy.Grant) *api.Grant {
	return &api.Grant{
		Write: notNil(g.Write), Protected: notNil(g.Protected), Exec: g.Exec, ExecAny: g.ExecAny,
		Net: api.Net{Hosts: notNil(g.Net.Hosts)},
	}
}

func wireNetwork(list []door.Connection) []api.Connection {
	var out []api.Connection
	for _, c := range list {
		out = append(out, api.Connection{Name: c.Name, Port: int(c.Port), Address: c.Address, BytesUp: c.Up, BytesDown: c.Down,
			Verdict: c.Verdict, Rule: c.Rule, Reason: clean(c.Reason), Count: c.Count})
	}
	return out
}

func wireReceipt(r *confine.Receipt, setting string) *api.Receipt {
	return &api.Receipt{
		Setting: setting, UID: r.UID, GID: r.GID, LandlockABI: r.LandlockABI, Seccomp: r.Seccomp,
		NoNewPrivs: r.NoNewPrivs, Namespaces: r.Namespaces, Layers: notNil(r.Layers),
		Capabilities: fmt.Sprintf("%016x", r.Capabilities), UIDMap: notNil(r.UIDMap), GIDMap: notNil(r.GIDMap),
		ProjectMounts: notNil(r.ProjectMounts), Mounts: r.Mounts, ProbedUS: r.Took.Microseconds(),
		Limits: api.Limits{
			Processes: r.Limits.Processes, ProcessesHeld: r.Limits.ProcessesHeld,
			MemoryBytes: r.Limits.MemoryBytes, MemoryHeld: r.Limits.MemoryHeld, CPUMS: r.Limits.CPU.Milliseconds(),
			FileBytes: r.Limits.FileBytes, OpenFiles: r.Limits.OpenFiles, DiskBytes: r.Limits.DiskBytes, Files: r.Limits.Files,
		},
	}
}

// cleanAll returns the texts without their secrets, never nil.
func cleanAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = clean(s)
	}
	return out
}

func wireCreated(list []confine.Created) []api.Created {
	var out []api.Created
	for _, c := range list {
		out = append(out, api.Created{Path: clean(c.Path), To: clean(c.To)})
	}
	return out
}

func wireDenied(list []confine.Denied) []api.Denied {
	denied := make([]api.Denied, len(list))
	for i, d := range list {
		denied[i] = api.Denied{What: d.What, Path: clean(d.Path)}
	}
	return denied
}

func wireUsage(u *confine.Usage) *api.Usage {
	return &api.Usage{
		WallMS: milliseconds(u.Wall), UserMS: milliseconds(u.User), SystemMS: milliseconds(u.System),
		MaxRSSKiB: u.MaxRSSKiB,
	}
}

// milliseconds keeps three decimals.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// notNil makes an absent list an empty one in JSON.
func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// decisive returns the first reason of the strictest verdict, nil when there is
// none.
func decisive(d *policy.Decision) *policy.Reason {
	for i := range d.Reasons {
		if d.Reasons[i].Verdict == d.Verdict {
			return &d.Reasons[i]
		}
	}
	return nil
}

// refusal returns the error of a decision that does not allow, nil of one that
// does.
func refusal(d *policy.Decision) *api.Error {
	e := &api.Error{Code: api.PermissionDenied, Message: "not allowed"}
	switch d.Verdict {
	case policy.Allow:
		return nil
	case policy.RequireApproval:
		e.Code = api.ApprovalRequired
		e.Message = "somebody would have to approve"
		e.RecommendedAction = "ask a person to run it outside, or use a command that is allowed"
	default:
		e.RecommendedAction = "use a command that is allowed; pinfold check shows the decision without running anything"
	}
	if r := decisive(d); r != nil {
		e.Message = clean(r.Message)
		e.Rule = r.Rule
		e.At = &api.At{Line: r.Span.Line, Column: r.Span.Column, Text: clean(r.Span.Text)}
		if r.Suggest != "" {
			e.RecommendedAction = r.Suggest
		}
	}
	return e
}

// wantedLimits returns the limits that a request asks for.
func wantedLimits(l *api.LimitsRequest) confine.Limits {
	if l == nil {
		return confine.Limits{}
	}
	return confine.Limits{MemoryBytes: l.MemoryBytes, Processes: int(l.Processes), CPU: time.Duration(l.CPUMS) * time.Millisecond,
		FileBytes: l.FileBytes, DiskBytes: l.DiskBytes, Files: l.Files}
}

// exceeded says in words which limit a run was ended for, and what to do.
func exceeded(ended confine.Ended, l *confine.Limits) (message, action string, ok bool) {
	switch ended {
	case confine.EndedOutput:
		return fmt.Sprintf("the command wrote more than %d MiB", confine.DefaultOutputLimit>>20), "let it write less, or into a file in the project", true
	case confine.EndedMemory:
		return fmt.Sprintf("the command used more than %d MiB of memory", l.MemoryBytes>>20), "let it do less at once: fewer jobs, smaller pieces", true
	case confine.EndedProcesses:
		return fmt.Sprintf("the command had more than %d processes at once", l.Processes), "let it start fewer at once", true
	case confine.EndedCPU:
		return fmt.Sprintf("the command used more than %v of processor time", l.CPU), "let it do less at once", true
	case confine.EndedDisk:
		return fmt.Sprintf("a file system that the command writes grew by more than %d MiB", l.DiskBytes>>20), "let it write less, and remove what it left", true
	case confine.EndedFiles:
		return fmt.Sprintf("the number of files grew by more than %d", l.Files), "let it make fewer files, and remove what it left", true
	case confine.EndedReserve:
		return "too little is free on a file system that the command writes", "make room on the disk", true
	}
	return "", "", false
}

// endedEarly returns the error of a run that did not end by itself, nil of one
// that did.
func endedEarly(ended confine.Ended, timeout time.Duration, limits *confine.Limits) *api.Error {
	if message, action, ok := exceeded(ended, limits); ok {
		e := &api.Error{Code: api.LimitExceeded, Message: message, RecommendedAction: action}
		if ended == confine.EndedMemory {
			e.Code = api.OutOfMemory
		}
		return e
	}
	switch ended {
	case confine.EndedItself:
		return nil
	case confine.EndedTimeout:
		return &api.Error{
			Code:              api.Timeout,
			Message:           fmt.Sprintf("the command did not end within %v", timeout),
			RecommendedAction: fmt.Sprintf("ask for more with timeout_ms, up to %d, or run less at once", api.MaxTimeout.Milliseconds()),
		}
	case confine.EndedExposed:
		return &api.Error{Code: api.Interrupted, Message: "a protected or hidden file was replaced outside while the command ran, and was held no more", Retryable: true}
	case confine.EndedCaller:
		return &api.Error{Code: api.Interrupted, Message: "the run was canceled", Retryable: true}
	default:
		return &api.Error{Code: api.Interrupted, Message: "the run's keeper ended; how the command ended is not known", Retryable: true}
	}
}
