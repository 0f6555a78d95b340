package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pinfold/pinfold/api"
)

// quoteAll returns shell text that means exactly the words.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

// quote returns shell text that means exactly the word, and no keyword,
// assignment or pattern.
func quote(word string) string {
	plain := word != ""
	for _, c := range []byte(word) {
		plain = plain && (c == '_' || c == '-' || c == '.' || c == '/' || c == ',' || c == ':' || c == '@' || c == '+' || c == '%' ||
			'0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if plain && !keywords[word] {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// keywords are the words that bash reads as syntax where a command may begin.
var keywords = map[string]bool{
	"if": true, "then": true, "else": true, "elif": true, "fi": true, "case": true, "esac": true, "for": true, "select": true,
	"while": true, "until": true, "do": true, "done": true, "in": true, "function": true, "time": true, "coproc": true,
}

// visible returns the text with whatever does not print as itself (control
// characters, line ends, invisible and direction-changing characters) escaped.
func visible(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			b.WriteString(text[i : i+size])
		} else {
			escaped := strconv.QuoteToASCII(text[i : i+size])
			b.WriteString(escaped[1 : len(escaped)-1])
		}
		i += size
	}
	return b.String()
}

// excerptWidth is how many characters of a line are shown around a place.
const excerptWidth = 72

// pointAt returns two lines: that of the command in which the place lies, or the
// part of it around the place, and a caret below the place.
func pointAt(command string, at *api.At) string {
	lines := strings.Split(command, "\n")
	if at.Line < 1 || at.Line > len(lines) || at.Column < 1 {
		return ""
	}
	line := lines[at.Line-1]
	column := min(at.Column-1, len(line))
	before := []rune(visible(line[:column]))
	after := []rune(visible(line[column:]))
	if len(before) > excerptWidth/2 {
		before = append([]rune("…"), before[len(before)-excerptWidth/2:]...)
	}
	if room := excerptWidth - len(before); len(after) > room {
		after = append(after[:room:room], '…')
	}
	text, _, _ := strings.Cut(at.Text, "\n")
	carets := max(1, min(utf8.RuneCountInString(visible(text)), len(after)))
	return fmt.Sprintf("  | %s%s\n  | %s%s\n", string(before), string(after),
		strings.Repeat(" ", len(before)), strings.Repeat("^", carets))
}

// explain returns the error for a person: what, where, by which rule, and what
// to do.
func explain(e *api.Error, command string) string {
	var b strings.Builder
	switch e.Code {
	case api.PermissionDenied:
		b.WriteString("denied: ")
	case api.ApprovalRequired, api.ApprovalDenied, api.ApprovalTimeout, api.ApprovalStale:
		b.WriteString("not approved: ")
	case api.ParseError:
		b.WriteString("cannot be parsed: ")
	}
	b.WriteString(visible(e.Message))
	b.WriteByte('\n')
	if e.At != nil {
		b.WriteString(pointAt(command, e.At))
		fmt.Fprintf(&b, "  at line %d, column %d", e.At.Line, e.At.Column)
		if e.Rule != "" {
			fmt.Fprintf(&b, " (rule %s)", visible(e.Rule))
		}
		b.WriteByte('\n')
	}
	if e.RecommendedAction != "" {
		fmt.Fprintf(&b, "  what to do: %s\n", visible(e.RecommendedAction))
	}
	return b.String()
}

// grantInWords says what a grant permits.
func grantInWords(g *api.Grant) string {
	write := "nothing in the project"
	if len(g.Write) > 0 {
		places := make([]string, len(g.Write))
		for i, p := range g.Write {
			places[i] = visible(p)
			if p == "." {
				places[i] = "the whole project"
			}
		}
		write = strings.Join(places, ", ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "may write: %s (and the session's own /tmp)\n", write)
	if len(g.Protected) > 0 {
		fmt.Fprintf(&b, "may write, though protected: %s\n", visible(strings.Join(g.Protected, ", ")))
	}
	fmt.Fprintf(&b, "may run:   %s\n", programsInWords(g))
	network := "none but the session's own loopback"
	if !g.ExecAny {
		network = "none"
	}
	if len(g.Net.Hosts) > 0 {
		network = visible(strings.Join(g.Net.Hosts, ", "))
	}
	fmt.Fprintf(&b, "network:   %s\n", network)
	return b.String()
}

func programsInWords(g *api.Grant) string {
	if g.ExecAny {
		return "any program that the sandbox shows"
	}
	names := []string{"bash"}
	for _, p := range g.Exec {
		if name := visible(filepath.Base(p)); name != "bash" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
