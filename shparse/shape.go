package shparse

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// shapeOf writes down what a tree means, without its positions, comments and
// spellings that mean the same ($(…) and backquotes, $((…)) and $[…]). Two
// trees with equal shapes run alike. It writes into the buffer.
func shapeOf(buf []byte, stmts []*syntax.Stmt) []byte {
	s := shape{out: buf[:0]}
	s.list(stmts)
	return s.out
}

var shapeBuffers = sync.Pool{New: func() any { return new([2][]byte) }}

// sameShape reports whether the trees mean the same.
func sameShape(a, b []*syntax.Stmt) bool {
	buf := shapeBuffers.Get().(*[2][]byte)
	defer shapeBuffers.Put(buf)
	buf[0], buf[1] = shapeOf(buf[0], a), shapeOf(buf[1], b)
	return bytes.Equal(buf[0], buf[1])
}

type shape struct {
	out  []byte
	text bool // the last thing written was literal text, which may go on
}

// mark writes the kind of a node and what distinguishes it.
func (s *shape) mark(kind byte, values ...uint32) {
	s.text = false
	s.out = append(s.out, 0, kind)
	for _, v := range values {
		s.out = binary.AppendUvarint(s.out, uint64(v))
	}
}

func (s *shape) string(v string) {
	s.out = binary.AppendUvarint(s.out, uint64(len(v)))
	s.out = append(s.out, v...)
	s.text = false
}

func (s *shape) lit(l *syntax.Lit) {
	if l == nil {
		s.mark('-')
		return
	}
	s.mark('n')
	s.string(l.Value)
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (s *shape) list(stmts []*syntax.Stmt) {
	s.mark('[')
	for _, st := range stmts {
		s.stmt(st)
	}
	s.mark(']')
}

// stmt writes a statement. A chain leans to the left and may be long: its left
// sides are followed without recursion.
func (s *shape) stmt(st *syntax.Stmt) {
	for {
		if st == nil {
			s.mark('-')
			return
		}
		s.prefix(st)
		b, ok := st.Cmd.(*syntax.BinaryCmd)
		if !ok {
			s.command(st.Cmd)
			return
		}
		s.mark('B', uint32(b.Op))
		s.stmt(b.Y)
		st = b.X
	}
}

func (s *shape) prefix(st *syntax.Stmt) {
	s.mark('S', bit(st.Negated), bit(st.Background), bit(st.Coprocess), bit(st.Disown), uint32(len(st.Redirs)))
	for _, r := range st.Redirs {
		s.mark('>', uint32(r.Op))
		s.lit(r.N)
		s.word(r.Word)
		s.body(r)
	}
}

// body writes a here-document; after <<- without the tabs that begin its lines.
func (s *shape) body(r *syntax.Redirect) {
	if r.Op != syntax.DashHdoc || r.Hdoc == nil {
		s.word(r.Hdoc)
		return
	}
	s.mark('h')
	for i, part := range r.Hdoc.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			s.part(part)
			continue
		}
		text := lit.Value
		if i == 0 {
			text = strings.TrimLeft(text, "\t")
		}
		s.part(&syntax.Lit{Value: undentedLines(text)})
	}
	s.mark(';')
}

func undentedLines(text string) string {
	first, rest, more := strings.Cut(text, "\n")
	if !more {
		return first
	}
	return first + "\n" + dedent(rest)
}

func (s *shape) command(cmd syntax.Command) {
	switch c := cmd.(type) {
	case nil:
		s.mark('0')
	case *syntax.CallExpr:
		s.mark('C', uint32(len(c.Assigns)), uint32(len(c.Args)))
		s.assigns(c.Assigns)
		s.words(c.Args)
	case *syntax.Subshell:
		s.mark('(')
		s.list(c.Stmts)
	case *syntax.Block:
		s.mark('{')
		s.list(c.Stmts)
	case *syntax.IfClause:
		s.ifClause(c)
	case *syntax.WhileClause:
		s.mark('W', bit(c.Until))
		s.list(c.Cond)
		s.list(c.Do)
	case *syntax.ForClause:
		s.forClause(c)
	case *syntax.CaseClause:
		s.mark('K', uint32(len(c.Items)))
		s.word(c.Word)
		for _, item := range c.Items {
			s.mark('k', uint32(item.Op), uint32(len(item.Patterns)))
			s.words(item.Patterns)
			s.list(item.Stmts)
		}
	case *syntax.FuncDecl:
		s.mark('f')
		s.lit(c.Name)
		s.stmt(c.Body)
	case *syntax.ArithmCmd:
		s.mark('A')
		s.arithm(c.X)
	case *syntax.TestClause:
		s.mark('T')
		s.test(c.X)
	case *syntax.DeclClause:
		s.mark('D', uint32(len(c.Args)))
		s.lit(c.Variant)
		s.assigns(c.Args)
	case *syntax.LetClause:
		s.mark('l', uint32(len(c.Exprs)))
		for _, x := range c.Exprs {
			s.arithm(x)
		}
	case *syntax.TimeClause:
		s.mark('t', bit(c.PosixFormat))
		s.stmt(c.Stmt)
	case *syntax.CoprocClause:
		s.mark('c')
		s.word(c.Name)
		s.stmt(c.Stmt)
	default:
		s.mark('?')
	}
}

func (s *shape) ifClause(c *syntax.IfClause) {
	for ; c != nil; c = c.Else {
		s.mark('I', bit(c.ThenPos.IsValid()))
		s.list(c.Cond)
		s.list(c.Then)
	}
	s.mark('i')
}

func (s *shape) forClause(c *syntax.ForClause) {
	s.mark('F', bit(c.Select))
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		s.mark('w', bit(l.InPos.IsValid()), uint32(len(l.Items)))
		s.lit(l.Name)
		s.words(l.Items)
	case *syntax.CStyleLoop:
		s.mark('c')
		s.arithm(l.Init)
		s.arithm(l.Cond)
		s.arithm(l.Post)
	}
	s.list(c.Do)
}

func (s *shape) assigns(list []*syntax.Assign) {
	for _, a := range list {
		s.mark('=', bit(a.Append), bit(a.Naked))
		s.lit(a.Name)
		s.arithm(a.Index)
		s.word(a.Value)
		if a.Array == nil {
			continue
		}
		s.mark('a', uint32(len(a.Array.Elems)))
		for _, e := range a.Array.Elems {
			s.arithm(e.Index)
			s.word(e.Value)
		}
	}
}

func (s *shape) words(list []*syntax.Word) {
	for _, w := range list {
		s.word(w)
	}
}

func (s *shape) word(w *syntax.Word) {
	if w == nil {
		s.mark('-')
		return
	}
	s.mark('w')
	s.parts(w.Parts)
	s.mark(';')
}

func (s *shape) parts(parts []syntax.WordPart) {
	for _, part := range parts {
		s.part(part)
	}
}

func (s *shape) part(part syntax.WordPart) {
	switch p := part.(type) {
	case *syntax.Lit:
		if !s.text { // adjacent literals are one
			s.mark('L')
		}
		s.out = append(s.out, p.Value...)
		s.text = true
	case *syntax.SglQuoted:
		s.mark('q', bit(p.Dollar))
		s.string(p.Value)
	case *syntax.DblQuoted:
		s.mark('d', bit(p.Dollar))
		s.parts(p.Parts)
		s.mark('"')
	case *syntax.ParamExp:
		s.param(p)
	case *syntax.CmdSubst:
		s.mark('$', bit(p.TempFile), bit(p.ReplyVar))
		s.list(p.Stmts)
	case *syntax.ArithmExp:
		s.mark('#', bit(p.Unsigned))
		s.arithm(p.X)
	case *syntax.ProcSubst:
		s.mark('<', uint32(p.Op))
		s.list(p.Stmts)
	case *syntax.ExtGlob:
		s.mark('g', uint32(p.Op))
		s.lit(p.Pattern)
	case *syntax.BraceExp:
		s.mark('b', bit(p.Sequence), uint32(len(p.Elems)))
		s.words(p.Elems)
	default:
		s.mark('?')
	}
}

func (s *shape) param(p *syntax.ParamExp) {
	s.mark('p', bit(p.Excl), bit(p.Length), bit(p.Width), bit(p.IsSet), uint32(p.Names))
	s.lit(p.Param)
	if p.NestedParam != nil {
		s.part(p.NestedParam)
	}
	s.arithm(p.Index)
	if p.Slice != nil {
		s.mark(':')
		s.arithm(p.Slice.Offset)
		s.arithm(p.Slice.Length)
	}
	if p.Repl != nil {
		s.mark('/', bit(p.Repl.All))
		s.word(p.Repl.Orig)
		s.word(p.Repl.With)
	}
	if p.Exp != nil {
		s.mark('x', uint32(p.Exp.Op))
		s.word(p.Exp.Word)
	}
	s.mark(';')
}

func (s *shape) arithm(x syntax.ArithmExpr) {
	switch x := x.(type) {
	case nil:
		s.mark('-')
	case *syntax.Word:
		s.word(x)
	case *syntax.BinaryArithm:
		s.mark('2', uint32(x.Op))
		s.arithm(x.X)
		s.arithm(x.Y)
	case *syntax.UnaryArithm:
		s.mark('1', uint32(x.Op), bit(x.Post))
		s.arithm(x.X)
	case *syntax.ParenArithm:
		s.mark('(')
		s.arithm(x.X)
	default:
		s.mark('?')
	}
}

func (s *shape) test(x syntax.TestExpr) {
	switch x := x.(type) {
	case nil:
		s.mark('-')
	case *syntax.Word:
		s.word(x)
	case *syntax.BinaryTest:
		s.mark('2', uint32(x.Op))
		s.test(x.X)
		s.test(x.Y)
	case *syntax.UnaryTest:
		s.mark('1', uint32(x.Op))
		s.test(x.X)
	case *syntax.ParenTest:
		s.mark('(')
		s.test(x.X)
	default:
		s.mark('?')
	}
}
