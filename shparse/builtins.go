package shparse

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// eval reads the text that eval makes of its arguments.
func (r *reader) eval(args []Field, st *state, at syntax.Node) *state {
	text := make([]string, 0, len(args))
	for i, f := range args {
		s, known := f.Known()
		if !known || f.Many {
			r.doubt(Code, at, "evaluates text that is not known")
			st.forget()
			return st
		}
		if i == 0 && s == "--" {
			continue
		}
		text = append(text, s)
	}
	return r.code(strings.Join(text, " "), st, at)
}

// code reads text that the shell runs as commands where it stands.
func (r *reader) code(text string, st *state, at syntax.Node) *state {
	if r.depth >= maxCalls {
		r.doubt(Code, at, "code within code, nested too deeply")
		return st
	}
	s, err := parse(text, r.script.lang)
	if err != nil {
		r.doubt(Code, at, "evaluates text that cannot be read: "+err.Error())
		return st
	}
	outer := r.within
	if r.within == nil {
		r.within = &[2]int{int(at.Pos().Offset()), int(at.End().Offset())}
	}
	r.depth++
	for i := range s.Doubts {
		r.emit(&s.Doubts[i])
	}
	st = r.stmts(s.stmts, st)
	r.depth--
	r.within = outer
	return st
}

// trap keeps the action for when everything else has been read.
func (r *reader) trap(args []Field, st *state, at syntax.Node) {
	if len(args) > 0 {
		if s, known := args[0].Known(); known && !args[0].Many && s == "--" {
			args = args[1:]
		}
	}
	if len(args) < 2 {
		if len(args) == 1 && args[0].Many {
			r.doubt(Code, at, "sets a trap that is not known")
		}
		return
	}
	action, known := args[0].Known()
	switch {
	case !known || args[0].Many:
		r.doubt(Code, at, "sets a trap that is not known")
		return
	case action == "" || strings.HasPrefix(action, "-"):
		return // ignored, reset or shown
	}
	s, err := parse(action, r.script.lang)
	if err != nil {
		r.doubt(Code, at, "sets a trap that cannot be read: "+err.Error())
		return
	}
	within := r.within
	if within == nil {
		within = &[2]int{int(at.Pos().Offset()), int(at.End().Offset())}
	}
	for i := range s.Doubts {
		d := s.Doubts[i]
		d.Offset, d.End = within[0], within[1]
		r.acts = append(r.acts, &d)
	}
	r.deferred = append(r.deferred, trap{s.stmts, st.later(), within})
}

// harmless are the options of set that change nothing of how text is read.
var harmless = map[string]bool{
	"errexit": true, "nounset": true, "xtrace": true, "pipefail": true, "verbose": true, "noglob": true, "noclobber": true,
	"errtrace": true, "functrace": true, "allexport": true, "hashall": true, "monitor": true, "notify": true, "onecmd": true,
}

// setBuiltin follows "set -- args" and doubts options that change how the
// shell reads.
func (r *reader) setBuiltin(args []Field, st *state, at syntax.Node) {
	for i := 0; i < len(args); i++ {
		s, known := args[i].Known()
		switch {
		case !known || args[i].Many:
			st.args, st.argsKnown = nil, false
			return
		case s == "--" || s == "-":
			r.setArgs(args[i+1:], st)
			return
		case s == "" || s[0] != '-' && s[0] != '+':
			r.setArgs(args[i:], st)
			return
		}
		if strings.Trim(s[1:], "euxvfCETahmbto") != "" {
			r.doubt(Unmodeled, at, "sets a mode of the shell that changes how it reads")
		}
		if strings.HasSuffix(s, "o") && i+1 < len(args) {
			i++
			if name, known := args[i].Known(); !known || !harmless[name] {
				r.doubt(Unmodeled, at, "sets a mode of the shell that changes how it reads")
			}
		}
	}
}

// setArgs replaces the positional parameters.
func (r *reader) setArgs(rest []Field, st *state) {
	zero := Field{Value: Unknown(Any)}
	if len(st.args) > 0 {
		zero = st.args[0]
	}
	st.args, st.argsKnown = append([]Field{zero}, rest...), true
}

// unset forgets variables and functions.
func (r *reader) unset(args []Field, st *state, at syntax.Node) {
	for _, f := range args {
		s, known := f.Known()
		if !known || f.Many {
			r.doubt(Unmodeled, at, "unsets a variable that is not known")
			continue
		}
		if strings.HasPrefix(s, "-") {
			continue
		}
		if !isName(s) {
			r.expression(f.Value, at, st, 0)
			s, _, _ = strings.Cut(s, "[")
		}
		r.assign(st, Assign{Name: s, Command: "unset"}, at)
		st.set(s, variable{unset: true})
		if fn, ok := st.funcs[s]; ok {
			fn.unsure = true
			st.define(s, fn)
		}
	}
}

// declClause reads declare, local, export, readonly and typeset as keywords.
func (r *reader) declClause(c *syntax.DeclClause, st *state) {
	argv := []Field{{Value: Text(c.Variant.Value)}}
	flags := ""
	for _, a := range c.Args {
		switch {
		case a.Name == nil: // an option, or a word that is expanded first
			for _, list := range r.fields(a.Value, st) {
				argv = append(argv, list...)
				for _, f := range list {
					flags += r.declared(f, flags, c.Variant.Value, st, a)
				}
			}
		case a.Naked:
			argv = append(argv, Field{Value: Text(a.Name.Value)})
			r.declare(a.Name.Value, flags, c.Variant.Value, false, st, a)
		default:
			argv = append(argv, Field{Value: Concat(Text(a.Name.Value+"="), Unknown(Any))})
			r.declareAssign(a, flags, c.Variant.Value, st)
		}
	}
	offset, end := int(c.Pos().Offset()), int(c.End().Offset())
	for i := range argv {
		argv[i].Offset, argv[i].End = offset, end
	}
	r.emit(&Command{Argv: argv, Dirs: st.dirs, Stdin: st.stdin, Offset: offset, End: end})
}

func (r *reader) declareAssign(a *syntax.Assign, flags, command string, st *state) {
	r.declare(a.Name.Value, flags, command, true, st, a)
	if a.Array != nil && strings.Contains(flags, "i") { // each element is evaluated
		v := r.lookup(a.Name.Value, st)
		v.integer = true
		st.set(a.Name.Value, v)
	}
	braces := false // which are expanded here, unlike in assignments
	if a.Value != nil {
		for _, part := range a.Value.Parts {
			lit, ok := part.(*syntax.Lit)
			braces = braces || ok && strings.Contains(lit.Value, "{")
		}
	}
	for _, x := range r.assignment(a, st, braces, command) {
		if strings.ContainsAny(flags, "iaA") || strings.HasPrefix(x.Value.Literal(), "(") {
			r.expression(x.Value, a, st, 0) // evaluated, or read again as elements
		}
	}
	if braces {
		r.assign(st, Assign{Name: a.Name.Value, Value: Unknown(Any), Command: command}, a)
	}
	if braces || strings.ContainsAny(flags, "iulcn") {
		st.set(a.Name.Value, variable{values: []Value{Unknown(Any)}, integer: strings.Contains(flags, "i")})
	}
}

// declare makes a variable exist with attributes, before it gets a value or
// without one.
func (r *reader) declare(name, flags, command string, assigned bool, st *state, at syntax.Node) {
	if strings.Contains(flags, "n") && command != "export" && command != "readonly" {
		r.doubt(Unmodeled, at, "variable that stands for another (nameref)")
	}
	if strings.Contains(flags, "f") && command == "export" {
		r.doubt(Code, at, "exports a function to the shells that later commands start")
	}
	if r.locals != nil && (command == "local" || command == "declare" || command == "typeset") && !strings.Contains(flags, "g") {
		if _, saved := r.locals[name]; !saved {
			r.locals[name] = r.lookup(name, st)
		}
		if assigned { // the value is expanded before: it may still use the outer variable
			return
		}
		st.set(name, variable{unset: true, integer: strings.Contains(flags, "i")})
		return
	}
	if strings.Contains(flags, "i") {
		v := r.lookup(name, st)
		v.integer = true
		st.set(name, v)
	}
	if command == "export" || strings.Contains(flags, "x") {
		r.assign(st, Assign{Name: name, Value: widenOne(r.lookup(name, st).values), Command: command}, at)
	}
}

// declared reads one expanded argument of a declaration and returns the flags
// that it adds.
func (r *reader) declared(f Field, flags, command string, st *state, at syntax.Node) string {
	s, known := f.Known()
	switch {
	case f.Many || !known && !strings.Contains(f.Prefix(), "="):
		r.doubt(Unmodeled, at, "declares a variable that is not known")
		return ""
	case strings.HasPrefix(s, "-"), strings.HasPrefix(s, "+"):
		return s[1:]
	}
	name, _, hasValue := strings.Cut(f.Literal(), "=")
	name = strings.TrimSuffix(name, "+")
	if !isName(name) {
		if strings.ContainsAny(name, "[") {
			r.expression(Text(name), at, st, 0)
			name, _, _ = strings.Cut(name, "[")
		}
		if !isName(name) {
			r.doubt(Unmodeled, at, "declares a variable whose name is not plain")
			return ""
		}
	}
	r.declare(name, flags, command, hasValue, st, at)
	if !hasValue {
		return ""
	}
	v := f.Value.Cut(strings.Index(f.Literal(), "=") + 1)
	if text := v.Literal(); strings.HasPrefix(text, "(") || strings.Contains(flags, "i") || strings.ContainsAny(flags, "aA") {
		r.expression(v, at, st, 0) // a quoted compound assignment is read again
	}
	r.assign(st, Assign{Name: name, Value: v, Command: command}, at)
	st.set(name, variable{values: []Value{Unknown(Any)}, integer: strings.Contains(flags, "i")})
	return ""
}

// declareWords is declared for all arguments of a declaration that is not a
// keyword: "command export x=y", \export x=y.
func (r *reader) declareWords(command string, args []Field, st *state, at syntax.Node) {
	flags := ""
	for _, f := range args {
		flags += r.declared(f, flags, command, st, at)
	}
}

// namesIn finds the variables that a builtin sets, or evaluates.
func (r *reader) namesIn(builtin string, args []Field, st *state, at syntax.Node) {
	switch builtin {
	case "let":
		for _, f := range args {
			r.expression(f.Value, at, st, 0)
			for _, name := range strings.FieldsFunc(f.Literal(), func(c rune) bool { return !isName("_" + string(c)) }) {
				if isName(name) {
					r.assignNumber(name, builtin, st, at)
				}
			}
		}
	case "test", "[":
		for i, f := range args {
			if s, known := f.Known(); known && (s == "-v" || s == "-R") && i+1 < len(args) {
				r.expression(args[i+1].Value, at, st, 0)
			}
		}
	default:
		r.namesSet(builtin, args, st, at)
	}
}

func (r *reader) assignNumber(name, builtin string, st *state, at syntax.Node) {
	r.assign(st, Assign{Name: name, Value: Unknown(Any), Command: builtin}, at)
	st.set(name, variable{values: []Value{Unknown(Any)}})
}

// setters say which arguments of a builtin name variables: the values of these
// options, and with names the operands from the given one on.
var setters = map[string]struct {
	options string // options whose value is a variable
	valued  string // other options with a value
	from    int    // first operand that is a variable; -1 for none
	to      int    // operand after the last; -1 for no end
}{
	"read":      {"a", "dinNptu", 0, -1},
	"mapfile":   {"", "dnOsucC", 0, -1},
	"readarray": {"", "dnOsucC", 0, -1},
	"getopts":   {"", "", 1, 2},
	"printf":    {"v", "", -1, -1},
	"wait":      {"p", "", -1, -1},
}

func (r *reader) namesSet(builtin string, args []Field, st *state, at syntax.Node) {
	how := setters[builtin]
	operand := 0
	for i := 0; i < len(args); i++ {
		s, known := args[i].Known()
		if known && !args[i].Many && len(s) > 1 && s[0] == '-' && s != "--" && operand == 0 {
			for j := 1; j < len(s); j++ {
				isVar := strings.IndexByte(how.options, s[j]) >= 0
				if !isVar && strings.IndexByte(how.valued, s[j]) < 0 {
					continue
				}
				f := args[i]
				if j+1 < len(s) {
					f.Value = Text(s[j+1:])
				} else if i++; i < len(args) {
					f = args[i]
				}
				if isVar {
					r.setName(f, builtin, st, at)
				}
				break
			}
			if builtin == "printf" { // -v alone
				continue
			}
			continue
		}
		if known && s == "--" && operand == 0 {
			continue
		}
		if how.from >= 0 && operand >= how.from && (how.to < 0 || operand < how.to) {
			r.setName(args[i], builtin, st, at)
		}
		operand++
	}
}

// setName notes that a builtin sets the variable that the field names.
func (r *reader) setName(f Field, builtin string, st *state, at syntax.Node) {
	s, known := f.Known()
	if !known || f.Many {
		r.doubt(Unmodeled, at, "sets a variable whose name is not known")
		return
	}
	name, _, indexed := strings.Cut(s, "[")
	if indexed {
		r.expression(f.Value, at, st, 0)
	}
	r.assign(st, Assign{Name: name, Value: Unknown(Any), Command: builtin}, at)
	list := builtin == "mapfile" || builtin == "readarray" || indexed
	v := variable{values: []Value{Unknown(Any)}, isArray: list, integer: isInteger(name, st)}
	if v.integer {
		r.doubt(Code, at, "evaluates as arithmetic what the variable gets")
	}
	v.array = unknownList(v)
	st.set(name, v)
}
