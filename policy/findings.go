package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// maxReasons bounds the reasons that a decision lists for each verdict.
const maxReasons = 50

// findings collect the rules that applied.
type findings struct {
	fired   map[string]bool // ids of all rules that applied
	seen    map[string]bool // reasons that are listed
	reasons []Reason
	counts  [Allow + 1]int
	worst   Verdict
	any     bool
}

// found notes that a rule applied, and to what of the command.
func (j *judge) found(r *rule, detail string, at where) {
	if j.parts != nil {
		j.parts.rule(r, withDetail(r.Reason, detail), j.spans.span(at))
	}
	if !j.findings.count(r) {
		return
	}
	j.findings.list(r, withDetail(r.Reason, detail), j.spans.span(at))
}

func withDetail(reason, detail string) string {
	if detail == "" {
		return reason
	}
	return reason + ": " + detail
}

// foundNamed is found for a rule whose reason continues the command's name.
func (j *judge) foundNamed(r *rule, name string, at where) {
	if j.parts != nil {
		j.parts.rule(r, name+" "+r.Reason, j.spans.span(at))
	}
	if j.findings.count(r) {
		j.findings.list(r, name+" "+r.Reason, j.spans.span(at))
	}
}

// count notes that a rule applied and reports whether its reason is of
// interest: for rules that allow, the first is.
func (f *findings) count(r *rule) bool {
	if f.fired == nil {
		f.fired, f.seen = map[string]bool{}, map[string]bool{}
	}
	first := !f.fired[r.ID]
	if first {
		f.fired[r.ID] = true
	}
	if !f.any || r.Verdict < f.worst {
		f.any, f.worst = true, r.Verdict
	}
	return f.counts[r.Verdict] < maxReasons && (first || r.Verdict != Allow)
}

// list keeps a reason, each message of a rule once.
func (f *findings) list(r *rule, message string, at Span) {
	key := r.ID + "\x00" + message
	if f.seen[key] {
		return
	}
	f.seen[key] = true
	f.counts[r.Verdict]++
	f.reasons = append(f.reasons, Reason{Rule: r.ID, Verdict: r.Verdict, Risk: r.Risk, Message: message, Suggest: r.Suggest, Span: at})
}

// decision sums up what was found.
func (j *judge) decision(text string) Decision {
	f := &j.findings
	if !f.any { // only comments, assignments and redirects
		f.reasons = []Reason{{Rule: "shell", Verdict: Allow, Message: "runs no command", Span: j.spans.span(where{0, len(j.spans.source)})}}
		f.worst, f.any = Allow, true
	}
	d := Decision{Verdict: f.worst, Risk: j.risk, Timeout: j.timeout(), Text: text}
	slices.SortStableFunc(f.reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.Span.Line, b.Span.Line), cmp.Compare(a.Span.Column, b.Span.Column))
	})
	d.Reasons = f.reasons
	for _, r := range d.Reasons {
		d.Risk = max(d.Risk, r.Risk)
		if r.Verdict == d.Verdict && !slices.Contains(d.Rules, r.Rule) {
			d.Rules = append(d.Rules, r.Rule)
		}
	}
	slices.Sort(d.Rules)
	if d.Verdict != Deny {
		d.Grant = j.grant()
		d.Grant.Net.Hosts = j.reachable(d.Verdict)
		d.Programs = slices.Sorted(maps.Keys(j.exec))
	}
	return d
}

// reachable returns the hosts that rules of the site open, and those that a yes
// opens where one is asked for: what a fact says is nobody's permission.
func (j *judge) reachable(v Verdict) []string {
	list := j.hosts
	if v == RequireApproval {
		list = slices.Concat(list, j.asksFor)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// grant returns the union of what the commands need.
func (j *judge) grant() Grant {
	g := Grant{Write: outermost(j.writes), ExecAny: j.execAny}
	if len(j.opened) > 0 {
		slices.Sort(j.opened)
		g.Protected = slices.Compact(j.opened)
	}
	if !g.ExecAny {
		g.Exec = slices.Sorted(maps.Keys(j.exec))
	}
	return g
}

// outermost returns the places, sorted, without those that lie in another.
func outermost(list []string) []string {
	slices.Sort(list)
	var out []string
	for _, p := range slices.Compact(list) {
		if slices.Contains(list, ".") && p != "." {
			continue
		}
		if len(out) > 0 && strings.HasPrefix(p, out[len(out)-1]+"/") {
			continue
		}
		out = append(out, p)
	}
	return out
}
