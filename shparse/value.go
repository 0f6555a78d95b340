package shparse

import (
	"slices"
	"strings"
)

// A Class says what can stand in a hole.
type Class uint8

// The classes, the least known first.
const (
	Any    Class = iota // any text
	Name                // names found by a pattern: without "/", never starting with "-" or ".."
	Number              // a decimal number
)

// A Value is a string that the shell will make, as far as it is known: known
// text with holes where unknown text stands. The zero value is the empty
// string.
type Value struct {
	text  string
	holes []hole // in order of their places
}

type hole struct {
	at    int // byte of text before which the hole is
	class Class
}

// Text returns the value of a known string.
func Text(s string) Value { return Value{text: s} }

// Unknown returns a value of which nothing but the class is known.
func Unknown(c Class) Value { return Value{holes: []hole{{0, c}}} }

// Known returns the string, and whether all of it is known.
func (v Value) Known() (string, bool) { return v.text, len(v.holes) == 0 }

// Prefix returns the known text before the first hole.
func (v Value) Prefix() string {
	if len(v.holes) == 0 {
		return v.text
	}
	return v.text[:v.holes[0].at]
}

// Suffix returns the known text after the last hole.
func (v Value) Suffix() string {
	if len(v.holes) == 0 {
		return v.text
	}
	return v.text[v.holes[len(v.holes)-1].at:]
}

// Literal returns the known text with the holes left out.
func (v Value) Literal() string { return v.text }

// Class returns the least that is known of any hole, Number when there is none.
func (v Value) Class() Class {
	c := Number
	for _, h := range v.holes {
		c = min(c, h.class)
	}
	return c
}

// Cut returns the value without its first n bytes, which must be known.
func (v Value) Cut(n int) Value {
	out := Value{text: v.text[n:]}
	for _, h := range v.holes {
		out.holes = append(out.holes, hole{h.at - n, h.class})
	}
	return out
}

// Concat returns the values one after another.
func Concat(values ...Value) Value {
	var out Value
	for _, v := range values {
		out = out.join(v)
	}
	return out
}

func (v Value) join(w Value) Value {
	if v.text == "" && len(v.holes) == 0 {
		return w
	}
	p := partial{cur: v}
	p.value(w, true, false)
	return p.cur
}

func (v Value) equal(w Value) bool { return v.text == w.text && slices.Equal(v.holes, w.holes) }

// String shows the value with … for its holes.
func (v Value) String() string {
	if len(v.holes) == 0 {
		return v.text
	}
	var b strings.Builder
	at := 0
	for _, h := range v.holes {
		b.WriteString(v.text[at:h.at])
		b.WriteString("…")
		at = h.at
	}
	b.WriteString(v.text[at:])
	return b.String()
}

// A Field is one argument of a command, as far as it is known.
type Field struct {
	Value
	// Many: the field stands for any number of arguments, none included, of
	// which the value says what is known of each.
	Many bool
	// Listed: the argument is a file name that a pattern matched.
	Listed bool
	// Offset and End are the place of the word in the source.
	Offset, End int

	pattern string // the field as a pattern, when it is to be expanded
}

// maxValues bounds the finite sets of values that are followed. Larger ones
// become unknown.
const maxValues = 32

// merge returns the union of two sets of values; when it is too large, one
// value that stands for all.
func merge(a, b []Value) []Value {
	out := slices.Clip(a)
	for _, v := range b {
		if !slices.ContainsFunc(out, v.equal) {
			out = append(out, v)
		}
	}
	if len(out) > maxValues {
		return []Value{widen(out)}
	}
	return out
}

// widen returns one value that stands for all of them: what they begin and
// end with alike, and a hole between.
func widen(values []Value) Value {
	prefix, suffix, class := values[0].Prefix(), values[0].Suffix(), values[0].Class()
	for _, v := range values {
		prefix = commonPrefix(prefix, v.Prefix())
		suffix = commonSuffix(suffix, v.Suffix())
		class = min(class, v.Class())
	}
	for _, v := range values { // what is left between must be of the class
		s, known := v.Known()
		if !known {
			continue
		}
		if len(prefix)+len(suffix) > len(s) {
			suffix = suffix[:max(0, len(s)-len(prefix))]
			suffix = commonSuffix(suffix, s[len(prefix):])
		}
	}
	for _, v := range values {
		if s, known := v.Known(); known {
			class = min(class, classOf(s[len(prefix):len(s)-len(suffix)], prefix == ""))
		}
	}
	return Value{text: prefix + suffix, holes: []hole{{len(prefix), class}}}
}

// nonEmpty returns the values, or the empty text when there is none.
func nonEmpty(values []Value) []Value {
	if len(values) == 0 {
		return []Value{{}}
	}
	return values
}

// widenOne returns one value that stands for all of them.
func widenOne(values []Value) Value {
	if values = nonEmpty(values); len(values) == 1 {
		return values[0]
	}
	return widen(values)
}

// classOf returns the class that known text belongs to.
func classOf(s string, first bool) Class {
	digits := s != ""
	for i := 0; i < len(s); i++ {
		digits = digits && '0' <= s[i] && s[i] <= '9'
	}
	switch {
	case digits:
		return Number
	case strings.ContainsRune(s, '/'), strings.HasPrefix(s, ".."), first && (s == "" || s[0] == '-'):
		return Any
	}
	return Name
}

func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

func commonSuffix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}
