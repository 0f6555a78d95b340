package shparse

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeANSI returns what $'…' stands for. It is not known when the string
// holds a NUL, at which shells cut it in different ways.
func decodeANSI(raw string) (text string, known bool) {
	var b strings.Builder
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 == len(raw) {
			b.WriteByte(raw[i])
			i++
			continue
		}
		n, ok := decodeEscape(&b, raw[i+1:])
		if !ok {
			return "", false
		}
		i += 1 + n
	}
	return b.String(), true
}

var simpleEscapes = map[byte]byte{
	'a': '\a', 'b': '\b', 'e': 0x1b, 'E': 0x1b, 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
	'\\': '\\', '\'': '\'', '"': '"', '?': '?',
}

// decodeEscape writes the character that the text after a backslash stands
// for and returns how many bytes of the text it took.
func decodeEscape(b *strings.Builder, s string) (n int, ok bool) {
	if c, simple := simpleEscapes[s[0]]; simple {
		b.WriteByte(c)
		return 1, true
	}
	switch c := s[0]; {
	case '0' <= c && c <= '7':
		n = digits(s, 8, 3)
		v, _ := strconv.ParseUint(s[:n], 8, 16)
		b.WriteByte(byte(v))
		return n, byte(v) != 0
	case c == 'x':
		return decodeHex(b, s, 2)
	case c == 'u':
		return decodeHex(b, s, 4)
	case c == 'U':
		return decodeHex(b, s, 8)
	case c == 'c' && len(s) > 1:
		b.WriteByte(s[1] & 0x1f)
		return 2, s[1]&0x1f != 0 && s[1] < utf8.RuneSelf && s[1] != '\\'
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1, true
}

func decodeHex(b *strings.Builder, s string, most int) (n int, ok bool) {
	n = digits(s[1:], 16, most)
	if n == 0 { // bash keeps \x, and other shells do otherwise
		return 1, false
	}
	v, _ := strconv.ParseUint(s[1:1+n], 16, 32)
	switch {
	case v == 0:
		return 0, false
	case most == 2:
		b.WriteByte(byte(v))
	case v > utf8.MaxRune:
		return 0, false
	default:
		b.WriteRune(rune(v))
	}
	return 1 + n, true
}

// digits counts the digits at the beginning of s, at most most.
func digits(s string, base, most int) (n int) {
	for n < len(s) && n < most {
		c := s[n] | 0x20
		if !('0' <= s[n] && s[n] <= '7' || base == 16 && ('8' <= s[n] && s[n] <= '9' || 'a' <= c && c <= 'f')) {
			break
		}
		n++
	}
	return n
}
