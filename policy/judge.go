package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/pinfold/pinfold/shparse"
)

// The rules that the decision itself refers to.
const (
	ruleDefault = "default" // nothing speaks of the command
	ruleUnread  = "unread"  // the text could not be judged to the end
	// RuleReadsOnly is the request's own word that the command only reads.
	RuleReadsOnly = "reads-only"

	// factAsk, before the name of a command, is what a fact asks about it.
	factAsk = "fact:"
)

// The bounds of one decision. What goes beyond them is asked about.
const (
	maxDepth = 12     // commands within commands: sh -c in xargs in find
	maxCalls = 10_000 // commands judged
)

// Decide judges a script that starts in the environment. It always answers:
// what it cannot read to the end needs approval.
func (p *Policy) Decide(s *shparse.Script, env Env) Decision {
	j := p.newJudge(s, env)
	start := env.Project
	if env.Dir != "" && env.Dir != "." {
		start += "/" + env.Dir
	}
	j.whole(s, start)
	return j.decision(s.Text)
}

// whole judges the script that was asked about.
func (j *judge) whole(s *shparse.Script, dir string) {
	do := func() {
		j.script(s, shparse.Start{Dirs: []string{dir}}, scope{})
		j.mask(s)
	}
	if j.env.ReadsOnly {
		j.bounded([]*rule{readsOnly}, do)
		return
	}
	do()
}

func (p *Policy) newJudge(s *shparse.Script, env Env) *judge {
	return &judge{policy: p, env: env, steps: shparse.MaxSteps, calls: maxCalls,
		spans: spanner{source: s.Source}, programs: map[string]program{}, followed: map[string]target{}, listed: map[string][]string{}}
}

// A judge makes one decision.
type judge struct {
	policy *Policy
	env    Env
	spans  spanner
	steps  int // left for reading scripts
	calls  int // left for judging commands

	findings findings
	parts    *parts   // nil but for an explanation
	needs             // of the grant
	limits   []limit  // what may be written, as rules narrow it
	asksFor  []string // hosts that a yes opens
	risk     Risk
	slow     bool

	spare    []*execution
	programs map[string]program
	followed map[string]target
	listed   map[string][]string // names in directories; nil when they cannot be listed
}

// A scope says how a command came to be run.
type scope struct {
	external bool // by another program: what bash has built in is a program then
	opaque   bool // by one that may run anything in the project: opaque commands need no rule of their own
	local    bool // from the project's own environment: so names that are not known are of the project
	input    input
	depth    int
}

// An input says what an xargs around the command is taken to have read, so that
// those within it are not read in both ways each.
type input uint8

const (
	anyInput input = iota
	noInput
	someInput
)

// script judges everything that a script does.
func (j *judge) script(s *shparse.Script, start shparse.Start, in scope) {
	start.Steps = &j.steps
	for _, act := range s.Read(world{j}, start) {
		switch a := act.(type) {
		case *shparse.Command:
			j.command(a, in)
		case *shparse.Path:
			j.shellPath(a)
		case *shparse.Assign:
			j.assign(a)
		case *shparse.Doubt:
			kind := effectAmbiguous
			if a.Kind == shparse.Code {
				kind = effectCode
				j.opaque()
			}
			j.effect(nil, &effect{kind: kind, detail: a.Message, at: where{a.Offset, a.End}})
		}
	}
}

// nested judges a script whose text stands in one word of another.
func (j *judge) nested(s *shparse.Script, at where, start shparse.Start, in scope) {
	outer, fixed := j.spans, j.spans.span(at)
	j.spans = spanner{source: s.Source, fixed: &fixed}
	in.depth++
	j.script(s, start, in)
	j.spans = outer
}

// command judges a simple command of a script.
func (j *judge) command(c *shparse.Command, in scope) {
	for i := range c.Vars {
		c.Vars[i].Command, _ = c.Argv[0].Known()
		j.assign(&c.Vars[i])
	}
	if c.Function {
		return
	}
	j.run(c.Argv, c.Dirs, c.Stdin, in)
}

// run judges one command with its words: by the rules that name it, by what
// its fact says that it does, and by what it runs in turn.
func (j *judge) run(argv []shparse.Field, dirs []string, stdin shparse.Input, in scope) {
	at := where{argv[0].Offset, argv[0].End}
	if j.calls--; j.calls < 0 || in.depth > maxDepth {
		j.unread(at)
		return
	}
	name, known := argv[0].Known()
	if !known || argv[0].Many || name == "" {
		j.effect(nil, &effect{kind: effectExecutes, detail: "a command whose name is not known", at: at})
		j.opaque()
		return
	}
	base, real, inside := j.resolve(name, dirs)
	f := j.policy.facts[base]
	described := f != nil && real && !(f.Builtin && in.external && j.lookup(base).real == "")
	inside = inside || in.local && !described && !strings.Contains(name, "/")
	if !described {
		f = &fact{path: base, root: []string{base}, Loose: true, Opaque: true, operands: []role{{kind: roleValue, many: true}}}
	}
	x := j.newExecution()
	*x = execution{judge: j, base: base, argv: argv, dirs: dirs, stdin: stdin, in: in, at: at, known: described, inside: inside}
	x.call = readArgs(&x.words, f, argv[1:])
	if changing := j.changing(x, base); changing != nil {
		j.bounded(changing, func() { x.all(name) })
	} else {
		x.all(name)
	}
	j.spare = append(j.spare, x)
}

// all judges what the command does, what it needs, and whether it may run.
func (x *execution) all(name string) {
	rules := &x.judge.policy.rules
	x.record = rules.guarded != nil && len(rules.guarded[x.base])+len(rules.guarded[x.kind()]) > 0
	x.effects()
	x.judge.allow(x.base, name, x)
	x.judge.verdicts(x, x.base, name)
}

// kind returns the name by which rules know commands that they do not name.
func (x *execution) kind() string {
	if x.known || x.inside {
		return "*"
	}
	return "?"
}

// changing returns the rules that change the grant of the command, and notes
// what they replace.
func (j *judge) changing(x *execution, base string) (list []*rule) {
	if j.policy.rules.changing == nil {
		return nil
	}
	for _, name := range [...]string{base, x.kind()} {
		for _, r := range j.policy.rules.changing[name] {
			if r.speaksOf(x.call) == yes && (r.Verdict != Allow || x.known || name == "*") {
				list = append(list, r)
				x.replaced = append(x.replaced, r.Replaces...)
				x.opened = append(x.opened, r.opens...)
			}
		}
	}
	return list
}

// newExecution returns one that is no longer used, or a new one: a script may
// have thousands of commands, of which few are within another.
func (j *judge) newExecution() *execution {
	if n := len(j.spare); n > 0 {
		x := j.spare[n-1]
		j.spare = j.spare[:n-1]
		return x
	}
	return new(execution)
}

// verdicts applies the rules that name the command, whatever its effects, those
// that allow it when it does nothing else, and the default where none names it.
func (j *judge) verdicts(x *execution, base, name string) {
	spoken, general := j.named(x, base), j.named(x, x.kind())
	if spoken {
		return
	}
	r := j.policy.defaults.of(x)
	switch {
	case r != nil:
	case general || j.policy.fallback == nil || x.in.opaque && x.call.fact.Opaque && x.kind() == "*":
		return
	default:
		r = j.policy.fallback
	}
	if r.Verdict == Allow && !x.known && !(x.inside && general) {
		r = j.policy.stranger
	}
	j.foundNamed(r, x.call.title(name), x.at)
}

// named applies the rules for a name, and reports whether there was one.
func (j *judge) named(x *execution, name string) (spoken bool) {
	for _, r := range j.policy.rules.byCommand[name] {
		if r.effects != 0 && r.Verdict != Allow || slices.Contains(x.replaced, r.ID) {
			continue
		}
		if r.Verdict == Allow && !x.known && name != "*" {
			continue // nothing is known of it, or it is another program of that name
		}
		m := r.speaksOf(x.call)
		if m == yes && r.effects != 0 && !r.allows(x.done) {
			m = no
		}
		spoken = j.finds(r, m, "", x.at) || spoken
	}
	return spoken
}

// finds notes that a rule applies, or may, and reports whether it is of
// interest.
func (j *judge) finds(r *rule, m match, detail string, at where) bool {
	switch {
	case m == yes:
		j.found(r, detail, at)
	case m == perhaps && r.perhaps != nil:
		j.found(r.perhaps, detail, at)
	default:
		return false
	}
	return true
}

// effect applies the rules that are about an effect, and takes what it needs
// into the grant.
func (j *judge) effect(x *execution, e *effect) {
	if j.parts != nil {
		j.parts.effect(e, j.spans.span(e.at))
	}
	if e.write != "" {
		j.wants(e.write, e.vague, e.at)
	}
	if e.protected != "" {
		for _, l := range j.limits {
			j.found(l.outside(), e.protected, e.at)
		}
		j.opened = append(j.opened, e.protected)
	}
	for _, r := range j.policy.rules.byEffect[e.kind] {
		j.finds(r, r.covers(e), e.detail, e.at)
	}
	if x == nil {
		return
	}
	for _, name := range [...]string{x.base, x.kind()} {
		for _, r := range j.policy.rules.byCommand[name] {
			if r.effects != 0 && r.Verdict != Allow && !slices.Contains(x.replaced, r.ID) {
				j.finds(r, min(r.speaksOf(x.call), r.covers(e)), e.detail, e.at)
			}
		}
	}
	if x.record {
		x.done = append(x.done, *e)
	}
}

// opaque widens the grant to what interpreters need.
func (j *judge) opaque() {
	j.execAny = true
	j.writes = append(j.writes, ".")
	j.risk = max(j.risk, Medium)
}

func (j *judge) unread(at where) {
	j.found(j.policy.unread, "", at)
	j.opaque()
}

// assign judges a variable that gets a value.
func (j *judge) assign(a *shparse.Assign) {
	if text := a.Value.Literal(); strings.Contains(text, "$(") && makeReads(a) {
		j.effect(nil, &effect{kind: effectSteers, detail: a.Name + " holds code of make", at: where{a.Offset, a.End}})
	}
	f := j.policy.variables.find(a.Name)
	if f == nil || f.Role == "plain" {
		return
	}
	span := where{a.Offset, a.End}
	if f.Role == "ask" {
		if a.Name == "IFS" && a.Local {
			return
		}
		j.effect(nil, &effect{kind: effectSteers, detail: a.Name + " " + f.Reason, at: span})
		return
	}
	if f.Role == "program" {
		if a.Command == "" && !a.Local { // a variable of the shell, so far
			return
		}
		j.tool(a.Name, a.Value, nil, scope{}, span)
		return
	}
	text, known := a.Value.Known()
	if !known {
		return
	}
	kind := effectReads
	if f.Role == "target" {
		kind = effectWrites
	}
	for _, part := range strings.Split(text, ":") {
		loc := j.locatePath(part, j.env.Project)
		j.effect(nil, &effect{kind: kind, place: loc.place, detail: part, at: span})
	}
}

// tool judges a variable that names a program which builds run, with arguments
// that they choose.
func (j *judge) tool(name string, v shparse.Value, dirs []string, in scope, at where) {
	text, known := v.Known()
	words := strings.Fields(text)
	switch {
	case known && len(words) == 0:
		return
	case !known, strings.ContainsAny(text, "$`\"'\\;|&<>()#\n"), strings.Contains(words[0], "/") && !j.isSystem(words[0]):
		j.effect(nil, &effect{kind: effectSteers, detail: name + " names a program", at: at})
		return
	}
	argv := make([]shparse.Field, 0, len(words)+1)
	for _, word := range words {
		argv = append(argv, shparse.Field{Value: shparse.Text(word), Offset: at.offset, End: at.end})
	}
	argv = append(argv, shparse.Field{Value: shparse.Unknown(shparse.Any), Many: true, Offset: at.offset, End: at.end})
	in.depth, in.external, in.opaque = in.depth+1, true, true
	j.run(argv, dirs, shparse.Input{Kind: shparse.Piped}, in)
}

// makeReads reports whether make may get the variable, which it expands: it is
// set for make, or for whatever comes.
func makeReads(a *shparse.Assign) bool {
	switch a.Command {
	case "make", "gmake":
		return true
	case "export", "declare", "typeset", "env":
		return strings.Contains(a.Value.Literal(), "$(shell")
	}
	return false
}

// shellPath judges a path that the shell itself uses.
func (j *judge) shellPath(a *shparse.Path) {
	span := where{a.Offset, a.End}
	dirs := a.Dirs
	if len(dirs) == 0 {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		switch a.Use {
		case shparse.Truncate, shparse.Append, shparse.ReadWrite:
			if j.network(a.Target, span) {
				continue
			}
			j.writePath(nil, a.Target, dir, inPlace, effectWrites, span)
		default:
			if j.network(a.Target, span) {
				continue
			}
			j.readPath(nil, a.Target, dir, effectReads, span)
		}
	}
}

// network judges the names that bash takes for connections in redirects.
func (j *judge) network(f shparse.Field, at where) bool {
	prefix := f.Prefix()
	if !strings.HasPrefix(prefix, "/dev/tcp/") && !strings.HasPrefix(prefix, "/dev/udp/") {
		return false
	}
	j.effect(nil, &effect{kind: effectNetwork, detail: f.String(), at: at})
	return true
}

// readPath judges a path that is read, or entered.
func (j *judge) readPath(x *execution, f shparse.Field, dir string, kind effectKind, at where) {
	loc := j.locate(f, dir)
	j.effect(x, &effect{kind: kind, place: loc.place, detail: f.String(), at: at, path: j.inside(loc), vague: !loc.exact})
}

// inside returns where in the project the location is, "" when it is not.
func (j *judge) inside(loc location) string {
	if loc.real == "" || !within(j.env.Project, loc.real) {
		return ""
	}
	return relative(j.env.Project, loc.real)
}

// writePath judges a path that is written or deleted, and grants what that
// needs.
func (j *judge) writePath(x *execution, f shparse.Field, dir string, how writing, kind effectKind, at where) {
	loc := j.locate(f, dir)
	if loc.place == placeProject && loc.exact {
		loc.place = j.guarded(loc, kind)
	}
	e := &effect{kind: kind, place: loc.place, detail: f.String(), at: at, path: j.inside(loc), vague: !loc.exact}
	switch loc.place {
	case placeProject:
		e.write = j.writable(loc, how)
	case placeProtected, placeHidden:
		e.protected = j.inside(loc)
	}
	j.effect(x, e)
}

// guarded places a path of the project that is written: beside what its name
// says, something hidden must be there to be so, a bare repository is told by
// what lies in it, and a directory that holds protected paths goes with them.
func (j *judge) guarded(loc location, kind effectKind) place {
	rel, places := j.inside(loc), &j.policy.places
	switch {
	case rel == "" || rel == ".":
	case j.bareGit(rel):
		return placeGit
	case loc.kind != Missing && places.hidden.Covers(rel):
		return placeHidden
	case kind == effectDeletes && loc.kind == Directory && places.protected.holds(rel):
		return placeProtected
	}
	return placeProject
}

// writable returns the place that the grant must hold so that the location
// can be written.
func (j *judge) writable(loc location, how writing) string {
	if loc.real == "" {
		return "."
	}
	real := loc.real
	switch {
	case !loc.exact:
	case how == inPlace && loc.kind == Regular, how == inside && loc.kind == Directory:
		return relative(j.env.Project, real)
	case real != j.env.Project:
		real = parent(real)
	}
	for within(j.env.Project, real) && real != j.env.Project {
		if _, kind, err := j.follow(real); err == nil && kind == Directory {
			break
		}
		real = parent(real)
	}
	return relative(j.env.Project, real)
}

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

func (j *judge) timeout() time.Duration {
	if j.slow {
		return BuildTimeout
	}
	return DefaultTimeout
}
