package shparse

import (
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	shpattern "mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// maxTransformed bounds the length of values that operators are applied to.
const maxTransformed = 4096

// Matching a pattern at every length of a value is dear: it is done for short
// values only, and counts as many steps.
const (
	maxTrimmed = 256
	trimSteps  = 1000
)

// mapped applies a function to values that are all known; else the result is
// unknown.
func mapped(values []Value, f func(string) (string, bool)) []Value {
	var out []Value
	for _, v := range nonEmpty(values) {
		s, known := v.Known()
		if known && len(s) <= maxTransformed {
			s, known = f(s)
		} else {
			known = false
		}
		if !known {
			return []Value{Unknown(Any)}
		}
		out = append(out, Text(s))
	}
	return merge(nil, out)
}

// trimmed returns what ${name%pattern} and its kin make of a variable.
func trimmed(values []Value, op syntax.ParExpOperator, arg []Value, steps *int) []Value {
	if len(arg) != 1 {
		return []Value{Unknown(Any)}
	}
	cut, known := arg[0].Known()
	if !known {
		return []Value{Unknown(Any)}
	}
	suffix := op == syntax.RemSmallSuffix || op == syntax.RemLargeSuffix
	if suffix && !strings.ContainsAny(cut, `*?[\`) && endsAlike(values, cut) {
		return withoutSuffix(values, cut)
	}
	match, ok := wholePattern(cut)
	if !ok {
		return []Value{Unknown(Any)}
	}
	*steps -= trimSteps
	large := op == syntax.RemLargeSuffix || op == syntax.RemLargePrefix
	return mapped(values, func(s string) (string, bool) {
		if len(s) > maxTrimmed {
			return "", false
		}
		return trim(s, match, suffix, large), true
	})
}

// endsAlike reports whether all values end in known text that ends in cut.
func endsAlike(values []Value, cut string) bool {
	for _, v := range values {
		if !strings.HasSuffix(v.Suffix(), cut) {
			return false
		}
	}
	return len(values) > 0
}

func withoutSuffix(values []Value, cut string) []Value {
	var out []Value
	for _, v := range values {
		v.text = strings.TrimSuffix(v.text, cut)
		out = append(out, v)
	}
	return merge(nil, out)
}

// wholePattern compiles a pattern to match a whole text.
func wholePattern(p string) (*regexp.Regexp, bool) {
	if len(p) > 256 {
		return nil, false
	}
	expr, err := shpattern.Regexp(p, shpattern.EntireString)
	if err != nil {
		return nil, false
	}
	re, err := regexp.Compile(expr)
	return re, err == nil
}

// trim removes the shortest or the longest end of s that matches.
func trim(s string, match *regexp.Regexp, suffix, large bool) string {
	var cuts []int // lengths of what is removed, the preferred first
	for n := 0; n <= len(s); n++ {
		cuts = append(cuts, n)
	}
	for i := range cuts {
		n := cuts[i]
		if large {
			n = cuts[len(cuts)-1-i]
		}
		if suffix && match.MatchString(s[len(s)-n:]) {
			return s[:len(s)-n]
		}
		if !suffix && match.MatchString(s[:n]) {
			return s[n:]
		}
	}
	return s
}

// replacedIn returns what ${name/pattern/text} makes of a variable, when the
// pattern is plain text.
func replacedIn(values []Value, r *syntax.Replace, from, to []Value) []Value {
	if len(from) != 1 || len(to) != 1 {
		return []Value{Unknown(Any)}
	}
	old, ok1 := from[0].Known()
	text, ok2 := to[0].Known()
	if !ok1 || !ok2 || old == "" || strings.ContainsAny(old, `*?[\`) || strings.ContainsAny(old[:1], "#%") || strings.ContainsAny(text, `&\`) {
		return []Value{Unknown(Any)}
	}
	n := 1
	if r.All {
		n = -1
	}
	return mapped(values, func(s string) (string, bool) { return strings.Replace(s, old, text, n), true })
}

// sliced returns what ${name:offset:length} makes of a variable, when both are
// plain numbers.
func sliced(values []Value, s *syntax.Slice) []Value {
	from := smallNumber(indexLit(s.Offset))
	length := -1
	if s.Length != nil {
		if length = smallNumber(indexLit(s.Length)); length < 0 {
			return []Value{Unknown(Any)}
		}
	}
	if from < 0 {
		return []Value{Unknown(Any)}
	}
	return mapped(values, func(text string) (string, bool) {
		if !isASCII(text) {
			return "", false
		}
		text = text[min(from, len(text)):]
		if length >= 0 {
			text = text[:min(length, len(text))]
		}
		return text, true
	})
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// cased returns what ${name^^} and ${name,,} make of a variable.
func cased(values []Value, op syntax.ParExpOperator) []Value {
	return mapped(values, func(s string) (string, bool) {
		switch {
		case !isASCII(s):
			return "", false
		case op == syntax.UpperAll:
			return strings.ToUpper(s), true
		case op == syntax.LowerAll:
			return strings.ToLower(s), true
		}
		return "", false
	})
}

// output returns what a substitution prints, when it is one command whose
// output is plain from its words: then a path or a name that is built this way
// is judged like one that is spelled out.
func (r *reader) output(stmts []*syntax.Stmt, st *state) []Value {
	unknown := []Value{Unknown(Any)}
	if len(stmts) != 1 || len(stmts[0].Redirs) > 0 || stmts[0].Background || stmts[0].Negated {
		return unknown
	}
	call, ok := stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) > 16 {
		return unknown
	}
	var words []string
	for _, w := range call.Args {
		if !plainlyKnown(w) {
			return unknown
		}
		lists := r.fields(w, st)
		if len(lists) != 1 {
			return unknown
		}
		for _, f := range lists[0] {
			s, known := f.Known()
			if !known || f.Many || len(s) > maxTransformed {
				return unknown
			}
			words = append(words, s)
		}
	}
	if len(words) == 0 || len(st.funcs) > 0 && st.funcs[words[0]].bodies != nil {
		return unknown
	}
	if text, ok := printed(words, st); ok && !strings.Contains(text, "\x00") {
		return []Value{Text(strings.TrimRight(text, "\n"))}
	}
	return unknown
}

// plainlyKnown reports whether expanding the word runs nothing, so that it may
// be done twice.
func plainlyKnown(w *syntax.Word) bool {
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.ParamExp:
			if p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil || p.Excl {
				return false
			}
		case *syntax.DblQuoted:
			if !plainlyKnown(&syntax.Word{Parts: p.Parts}) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// printed returns what some commands print.
func printed(words []string, st *state) (string, bool) {
	args := words[1:]
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			return "", false
		}
	}
	switch words[0] {
	case "pwd":
		if len(st.dirs) == 1 {
			return st.dirs[0], true
		}
	case "echo":
		text := strings.Join(args, " ")
		return text, !strings.Contains(text, "\\")
	case "printf":
		if len(args) > 0 && args[0] == "%s" {
			return strings.Join(args[1:], ""), true
		}
		if len(args) == 1 && !strings.ContainsAny(args[0], `%\`) {
			return args[0], true
		}
	case "dirname":
		if len(args) == 1 && args[0] != "" {
			return path.Dir(strings.TrimRight(args[0], "/")), !strings.Contains(args[0], "//") && !strings.Contains(args[0], "/.")
		}
	case "basename":
		if len(args) == 1 && args[0] != "" {
			return path.Base(args[0]), true
		}
	}
	return "", false
}
