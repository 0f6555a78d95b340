package shparse

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// arithm reads an arithmetic expression: its substitutions, its assignments,
// and the texts that the shell evaluates as expressions in turn.
func (r *reader) arithm(x syntax.ArithmExpr, st *state) {
	if x == nil || !r.step() {
		return
	}
	switch x := x.(type) {
	case *syntax.Word:
		if x != nil {
			r.operand(x, st)
		}
	case *syntax.BinaryArithm:
		r.arithm(x.X, st)
		r.arithm(x.Y, st)
		if assigns(x.Op) {
			r.arithmAssign(x.X, st)
		}
	case *syntax.UnaryArithm:
		r.arithm(x.X, st)
		if x.Op == syntax.Inc || x.Op == syntax.Dec {
			r.arithmAssign(x.X, st)
		}
	case *syntax.ParenArithm:
		r.arithm(x.X, st)
	default:
		r.doubt(Unmodeled, x, "arithmetic of another shell")
	}
}

func assigns(op syntax.BinAritOperator) bool {
	switch op {
	case syntax.Assgn, syntax.AddAssgn, syntax.SubAssgn, syntax.MulAssgn, syntax.QuoAssgn, syntax.RemAssgn,
		syntax.AndAssgn, syntax.OrAssgn, syntax.XorAssgn, syntax.ShlAssgn, syntax.ShrAssgn,
		syntax.AndBoolAssgn, syntax.OrBoolAssgn, syntax.XorBoolAssgn, syntax.PowAssgn:
		return true
	}
	return false
}

// arithmAssign notes that the variable named by x now holds a number.
func (r *reader) arithmAssign(x syntax.ArithmExpr, st *state) {
	w, ok := x.(*syntax.Word)
	if !ok || len(w.Parts) != 1 {
		r.doubt(Unmodeled, x, "arithmetic assignment to something that is not a name")
		return
	}
	name := ""
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		name = p.Value
	case *syntax.ParamExp:
		if p.Param != nil && !p.Dollar.IsValid() {
			name = p.Param.Value
		}
	}
	if !isName(name) {
		r.doubt(Unmodeled, x, "arithmetic assignment to something that is not a name")
		return
	}
	r.assign(st, Assign{Name: name, Value: Unknown(Number)}, x)
	old := st.vars[name]
	st.set(name, variable{values: []Value{Unknown(Number)}, isArray: old.isArray, array: unknownList(old)})
}

func unknownList(v variable) []Field {
	if !v.isArray {
		return nil
	}
	return []Field{{Value: Unknown(Any), Many: true}}
}

// operand reads one word of an expression.
func (r *reader) operand(w *syntax.Word, st *state) {
	for _, v := range r.text(w, st, quoted) {
		r.expression(v, w, st, 0)
	}
}

// evaluated reads text that the shell takes as an expression or a subscript.
func (r *reader) evaluated(v Value, at syntax.Node, st *state) { r.expression(v, at, st, 0) }

// expression finds code in text that is evaluated as arithmetic: the text
// itself, and the values of the variables that it names, in turn. A hole in
// the text is data, which can run nothing that the caller does not bound.
func (r *reader) expression(v Value, at syntax.Node, st *state, depth int) {
	text := v.Literal()
	if strings.ContainsAny(text, "$`") {
		r.doubt(Code, at, "text that is evaluated as arithmetic holds code")
		return
	}
	if depth > 4 || !r.step() {
		return
	}
	for i := 0; i < len(text); {
		n := nameLen(text[i:])
		if n == 0 {
			i++
			continue
		}
		if v, ok := st.vars[text[i:i+n]]; ok {
			for _, x := range v.values {
				if len(x.text) < 1024 && x.text != text {
					r.expression(x, at, st, depth+1)
				}
			}
			for _, x := range v.array {
				r.expression(x.Value, at, st, depth+1)
			}
		}
		i += n
	}
}

// nameLen returns the length of the name with which s begins.
func nameLen(s string) int {
	n := 0
	for n < len(s) && isName(s[:n+1]) {
		n++
	}
	return n
}

// subscript reads what stands between brackets.
func (r *reader) subscript(x syntax.ArithmExpr, st *state) { r.arithm(x, st) }

// test reads a [[ … ]] expression.
func (r *reader) test(x syntax.TestExpr, st *state) {
	if x == nil || !r.step() {
		return
	}
	switch x := x.(type) {
	case *syntax.Word:
		r.text(x, st, value)
	case *syntax.ParenTest:
		r.test(x.X, st)
	case *syntax.UnaryTest:
		r.unaryTest(x, st)
	case *syntax.BinaryTest:
		r.binaryTest(x, st)
	default:
		r.doubt(Unmodeled, x, "test that is not modelled")
	}
}

func (r *reader) unaryTest(x *syntax.UnaryTest, st *state) {
	w, isWord := x.X.(*syntax.Word)
	if !isWord {
		r.test(x.X, st)
		return
	}
	for _, v := range r.text(w, st, value) {
		switch x.Op {
		case syntax.TsVarSet, syntax.TsRefVar:
			r.expression(v, x, st, 0)
		case syntax.TsEmpStr, syntax.TsNempStr, syntax.TsOptSet, syntax.TsNot, syntax.TsFdTerm:
		default:
			r.stat(v, w, st)
		}
	}
}

func (r *reader) binaryTest(x *syntax.BinaryTest, st *state) {
	switch x.Op {
	case syntax.AndTest, syntax.OrTest:
		r.test(x.X, st)
		r.test(x.Y, st)
		return
	}
	left, ok1 := x.X.(*syntax.Word)
	right, ok2 := x.Y.(*syntax.Word)
	if !ok1 || !ok2 {
		r.doubt(Unmodeled, x, "test that is not modelled")
		return
	}
	values := append(r.text(left, st, value), r.text(right, st, pattern)...)
	for _, v := range values {
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			r.expression(v, x, st, 0)
		case syntax.TsNewer, syntax.TsOlder, syntax.TsDevIno:
			r.stat(v, x, st)
		}
	}
}

func (r *reader) stat(v Value, at syntax.Node, st *state) {
	f := Field{Value: v, Offset: int(at.Pos().Offset()), End: int(at.End().Offset())}
	r.emit(&Path{Use: Stat, Target: f, Dirs: st.dirs, Offset: f.Offset, End: f.End})
}
