package shparse

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// The canonical text is a fixed point: parsing and printing it changes nothing.
func TestCanonicalTextIsAFixedPoint(t *testing.T) {
	for _, text := range []string{
		"ls", "ls;", "ls   -la   ", "ls&&pwd", "a=1 b=2   >x cmd <y", "echo `ls`", "echo $[1+2]", "function f { ls; }",
		"for x in a; { ls; }", "cat <<E\n$x\nE", "cat <<-E\n\tx\n\tE", "if true;then ls;fi", "# only a comment", "",
		"echo a # comment", "case x in (a|b) ls;; *) pwd;& esac", "! ls | wc", "ls & pwd &", "(ls;pwd)", "a\\\nb",
		"cat <<'A' <<B\nx\nA\ny\nB", "((x=1+2))", "[[ a == b && -f c ]]", "time -p ls", "coproc x { ls; }", "x=(1 2\n3)",
		"echo \"$(cat <<E\nhi\nE\n)\"", "while read x; do echo $x; done < f", "select x in a; do break; done",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		again, err := Parse(s.Text)
		if err != nil {
			t.Errorf("%q: canonical text %q: %v", text, s.Text, err)
			continue
		}
		if again.Text != s.Text {
			t.Errorf("%q: canonical text %q becomes %q", text, s.Text, again.Text)
		}
		if !sameShape(s.stmts, again.stmts) {
			t.Errorf("%q: canonical text %q is another script", text, s.Text)
		}
		for _, d := range s.Doubts {
			t.Errorf("%q: doubt: %s", text, d.Message)
		}
	}
}

// Errors say where they are and of what kind.
func TestErrors(t *testing.T) {
	for _, row := range []struct {
		text         string
		line, column int
		kind         Kind
	}{
		{"ls (", 1, 1, Syntax},
		{"ls\nif true", 2, 1, Syntax},
		{"echo 'a", 1, 6, Syntax},
		{"ls &&", 1, 4, Syntax},
		{"a\nb\x00c", 2, 2, Encoding},
		{"echo \xff", 1, 6, Encoding},
		{strings.Repeat("a", MaxBytes+1), 1, 1, TooLarge},
		{strings.Repeat("(", 300) + "ls" + strings.Repeat(")", 300), 1, 130, TooLarge},
	} {
		_, err := Parse(row.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.40q: error %v, want an *Error", row.text, err)
			continue
		}
		if e.Line != row.line || e.Column != row.column || e.Kind != row.kind {
			t.Errorf("%.40q: %d:%d %s (%s), want %d:%d %s", row.text, e.Line, e.Column, e.Kind, e.Message, row.line, row.column, row.kind)
		}
		if strings.HasSuffix(e.Message, ".") || len(e.Text) > 80 {
			t.Errorf("%.40q: message %q, text %q", row.text, e.Message, e.Text)
		}
	}
}

// What shells read differently from the parser is doubted, and what only looks
// like it is not.
func TestDoubts(t *testing.T) {
	for text, doubted := range map[string]bool{
		"echo ok #note\\\ntouch x":                      true,
		"echo ok # note \\\\\nls":                       true,
		"echo 'a # b\\\nc'":                             false,
		"echo $(a `ls`# x || ls\n)":                     true,
		"echo `ls`#x; ls":                               false,
		"echo \"a\"#b 'c'#d e#f ${x#y} $# ${#x}":        false,
		"echo $(\\\n(x))":                               true,
		"echo \"$\\\n(ls)\"":                            true,
		"ls &&\\\n  pwd | \\\nwc \\\n-l":                false,
		"(ls)#x":                                        false,
		"ls;#x":                                         false,
		"echo a#b\\\nc":                                 false,
		"# comment\necho a \\\n b":                      false,
		"echo \"${x:-'a'}\"":                            true,
		"echo \"${x:-$'a'}\"":                           true,
		"cat <<E\n${x:-'a'}\nE":                         true,
		"echo ${x:-'a'}":                                false,
		"echo \"$(echo 'a' ${x:-'b'})\"":                false,
		"echo \"${x:-$(echo 'a')}\"":                    false,
		"cat <<$'E'\nE\n":                               true,
		"cat <<E\\F\nEF\n":                              true,
		"cat <<'E'\nx\\\nE\n":                           false,
		"cat <<E\nx\\\nE\nE\n":                          false,
		"echo `cat <<E\nE\n`":                           true,
		"echo !(a|b)":                                   true,
		"[[ a == !(a|b) ]]":                             false,
		"A=1\recho x":                                   true,
		"echo a \\\r\nls":                               true,
		"echo a\vb":                                     true,
		"echo '\x1b[0m'":                                true,
		"l\u200bs":                                      true,
		"echo ok \u202e; ls":                            true,
		"ls\u00a0-l":                                    true,
		"echo 'déjà 文件 🙂'":                              false,
		"echo $\"a\"":                                   true,
		"echo ${ ls; }":                                 true,
		"f.x+y() { ls; }":                               false,
		"cat <<-EOF\n\tplain text, it's fine\n\tEOF":    false,
		"if true; then cat <<-E\n\t\tx\n\tE\nfi":        false,
		"cat > n.md <<'EOF'\n# T\nrun `x` && y $5\nEOF": false,
	} {
		s, err := Parse(text)
		if err != nil {
			if !doubted {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if got := len(s.Doubts) > 0; got != doubted {
			t.Errorf("%q: doubts %v, want any: %v", text, s.Doubts, doubted)
		}
	}
}

// Text for sh that bash would read differently is doubted.
func TestPOSIX(t *testing.T) {
	for text, doubted := range map[string]bool{
		"ls | wc -l":                false,
		"echo $'a'":                 true,
		"echo $\"a\"":               true,
		"x=(a)":                     true,
		"[[ a == b ]]":              true,
		"ls &> x":                   true,
		"echo <(ls)":                true,
		"for i in 1 2; do ls; done": false,
		"function f { ls; }":        true,
		"f() { ls; }; f":            false,
		"echo ${x//a/b}":            true,
		"cat <<< x":                 true,
		"let x=1":                   true,
	} {
		s, err := ParsePOSIX(text)
		if err != nil {
			if !doubted {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if got := len(s.Doubts) > 0; got != doubted {
			t.Errorf("%q: doubts %v, want any: %v", text, s.Doubts, doubted)
		}
	}
}

// Hostile sizes are answered or refused within 100 ms, and never overflow the
// stack.
func TestHostileSizes(t *testing.T) {
	rep := strings.Repeat
	for name, text := range map[string]string{
		"parentheses":        rep("(", 10_000) + "ls" + rep(")", 10_000),
		"many parentheses":   rep("(", MaxBytes),
		"quoted closers":     rep("( \")\" ", 150_000),
		"substitutions":      rep("$(", 100_000),
		"quotes":             rep("\"$(", 100_000),
		"backquotes":         rep("`", 500_000),
		"escaped backquotes": "`" + rep("\\`", 100_000),
		"ifs":                rep("if ", 300_000),
		"whiles":             rep("while ", 150_000),
		"negations":          rep("! ", 300_000),
		"times":              rep("time ", 200_000),
		"functions":          rep("f() ", 200_000),
		"braces":             rep("{ ", 300_000),
		"arithmetic nots":    "((" + rep("!", 900_000),
		"arithmetic parens":  "((" + rep("(", 500_000),
		"arithmetic plus":    "((" + rep("1+", 500_000) + "1))",
		"arithmetic assign":  "((" + rep("a=", 400_000) + "1))",
		"ternary":            "((" + rep("1?1:", 200_000) + "1))",
		"tests":              "[[ " + rep("! ", 400_000) + "a ]]",
		"test parens":        "[[ " + rep("( ", 400_000) + "a ]]",
		"test ands":          "[[ " + rep("a && ", 150_000) + "a ]]",
		"subscripts":         rep("a[", 300_000),
		"defaults":           rep("${x:-", 150_000),
		"pipes":              rep("a|", 500_000) + "a",
		"ands":               rep("a&&", 300_000) + "a",
		"semicolons":         rep("a;", 500_000),
		"words":              "echo " + rep("a ", 100_000),
		"one word":           "echo " + rep("a", MaxBytes-10),
		"brace words":        rep("{a,b}", 100_000),
		"brace nesting":      rep("{a,", 100_000) + rep("}", 100_000),
		"redirects":          "a " + rep(">x ", 300_000),
		"heredocs":           rep("cat <<E\nE\n", 90_000),
		"cases":              rep("case a in a) ", 70_000),
		"coprocs":            rep("coproc ", 140_000),
		"assignments":        rep("a=b ", 250_000),
		"lines":              rep("\n", MaxBytes),
		"dashes":             "cat <<'E'\n" + rep("-", 900_000) + "\nE",
	} {
		start := cpu(t)
		s, err := Parse(text)
		if err == nil {
			s.Read(hostWorld{}, Start{Dirs: []string{"/"}})
		}
		took := cpu(t) - start
		t.Logf("%s: %v", name, took)
		if took > slack*100*time.Millisecond {
			t.Errorf("%s: took %v (%.60v)", name, took, err)
		}
	}
}

// cpu returns the processor time that the test has used.
func cpu(t *testing.T) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// Every kind of node that the parser can make for Bash is known to the shape.
func TestShapeKnowsEveryNode(t *testing.T) {
	for _, text := range []string{
		"a=1 b[2]=3 c+=4 d=(1 [2]=3) >x", "a=1 ls >x", "a && b || c | d |& e", "(a); { b; }", "if a; then b; elif c; then d; else e; fi",
		"while a; do b; done; until a; do b; done", "for a in b; do c; done; for ((i=0;i<1;i++)); do a; done", "select a in b; do c; done",
		"case a in b|c) d;; e) f;& g) h;;& esac", "f() { a; }", "((a+b)); let a=1", "[[ -f a && ! b == c || ( d -nt e ) ]]",
		"declare -x a=1 b", "time a", "coproc a", "echo 'a' \"b$c\" $(d) `e` $((1+-2)) <(f) !(g) {h,i} $'j' ${k:1:2} ${l/m/n} ${o:-p} ${!q} ${#r} ${s[1]} ${!t*}",
		"cat <<A <<-B\n$x\nA\n\ty\n\tB",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if out := string(shapeOf(nil, s.stmts)); strings.Contains(out, "\x00?") {
			t.Errorf("%q: a node that the shape does not know", text)
		}
	}
}

// Scripts that differ have different shapes; spellings of one script have one.
func TestShapeTellsScriptsApart(t *testing.T) {
	parse := func(text string) []*syntax.Stmt {
		s, err := Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return s.stmts
	}
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"ls", "ls;", true}, {"`ls`", "$(ls)", true}, {"$[1]", "$((1))", true}, {"ls # x", "ls", true}, {"a\\\nb", "ab", true},
		{"ls", "pwd", false}, {"ls a", "ls 'a'", false}, {"ls a b", "ls ab", false}, {"a|b", "a&&b", false}, {"a", "! a", false},
		{"a >x", "a >>x", false}, {"a >x", "a 2>x", false}, {"a=b", "a+=b", false}, {"${a}", "${!a}", false}, {"a", "a &", false},
		{"$'a'", "'a'", false}, {"cat <<A\n$x\nA", "cat <<'A'\n$x\nA", false}, {"[[ a == b ]]", "[[ a != b ]]", false},
	} {
		if got := sameShape(parse(row.a), parse(row.b)); got != row.same {
			t.Errorf("%q and %q: same %v, want %v", row.a, row.b, got, row.same)
		}
	}
}

// Positions count lines from 1 and columns in bytes from 1.
func TestPosition(t *testing.T) {
	const text = "ab\ncdé\nf"
	for offset, want := range map[int][2]int{0: {1, 1}, 1: {1, 2}, 2: {1, 3}, 3: {2, 1}, 7: {2, 5}, 8: {3, 1}, 99: {3, 2}, -1: {1, 1}} {
		if line, column := Position(text, offset); line != want[0] || column != want[1] {
			t.Errorf("offset %d: %d:%d, want %v", offset, line, column, want)
		}
	}
	if got := Excerpt("a\nb", 0, 3); got != "a" {
		t.Errorf("excerpt crosses a line: %q", got)
	}
	if got := Excerpt(strings.Repeat("é", 60), 0, 120); len(got) > 80 || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("excerpt is cut inside a character: %q", got)
	}
}
