// Package wrapper recognises what coding agents write around the command of the
// model before they hand it to a shell: a snapshot that is sourced, a file that
// the directory is written to, a trap. The command alone is what has to be judged
// and run; the rest is the agent's own, and names files of the agent's outside the
// project.
//
// The templates are data: one file of shell text for each form that was seen, with
// the agent and its version. Text is an agent's wrapper only when its syntax tree
// equals a template's but for the places that the template names. Anything else is
// not unwrapped, and judged as it was written.
//
// A wrapper that is recognised widens nothing: the command in it is judged like any
// other. What a template lets a client do besides is to write the files that the
// template names, in the one place and by the one name that its pattern allows.
package wrapper

import (
	"embed"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// maxText is the most bytes of text in which a wrapper is looked for.
const maxText = 1 << 20

// place begins the words of a template that stand for something.
const place = "PINFOLD_"

// The places that a template may have. Each but the command is a word whose value
// matches the pattern in the template's head.
const (
	command  = "command"
	snapshot = "snapshot"  // a file that would be sourced: what it sets does not exist where the command runs
	finalDir = "final_dir" // a file for the directory in which the command ended, written when its status is 0
	children = "children"  // a file for the ids of the processes that are left
)

//go:embed templates/*.sh
var templates embed.FS

// A Wrapper is what was found around a command.
type Wrapper struct {
	Template string // its name
	Agent    string
	Seen     string // version of the agent in which it was seen
	Command  string // what has to be judged and run
	// NoStdin says that the command reads from /dev/null.
	NoStdin  bool
	FinalDir string // file to write the last directory to, "" for none
	Children string // file to write the children's ids to, "" for none
}

// A template is one form of wrapper.
type template struct {
	name, agent, seen string
	noStdin           bool
	patterns          map[string]*regexp.Regexp // by place
	tree              *syntax.File
}

var load = sync.OnceValues(func() ([]*template, error) {
	names, err := fs.Glob(templates, "templates/*.sh")
	if err != nil {
		return nil, err
	}
	var all []*template
	for _, name := range names {
		text, err := templates.ReadFile(name)
		if err != nil {
			return nil, err
		}
		t, err := parseTemplate(strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".sh"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, t)
	}
	return all, nil
})

// parseTemplate reads a template: a head of comments, "# name: value", and text.
func parseTemplate(name, text string) (*template, error) {
	t := &template{name: name, patterns: map[string]*regexp.Regexp{}, noStdin: strings.Contains(text, place+command+" < /dev/null")}
	for strings.HasPrefix(text, "# ") {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		key, value, ok := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
		switch {
		case !ok:
			return nil, fmt.Errorf("%q is not name: value", line)
		case key == "agent":
			t.agent = value
		case key == "seen":
			t.seen = value
		case key == snapshot || key == finalDir || key == children:
			pattern, err := regexp.Compile(value)
			if err != nil {
				return nil, err
			}
			t.patterns[key] = pattern
		default:
			return nil, fmt.Errorf("%q is no place", key)
		}
	}
	var err error
	t.tree, err = parse(text)
	return t, err
}

func parse(text string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
}

// Unwrap returns what an agent has put around a command, or nil when the text is
// not exactly a template.
func Unwrap(text string) (*Wrapper, error) {
	all, err := load()
	if err != nil || len(text) > maxText || strings.ContainsRune(text, 0) {
		return nil, err
	}
	if !couldBe(text) {
		return nil, nil
	}
	tree, err := parse(text)
	if err != nil {
		return nil, nil // the daemon says what is wrong with it
	}
	for _, t := range all {
		m := match{t: t, text: text, found: map[string]string{}}
		if !m.stmts(t.tree.Stmts, tree.Stmts, 0, uint(len(text))) || m.found[command] == "" {
			continue
		}
		return &Wrapper{
			Template: t.name, Agent: t.agent, Seen: t.seen, Command: m.found[command], NoStdin: t.noStdin,
			FinalDir: m.found[finalDir], Children: m.found[children],
		}, nil
	}
	return nil, nil
}

// couldBe reports whether it is worth parsing the text: every wrapper has one of
// these words.
func couldBe(text string) bool {
	return strings.Contains(text, `\builtin`) || strings.Contains(text, "_bgpids_file")
}

// A match compares a template's tree with a text's.
type match struct {
	t     *template
	text  string
	found map[string]string // values by place
}

// stmts compares lists of statements that lie in text[from:to]. A statement of the
// template that is the place of the command stands for one or more.
func (m *match) stmts(want, got []*syntax.Stmt, from, to uint) bool {
	for i, w := range want {
		if placeOfStmt(w) != command {
			continue
		}
		after := len(want) - i - 1
		n := len(got) - i - after
		if n < 1 || !m.each(want[:i], got[:i]) || !m.each(want[i+1:], got[i+n:]) {
			return false
		}
		if i > 0 {
			from = got[i-1].End().Offset()
		}
		if after > 0 {
			to = got[i+n].Pos().Offset()
		}
		return m.take(got[i:i+n], from, to)
	}
	return m.each(want, got)
}

// take takes the text between two places as the command, when it reads alone as it
// does there.
func (m *match) take(got []*syntax.Stmt, from, to uint) bool {
	text := strings.Trim(m.text[from:to], "\n")
	alone, err := parse(text)
	if err != nil || len(alone.Stmts) != len(got) {
		return false
	}
	same := match{t: &template{}}
	if !same.each(alone.Stmts, got) {
		return false
	}
	return m.put(command, text)
}

func (m *match) each(want, got []*syntax.Stmt) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !m.equal(reflect.ValueOf(want[i]), reflect.ValueOf(got[i])) {
			return false
		}
	}
	return true
}

var (
	posType      = reflect.TypeFor[syntax.Pos]()
	wordType     = reflect.TypeFor[*syntax.Word]()
	subshellType = reflect.TypeFor[*syntax.Subshell]()
)

// equal compares two nodes, all but where they are. Comments are not in the trees.
func (m *match) equal(want, got reflect.Value) bool {
	if want.Type() != got.Type() {
		return false
	}
	switch {
	case want.Type() == posType:
		// whether there is one tells "$(" from a backquote, and ";" from none
		return want.Interface().(syntax.Pos).IsValid() == got.Interface().(syntax.Pos).IsValid()
	case want.Type() == wordType && !want.IsNil() && !got.IsNil():
		if name := placeOf(want.Interface().(*syntax.Word)); name != "" {
			value, known := literal(got.Interface().(*syntax.Word))
			return known && m.put(name, value)
		}
	case want.Type() == subshellType && !want.IsNil() && !got.IsNil():
		w, g := want.Interface().(*syntax.Subshell), got.Interface().(*syntax.Subshell)
		return m.stmts(w.Stmts, g.Stmts, g.Lparen.Offset()+1, g.Rparen.Offset())
	}
	switch want.Kind() {
	case reflect.Pointer, reflect.Interface:
		if want.IsNil() || got.IsNil() {
			return want.IsNil() == got.IsNil()
		}
		return m.equal(want.Elem(), got.Elem())
	case reflect.Struct:
		for i := range want.NumField() {
			if !m.equal(want.Field(i), got.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if want.Len() != got.Len() {
			return false
		}
		for i := range want.Len() {
			if !m.equal(want.Index(i), got.Index(i)) {
				return false
			}
		}
		return true
	default:
		return want.Equal(got)
	}
}

// put notes the value of a place. A place may be there once.
func (m *match) put(name, value string) bool {
	if _, twice := m.found[name]; twice || strings.TrimSpace(value) == "" {
		return false
	}
	if name != command {
		if pattern := m.t.patterns[name]; pattern == nil || !pattern.MatchString(value) || strings.Contains(value, "/../") {
			return false
		}
	}
	m.found[name] = value
	return true
}

// placeOf returns the place that a word of a template is, "" for none.
func placeOf(w *syntax.Word) string {
	name, ok := strings.CutPrefix(w.Lit(), place)
	if !ok {
		return ""
	}
	return name
}

func placeOfStmt(s *syntax.Stmt) string {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) != 1 || len(call.Assigns) > 0 || len(s.Redirs) > 0 {
		return ""
	}
	return placeOf(call.Args[0])
}

// literal returns the value of a word in which nothing is expanded.
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "~*?[{") {
				return "", false
			}
			unescape(&b, p.Value, "")
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok || p.Dollar {
					return "", false
				}
				unescape(&b, lit.Value, "$`\"\\\n")
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

// unescape writes what backslashes leave of s: in double quotes only those before
// one of special count, outside of quotes, where special is "", all.
func unescape(b *strings.Builder, s, special string) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) || special != "" && strings.IndexByte(special, s[i+1]) < 0 {
			b.WriteByte(s[i])
			continue
		}
		if i++; s[i] != '\n' {
			b.WriteByte(s[i])
		}
	}
}
