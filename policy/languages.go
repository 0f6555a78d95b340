package policy

import (
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// sed judges a script of sed by the commands in it that leave the stream.
func (x *execution) sed(text string, f shparse.Field) {
	s := sedReader{text: text}
	for _, use := range s.read() {
		at := f
		at.Value = shparse.Text(use.path)
		at.Many = false
		switch use.kind {
		case sedExecutes:
			x.asked("the command e of sed, which runs a shell", x.span(f))
		case sedWrites:
			x.writes(at, inPlace, effectWrites)
		case sedReads:
			x.paths(at, effectReads)
		case sedUnread:
			x.asked("a script of sed that cannot be read", x.span(f))
		}
	}
}

type sedKind uint8

const (
	sedExecutes sedKind = iota
	sedWrites
	sedReads
	sedUnread
)

type sedUse struct {
	kind sedKind
	path string
}

// A sedReader finds the commands of a sed script that matter. Where the script
// cannot be read it says so, and stops.
type sedReader struct {
	text string
	pos  int
	uses []sedUse
}

func (s *sedReader) use(kind sedKind, path string) {
	if path == "/dev/stdout" || path == "/dev/stderr" || kind == sedReads && path == "/dev/stdin" {
		return
	}
	s.uses = append(s.uses, sedUse{kind, path})
}

func (s *sedReader) read() []sedUse {
	for s.pos < len(s.text) {
		if !s.command() {
			s.use(sedUnread, "")
			break
		}
	}
	return s.uses
}

func (s *sedReader) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *sedReader) skip(set string) {
	for s.pos < len(s.text) && strings.IndexByte(set, s.text[s.pos]) >= 0 {
		s.pos++
	}
}

// command reads addresses and one command.
func (s *sedReader) command() bool {
	s.skip(" \t\n;}")
	if s.pos >= len(s.text) {
		return true
	}
	if !s.address() {
		return false
	}
	s.skip(" \t")
	if s.peek() == ',' {
		s.pos++
		s.skip(" \t")
		if !s.address() {
			return false
		}
	}
	s.skip(" \t!")
	c := s.peek()
	s.pos++
	switch c {
	case '{', '}', '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'F', 'z':
	case '#':
		s.line()
	case ':':
		s.word()
	case 'b', 't', 'T':
		s.skip(" \t")
		s.word()
	case 'q', 'Q', 'l', 'L':
		s.skip(" \t0123456789")
	case 'v':
		s.line()
	case 'a', 'i', 'c':
		s.insertion()
	case 'e':
		s.use(sedExecutes, "")
		s.line()
	case 'r', 'R':
		s.use(sedReads, s.fileName())
	case 'w', 'W':
		s.use(sedWrites, s.fileName())
	case 's':
		return s.substitute()
	case 'y':
		delimiter := s.peek()
		s.pos++
		from := s.delimited(delimiter, false)
		to := from && s.delimited(delimiter, false)
		return to
	default:
		return false
	}
	return true
}

// address reads a line number, $, /regexp/ or \cregexpc with what may follow.
func (s *sedReader) address() bool {
	switch c := s.peek(); {
	case '0' <= c && c <= '9', c == '+', c == '~':
		s.skip("0123456789+~")
	case c == '$':
		s.pos++
	case c == '/':
		s.pos++
		if !s.delimited('/', true) {
			return false
		}
		s.skip("IM")
	case c == '\\':
		s.pos++
		delimiter := s.peek()
		s.pos++
		if !s.delimited(delimiter, true) {
			return false
		}
		s.skip("IM")
	}
	return true
}

// delimited skips to after the next delimiter that is not escaped, nor inside
// brackets of a regular expression.
func (s *sedReader) delimited(delimiter byte, regexp bool) bool {
	if delimiter == 0 || delimiter == '\n' || delimiter == '\\' {
		return false
	}
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		switch {
		case c == '\\':
			s.pos += 2
			continue
		case c == delimiter:
			s.pos++
			return true
		case c == '[' && regexp && delimiter != '[' && strings.Contains(s.text[s.pos:], "]"):
			if end := bracketEnd(s.text[s.pos:]); end > 0 && strings.IndexByte(s.text[s.pos:s.pos+end], delimiter) >= 0 {
				return false // sed versions differ in whether this ends here
			}
		}
		s.pos++
	}
	return false
}

// bracketEnd returns the length of the bracket expression s begins with, 0 if
// it is not closed.
func bracketEnd(s string) int {
	i := 1
	if i < len(s) && s[i] == '^' {
		i++
	}
	if i < len(s) && s[i] == ']' {
		i++
	}
	if n := strings.IndexByte(s[min(i, len(s)):], ']'); n >= 0 {
		return i + n + 1
	}
	return 0
}

func (s *sedReader) line() string {
	rest := s.text[s.pos:]
	line, _, _ := strings.Cut(rest, "\n")
	s.pos += len(line)
	return line
}

func (s *sedReader) word() {
	for s.pos < len(s.text) && s.text[s.pos] != '\n' && s.text[s.pos] != ';' {
		s.pos++
	}
}

func (s *sedReader) fileName() string {
	s.skip(" \t")
	return s.line()
}

// insertion skips the text of a, i or c: to the end of a line that does not
// end in a backslash.
func (s *sedReader) insertion() {
	for {
		line := s.line()
		if s.pos >= len(s.text) {
			return
		}
		s.pos++
		n := len(line) - len(strings.TrimRight(line, "\\"))
		if n%2 == 0 {
			return
		}
	}
}

// substitute reads s/regexp/replacement/flags.
func (s *sedReader) substitute() bool {
	delimiter := s.peek()
	s.pos++
	if !s.delimited(delimiter, true) || !s.delimited(delimiter, false) {
		return false
	}
	for {
		switch c := s.peek(); {
		case c == 'w':
			s.pos++
			s.use(sedWrites, s.fileName())
			return true
		case c == 'e':
			s.use(sedExecutes, "")
			s.pos++
		case c == 'm' || c == 'M':
			s.pos++
		case c == 'g' || c == 'p' || c == 'i' || c == 'I' || '0' <= c && c <= '9' || c == ' ' || c == '\t':
			s.pos++
		case c == 0 || c == '\n' || c == ';' || c == '}' || c == '#':
			return true
		default:
			return false
		}
	}
}

// sqlitePrints are the commands of sqlite3 that print or set how it prints.
var sqlitePrints = map[string]bool{
	".tables": true, ".schema": true, ".fullschema": true, ".indexes": true, ".indices": true, ".databases": true, ".dbinfo": true, ".dump": true,
	".headers": true, ".header": true, ".mode": true, ".width": true, ".separator": true, ".nullvalue": true, ".echo": true, ".print": true,
	".show": true, ".stats": true, ".timer": true, ".explain": true, ".eqp": true, ".changes": true, ".bail": true, ".lint": true, ".limit": true,
	".timeout": true, ".parameter": true, ".version": true, ".help": true, ".quit": true, ".exit": true, ".sha3sum": true, ".scanstats": true,
}

// sqliteLeaves are the words of SQL that reach other files or load programs.
var sqliteLeaves = map[string]bool{"attach": true, "vacuum": true, "readfile": true, "writefile": true, "load_extension": true, "edit": true,
	"fts3_tokenizer": true, "fsdir": true}

// sqlite judges SQL with the commands of sqlite3, which stand on lines of their
// own and may be abbreviated.
func (x *execution) sqlite(text string, f shparse.Field) {
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) > 0 && words[0][0] == '.' && !sqlitePrints[strings.ToLower(words[0])] {
			x.asked("a command of sqlite3 that may run programs, or read or write other files: "+words[0], x.span(f))
		}
	}
	for _, word := range strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return c >= 0x80 || !isWordByte(byte(c)) || c == '.' }) {
		if sqliteLeaves[word] {
			x.asked("SQL that may reach other files or load programs: "+word, x.span(f))
		}
	}
}
