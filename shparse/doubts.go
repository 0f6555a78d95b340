package shparse

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxDepth bounds the depth of the tree: a chain of commands is a tree that
// leans to the left, two nodes a command.
const maxDepth = 40_000

// tooDeep returns the offset at which the tree is nested too deeply, or -1.
func tooDeep(file *syntax.File) int {
	at, nested := -1, 0
	var path []bool
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			if last := len(path) - 1; last >= 0 {
				if path[last] {
					nested--
				}
				path = path[:last]
			}
			return true
		}
		group := nests(n)
		path = append(path, group)
		if group {
			nested++
		}
		if at < 0 && (nested > MaxNesting || len(path) > maxDepth) {
			at = int(n.Pos().Offset())
		}
		return true
	})
	return at
}

// nests reports whether what is inside the node is one level deeper.
func nests(n syntax.Node) bool {
	switch n.(type) {
	case *syntax.Subshell, *syntax.Block, *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ArithmCmd,
		*syntax.ParenArithm, *syntax.UnaryArithm, *syntax.ParenTest, *syntax.UnaryTest, *syntax.TestClause,
		*syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause, *syntax.FuncDecl,
		*syntax.TimeClause, *syntax.CoprocClause, *syntax.ParamExp, *syntax.DblQuoted:
		return true
	}
	return false
}

// checkComments finds comments whose last character is a backslash: the parser
// joins the next line, no shell does.
func checkComments(text string, lang syntax.LangVariant) (doubts []Doubt) {
	if !strings.Contains(text, "#") || !strings.Contains(text, "\\\n") {
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
		return true
	})
	return doubts
}

// checkTree finds what shells read differently from the parser.
func checkTree(file *syntax.File) []Doubt {
	c := checker{}
	syntax.Walk(file, c.visit)
	return c.doubts
}

type checker struct {
	doubts []Doubt
	path   []syntax.Node
}

func (c *checker) doubt(n syntax.Node, message string) {
	c.doubts = append(c.doubts, Doubt{Kind: Ambiguous, Offset: int(n.Pos().Offset()), End: int(n.End().Offset()), Message: message})
}

func (c *checker) visit(n syntax.Node) bool {
	if n == nil {
		c.path = c.path[:len(c.path)-1]
		return true
	}
	switch n := n.(type) {
	case *syntax.SglQuoted:
		if c.quotedDefault() {
			c.doubt(n, "single quotes inside ${…} inside double quotes or a here-document")
		}
	case *syntax.ExtGlob:
		if !c.inTest() {
			c.doubt(n, "extended pattern, which bash does not read unless extglob is set")
		}
	case *syntax.Redirect:
		if n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc {
			c.heredoc(n)
		}
	case *syntax.CmdSubst:
		if n.TempFile || n.ReplyVar {
			c.doubt(n, "substitution that only Bash 5.3 knows")
		}
	case *syntax.FuncDecl:
		if n.Name == nil || !plainWord(n.Name.Value) {
			c.doubt(n, "function name with special characters")
		}
	}
	c.path = append(c.path, n)
	return true
}

// quotedDefault reports whether the node being visited stands in a ${…} that
// itself stands in double quotes or in the body of a here-document.
func (c *checker) quotedDefault() bool {
	inParam := false
	for i := len(c.path) - 1; i >= 0; i-- {
		switch n := c.path[i].(type) {
		case *syntax.ParamExp:
			inParam = true
		case *syntax.DblQuoted:
			return inParam
		case *syntax.Redirect:
			return inParam && n.Hdoc != nil && i+1 < len(c.path) && c.path[i+1] == syntax.Node(n.Hdoc)
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.Stmt:
			return false
		}
	}
	return false
}

func (c *checker) inTest() bool {
	for i := len(c.path) - 1; i >= 0; i-- {
		switch c.path[i].(type) {
		case *syntax.TestClause:
			return true
		case *syntax.Stmt:
			return false
		}
	}
	return false
}

// heredoc doubts delimiters and bodies whose end shells could see elsewhere.
func (c *checker) heredoc(r *syntax.Redirect) {
	delimiter, quoted, plain := delimiterOf(r.Word)
	if !plain || !plainWord(delimiter) {
		c.doubt(r, "here-document with an unusual delimiter")
		return
	}
	for _, n := range c.path {
		if s, ok := n.(*syntax.CmdSubst); ok && s.Backquotes {
			c.doubt(r, "here-document inside backquotes")
			return
		}
	}
	if quoted || r.Hdoc == nil {
		return
	}
	for _, part := range r.Hdoc.Parts {
		if lit, ok := part.(*syntax.Lit); ok && strings.Contains(lit.Value, "\\\n") {
			c.doubt(r, "here-document with a line that ends in a backslash")
			return
		}
	}
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
