package server

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/pinfold/pinfold/api"
)

// An excerpt is a stream of which the head and the tail are kept: of limit
// characters the first half, rounded up, and the last. It holds at most about 8
// bytes for each character of the limit.
type excerpt struct {
	head, tail int    // characters to keep of each
	first      []byte // the beginning: all that the head can need
	last       []byte // what came last after that: all that the tail can need, or more
	size       int64  // of the stream, in bytes
	utf8       counter
}

func newExcerpt(limit int) *excerpt {
	return &excerpt{head: (limit + 1) / 2, tail: limit / 2}
}

// Write implements [io.Writer]. It does not fail.
func (e *excerpt) Write(p []byte) (int, error) {
	n := len(p)
	e.size += int64(n)
	e.utf8.add(p)
	if room := utf8.UTFMax*e.head - len(e.first); room > 0 {
		take := min(room, len(p))
		e.first = append(e.first, p[:take]...)
		p = p[take:]
	}
	need := utf8.UTFMax * e.tail
	if len(p) > need {
		e.last, p = e.last[:0], p[len(p)-need:]
	}
	e.last = append(e.last, p...)
	if len(e.last) > 2*need {
		e.last = append(e.last[:0], e.last[len(e.last)-need:]...)
	}
	return n, nil
}

// result returns what was kept, how it is encoded ("" for text), and how many
// characters, or bytes of what is not text, were left out. It is called once.
func (e *excerpt) result() (data, encoding string, cut int64) {
	limit := int64(e.head + e.tail)
	all := append(e.first, e.last...)
	isText := e.utf8.valid()
	cut = e.size - limit
	if isText {
		cut = e.utf8.runes - limit
	}
	switch {
	case cut <= 0:
		cut = 0
	case isText:
		all = append(prefix(all, e.head), suffix(all, e.tail)...)
	default:
		all = append(all[:e.head:e.head], all[len(all)-e.tail:]...)
	}
	if isText {
		return string(all), "", cut
	}
	return base64.StdEncoding.EncodeToString(all), api.Base64, cut
}

// prefix returns the first n characters of text, with no room to append.
func prefix(text []byte, n int) []byte {
	i := 0
	for ; n > 0; n-- {
		_, size := utf8.DecodeRune(text[i:])
		i += size
	}
	return text[:i:i]
}

// suffix returns the last n characters of text.
func suffix(text []byte, n int) []byte {
	i := len(text)
	for ; n > 0; n-- {
		_, size := utf8.DecodeLastRune(text[:i])
		i -= size
	}
	return text[i:]
}

// A counter counts the characters of a stream that comes in pieces.
type counter struct {
	runes   int64
	rest    []byte // the beginning of a character that is not all there yet
	invalid bool
}

// valid reports whether what came so far is UTF-8 with whole characters.
func (c *counter) valid() bool { return !c.invalid && len(c.rest) == 0 }

// add counts the next piece.
func (c *counter) add(p []byte) {
	if c.invalid {
		return
	}
	if len(c.rest) > 0 {
		p = append(c.rest, p...)
		c.rest = nil
	}
	whole := len(p) - partial(p)
	if !utf8.Valid(p[:whole]) {
		c.invalid = true
		return
	}
	c.runes += int64(utf8.RuneCount(p[:whole]))
	if whole < len(p) {
		c.rest = append([]byte(nil), p[whole:]...)
	}
}

// partial returns how many bytes at the end of p begin a character that more
// bytes could complete, 0 to 3.
func partial(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if last := p[len(p)-n]; utf8.RuneStart(last) {
			if utf8.FullRune(p[len(p)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}
