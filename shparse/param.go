package shparse

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// param adds what a parameter expansion may become.
func (r *reader) param(b *builder, p *syntax.ParamExp, st *state, inQuotes bool) {
	if p.Param == nil || p.NestedParam != nil || p.Flags != nil || len(p.Modifiers) > 0 || p.Width || p.IsSet {
		r.doubt(Unmodeled, p, "parameter expansion that is not modelled")
		b.manyUnknown()
		return
	}
	name := p.Param.Value
	index := indexLit(p.Index)
	all := index == "@" || index == "*"
	if p.Index != nil && !all {
		r.subscript(p.Index, st)
	}
	r.slice(p.Slice, st)
	var from, to []Value
	if p.Repl != nil {
		from, to = r.text(p.Repl.Orig, st, pattern), r.text(p.Repl.With, st, pattern)
	}
	switch {
	case p.Excl:
		r.indirect(b, p, st, inQuotes)
	case p.Length:
		b.unknown(Number, true)
	case p.Repl != nil, p.Slice != nil:
		if all || name == "@" || name == "*" || p.Index != nil {
			r.unknownLike(b, name, all, inQuotes)
		} else if values := r.lookup(name, st).values; p.Repl != nil {
			r.splitValues(b, replacedIn(values, p.Repl, from, to), st, inQuotes)
		} else {
			r.splitValues(b, sliced(values, p.Slice), st, inQuotes)
		}
	case p.Exp != nil:
		r.operator(b, p, st, inQuotes)
	case name == "@" || name == "*":
		r.positionals(b, st, inQuotes && name == "*")
	case all:
		r.elements(b, r.lookup(name, st), inQuotes && index == "*")
	case p.Index != nil:
		r.element(b, r.lookup(name, st), index, inQuotes)
	default:
		r.plain(b, name, st, inQuotes)
	}
}

// unknownLike adds an unknown value where a parameter stands: many for a list.
func (r *reader) unknownLike(b *builder, name string, all, inQuotes bool) {
	if all || name == "@" || name == "*" {
		b.manyUnknown()
		return
	}
	b.unknown(Any, inQuotes)
}

func (r *reader) slice(s *syntax.Slice, st *state) {
	if s == nil {
		return
	}
	r.arithm(s.Offset, st)
	r.arithm(s.Length, st)
}

// plain adds $name.
func (r *reader) plain(b *builder, name string, st *state, inQuotes bool) {
	v := r.lookup(name, st)
	values := v.values
	if v.unset && !v.global {
		values = merge(values, []Value{{}})
	}
	r.splitValues(b, values, st, inQuotes)
}

func (r *reader) positionals(b *builder, st *state, joined bool) {
	if !st.argsKnown || joined && st.ifs {
		b.manyUnknown()
		return
	}
	var args []Field
	if len(st.args) > 0 {
		args = st.args[1:]
	}
	if !joined {
		b.list(args, true)
		return
	}
	for i, f := range args {
		if i > 0 {
			b.text(" ", true)
		}
		b.values([]Value{f.Value}, true)
	}
}

func (r *reader) elements(b *builder, v variable, joined bool) {
	switch {
	case v.isArray && !joined:
		b.list(v.array, true)
	case !v.isArray && len(v.values) > 0 && !v.global:
		b.values(v.values, true)
	default:
		b.manyUnknown()
	}
}

// element adds ${a[i]}.
func (r *reader) element(b *builder, v variable, index string, inQuotes bool) {
	if v.isArray {
		if n := smallNumber(index); n >= 0 && n < len(v.array) && !anyMany(v.array[:n+1]) {
			b.values([]Value{v.array[n].Value}, inQuotes)
			return
		}
	}
	b.unknown(Any, inQuotes)
}

func anyMany(fields []Field) bool {
	for _, f := range fields {
		if f.Many {
			return true
		}
	}
	return false
}

// smallNumber returns the number that s is, or -1.
func smallNumber(s string) int {
	n := 0
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' || i > 4 {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	if s == "" {
		return -1
	}
	return n
}

// indirect adds ${!name}: the variable whose name is the value of name.
func (r *reader) indirect(b *builder, p *syntax.ParamExp, st *state, inQuotes bool) {
	if p.Names != 0 || p.Index != nil {
		b.manyUnknown()
		return
	}
	for _, v := range r.lookup(p.Param.Value, st).values {
		target, known := v.Known()
		if known && !isName(target) {
			r.evaluated(v, p, st)
		}
	}
	if p.Exp != nil {
		r.text(p.Exp.Word, st, quoted)
		if p.Exp.Op == syntax.AssignUnset || p.Exp.Op == syntax.AssignUnsetOrNull {
			r.doubt(Unmodeled, p, "assigns a variable through another")
		}
	}
	b.unknown(Any, inQuotes)
}

// operator adds ${name:-word} and its kin.
func (r *reader) operator(b *builder, p *syntax.ParamExp, st *state, inQuotes bool) {
	name, op := p.Param.Value, p.Exp.Op
	list := name == "@" || name == "*" || indexLit(p.Index) == "@" || indexLit(p.Index) == "*"
	c := value
	if inQuotes {
		c = quoted
	}
	switch op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull,
		syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		r.alternative(b, p, st, inQuotes, list, c)
	case syntax.OtherParamOps:
		if text, _ := onlyLit(p.Exp.Word); text == "P" {
			r.doubt(Code, p, "prompt expansion runs what the value holds")
		}
		r.unknownLike(b, name, list, inQuotes)
	default:
		arg := r.text(p.Exp.Word, st, pattern)
		values := r.lookup(name, st).values
		switch {
		case list || p.Index != nil:
			r.unknownLike(b, name, list, inQuotes)
		case op == syntax.UpperAll || op == syntax.LowerAll || op == syntax.UpperFirst || op == syntax.LowerFirst:
			r.splitValues(b, cased(values, op), st, inQuotes)
		default:
			r.splitValues(b, trimmed(values, op, arg, r.steps), st, inQuotes)
		}
	}
}

// alternative adds the expansions that choose between a variable and a word,
// by whether the variable is set and, with a colon, not empty.
func (r *reader) alternative(b *builder, p *syntax.ParamExp, st *state, inQuotes, list bool, c quoting) {
	v := r.lookup(p.Param.Value, st)
	if list || p.Index != nil {
		v = variable{values: []Value{Unknown(Any)}, unset: true}
	}
	present, useWord := split(v, p.Exp.Op)
	switch p.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		empty := useWord
		useWord = len(present) > 0
		present = nil
		if empty {
			present = []Value{{}}
		}
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		r.text(p.Exp.Word, st, c)
		useWord = false
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		present = r.assignDefault(p, present, useWord, st, c)
		useWord = false
	}
	if list {
		r.text(p.Exp.Word, st, c)
		b.manyUnknown()
		return
	}
	r.choose(b, present, useWord, p.Exp.Word, st, inQuotes, c)
}

// assignDefault gives the variable of ${name:=word} the word, where it is
// absent, and returns what it then holds.
func (r *reader) assignDefault(p *syntax.ParamExp, present []Value, absent bool, st *state, c quoting) []Value {
	words := r.text(p.Exp.Word, st, c)
	if !absent {
		return present
	}
	for _, w := range words {
		r.assign(st, Assign{Name: p.Param.Value, Value: w}, p)
	}
	values := merge(present, words)
	st.set(p.Param.Value, variable{values: values})
	return values
}

// choose adds one of the values, or the word. Quotes in the word protect it
// from being split, which values do not have.
func (r *reader) choose(b *builder, values []Value, useWord bool, w *syntax.Word, st *state, inQuotes bool, c quoting) {
	if !useWord || !b.split || inQuotes {
		if words := r.text(w, st, c); useWord {
			values = merge(values, words)
		}
		r.splitValues(b, values, st, inQuotes)
		return
	}
	other := builder{alts: b.copies(), split: true}
	if w != nil {
		r.parts(&other, w.Parts, st, alternate)
	}
	if len(values) == 0 {
		b.alts = other.alts
		return
	}
	r.splitValues(b, values, st, inQuotes)
	b.alts = append(b.alts, other.alts...)
}

// split returns the values with which a variable counts as present, and
// whether it may count as absent.
func split(v variable, op syntax.ParExpOperator) (present []Value, absent bool) {
	null := op == syntax.DefaultUnsetOrNull || op == syntax.AssignUnsetOrNull || op == syntax.AlternateUnsetOrNull ||
		op == syntax.ErrorUnsetOrNull
	absent = v.unset
	for _, x := range v.values {
		s, known := x.Known()
		if known && s == "" && (null || v.unset) {
			absent = true
			if null {
				continue
			}
		}
		absent = absent || null && !known && x.text == ""
		present = append(present, x)
	}
	return present, absent
}

// splitValues adds values that are split when they are not quoted: by blanks,
// and where IFS is not known also in any other way.
func (r *reader) splitValues(b *builder, values []Value, st *state, inQuotes bool) {
	if st.ifs && !inQuotes && b.split {
		values = merge(nonEmpty(values), []Value{Unknown(Any)})
	}
	b.values(values, inQuotes)
}

// numbers are the parameters that always hold a number.
const numbers = "?#$!"

// dynamic are variables that do not keep what is assigned to them, or that the
// shell changes by itself.
var dynamic = map[string]Class{
	"RANDOM": Number, "SRANDOM": Number, "SECONDS": Number, "LINENO": Number, "BASHPID": Number,
	"EPOCHSECONDS": Number, "EPOCHREALTIME": Any, "UID": Number, "EUID": Number, "PPID": Number,
	"BASH_COMMAND": Any, "BASH_SUBSHELL": Number, "FUNCNAME": Any, "GROUPS": Any, "DIRSTACK": Any, "_": Any,
	"PIPESTATUS": Any, "HISTCMD": Any, "BASH_REMATCH": Any, "BASH_ARGV": Any, "BASH_ARGV0": Any, "BASH_SOURCE": Any,
	"BASH_LINENO": Any, "BASH_EXECUTION_STRING": Any, "COMP_LINE": Any, "OPTARG": Any, "OPTIND": Number,
	"REPLY": Any, "MAPFILE": Any, "COPROC": Any, "SHELLOPTS": Any, "BASHOPTS": Any, "IFS": Any, "OLDPWD": Any,
	"BASH_ALIASES": Any, "BASH_CMDS": Any, "BASH_ARGC": Any, "LINES": Any, "COLUMNS": Any, "READLINE_LINE": Any,
}

// lookup returns what the variable or parameter may hold.
func (r *reader) lookup(name string, st *state) variable {
	switch {
	case len(name) == 1 && strings.Contains(numbers, name):
		return variable{values: []Value{Unknown(Number)}}
	case smallNumber(name) >= 0:
		return r.positional(smallNumber(name), st)
	case name == "PWD":
		return currentDir(st)
	}
	if class, ok := dynamic[name]; ok {
		return variable{values: []Value{Unknown(class)}, unset: true, global: true}
	}
	if v, ok := st.vars[name]; ok {
		return v
	}
	if text, ok := r.world.Var(name); ok {
		return variable{values: []Value{Text(text)}}
	}
	return variable{values: []Value{Unknown(Any)}, unset: true, global: true}
}

func (r *reader) positional(n int, st *state) variable {
	if st.argsKnown {
		if n < len(st.args) && !anyMany(st.args[:n+1]) {
			return variable{values: []Value{st.args[n].Value}}
		}
		if !anyMany(st.args) {
			return variable{values: []Value{{}}, unset: true}
		}
	}
	return variable{values: []Value{Unknown(Any)}, unset: true, global: true}
}

func currentDir(st *state) variable {
	var values []Value
	for _, d := range st.dirs {
		values = append(values, Text(d))
	}
	if len(values) == 0 {
		values = []Value{Unknown(Any)}
	}
	return variable{values: values}
}
