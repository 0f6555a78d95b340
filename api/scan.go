package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A kind is the type of a JSON value.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

// A scanner walks over JSON that has been found valid. It does not check
// again: on other input it may panic.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// next skips white space and returns the byte there, which it does not consume.
func (s *scanner) next() byte {
	s.space()
	return s.data[s.pos]
}

// value consumes one value and returns its text and type.
func (s *scanner) value() ([]byte, kind) {
	first := s.next()
	start, k := s.pos, number
	switch first {
	case '"':
		s.str()
		k = text
	case '{':
		s.nested()
		k = object
	case '[':
		s.nested()
		k = array
	case 't', 'f':
		s.word()
		k = boolean
	case 'n':
		s.word()
		k = null
	default:
		s.word()
	}
	return s.data[start:s.pos], k
}

// str consumes a string.
func (s *scanner) str() {
	for s.pos++; s.data[s.pos] != '"'; s.pos++ {
		if s.data[s.pos] == '\\' {
			s.pos++
		}
	}
	s.pos++
}

// nested consumes an object or array, with all that is in it.
func (s *scanner) nested() {
	for depth := 0; ; {
		switch s.data[s.pos] {
		case '"':
			s.str()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.pos++
		if depth == 0 {
			return
		}
	}
}

// word consumes a number, true, false or null.
func (s *scanner) word() {
	for s.pos < len(s.data) && strings.IndexByte(",]} \t\r\n", s.data[s.pos]) < 0 {
		s.pos++
	}
}

// members calls f for each member of the object, in order, with its decoded
// name; ok is false when the name is not valid Unicode.
func members(data []byte, f func(name string, ok bool, value []byte, k kind)) {
	s := &scanner{data: data}
	s.next()
	s.pos++
	for s.next() != '}' {
		if s.data[s.pos] == ',' {
			s.pos++
			s.space()
		}
		raw, _ := s.value()
		name, ok := unquote(raw)
		s.next()
		s.pos++ // the colon
		value, k := s.value()
		f(name, ok, value, k)
	}
}

// elements calls f for each element of the array, in order.
func elements(data []byte, f func(value []byte, k kind)) {
	s := &scanner{data: data}
	s.next()
	s.pos++
	for s.next() != ']' {
		if s.data[s.pos] == ',' {
			s.pos++
		}
		f(s.value())
	}
}

// checkJSON reports what keeps data from being one JSON object in valid UTF-8,
// or nil. It names places, never content.
func checkJSON(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("must be valid UTF-8")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		var syntax *json.SyntaxError
		if !errors.As(err, &syntax) {
			return errors.New("must be JSON")
		}
		if syntax.Offset >= int64(len(data)) {
			return errors.New("must be a JSON object, but ends too early")
		}
		return errors.New("must be one JSON object and nothing else; the error is at byte " + strconv.FormatInt(syntax.Offset, 10))
	}
	if s := (&scanner{data: data}); s.next() != '{' {
		return errors.New("must be a JSON object")
	}
	return nil
}

// unquote decodes a JSON string. Unlike encoding/json it does not replace lone
// surrogates: they are not text, and ok is false.
func unquote(raw []byte) (decoded string, ok bool) {
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		if raw[i+1] != 'u' {
			out = append(out, unescape(raw[i+1]))
			i += 2
			continue
		}
		r := hex4(raw[i+2:])
		i += 6
		if 0xd800 <= r && r < 0xdc00 && i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
			if low := hex4(raw[i+2:]); 0xdc00 <= low && low < 0xe000 {
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				i += 6
			}
		}
		if !utf8.ValidRune(r) {
			return "", false
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out), true
}

// unescape returns what the one-letter escape stands for.
func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c // quote, backslash, slash
}

// hex4 returns the value of the first four bytes, hexadecimal digits.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= 'a':
			c -= 'a' - 10
		case c >= 'A':
			c -= 'A' - 10
		default:
			c -= '0'
		}
		r = r<<4 | rune(c)
	}
	return r
}
