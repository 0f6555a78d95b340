package shparse

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A reader runs a script on what is known instead of on values.
type reader struct {
	world   World
	script  *Script
	acts    []Act
	steps   *int
	emitted int // acts, replaced ones included
	globbed map[string]globResult
	listed  int  // names that patterns were matched with
	over    bool // the steps are used up, and a doubt says so

	fieldRoom   []Field
	commandRoom []Command

	within   *[2]int // the place of the word whose text is being read as code
	called   map[*syntax.Stmt]bool
	defined  []definition
	deferred []trap
	depth    int                 // of function calls and evaluated texts
	locals   map[string]variable // what the function being read has made local, and the values before
}

type definition struct {
	name  string
	body  *syntax.Stmt
	state *state
}

// A trap is text that the shell runs later.
type trap struct {
	stmts  []*syntax.Stmt
	state  *state
	within *[2]int
}

// maxCalls bounds the depth of function calls and of evaluated texts.
const maxCalls = 8

// step counts one unit of work and reports whether there was one left.
func (r *reader) step() bool {
	if *r.steps <= 0 {
		if !r.over {
			r.over = true
			r.acts = append(r.acts, &Doubt{Kind: Unmodeled, End: len(r.script.Source),
				Message: "the text takes too many steps to judge"})
		}
		return false
	}
	*r.steps--
	return true
}

// maxActs bounds the acts that are listed, those that a later pass through a
// loop replaces included.
const maxActs = 40_000

func (r *reader) emit(a Act) {
	if r.emitted++; r.emitted > maxActs {
		*r.steps = 0
		r.step() // says so
		return
	}
	if r.within != nil {
		switch a := a.(type) {
		case *Command:
			a.Offset, a.End = r.within[0], r.within[1]
			for i := range a.Argv {
				a.Argv[i].Offset, a.Argv[i].End = a.Offset, a.End
			}
		case *Path:
			a.Offset, a.End = r.within[0], r.within[1]
		case *Assign:
			a.Offset, a.End = r.within[0], r.within[1]
		case *Doubt:
			d := *a
			d.Offset, d.End = r.within[0], r.within[1]
			r.acts = append(r.acts, &d)
			return
		}
	}
	r.acts = append(r.acts, a)
}

func (r *reader) doubt(kind Kind, n syntax.Node, message string) {
	r.emit(&Doubt{Kind: kind, Offset: int(n.Pos().Offset()), End: int(n.End().Offset()), Message: message})
}

// An outcome is the state after a command that succeeded and after one that
// failed. The two may be the same state.
type outcome struct{ ok, fail *state }

func (o outcome) joined() *state { return join(o.ok, o.fail) }

func both(st *state) outcome { return outcome{st, st} }

// subshell returns the state in which a subshell starts.
func (r *reader) subshell(st *state, in Input) *state {
	c := st.copy()
	if in.Kind != Inherited {
		c.stdin = in
	}
	return c
}

// stmts reads the statements one after another and returns the state after.
func (r *reader) stmts(list []*syntax.Stmt, st *state) *state {
	for _, s := range list {
		st = r.stmt(s, st).joined()
	}
	return st
}

func (r *reader) stmt(s *syntax.Stmt, st *state) outcome {
	if !r.step() {
		return both(st)
	}
	if s.Coprocess || s.Disown {
		r.doubt(Unmodeled, s, "operator of another shell")
	}
	after := st
	if s.Background {
		st = r.subshell(st, Input{})
	}
	stdin := st.stdin
	for _, redir := range s.Redirs {
		r.redirect(redir, st)
	}
	var skipped *state
	if mayFail(s.Redirs) && r.changesState(s.Cmd, st) {
		skipped = st.copy()
	}
	out := r.command(s.Cmd, st)
	if skipped != nil { // the command does not run when its redirect fails
		out.fail = join(out.fail.copy(), skipped)
	}
	out.ok.stdin, out.fail.stdin = stdin, stdin
	if s.Background {
		return both(after)
	}
	if s.Negated {
		out.ok, out.fail = out.fail, out.ok
	}
	return out
}

func (r *reader) command(cmd syntax.Command, st *state) outcome {
	switch c := cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		return r.call(c, st)
	case *syntax.BinaryCmd:
		return r.binary(c, st)
	case *syntax.Block:
		return both(r.stmts(c.Stmts, st))
	case *syntax.Subshell:
		r.stmts(c.Stmts, r.subshell(st, Input{}))
	case *syntax.IfClause:
		return both(r.ifClause(c, st))
	case *syntax.WhileClause:
		return both(r.loop(st, func(in *state) *state {
			cond := r.conditions(c.Cond, in)
			if c.Until {
				cond.ok, cond.fail = cond.fail, cond.ok
			}
			fail := cond.fail.copy()
			return join(fail, r.stmts(c.Do, cond.ok))
		}))
	case *syntax.ForClause:
		return both(r.forClause(c, st))
	case *syntax.CaseClause:
		return both(r.caseClause(c, st))
	case *syntax.FuncDecl:
		r.define(c, st)
	case *syntax.ArithmCmd:
		r.arithm(c.X, st)
	case *syntax.TestClause:
		r.test(c.X, st)
	case *syntax.DeclClause:
		r.declClause(c, st)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			r.arithm(x, st)
		}
	case *syntax.TimeClause:
		if c.Stmt != nil {
			return r.stmt(c.Stmt, st)
		}
	case *syntax.CoprocClause:
		if c.Name != nil {
			for _, v := range r.text(c.Name, st, value) {
				r.assign(st, Assign{Name: v.Literal(), Value: Unknown(Number)}, c)
			}
		}
		r.stmt(c.Stmt, r.subshell(st, Input{Kind: Piped}))
	default:
		r.doubt(Unmodeled, cmd, "command that is not modelled")
	}
	return both(st)
}

// binary reads a chain of commands. It leans to the left and may be long, so
// it is laid out first and read from its first command on.
func (r *reader) binary(c *syntax.BinaryCmd, st *state) outcome {
	chain := []*syntax.BinaryCmd{c}
	for {
		x := chain[len(chain)-1].X
		next, ok := x.Cmd.(*syntax.BinaryCmd)
		if !ok || len(x.Redirs) > 0 || x.Negated || x.Background {
			break
		}
		chain = append(chain, next)
	}
	first := chain[len(chain)-1]
	out := r.first(first, st)
	for i := len(chain) - 1; i >= 0; i-- {
		out = r.then(chain[i], out, st)
	}
	return out
}

func isPipe(c *syntax.BinaryCmd) bool { return c.Op == syntax.Pipe || c.Op == syntax.PipeAll }

// first reads the first command of a chain: in a subshell, when it is piped.
func (r *reader) first(c *syntax.BinaryCmd, st *state) outcome {
	if isPipe(c) {
		r.stmt(c.X, r.subshell(st, Input{}))
		return both(st)
	}
	return r.stmt(c.X, st)
}

// then reads what follows an operator after what came before it.
func (r *reader) then(c *syntax.BinaryCmd, x outcome, st *state) outcome {
	if c.Op != syntax.Pipe && c.Op != syntax.PipeAll && x.ok == x.fail && r.changesNothing(c.Y, st) {
		r.stmt(c.Y, x.ok)
		return x
	}
	switch c.Op {
	case syntax.AndStmt:
		fail := x.fail
		if x.ok == x.fail {
			fail = x.fail.copy()
		}
		y := r.stmt(c.Y, x.ok)
		return outcome{y.ok, join(fail, y.fail)}
	case syntax.OrStmt:
		ok := x.ok
		if x.ok == x.fail {
			ok = x.ok.copy()
		}
		y := r.stmt(c.Y, x.fail)
		return outcome{join(ok, y.ok), y.fail}
	case syntax.Pipe, syntax.PipeAll:
		r.stmt(c.Y, r.subshell(st, Input{Kind: Piped}))
		return both(st)
	}
	r.doubt(Unmodeled, c, "operator that is not modelled")
	return x
}

// changesNothing reports whether a statement is certain to leave the state as
// it is: a program with literal words. Then no copy of the state is needed.
func (r *reader) changesNothing(s *syntax.Stmt, st *state) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(s.Redirs) > 0 || len(st.funcs) > 0 {
		return false
	}
	for i, w := range call.Args {
		text, literal := onlyLiteral(w)
		if !literal || i == 0 && stateful[text] {
			return false
		}
	}
	return true
}

// conditions reads the commands between if and then: the last one decides.
func (r *reader) conditions(list []*syntax.Stmt, st *state) outcome {
	if len(list) == 0 {
		return both(st)
	}
	st = r.stmts(list[:len(list)-1], st)
	return r.stmt(list[len(list)-1], st)
}

func (r *reader) ifClause(c *syntax.IfClause, st *state) *state {
	cond := r.conditions(c.Cond, st)
	fail := cond.fail.copy()
	then := r.stmts(c.Then, cond.ok)
	if c.Else == nil {
		return join(then, fail)
	}
	if len(c.Else.Cond) == 0 { // else
		return join(then, r.stmts(c.Else.Then, fail))
	}
	return join(then, r.ifClause(c.Else, fail))
}

// maxPasses is how often a loop is read until its state must have settled;
// what still changes then becomes unknown.
const maxPasses = 3

// maxKept bounds the acts of the first pass that are kept.
const maxKept = 100

// loop reads a body that runs any number of times, until another pass would
// find nothing new. Only the acts of the last pass are kept: its state stands
// for those of all the others. Where it had to forget what is known, or where
// the shell is, those of the first pass are kept, too: they are done for certain.
func (r *reader) loop(st *state, body func(*state) *state) *state {
	acts, defined, deferred := len(r.acts), len(r.defined), len(r.deferred)
	start := st.dirs
	var first []Act
	for pass := 0; ; pass++ {
		before := st.copy()
		after := join(before.copy(), body(st.copy()))
		if pass > maxPasses || start != nil && before.dirs == nil && after.same(before) {
			r.acts = slices.Insert(r.acts, acts, first...)
			return after
		}
		if after.same(before) || r.over {
			return after
		}
		if pass == maxPasses {
			after.forget()
		}
		if pass == 0 && len(r.acts)-acts <= maxKept {
			first = slices.Clone(r.acts[acts:])
		}
		r.acts, r.defined, r.deferred = r.acts[:acts], r.defined[:defined], r.deferred[:deferred]
		st = after
	}
}

func (r *reader) forClause(c *syntax.ForClause, st *state) *state {
	switch l := c.Loop.(type) {
	case *syntax.CStyleLoop:
		r.arithm(l.Init, st)
		return r.loop(st, func(in *state) *state {
			r.arithm(l.Cond, in)
			in = r.stmts(c.Do, in)
			r.arithm(l.Post, in)
			return in
		})
	case *syntax.WordIter:
		values := r.items(l, st)
		if c.Select {
			values = merge(values, []Value{{}})
		}
		return r.loop(st, func(in *state) *state {
			for _, v := range values {
				r.assign(in, Assign{Name: l.Name.Value, Value: v}, l)
			}
			in.set(l.Name.Value, variable{values: values, integer: isInteger(l.Name.Value, in)})
			return r.stmts(c.Do, in)
		})
	}
	r.doubt(Unmodeled, c, "loop that is not modelled")
	return st
}

// items returns the values that the variable of a loop takes.
func (r *reader) items(l *syntax.WordIter, st *state) []Value {
	if !l.InPos.IsValid() {
		if !st.argsKnown {
			return []Value{Unknown(Any)}
		}
		var out []Value
		for i, f := range st.args {
			if i > 0 {
				out = append(out, f.Value)
			}
		}
		return merge(nil, out)
	}
	var out []Value
	for _, w := range l.Items {
		for _, list := range r.fields(w, st) {
			for _, f := range list {
				out = append(out, f.Value)
			}
		}
	}
	return merge(nil, out)
}

func (r *reader) caseClause(c *syntax.CaseClause, st *state) *state {
	r.text(c.Word, st, value)
	after := st
	for _, item := range c.Items {
		for _, p := range item.Patterns {
			r.text(p, st, pattern)
		}
		// An item may also run after the one before it (;&), in its state.
		after = join(after.copy(), r.stmts(item.Stmts, after.copy()))
	}
	return after
}

// redirect reads one redirect, and sets what commands then read on descriptor 0.
// mayFail reports whether one of the redirects could fail: all could but those to
// /dev/null, of descriptors, and of text.
func mayFail(redirs []*syntax.Redirect) bool {
	return slices.ContainsFunc(redirs, func(redir *syntax.Redirect) bool {
		switch redir.Op {
		case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			return false
		}
		if redir.Word == nil || len(redir.Word.Parts) != 1 {
			return true
		}
		lit, ok := redir.Word.Parts[0].(*syntax.Lit)
		if !ok {
			return true
		}
		switch redir.Op {
		case syntax.DplIn, syntax.DplOut:
			return lit.Value != "1" && lit.Value != "2"
		}
		return lit.Value != "/dev/null"
	})
}

// changesState reports whether what follows could depend on the command's having
// run: a program of its own process changes nothing in the shell.
func (r *reader) changesState(cmd syntax.Command, st *state) bool {
	switch c := cmd.(type) {
	case nil, *syntax.Subshell:
		return false
	case *syntax.CallExpr:
		if len(c.Args) == 0 || len(c.Args[0].Parts) != 1 {
			return true
		}
		lit, ok := c.Args[0].Parts[0].(*syntax.Lit)
		if !ok || strings.ContainsAny(lit.Value, "\\*?[{~") {
			return true
		}
		_, isFunction := st.funcs[lit.Value]
		return isFunction || stateful[lit.Value]
	}
	return true
}

func (r *reader) redirect(redir *syntax.Redirect, st *state) {
	zero := redir.N == nil || redir.N.Value == "0"
	if redir.N != nil && strings.HasPrefix(redir.N.Value, "{") {
		name, _, _ := strings.Cut(strings.Trim(redir.N.Value, "{}"), "[")
		r.evaluated(Text(redir.N.Value), redir, st)
		r.assign(st, Assign{Name: name, Value: Unknown(Number)}, redir)
		st.set(name, variable{values: []Value{Unknown(Number)}})
		zero = false
	}
	in := Input{Kind: FromFile}
	switch redir.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		in = Input{Kind: Document, Text: r.document(redir, st)}
	case syntax.WordHdoc:
		text := r.text(redir.Word, st, value)
		in = Input{Kind: Document, Text: Concat(widenOne(text), Text("\n"))}
	case syntax.RdrIn:
		r.target(redir, Read, st)
	case syntax.RdrInOut:
		r.target(redir, ReadWrite, st)
	case syntax.RdrOut, syntax.RdrClob, syntax.RdrAll:
		r.target(redir, Truncate, st)
		zero = false
	case syntax.AppOut, syntax.AppAll:
		r.target(redir, Append, st)
		zero = false
	case syntax.DplIn:
		r.duplicate(redir, Read, st)
	case syntax.DplOut:
		r.duplicate(redir, Truncate, st)
		zero = false
	default:
		r.doubt(Unmodeled, redir, "redirect of another shell")
	}
	if zero {
		st.stdin = in
	}
}

// document returns the body of a here-document.
func (r *reader) document(redir *syntax.Redirect, st *state) Value {
	if redir.Hdoc == nil {
		return Value{}
	}
	_, isQuoted, _ := delimiterOf(redir.Word)
	if !isQuoted {
		return widenOne(r.text(redir.Hdoc, st, document))
	}
	var b strings.Builder
	for _, part := range redir.Hdoc.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			b.WriteString(lit.Value)
		}
	}
	if redir.Op == syntax.DashHdoc {
		return Text(dedent(b.String()))
	}
	return Text(b.String())
}

func dedent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "\n")
}

// target lists the file that a redirect opens.
func (r *reader) target(redir *syntax.Redirect, use Use, st *state) {
	for _, list := range r.fields(redir.Word, st) {
		if len(list) != 1 { // an error in bash, or unknown
			list = collapse([][]Field{list, {{Value: Unknown(Any)}}})
		}
		f := list[0]
		f.Many = false
		r.emit(&Path{Use: use, Target: f, Dirs: st.dirs,
			Offset: int(redir.Pos().Offset()), End: int(redir.Word.End().Offset())})
	}
}

// duplicate reads n>&word: a descriptor, "-", or with >& alone a file.
func (r *reader) duplicate(redir *syntax.Redirect, use Use, st *state) {
	for _, v := range r.text(redir.Word, st, value) {
		s, known := v.Known()
		digits := strings.TrimSuffix(s, "-")
		if known && (digits == "" && s != "" || smallNumber(digits) >= 0) || v.Class() == Number && strings.Trim(v.text, "-") == "" {
			continue
		}
		f := Field{Value: v, Offset: int(redir.Word.Pos().Offset()), End: int(redir.Word.End().Offset())}
		r.emit(&Path{Use: use, Target: f, Dirs: st.dirs, Offset: int(redir.Pos().Offset()), End: f.End})
	}
}

// leftovers reads what may run at any time or not at all: traps, and functions
// that the script does not call by name.
func (r *reader) leftovers(st *state) {
	all := st.copy()
	for _, d := range r.defined { // a trap may call any of them
		f := all.funcs[d.name]
		f.unsure = true
		f.bodies = append(f.bodies[:len(f.bodies):len(f.bodies)], d.body)
		all.define(d.name, f)
	}
	for i := 0; i < len(r.deferred); i++ { // reading one may add others
		t := r.deferred[i]
		r.within = t.within
		r.anytime(t.state, all.funcs, func(st *state) { r.stmts(t.stmts, st) })
		r.within = nil
	}
	for i := 0; i < len(r.defined); i++ {
		if d := r.defined[i]; !r.called[d.body] || d.name == "command_not_found_handle" {
			r.anytime(d.state, all.funcs, func(st *state) { r.run(d.body, st) })
		}
	}
}

// anytime reads what may run later: in the state in which it was given, and in
// one that knows nothing of what the script has set.
func (r *reader) anytime(given *state, funcs map[string]function, read func(*state)) {
	for _, known := range []bool{true, false} {
		st := given.copy()
		st.funcs, st.funcOwned = funcs, false
		if !known {
			st.forget()
		}
		read(st)
	}
}

// run reads the body of a function.
func (r *reader) run(body *syntax.Stmt, st *state) *state {
	if r.called == nil {
		r.called = map[*syntax.Stmt]bool{}
	}
	r.called[body] = true
	return r.stmt(body, st).joined()
}

func (r *reader) define(c *syntax.FuncDecl, st *state) {
	if c.Name == nil {
		return
	}
	st.define(c.Name.Value, function{bodies: []*syntax.Stmt{c.Body}})
	r.defined = append(r.defined, definition{c.Name.Value, c.Body, st.later()})
}
