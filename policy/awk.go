package policy

import (
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// awk judges a program of awk by what in it leaves the stream: system, pipes,
// redirects, getline from a file, and extensions.
func (x *execution) awk(text string, f shparse.Field) {
	at := x.span(f)
	tokens := awkTokens(text)
	printing, depth := -1, 0 // the depth of brackets at which print stands
	for i, t := range tokens {
		switch {
		case t.kind == awkWord && t.text == "system":
			x.asked("system of awk, which runs a shell", at)
		case t.kind == awkWord && t.text == "ARGV":
			x.asked("the list of files of awk, which the program may change", at)
		case t.kind == awkWord && (t.text == "print" || t.text == "printf"):
			printing = depth
		case t.text == "(" && t.kind == awkMark, t.text == "[" && t.kind == awkMark:
			depth++
		case t.text == ")" && t.kind == awkMark, t.text == "]" && t.kind == awkMark:
			depth--
			if depth < printing {
				printing = -1
			}
		case t.kind == awkMark && (t.text == ";" || t.text == "\n" || t.text == "}" || t.text == "{"):
			printing = -1
		case t.kind == awkMark && (t.text == "|" || t.text == "|&"):
			x.asked("a pipe of awk, which runs a shell", at)
		case t.kind == awkMark && t.text == "@":
			x.asked("an extension or indirect call of awk", at)
		case t.kind == awkString && strings.HasPrefix(t.text, "/inet"):
			x.asked("a connection of awk", at)
		case t.kind == awkMark && (t.text == ">" || t.text == ">>") && printing == depth:
			x.awkFile(tokens[i+1:], f, true)
		case t.kind == awkMark && t.text == "<" && i > 0 && awkGetline(tokens[:i]):
			x.awkFile(tokens[i+1:], f, false)
		case t.kind == awkBroken:
			x.asked("a program of awk that cannot be read", at)
		}
	}
}

// awkGetline reports whether the tokens end in getline or getline name.
func awkGetline(before []awkToken) bool {
	for i := len(before) - 1; i >= 0 && i >= len(before)-5; i-- {
		if before[i].kind == awkWord && before[i].text == "getline" {
			return true
		}
	}
	return false
}

// awkFile judges the file of a redirect: text, or an expression, which is not
// followed.
func (x *execution) awkFile(after []awkToken, f shparse.Field, writes bool) {
	single := len(after) > 0 && after[0].kind == awkString &&
		(len(after) == 1 || after[1].kind == awkMark && strings.Contains(";\n})", after[1].text))
	if !single {
		x.asked("awk opens a file whose name is not known", x.span(f))
		return
	}
	name := after[0].text
	if name == "-" || name == "/dev/stdout" || name == "/dev/stderr" || name == "/dev/stdin" {
		return
	}
	at := f
	at.Value = shparse.Text(name)
	if writes {
		x.writes(at, inPlace, effectWrites)
	} else {
		x.paths(at, effectReads)
	}
}

type awkKind uint8

const (
	awkMark awkKind = iota
	awkWord
	awkString
	awkOther
	awkBroken
)

type awkToken struct {
	kind awkKind
	text string
}

// awkTokens splits a program. A slash begins a regular expression where an
// operand is expected.
func awkTokens(s string) (out []awkToken) {
	operand := true // an operand is expected next
	for i := 0; i < len(s); {
		c := s[i]
		n, t := 1, awkToken{kind: awkMark, text: string(c)}
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			i += 2
			continue
		case c == '#':
			n = strings.IndexByte(s[i:]+"\n", '\n')
			i += n
			continue
		case c == '"':
			n, t = awkQuoted(s[i:], '"', awkString)
		case c == '/' && operand:
			n, t = awkQuoted(s[i:], '/', awkOther)
		case isWordByte(c):
			for n < len(s)-i && isWordByte(s[i+n]) {
				n++
			}
			t = awkToken{awkWord, s[i : i+n]}
		case strings.HasPrefix(s[i:], "||"), strings.HasPrefix(s[i:], "|&"), strings.HasPrefix(s[i:], ">>"),
			strings.HasPrefix(s[i:], ">="), strings.HasPrefix(s[i:], "<="), strings.HasPrefix(s[i:], "&&"),
			strings.HasPrefix(s[i:], "++"), strings.HasPrefix(s[i:], "--"):
			n, t = 2, awkToken{awkMark, s[i : i+2]}
		}
		out = append(out, t)
		i += n
		operand = awkOperandNext(t)
	}
	return out
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80 || c == '.'
}

// awkOperandNext reports whether an operand, not an operator, may follow.
func awkOperandNext(t awkToken) bool {
	switch t.kind {
	case awkString, awkOther:
		return false
	case awkWord:
		switch t.text {
		case "print", "printf", "return", "in", "case", "else", "do", "getline", "exit", "delete":
			return true
		}
		return false
	}
	return t.text != ")" && t.text != "]" && t.text != "$" && t.text != "++" && t.text != "--"
}

// awkQuoted reads a string or a regular expression up to its delimiter.
func awkQuoted(s string, delimiter byte, kind awkKind) (int, awkToken) {
	var text strings.Builder
	brackets := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			if kind == awkString && strings.IndexByte(`"\/`, s[i]) < 0 && s[i] != '\n' {
				text.WriteByte('\\')
			}
			text.WriteByte(s[i])
		case c == '\n' && kind == awkString:
			return i, awkToken{kind: awkBroken}
		case kind == awkOther && c == '[':
			brackets = true
			text.WriteByte(c)
		case kind == awkOther && c == ']':
			brackets = false
			text.WriteByte(c)
		case c == delimiter && !brackets:
			return i + 1, awkToken{kind, text.String()}
		case c == delimiter:
			return i, awkToken{kind: awkBroken} // awks differ in whether a slash in brackets ends
		default:
			text.WriteByte(c)
		}
	}
	return len(s), awkToken{kind: awkBroken}
}
