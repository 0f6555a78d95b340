package shparse

import (
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// fields returns the lists of arguments that a word may become: braces,
// tildes, parameters and substitutions expanded, split, and patterns matched.
func (r *reader) fields(w *syntax.Word, st *state) [][]Field {
	if lit, ok := onlyLiteral(w); ok { // most words are plain
		return [][]Field{{{Value: Text(lit), Offset: int(w.Pos().Offset()), End: int(w.End().Offset())}}}
	}
	words, ok := r.braces(w)
	if !ok {
		r.parts(newBuilder(true), w.Parts, st, unquoted) // for what it runs
		f := Field{Value: Unknown(Any), Many: true, Offset: int(w.Pos().Offset()), End: int(w.End().Offset())}
		return [][]Field{{f}}
	}
	out := r.wordFields(words[0], w, st)
	for _, word := range words[1:] {
		out = product(out, r.wordFields(word, w, st))
	}
	return out
}

// onlyLiteral returns the value of a word that no expansion applies to.
func onlyLiteral(w *syntax.Word) (string, bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	lit, ok := w.Parts[0].(*syntax.Lit)
	if !ok || strings.ContainsAny(lit.Value, "\\{~*?[=") && lit.Value != "[" {
		return "", false
	}
	return lit.Value, true
}

func (r *reader) wordFields(w, source *syntax.Word, st *state) [][]Field {
	b := newBuilder(true)
	r.parts(b, w.Parts, st, unquoted)
	out := b.finish(int(source.Pos().Offset()), int(source.End().Offset()))
	for i := range out {
		out[i] = r.expandPatterns(out[i], st)
	}
	return out
}

// product returns each list of a followed by each list of b.
func product(a, b [][]Field) [][]Field {
	if len(a) == 1 && len(b) == 1 {
		if len(a[0])+len(b[0]) > MaxWords {
			a[0] = append(a[0][:min(len(a[0]), MaxWords)], Field{Value: Unknown(Any), Many: true})
			return a
		}
		a[0] = append(a[0], b[0]...) // only the caller holds a
		return a
	}
	if len(a)*len(b) > maxValues {
		if len(b) > 1 {
			b = [][]Field{collapse(b)}
		}
		if len(a)*len(b) > maxValues {
			a = [][]Field{collapse(a)}
		}
	}
	out := make([][]Field, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, append(x[:len(x):len(x)], y...))
		}
	}
	return out
}

// collapse returns one list of fields that stands for all of them.
func collapse(lists [][]Field) []Field {
	var values []Value
	one, f := true, Field{Listed: true}
	for _, list := range lists {
		one = one && len(list) == 1
		for _, x := range list {
			values = append(values, x.Value)
			f.Listed = f.Listed && x.Listed
			f.Many = f.Many || x.Many
			f.Offset, f.End = x.Offset, x.End
		}
	}
	if len(values) == 0 {
		return nil
	}
	f.Value, f.Many = widen(values), f.Many || !one
	return []Field{f}
}

// maxBraces bounds the words that one word may become by brace expansion.
const maxBraces = 256

// braces expands {a,b} and {1..3}. It is not ok when there are too many words,
// or when a name such as $x stands in the word: bash expands braces in the
// text, so that $x{a,b} is $xa and $xb.
func (r *reader) braces(w *syntax.Word) (words []*syntax.Word, ok bool) {
	found, named := false, false
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			found = found || strings.Contains(p.Value, "{")
		case *syntax.ParamExp:
			named = named || p.Short && isName(p.Param.Value)
		}
	}
	if !found {
		return []*syntax.Word{w}, true
	}
	if !r.step() {
		return nil, false
	}
	split := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	syntax.SplitBraces(split)
	if n := countBraces(split); n > maxBraces || n > 1 && named {
		return nil, false
	}
	for word, err := range expand.BracesSeq(nil, split) {
		if err != nil {
			return nil, false
		}
		words = append(words, word)
	}
	*r.steps -= 20 * len(words)
	return words, true
}

// countBraces returns how many words the word becomes, or more than maxBraces.
func countBraces(w *syntax.Word) int {
	n := 1
	for _, part := range w.Parts {
		b, ok := part.(*syntax.BraceExp)
		if !ok {
			continue
		}
		sum := 0
		if b.Sequence {
			sum = countSequence(b)
		} else {
			for _, e := range b.Elems {
				sum += countBraces(e)
			}
		}
		if n *= sum; n > maxBraces {
			return maxBraces + 1
		}
	}
	return n
}

// countSequence returns how many elements {x..y..z} has, or more than maxBraces.
func countSequence(b *syntax.BraceExp) int {
	var ends [2]int
	for i := range ends {
		text, _ := onlyLiteral(b.Elems[i])
		if len(text) > 6 {
			return maxBraces + 1
		}
		if len(text) == 1 && (text[0] < '0' || text[0] > '9') {
			ends[i] = int(text[0])
			continue
		}
		sign := 1
		for _, c := range text {
			if c == '-' {
				sign = -1
				continue
			}
			ends[i] = ends[i]*10 + int(c-'0')
		}
		ends[i] *= sign
	}
	if n := ends[0] - ends[1]; n >= 0 {
		return n + 1
	}
	return ends[1] - ends[0] + 1
}

// A quoting is what surrounds a part of a word.
type quoting uint8

const (
	unquoted  quoting = iota
	quoted            // in double quotes
	document          // the body of a here-document
	value             // the right side of an assignment
	pattern           // a case pattern or the right side of [[ == ]]
	alternate         // the word of an unquoted ${name:-word}: what is not quoted in it is split
)

// text returns the values that a word may have where it is not split.
func (r *reader) text(w *syntax.Word, st *state, c quoting) []Value {
	if w == nil {
		return []Value{{}}
	}
	b := newBuilder(false)
	r.parts(b, w.Parts, st, c)
	return b.single()
}

func (r *reader) parts(b *builder, parts []syntax.WordPart, st *state, c quoting) {
	for i, part := range parts {
		if !r.step() {
			b.manyUnknown()
			return
		}
		switch p := part.(type) {
		case *syntax.Lit:
			r.literal(b, p.Value, i == 0, i+1 < len(parts), st, c)
		case *syntax.SglQuoted:
			r.singleQuoted(b, p)
		case *syntax.DblQuoted:
			r.doubleQuoted(b, p, st)
		case *syntax.ParamExp:
			r.param(b, p, st, c == quoted || c == document)
		case *syntax.CmdSubst:
			r.stmts(p.Stmts, r.subshell(st, Input{}))
			b.values(r.output(p.Stmts, st), c == quoted || c == document)
		case *syntax.ArithmExp:
			r.arithm(p.X, st)
			b.unknown(Number, true)
		case *syntax.ProcSubst:
			r.stmts(p.Stmts, r.subshell(st, Input{}))
			b.text("/dev/fd/", true)
			b.unknown(Number, true)
		case *syntax.ExtGlob:
			b.manyUnknown()
		default:
			r.doubt(Unmodeled, part, "part of a word that is not modelled")
			b.manyUnknown()
		}
	}
}

func (r *reader) singleQuoted(b *builder, p *syntax.SglQuoted) {
	if !p.Dollar {
		b.text(p.Value, true)
		return
	}
	if text, ok := decodeANSI(p.Value); ok {
		b.text(text, true)
		return
	}
	r.doubt(Ambiguous, p, "escape in $'…' that shells read differently")
	b.unknown(Any, true)
}

func (r *reader) doubleQuoted(b *builder, p *syntax.DblQuoted, st *state) {
	if !(len(p.Parts) == 1 && r.isList(p.Parts[0])) {
		b.mark()
	}
	r.parts(b, p.Parts, st, quoted)
}

// isList reports whether the part is "$@" or "${a[@]}", which in quotes may
// become no field at all.
func (r *reader) isList(part syntax.WordPart) bool {
	p, ok := part.(*syntax.ParamExp)
	return ok && p.Param != nil && (p.Param.Value == "@" || indexLit(p.Index) == "@")
}

// indexLit returns the subscript when it is literal text.
func indexLit(x syntax.ArithmExpr) string {
	if w, ok := x.(*syntax.Word); ok && w != nil {
		if s, lit := onlyLit(w); lit {
			return s
		}
	}
	return ""
}

func onlyLit(w *syntax.Word) (string, bool) {
	if len(w.Parts) == 1 {
		if lit, ok := w.Parts[0].(*syntax.Lit); ok {
			return lit.Value, true
		}
	}
	return "", false
}

// literal adds unquoted text, or what stands between the quotes of "…".
func (r *reader) literal(b *builder, s string, first, more bool, st *state, c quoting) {
	switch c {
	case quoted:
		b.text(unescape(s, "$`\"\\\n"), true)
		return
	case document:
		b.text(unescape(s, "$`\\\n"), true)
		return
	}
	add := func(s string) { b.text(s, false) }
	if c == alternate {
		add = func(s string) { b.values([]Value{Text(s)}, false) }
	}
	if first && (c == unquoted || c == alternate) {
		s = r.argumentTilde(b, s, more, st)
	} else if c == value && (first || strings.HasPrefix(s, ":")) {
		s = r.assignedTildes(b, s, first, more, st)
	}
	for s != "" {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 == len(s) {
			add(s)
			return
		}
		if i > 0 {
			add(s[:i])
		}
		if s[i+1] != '\n' {
			n := 1 + runeLen(s[i+1:])
			b.text(s[i+1:i+n], true)
			s = s[i+n:]
		} else {
			s = s[i+2:]
		}
	}
}

func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}

// unescape removes the backslashes before the characters in special.
func unescape(s, special string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(special, s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// argumentTilde expands a tilde at the beginning of an argument, or in one
// that looks like an assignment. It returns the text that is left.
func (r *reader) argumentTilde(b *builder, s string, more bool, st *state) string {
	if strings.HasPrefix(s, "~") {
		return r.tilde(b, s, "/", more, st)
	}
	if name, rest, ok := strings.Cut(s, "="); ok && strings.Contains(rest, "~") && isName(name) {
		b.text(name+"=", true)
		return r.assignedTildes(b, rest, true, more, st)
	}
	return s
}

// assignedTildes expands the tildes of an assigned value: at its beginning and
// after each colon.
func (r *reader) assignedTildes(b *builder, s string, first, more bool, st *state) string {
	if first && strings.HasPrefix(s, "~") {
		s = r.tilde(b, s, ":/", more, st)
	}
	for {
		i := strings.Index(s, ":~")
		if i < 0 || strings.Contains(s[:i], "\\") {
			return s
		}
		b.text(s[:i+1], false)
		s = r.tilde(b, s[i+1:], ":/", more, st)
		if strings.HasPrefix(s, "~") {
			return s
		}
	}
}

// tilde expands the tilde with which s begins, up to one of the bytes in stop.
// A tilde that quotes or expansions follow too closely is not expanded.
func (r *reader) tilde(b *builder, s, stop string, more bool, st *state) string {
	end := strings.IndexAny(s, stop)
	if end < 0 {
		if more {
			return s
		}
		end = len(s)
	}
	user := s[1:end]
	switch {
	case strings.ContainsAny(user, "\\*?[{"):
		return s
	case user == "":
		b.values(r.lookup("HOME", st).values, true)
	case user == "+":
		b.values(r.lookup("PWD", st).values, true)
	case user == "-":
		b.values(r.lookup("OLDPWD", st).values, true)
	case user == "root":
		b.text("/root", true)
	case isName(strings.NewReplacer("-", "_", ".", "_").Replace(user)):
		// Wherever it is, it is another user's; without that user it is itself.
		b.values([]Value{Text("/home/" + user), Text(s[:end])}, true)
	default:
		b.unknown(Any, true)
	}
	b.mark()
	return s[end:]
}

// isName reports whether the text can be the name of a variable.
func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || i > 0 && '0' <= c && c <= '9') {
			return false
		}
	}
	return s != ""
}
