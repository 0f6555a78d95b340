package shparse

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call reads a simple command: its words, its assignments, and what it does to
// the shell when it is a builtin or a function.
func (r *reader) call(c *syntax.CallExpr, st *state) outcome {
	argvs := r.argvs(c.Args, st)
	for _, argv := range argvs {
		*r.steps -= len(argv) / 4
	}
	if len(c.Args) == 0 {
		r.prefix(c, st)
		return both(st)
	}
	saved := r.save(c.Assigns, st)
	prefix := r.prefix(c, st)
	out := outcome{}
	for i, argv := range argvs {
		in := st
		if i+1 < len(argvs) {
			in = st.copy()
		}
		o := r.invoke(c, argv, prefix, in)
		out.ok, out.fail = join(out.ok, o.ok), join(out.fail, o.fail)
	}
	restore(saved, prefix, out.ok)
	if out.fail != out.ok {
		restore(saved, prefix, out.fail)
	}
	return out
}

// save returns what the variables hold that are assigned for one command.
func (r *reader) save(assigns []*syntax.Assign, st *state) map[string]variable {
	if len(assigns) == 0 {
		return nil
	}
	saved := make(map[string]variable, len(assigns))
	for _, a := range assigns {
		if _, done := saved[a.Name.Value]; !done {
			saved[a.Name.Value] = r.lookup(a.Name.Value, st)
		}
	}
	return saved
}

// restore gives the variables back what they held before the command, or what
// the command itself may have left in them.
func restore(saved map[string]variable, prefix []Assign, st *state) {
	for name, old := range saved {
		now := st.vars[name]
		for _, a := range prefix {
			if a.Name == name && !a.Local { // there was no command after all
				old = now
			}
		}
		given := slices.Clone(old.values)
		for _, a := range prefix {
			if a.Name == name {
				given = append(given, a.Value)
			}
		}
		for _, v := range now.values {
			if !slices.ContainsFunc(given, v.equal) {
				old = joinVariable(old, now)
				break
			}
		}
		st.set(name, old)
	}
}

// argvs returns the lists of words that a command may be run with.
func (r *reader) argvs(words []*syntax.Word, st *state) [][]Field {
	plain := r.newFields(len(words))
	for i, w := range words {
		if lit, ok := onlyLiteral(w); ok {
			plain = append(plain, Field{Value: Text(lit), Offset: int(w.Pos().Offset()), End: int(w.End().Offset())})
			continue
		}
		argvs := [][]Field{plain}
		for _, w := range words[i:] {
			argvs = product(argvs, r.fields(w, st))
		}
		return argvs
	}
	return [][]Field{plain}
}

// newFields returns room for n fields, cut from a larger piece: a script has
// many commands of few words.
func (r *reader) newFields(n int) []Field {
	if len(r.fieldRoom)+n > cap(r.fieldRoom) {
		r.fieldRoom = make([]Field, 0, max(n, min(2*cap(r.fieldRoom), 256), 8))
	}
	at := len(r.fieldRoom)
	r.fieldRoom = r.fieldRoom[:at+n]
	return r.fieldRoom[at : at : at+n]
}

func (r *reader) newCommand() *Command {
	if len(r.commandRoom) == cap(r.commandRoom) {
		r.commandRoom = make([]Command, 0, max(min(2*cap(r.commandRoom), 128), 2))
	}
	r.commandRoom = r.commandRoom[:len(r.commandRoom)+1]
	return &r.commandRoom[len(r.commandRoom)-1]
}

// prefix reads the assignments before a command.
func (r *reader) prefix(c *syntax.CallExpr, st *state) []Assign {
	if len(c.Assigns) == 0 {
		return nil
	}
	local := len(c.Args) > 0
	var out []Assign
	for _, a := range c.Assigns {
		out = append(out, r.assignment(a, st, local, "")...)
	}
	return out
}

// assignment reads name=value, name+=value, name[i]=value or name=(…) and
// returns what is assigned. Unless it is local to a command it changes the
// state.
func (r *reader) assignment(a *syntax.Assign, st *state, local bool, command string) []Assign {
	name := a.Name.Value
	if a.Index != nil {
		r.subscript(a.Index, st)
	}
	if a.Array != nil {
		r.arrayAssign(a, st, command)
		return nil
	}
	values := r.text(a.Value, st, value)
	old := r.lookup(name, st)
	if old.integer {
		for _, v := range values {
			r.expression(v, a, st, 0)
		}
		values = []Value{Unknown(Any)}
	}
	if a.Append {
		values = appended(old.values, values)
	}
	var out []Assign
	for _, v := range values {
		x := Assign{Name: name, Value: v, Local: local, Command: command, Offset: int(a.Pos().Offset()), End: int(a.End().Offset())}
		out = append(out, x)
		if !local {
			r.assign(st, x, a)
		}
	}
	switch {
	case local:
		// Until the command is over, see restore. Bash shows the value to
		// what the other assignments run, but not in all subshells of it.
		st.set(name, variable{values: merge(values, old.values), integer: old.integer, unset: old.unset, global: old.global})
	case a.Index != nil || old.isArray:
		st.set(name, variable{isArray: true, array: []Field{{Value: Unknown(Any), Many: true}}, values: []Value{Unknown(Any)}, integer: old.integer})
	default:
		st.set(name, variable{values: values, integer: old.integer})
	}
	return out
}

func appended(old, more []Value) []Value {
	if len(old)*len(more) > maxValues || len(old) == 0 {
		return []Value{Unknown(Any)}
	}
	var out []Value
	for _, a := range old {
		for _, b := range more {
			if len(a.text)+len(b.text) > maxText {
				return []Value{Unknown(Any)}
			}
			out = append(out, Concat(a, b))
		}
	}
	return merge(nil, out)
}

func (r *reader) arrayAssign(a *syntax.Assign, st *state, command string) {
	var elems []Field
	known := !a.Append
	for _, e := range a.Array.Elems {
		if e.Index != nil {
			r.subscript(e.Index, st)
			known = false
		}
		if e.Value == nil {
			continue
		}
		lists := r.fields(e.Value, st)
		if len(lists) == 1 {
			elems = append(elems, lists[0]...)
		} else {
			elems = append(elems, collapse(lists)...)
		}
	}
	for _, f := range elems {
		r.assign(st, Assign{Name: a.Name.Value, Value: f.Value, Command: command}, a)
	}
	if len(elems) == 0 {
		r.assign(st, Assign{Name: a.Name.Value, Command: command}, a)
	}
	if !known || len(elems) > maxBraces {
		elems = []Field{{Value: Unknown(Any), Many: true}}
	}
	first := []Value{Unknown(Any)}
	if len(elems) > 0 && !elems[0].Many {
		first = []Value{elems[0].Value}
	}
	st.set(a.Name.Value, variable{isArray: true, array: elems, values: first, integer: isInteger(a.Name.Value, st)})
}

// assign lists an assignment, and notes what it changes in the shell itself.
func (r *reader) assign(st *state, a Assign, at syntax.Node) {
	if a.End == 0 {
		a.Offset, a.End = int(at.Pos().Offset()), int(at.End().Offset())
	}
	if a.Name == "IFS" && !a.Local {
		st.ifs = true
	}
	if isInteger(a.Name, st) {
		r.expression(a.Value, at, st, 0)
	}
	r.emit(&a)
}

// integers are the variables of the shell whose values are evaluated as
// arithmetic when they are assigned, as with declare -i.
var integers = map[string]bool{"RANDOM": true, "SRANDOM": true, "OPTIND": true, "HISTCMD": true}

// isInteger reports whether what the variable gets is evaluated.
func isInteger(name string, st *state) bool { return integers[name] || st.vars[name].integer }

// invoke reads one command with its words expanded.
func (r *reader) invoke(c *syntax.CallExpr, argv []Field, prefix []Assign, st *state) outcome {
	if len(argv) == 0 {
		for i := range prefix { // words that expanded to nothing: the assignments stay
			prefix[i].Local = false
			r.assign(st, prefix[i], c)
			st.set(prefix[i].Name, variable{values: []Value{prefix[i].Value}})
		}
		return both(st)
	}
	cmd := r.newCommand()
	*cmd = Command{Argv: argv, Vars: prefix, Dirs: st.dirs, Stdin: st.stdin, Offset: int(c.Pos().Offset()), End: int(c.End().Offset())}
	name, known := argv[0].Known()
	if !known || argv[0].Many {
		r.emit(cmd)
		return both(st)
	}
	if f, ok := st.funcs[name]; ok {
		cmd.Function = !f.unsure
		r.emit(cmd)
		return both(r.callFunction(f, argv, st, c))
	}
	r.emit(cmd)
	return r.builtin(name, argv, prefix, st, c)
}

// callFunction reads the bodies that a function may have with its arguments.
func (r *reader) callFunction(f function, argv []Field, st *state, at syntax.Node) *state {
	if r.depth >= maxCalls {
		r.doubt(Unmodeled, at, "function calls nested too deeply")
		st.forget()
		return st
	}
	r.depth++
	defer func() { r.depth-- }()
	var after *state
	for _, body := range f.bodies {
		in := st.copy()
		in.args, in.argsKnown = argv, !anyMany(argv)
		outer := r.locals
		r.locals = map[string]variable{}
		out := r.run(body, in)
		for name, old := range r.locals {
			out.set(name, old)
		}
		r.locals = outer
		out.args, out.argsKnown = st.args, st.argsKnown
		after = join(after, out)
	}
	if f.unsure {
		after = join(after, st)
	}
	return after
}

// stateful are the builtins that may change the state.
var stateful = map[string]bool{
	"command": true, "builtin": true, "cd": true, "chdir": true, "pushd": true, "popd": true, "exit": true, "return": true, "exec": true,
	"eval": true, "trap": true, "source": true, ".": true, "set": true, "shift": true, "unset": true, "export": true, "readonly": true,
	"declare": true, "typeset": true, "local": true, "read": true, "mapfile": true, "readarray": true, "getopts": true, "printf": true,
	"wait": true, "let": true, "test": true, "[": true,
}

// builtin does to the state what a builtin of the shell does.
func (r *reader) builtin(name string, argv []Field, prefix []Assign, st *state, at syntax.Node) outcome {
	args := argv[1:]
	if !stateful[name] {
		return both(st)
	}
	switch name {
	case "command", "builtin":
		return r.throughCommand(args, prefix, st, at)
	case "cd", "chdir":
		return r.cd(args, prefix, st)
	case "pushd", "popd":
		return r.pushd(name, args, st)
	case "exit", "return":
		st.odds = never
	case "exec":
		if len(args) > 0 {
			st.odds = never
		}
	case "eval":
		return both(r.eval(args, st, at))
	case "trap":
		r.trap(args, st, at)
	case "source", ".":
		r.doubt(Code, at, "runs the commands in a file")
		st.forget()
	case "set":
		r.setBuiltin(args, st, at)
	case "shift":
		st.args, st.argsKnown = shifted(args, st)
	case "unset":
		r.unset(args, st, at)
	case "export", "readonly", "declare", "typeset", "local":
		r.declareWords(name, args, st, at)
	case "read", "mapfile", "readarray", "getopts", "printf", "wait", "let", "test", "[":
		r.namesIn(name, args, st, at)
	}
	return both(st)
}

// throughCommand reads "command name" and "builtin name": the same without
// functions.
func (r *reader) throughCommand(args []Field, prefix []Assign, st *state, at syntax.Node) outcome {
	for i, f := range args {
		s, known := f.Known()
		switch {
		case !known || f.Many:
			return both(st)
		case s == "--" || s == "-p":
			continue
		case strings.HasPrefix(s, "-"):
			return both(st) // -v and -V run nothing
		}
		return r.builtin(s, args[i:], prefix, st, at)
	}
	return both(st)
}

// cd follows the working directory, as the shell does: logically unless -P.
func (r *reader) cd(args []Field, prefix []Assign, st *state) outcome {
	fail := st.copy()
	fail.odds = max(st.odds, unlikely)
	for _, a := range prefix {
		if a.Name == "CDPATH" {
			st.dirs = nil
			return outcome{st, fail}
		}
	}
	operand := Value{}
	found, physical := false, false
	for _, f := range args {
		s, known := f.Known()
		if known && !f.Many && !found && len(s) > 1 && s[0] == '-' {
			physical = physical || strings.Contains(s, "P")
			continue
		}
		if f.Many || found {
			st.dirs = nil
			return outcome{st, fail}
		}
		operand, found = f.Value, true
	}
	if !found {
		operand = widenOne(r.lookup("HOME", st).values)
	}
	exists := true
	if st.dirs, exists = r.enter(operand, st.dirs); physical && strings.Contains(operand.Literal(), "..") {
		st.dirs = nil // ".." is where a symlink leads
	}
	if !exists {
		fail.odds = st.odds
	}
	return outcome{st, fail}
}

// enter returns the directories that a path leads to, and whether all exist.
func (r *reader) enter(operand Value, from []string) (dirs []string, exist bool) {
	s, known := operand.Known()
	if !known || s == "-" || from == nil && !strings.HasPrefix(s, "/") {
		return nil, false
	}
	if from == nil {
		from = []string{"/"}
	}
	exist = true
	for _, d := range from {
		to := s
		if !strings.HasPrefix(s, "/") {
			to = d + "/" + s
		}
		to = path.Clean(to)
		exist = exist && r.world.IsDir(to)
		dirs = joinDirs(append([]string{}, dirs...), []string{to})
	}
	return dirs, exist
}

// pushd follows pushd dir; what the stack holds is not followed.
func (r *reader) pushd(name string, args []Field, st *state) outcome {
	fail := st.copy()
	if name == "pushd" && len(args) == 1 && !args[0].Many {
		if s, known := args[0].Known(); known && !strings.HasPrefix(s, "+") && !strings.HasPrefix(s, "-") {
			var exists bool
			if st.dirs, exists = r.enter(args[0].Value, st.dirs); exists {
				fail.odds = max(st.odds, unlikely)
			}
			return outcome{st, fail}
		}
	}
	st.dirs = nil
	return outcome{st, fail}
}

func shifted(args []Field, st *state) ([]Field, bool) {
	n := 1
	if len(args) == 1 && !args[0].Many {
		s, known := args[0].Known()
		if n = smallNumber(s); !known || n < 0 {
			return nil, false
		}
	}
	if !st.argsKnown || len(args) > 1 || anyMany(st.args) {
		return nil, false
	}
	if n >= len(st.args) {
		return st.args, true // bash shifts nothing then
	}
	return append(st.args[:1:1], st.args[1+n:]...), true
}
