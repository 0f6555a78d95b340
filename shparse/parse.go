package shparse

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// A Script is shell text that was parsed. It is immutable.
type Script struct {
	// Text is the canonical print of the tree, without a final newline. It is
	// what may run.
	Text string
	// Source is the text that was given. Offsets in a reading refer to it.
	Source string
	// Doubts are the places where the text may mean something else to a shell
	// than to this package, in source order.
	Doubts []Doubt

	stmts []*syntax.Stmt
	lang  syntax.LangVariant
}

// A Kind says what an [Error] or a [Doubt] is about.
type Kind string

// The kinds. The first three are of errors, the others of doubts.
const (
	Syntax   Kind = "syntax"    // not in the grammar
	TooLarge Kind = "too_large" // beyond a bound of this package
	Encoding Kind = "encoding"  // NUL or invalid UTF-8

	Ambiguous Kind = "ambiguous" // shells could read it differently
	Unmodeled Kind = "unmodeled" // its effect on what follows is not followed
	Code      Kind = "code"      // runs text as code that is not known
)

// An Error says why text was not parsed.
type Error struct {
	Line, Column int    // 1-based place in the text; the column counts bytes
	Text         string // what stands there, at most 80 bytes
	Message      string // lower case, without a full stop
	Kind         Kind
}

func (e *Error) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
}

// A Doubt is a place that should not run unasked.
type Doubt struct {
	Kind        Kind
	Offset, End int // bytes of the source
	Message     string
}

func errorAt(text string, offset int, kind Kind, message string) *Error {
	line, column := Position(text, offset)
	return &Error{Line: line, Column: column, Text: Excerpt(text, offset, len(text)), Message: message, Kind: kind}
}

func tooLarge(text string, offset int, message string) *Error {
	return errorAt(text, offset, TooLarge, message)
}

// Position returns the 1-based line and byte column of the offset in the text.
func Position(text string, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	return 1 + strings.Count(before, "\n"), len(before) - strings.LastIndexByte(before, '\n')
}

// Excerpt returns the first line of text[offset:end], at most 80 bytes of it,
// cut between characters.
func Excerpt(text string, offset, end int) string {
	end = min(end, len(text))
	offset = min(max(offset, 0), end)
	part := text[offset:end]
	if i := strings.IndexByte(part, '\n'); i >= 0 {
		part = part[:i]
	}
	if len(part) > 80 {
		part = strings.ToValidUTF8(part[:80], "")
	}
	return part
}

// Parse reads text in the grammar of Bash. The error is always an [*Error].
func Parse(text string) (*Script, error) { return parse(text, syntax.LangBash) }

// ParsePOSIX reads text that a POSIX shell (dash) will read. Text that means
// something else in the grammar of Bash carries a doubt, as does text that is
// only Bash. The error is always an [*Error].
func ParsePOSIX(text string) (*Script, error) {
	s, err := parse(text, syntax.LangPOSIX)
	if err != nil {
		return nil, err
	}
	bash, err := parseTree(text, syntax.LangBash)
	if err != nil || !sameShape(s.stmts, bash.Stmts) {
		s.Doubts = append(s.Doubts, Doubt{Kind: Ambiguous, Offset: 0, End: len(text),
			Message: "sh and bash read this text differently"})
	}
	return s, nil
}

func parse(text string, lang syntax.LangVariant) (*Script, error) {
	if err := checkBytes(text); err != nil {
		return nil, err
	}
	if err := checkGroups(text); err != nil {
		return nil, err
	}
	file, err := parseTree(text, lang)
	if err != nil {
		return nil, err
	}
	doubts, over := checkTree(text, file.Stmts)
	if over != nil {
		return nil, over
	}
	s := &Script{Source: text, stmts: file.Stmts, lang: lang}
	s.Doubts = checkRunes(text)
	s.Doubts = append(s.Doubts, checkContinuations(text)...)
	s.Doubts = append(s.Doubts, checkComments(text, lang)...)
	s.Doubts = append(s.Doubts, doubts...)
	return s, s.canonical(file)
}

// canonical sets the text that the tree prints as, when printing and parsing
// has come to rest and the meaning has not changed on the way.
func (s *Script) canonical(file *syntax.File) error {
	text, tree := s.Source, file
	for range 4 {
		printed, err := printTree(tree)
		if err != nil {
			return errorAt(s.Source, 0, Syntax, "the tree cannot be printed: "+err.Error())
		}
		if printed == text {
			s.Text = printed
			if tree != file && !sameShape(file.Stmts, tree.Stmts) {
				s.changed(tree)
			}
			return nil
		}
		text = printed
		if tree, err = parseTree(text, s.lang); err != nil {
			return errorAt(s.Source, 0, Syntax, "the canonical text does not parse: "+err.Error())
		}
	}
	return errorAt(s.Source, 0, Syntax, "printing the text does not come to rest")
}

// changed turns to judging the printed tree, when it differs from the one that
// was sent, and says so. Offsets then refer to the printed text.
func (s *Script) changed(tree *syntax.File) {
	s.stmts = tree.Stmts
	s.Source = s.Text
	doubts, _ := checkTree(s.Text, tree.Stmts)
	s.Doubts = append(doubts, Doubt{Kind: Ambiguous, Offset: 0, End: len(s.Source),
		Message: "the text changes its meaning when it is printed again"})
}

// A parser holds a buffer of some kilobytes, so parsers are kept.
var parsers = map[syntax.LangVariant]*sync.Pool{
	syntax.LangBash:  newParsers(syntax.LangBash),
	syntax.LangPOSIX: newParsers(syntax.LangPOSIX),
}

func newParsers(lang syntax.LangVariant) *sync.Pool {
	return &sync.Pool{New: func() any { return syntax.NewParser(syntax.Variant(lang)) }}
}

func parseTree(text string, lang syntax.LangVariant) (*syntax.File, error) {
	pool := parsers[lang]
	p := pool.Get().(*syntax.Parser)
	file, err := p.Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, syntaxError(text, err) // the parser is dropped: its state is not
	}
	pool.Put(p)
	return file, nil
}

func syntaxError(text string, err error) *Error {
	var pe syntax.ParseError
	var le syntax.LangError
	switch {
	case errors.As(err, &pe):
		return errorAt(text, int(pe.Pos.Offset()), Syntax, pe.Text)
	case errors.As(err, &le):
		return errorAt(text, int(le.Pos.Offset()), Syntax, le.Feature+" is not in the grammar of this shell")
	}
	return errorAt(text, 0, Syntax, err.Error())
}

var printers = sync.Pool{New: func() any { return syntax.NewPrinter() }}

func printTree(file *syntax.File) (string, error) {
	p := printers.Get().(*syntax.Printer)
	defer printers.Put(p)
	var out strings.Builder
	if err := p.Print(&out, file); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
