package shparse

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of what Parse accepts. Text beyond one of them is refused with an
// [Error] of kind [TooLarge] that names it.
const (
	MaxBytes    = 1 << 20 // bytes of text
	MaxNesting  = 128     // groups, substitutions and compound commands within one another
	MaxCommands = 10_000  // commands
	MaxWords    = 25_000  // words, assignments and redirects
	// maxGroups bounds what the parser could recurse on, whether nested or
	// not, since real nesting is only known after parsing: every opening
	// bracket, backquote and compound keyword, wherever it stands, costs 8;
	// every character that may be an operator costs 1.
	maxGroups = 320_000
	// maxOpen bounds the opening parentheses without a closing one, which is
	// the usual way to nest too deeply, before a large stack is made for it.
	maxOpen = 2000
	// maxTokens bounds how long parsing takes, whatever the text is: every
	// character that may end a command costs 4, every blank 2.
	maxTokens = 300_000
)

// checkBytes refuses what no shell text may hold: NUL and invalid UTF-8.
func checkBytes(text string) *Error {
	if len(text) > MaxBytes {
		return tooLarge(text, 0, fmt.Sprintf("text is longer than %d bytes", MaxBytes))
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return errorAt(text, i, Encoding, "NUL byte in the text")
	}
	if !utf8.ValidString(text) {
		for i, r := range text {
			if r == utf8.RuneError {
				if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
					return errorAt(text, i, Encoding, "invalid UTF-8 in the text")
				}
			}
		}
	}
	return nil
}

// recursive says which bytes the parser may recurse on, and at what cost.
var recursive = func() (cost [256]uint8) {
	for _, b := range []byte("({`[\"") {
		cost[b] = 8
	}
	for _, b := range []byte("!~?*=&|<>+:") {
		cost[b] = 1
	}
	return cost
}()

// compound are the keywords that the parser recurses on.
var compound = map[string]bool{
	"if": true, "elif": true, "while": true, "until": true, "for": true, "case": true, "select": true,
	"time": true, "coproc": true, "function": true, "then": true, "do": true, "else": true,
}

// token says what bytes cost that may end a word or a command.
var token = func() (cost [256]uint8) {
	for _, b := range []byte(";&|\n<>") {
		cost[b] = 4
	}
	cost[' '], cost['\t'] = 2, 2
	return cost
}()

// checkGroups bounds the depth to which the recursive parser could go, and the
// time that it takes. A stack that overflows ends the process and cannot be
// recovered from, so this comes before parsing and counts what might open a
// group even where it does not.
func checkGroups(text string) *Error {
	if len(text) < maxOpen {
		return nil
	}
	groups, tokens, word, open := 0, 0, 0, 0
	for i := 0; i < len(text); i++ {
		b := text[i]
		groups += int(recursive[b])
		tokens += int(token[b])
		switch {
		case 'a' <= b && b <= 'z':
			continue
		case b == '(':
			open++
		case b == ')':
			open--
		}
		if n := i - word; n >= 2 && n <= 8 && compound[text[word:i]] {
			groups += 8
		}
		word = i + 1
		if groups > maxGroups || open > maxOpen {
			return tooLarge(text, i, "too many groups and operators")
		}
		if tokens > maxTokens {
			return tooLarge(text, i, "too many words and commands")
		}
	}
	return nil
}

// checkRunes reports the characters that shells, terminals or people could
// read in different ways: control characters besides tab and newline, and
// Unicode characters that are invisible or reorder text.
func checkRunes(text string) (doubts []Doubt) {
	ascii := true
	for i := 0; i < len(text); i++ {
		b := text[i]
		if b < ' ' && b != '\n' && b != '\t' || b == 0x7f {
			return append(doubts, Doubt{Kind: Ambiguous, Offset: i, End: i + 1,
				Message: fmt.Sprintf("control character %#02x, which shells read differently", b)})
		}
		ascii = ascii && b < utf8.RuneSelf
	}
	if ascii {
		return nil
	}
	for i, r := range text {
		if r < utf8.RuneSelf || !hidden(r) {
			continue
		}
		return append(doubts, Doubt{Kind: Ambiguous, Offset: i, End: i + utf8.RuneLen(r),
			Message: fmt.Sprintf("invisible or ambiguous character %U", r)})
	}
	return nil
}

// hidden reports whether the character cannot be seen, or looks like a blank.
func hidden(r rune) bool {
	switch {
	case r == '\u00ad', r == '\u034f', r == '\u115f', r == '\u1160', r == '\u3164', r == '\uffa0', r == '\u2800':
		return true
	case r >= '\ufe00' && r <= '\ufe0f' && r != '\ufe0f': // variation selectors, but the one of emoji
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Cc, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Co)
}
