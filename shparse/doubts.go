package shparse

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// checkComments finds comments that only the parser sees as it does: one whose
// last character is a backslash, which joins the next line for the parser
// alone, and one that begins right behind a word, of which it is a part for
// every shell.
func checkComments(text string, lang syntax.LangVariant) (doubts []Doubt) {
	if !suspicious(text) {
		return nil
	}
	file, err := syntax.NewParser(syntax.Variant(lang), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil // the same error was already reported
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		c, ok := n.(*syntax.Comment)
		if !ok {
			return true
		}
		hash := int(c.Hash.Offset())
		line, _, _ := strings.Cut(text[min(hash, len(text)):], "\n")
		if strings.HasSuffix(line, "\\") {
			doubts = append(doubts, Doubt{Kind: Ambiguous, Offset: hash, End: hash + len(line),
				Message: "comment that ends in a backslash"})
		}
		if !beginsWord(text, hash) {
			doubts = append(doubts, Doubt{Kind: Ambiguous, Offset: hash, End: hash + len(line),
				Message: "comment that begins inside a word"})
		}
		return true
	})
	return doubts
}

// suspicious reports whether the text may hold a comment that is read in two
// ways, so that comments must be looked at.
func suspicious(text string) bool {
	if strings.Contains(text, "\\\n") && strings.Contains(text, "#") {
		return true
	}
	for i := 0; i < len(text); i++ {
		if text[i] == '#' && !beginsWord(text, i) && !strings.ContainsRune("${\\", rune(text[i-1])) {
			return true
		}
	}
	return false
}

// beginsWord reports whether what stands at the offset can begin a word.
func beginsWord(text string, offset int) bool {
	return offset == 0 || strings.IndexByte(" \t\n;&|()<>", text[min(offset, len(text))-1]) >= 0
}

// checkContinuations finds lines that are joined right behind the beginning of
// an operator or an expansion: where "$(" is followed by a joined "(", shells
// see "$((" and the parser does not.
func checkContinuations(text string) (doubts []Doubt) {
	for at := 0; ; {
		i := strings.Index(text[at:], "\\\n")
		if i < 0 {
			return doubts
		}
		i += at
		at = i + 2
		if i > 0 && at < len(text) && strings.IndexByte("$({<>&|!`[", text[i-1]) >= 0 && strings.IndexByte(" \t\n", text[at]) < 0 {
			doubts = append(doubts, Doubt{Kind: Ambiguous, Offset: i - 1, End: at + 1,
				Message: "line that is continued inside an operator"})
		}
	}
}

// A checker walks a tree to find what shells read differently from the parser,
// and how deeply it is nested. Chains of commands are walked without recursion,
// since they may be long.
type checker struct {
	text     string
	doubts   []Doubt
	depth    int
	commands int
	count    int    // of words
	over     *Error // the bound that the tree is beyond

	quoted    bool // in double quotes or in the body of a here-document
	inParam   bool // in a ${…} that is quoted
	inTest    bool // in [[ … ]]
	backquote bool // in a substitution with backquotes
}

// checkTree returns the doubts about the tree of a text, or the bound that the
// tree is beyond.
func checkTree(text string, stmts []*syntax.Stmt) ([]Doubt, *Error) {
	c := checker{text: text}
	c.stmts(stmts)
	return c.doubts, c.over
}

func (c *checker) doubt(n syntax.Node, message string) {
	c.doubts = append(c.doubts, Doubt{Kind: Ambiguous, Offset: int(n.Pos().Offset()), End: int(n.End().Offset()), Message: message})
}

// exceed notes the first bound that the tree is beyond.
func (c *checker) exceed(n syntax.Node, format string, limit int) {
	if c.over == nil {
		c.over = tooLarge(c.text, int(n.Pos().Offset()), fmt.Sprintf(format, limit))
	}
}

// enter goes one level down and reports whether that is allowed.
func (c *checker) enter(n syntax.Node) bool {
	if c.depth == MaxNesting {
		c.exceed(n, "nested more than %d deep", MaxNesting)
	}
	if c.over != nil {
		return false
	}
	c.depth++
	return true
}

func (c *checker) leave() { c.depth-- }

// nested walks statements that are read afresh, whatever surrounds them.
func (c *checker) nested(n syntax.Node, stmts []*syntax.Stmt) {
	if !c.enter(n) {
		return
	}
	outer := *c
	c.quoted, c.inParam, c.inTest = false, false, false
	c.stmts(stmts)
	c.quoted, c.inParam, c.inTest = outer.quoted, outer.inParam, outer.inTest
	c.leave()
}

func (c *checker) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		c.stmt(s)
	}
}

func (c *checker) stmt(s *syntax.Stmt) {
	for s != nil && c.over == nil {
		if c.commands++; c.commands > MaxCommands {
			c.exceed(s, "more than %d commands", MaxCommands)
		}
		for _, r := range s.Redirs {
			c.redirect(r)
		}
		b, ok := s.Cmd.(*syntax.BinaryCmd)
		if !ok {
			c.command(s.Cmd)
			return
		}
		if _, timed := b.Y.Cmd.(*syntax.TimeClause); timed && isPipe(b) {
			c.doubt(b.Y, "time inside a pipeline, which is a program there")
		}
		c.stmt(b.Y)
		s = b.X
	}
}

func (c *checker) command(cmd syntax.Command) {
	switch n := cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		c.assigns(n.Assigns)
		c.words(n.Args)
	case *syntax.DeclClause:
		c.assigns(n.Args)
	case *syntax.Block:
		c.nested(n, n.Stmts)
	case *syntax.Subshell:
		c.nested(n, n.Stmts)
	default:
		c.compound(cmd)
	}
}

func (c *checker) compound(cmd syntax.Command) {
	if !c.enter(cmd) {
		return
	}
	defer c.leave()
	switch n := cmd.(type) {
	case *syntax.IfClause:
		for ; n != nil; n = n.Else {
			c.stmts(n.Cond)
			c.stmts(n.Then)
		}
	case *syntax.WhileClause:
		c.stmts(n.Cond)
		c.stmts(n.Do)
	case *syntax.ForClause:
		c.loop(n)
	case *syntax.CaseClause:
		c.word(n.Word)
		for _, item := range n.Items {
			c.words(item.Patterns)
			c.stmts(item.Stmts)
		}
	case *syntax.FuncDecl:
		if n.Name == nil || !plainWord(n.Name.Value) {
			c.doubt(n, "function name with special characters")
		}
		c.stmt(n.Body)
	case *syntax.ArithmCmd:
		c.arithm(n.X)
	case *syntax.TestClause:
		c.inTest = true
		c.test(n.X)
		c.inTest = false
	case *syntax.LetClause:
		for _, x := range n.Exprs {
			c.arithm(x)
		}
	case *syntax.TimeClause:
		c.stmt(n.Stmt)
	case *syntax.CoprocClause:
		c.word(n.Name)
		c.stmt(n.Stmt)
	}
}

func (c *checker) loop(n *syntax.ForClause) {
	switch l := n.Loop.(type) {
	case *syntax.WordIter:
		c.words(l.Items)
	case *syntax.CStyleLoop:
		c.arithm(l.Init)
		c.arithm(l.Cond)
		c.arithm(l.Post)
	}
	c.stmts(n.Do)
}

func (c *checker) assigns(list []*syntax.Assign) {
	for _, a := range list {
		c.arithm(a.Index)
		c.word(a.Value)
		if a.Array == nil {
			continue
		}
		for _, e := range a.Array.Elems {
			c.arithm(e.Index)
			c.word(e.Value)
		}
	}
}

func (c *checker) words(list []*syntax.Word) {
	for _, w := range list {
		c.word(w)
	}
}

func (c *checker) word(w *syntax.Word) {
	if w == nil {
		return
	}
	if c.count++; c.count > MaxWords {
		c.exceed(w, "more than %d words", MaxWords)
	}
	for _, part := range w.Parts {
		if _, ok := part.(*syntax.Lit); !ok {
			c.part(part)
		}
	}
}

func (c *checker) part(part syntax.WordPart) {
	switch p := part.(type) {
	case *syntax.SglQuoted:
		if c.inParam {
			c.doubt(p, "single quotes inside ${…} inside double quotes or a here-document")
		}
	case *syntax.DblQuoted:
		if p.Dollar {
			c.doubt(p, "text that is translated before it is used")
		}
		c.inQuotes(p, p.Parts)
	case *syntax.ParamExp:
		c.param(p)
	case *syntax.CmdSubst:
		if p.TempFile || p.ReplyVar {
			c.doubt(p, "substitution that only Bash 5.3 knows")
		}
		outer := c.backquote
		c.backquote = c.backquote || p.Backquotes
		c.nested(p, p.Stmts)
		c.backquote = outer
	case *syntax.ProcSubst:
		c.nested(p, p.Stmts)
	case *syntax.ArithmExp:
		if c.enter(p) {
			c.arithm(p.X)
			c.leave()
		}
	case *syntax.ExtGlob:
		switch {
		case !c.inTest:
			c.doubt(p, "extended pattern, which bash does not read unless extglob is set")
		case strings.ContainsAny(p.Pattern.Value, "$`") || strings.Contains(p.Pattern.Value, "<(") || strings.Contains(p.Pattern.Value, ">("):
			c.doubt(p, "extended pattern with an expansion in it")
		}
	}
}

// inQuotes walks what stands in double quotes or in a here-document.
func (c *checker) inQuotes(n syntax.Node, parts []syntax.WordPart) {
	if !c.enter(n) {
		return
	}
	outer := c.quoted
	c.quoted = true
	for _, part := range parts {
		c.part(part)
	}
	c.quoted = outer
	c.leave()
}

func (c *checker) param(p *syntax.ParamExp) {
	if p.Short && p.Index == nil {
		return
	}
	if !c.enter(p) {
		return
	}
	defer c.leave()
	outer := c.inParam
	c.inParam = c.inParam || c.quoted
	c.arithm(p.Index)
	if p.Slice != nil {
		c.arithm(p.Slice.Offset)
		c.arithm(p.Slice.Length)
	}
	if p.Repl != nil {
		c.word(p.Repl.Orig)
		c.word(p.Repl.With)
	}
	if p.Exp != nil {
		c.word(p.Exp.Word)
	}
	c.inParam = outer
}

func (c *checker) arithm(x syntax.ArithmExpr) {
	for x != nil && c.over == nil {
		switch n := x.(type) {
		case *syntax.Word:
			c.word(n)
			return
		case *syntax.BinaryArithm:
			if c.enter(n) {
				c.arithm(n.Y)
				c.leave()
			}
			x = n.X
		case *syntax.UnaryArithm:
			c.inner(n, n.X)
			return
		case *syntax.ParenArithm:
			c.inner(n, n.X)
			return
		default:
			return
		}
	}
}

func (c *checker) inner(n syntax.Node, x syntax.ArithmExpr) {
	if c.enter(n) {
		c.arithm(x)
		c.leave()
	}
}

func (c *checker) test(x syntax.TestExpr) {
	switch n := x.(type) {
	case nil:
	case *syntax.Word:
		c.word(n)
	case *syntax.BinaryTest:
		if c.enter(n) {
			c.test(n.X)
			c.test(n.Y)
			c.leave()
		}
	case *syntax.UnaryTest:
		if c.enter(n) {
			c.test(n.X)
			c.leave()
		}
	case *syntax.ParenTest:
		if c.enter(n) {
			c.test(n.X)
			c.leave()
		}
	}
}

func (c *checker) redirect(r *syntax.Redirect) {
	c.word(r.Word)
	if r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc {
		return
	}
	c.heredoc(r)
	if r.Hdoc != nil {
		c.inQuotes(r.Hdoc, r.Hdoc.Parts)
	}
}

// heredoc doubts delimiters and bodies whose end shells could see elsewhere.
func (c *checker) heredoc(r *syntax.Redirect) {
	delimiter, isQuoted, plain := delimiterOf(r.Word)
	switch {
	case !plain || !plainWord(delimiter):
		c.doubt(r, "here-document with an unusual delimiter")
		return
	case c.backquote:
		c.doubt(r, "here-document inside backquotes")
		return
	case isQuoted || r.Hdoc == nil:
		return
	}
	body := c.text[min(int(r.Hdoc.Pos().Offset()), len(c.text)):min(int(r.Hdoc.End().Offset()), len(c.text))]
	if joinsDelimiter(body, delimiter) {
		c.doubt(r, "here-document with a line that ends in a backslash next to its end")
	}
}

// joinsDelimiter reports whether a line of the body that ends in a backslash
// could make the delimiter with the next one: bash joins lines before it looks
// for the delimiter, the parser after.
func joinsDelimiter(body, delimiter string) bool {
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	for i, line := range lines {
		text := strings.TrimRight(line, "\\")
		if (len(line)-len(text))%2 == 0 {
			continue
		}
		start := strings.TrimLeft(line[:len(line)-1], "\t")
		if i+1 < len(lines) && strings.HasPrefix(delimiter, start) {
			return true
		}
	}
	return false
}

// delimiterOf returns the delimiter of a here-document and whether any of it
// is quoted. It is plain when it is one literal, or one quoted string.
func delimiterOf(w *syntax.Word) (text string, quoted, plain bool) {
	if w == nil || len(w.Parts) != 1 {
		return "", true, false
	}
	switch p := w.Parts[0].(type) {
	case *syntax.Lit:
		return p.Value, false, true
	case *syntax.SglQuoted:
		return p.Value, true, !p.Dollar
	case *syntax.DblQuoted:
		if len(p.Parts) == 1 && !p.Dollar {
			if lit, ok := p.Parts[0].(*syntax.Lit); ok {
				return lit.Value, true, true
			}
		}
	}
	return "", true, false
}

// plainWord reports whether the text is of characters that no shell treats
// specially.
func plainWord(text string) bool {
	for i := 0; i < len(text); i++ {
		b := text[i]
		if b >= 0x80 || !(b == '_' || b == '-' || b == '.' || b == ':' || b == '+' || b == '/' || b == '@' || b == ',' ||
			'0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z') {
			return false
		}
	}
	return text != ""
}
