package shparse

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A generator makes scripts out of a stream of choices. Its words name no path
// outside the current directory and no command that could do harm: programs
// are called p, q and r, and do not exist.
type generator struct {
	choices []byte
	at      int
	depth   int
	posix   bool
}

func (g *generator) pick(n int) int {
	if g.at >= len(g.choices) {
		return 0
	}
	g.at++
	return int(g.choices[g.at-1]) % n
}

func (g *generator) of(list ...string) string { return list[g.pick(len(list))] }

func (g *generator) script() string {
	var b strings.Builder
	for range 1 + g.pick(3) {
		b.WriteString(g.command())
		b.WriteString(g.of("\n", "\n", "; ", " && ", " || ", " | ", " & ", "\n\n", " # c\n", ";\n"))
	}
	b.WriteString(g.simple())
	return b.String()
}

func (g *generator) command() string {
	if g.depth > 2 || g.at >= len(g.choices) {
		return g.simple()
	}
	g.depth++
	defer func() { g.depth-- }()
	switch g.pick(22) {
	case 0:
		return "( " + g.script() + "\n)"
	case 1:
		return "{ " + g.script() + "\n}"
	case 2:
		return "if " + g.simple() + "; then " + g.script() + "\nelse " + g.script() + "\nfi"
	case 3:
		return "for x in " + g.words() + "; do " + g.script() + "\ndone"
	case 4:
		return "while " + g.simple() + "; do " + g.script() + "\nbreak; done"
	case 5:
		return "case " + g.word() + " in " + g.of("a", "*", "a|b", "[ab]*", "'a'", "(a") + ") " + g.script() + "\n;; *) " + g.script() + "\n;; esac"
	case 6:
		return "f() { " + g.script() + "\n}\nf " + g.words()
	case 7:
		return "! " + g.simple()
	case 8:
		return "cat" + g.of(" <<E\n", " <<'E'\n", " <<-E\n", " <<\"E\"\n") + g.text() + "\nE\n" + g.simple()
	case 9:
		return "eval " + g.word()
	case 10:
		return "set -- " + g.words() + "; p \"$@\" $1 \"$2\""
	case 11:
		return "trap " + g.word() + " EXIT"
	case 12:
		return "unset x; p \"${x-" + g.of("a", "b c", "$y") + "}\""
	}
	if g.posix {
		return g.simple()
	}
	switch g.pick(12) {
	case 0:
		return "a=(" + g.words() + "); p \"${a[@]}\" ${a[1]} ${#a[@]}"
	case 1:
		return "[[ " + g.word() + g.of(" == ", " != ", " < ", " -eq ") + g.word() + " ]] && " + g.simple()
	case 2:
		return "(( x = 1 + " + g.of("2", "x", "y", "0$(p)", "a[1]") + " ))"
	case 3:
		return "read -r x <<< " + g.word() + "; p \"$x\""
	case 4:
		return "printf -v x %s " + g.word() + "; p \"$x\""
	case 5:
		return "function f { " + g.script() + "\n}; f " + g.word()
	case 6:
		return "declare " + g.of("x=", "-r z=", "-x y=", "-a a=") + g.word() + "; p \"$x\""
	case 7:
		return "time " + g.simple()
	case 8:
		return "f() { local x=" + g.word() + "; p $x; }; f; p $x"
	case 9:
		return "for ((i=0; i<1; i++)); do " + g.script() + "\ndone"
	case 10:
		return g.simple() + " > >(" + g.simple() + "); p <(" + g.simple() + ")"
	}
	return "x+=" + g.word() + "; p $x"
}

func (g *generator) simple() string {
	switch g.pick(10) {
	case 5:
		return "x=" + g.word()
	case 1:
		return "x=" + g.word() + " y=" + g.word() + " " + g.of("p", "q") + " " + g.words()
	case 2:
		return g.word() + " " + g.words()
	case 3:
		return "p " + g.words() + g.of(" >o", " 2>&1", " <o", " >>o", " 2>/dev/null")
	case 4:
		return "cd " + g.of("d", "..", ".", "nowhere") + " 2>/dev/null; p *"
	}
	return g.of("p", "q", "r") + " " + g.words()
}

func (g *generator) words() string {
	var out []string
	for range g.pick(4) {
		out = append(out, g.word())
	}
	return strings.Join(out, " ")
}

func (g *generator) word() string {
	var b strings.Builder
	for range 1 + g.pick(3) {
		b.WriteString(g.part())
	}
	return b.String()
}

func (g *generator) part() string {
	if g.depth > 4 {
		return "a"
	}
	g.depth++
	defer func() { g.depth-- }()
	common := []func() string{
		func() string { return g.of("a", "b", "p", "-x", "1", "a.b", "=", "%s", "@", ":", ",") },
		func() string { return "'" + g.of("a b", "$x", "`p`", "*", "", "\\", "\"", "#") + "'" },
		func() string { return "\"" + g.text() + "\"" },
		func() string { return "\\" + g.of("a", " ", "$", "\\", "'", "\"", "\n", "*", "`", ";", "#", "~") },
		func() string { return g.of("$x", "${x}", "\"$x\"", "$1", "$#", "\"$@\"", "$y", "${y}b") },
		func() string {
			return "${" + g.of("x", "y", "1") + g.of(":-", "-", ":+", "+", "%", "#", ":=") + g.of("a", "b c", "$y", "\"a b\"", "$(p)", "'a'") + "}"
		},
		func() string { return "$(" + g.script() + "\n)" },
		func() string { return "`" + g.of("p a", "p \\$x", "p 'a'", "p \"a b\"") + "`" },
		func() string { return "$((" + g.of("1", "1+2", "x", "(2)", "1 + 0$(p)") + "))" },
		func() string { return g.of("*", "?", "d/*", "[ab]", "a*", "~", "#", "a#b", "!", "^") },
	}
	if !g.posix {
		common = append(common,
			func() string { return "$'" + g.of("a", "\\n", "\\x41", "\\'", "\\x42", "\\u00e9", "\\\\") + "'" },
			func() string {
				return g.of("{a,b}", "{1..3}", "{a,{b,c}}", "{a,'b c'}", "a{,x}b", "{a}", "{a..c}", "{$x,b}", "\"{a,b}\"", "{a,b", "{,}", "{01..03}", "{a,\\,}")
			},
			func() string { return g.of("${x^^}", "${x/a/b}", "${#x}", "${x:1}", "${!x*}", "${x@Q}", "$\"a\"") },
		)
	}
	return common[g.pick(len(common))]()
}

// text is what stands in double quotes or in a here-document.
func (g *generator) text() string {
	var b strings.Builder
	for range 1 + g.pick(3) {
		b.WriteString(g.of("a", " ", "b c", "\\$", "\\\\", "$x", "${x:-a}", "$(p a)", "`p b`", "*", "'", "\\a", "\\\n", "#", "\\`", "$", "{a,b}", "~"))
	}
	return b.String()
}

// tidy removes what an earlier script has written that changed its directory.
func tidy(dir string) {
	for _, left := range []string{"/../o", "/d/o", "/../../o"} {
		_ = os.Remove(dir + left)
	}
}

// trace runs a script in a shell in which no program can be found, and returns
// the words of each program that it tried to run, and what it complained of.
func trace(t testing.TB, shell, text, dir string) (calls [][]string, complaints string, ok bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	program, err := exec.LookPath(shell)
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(ctx, program, "-c", text)
	cmd.Dir = dir
	bin := "/../bin" // empty: bash calls its handler
	if shell != "bash" {
		bin = "/../programs"
	}
	cmd.Env = []string{"HOME=/home/u", "PATH=" + dir + bin, "BASH_ENV=" + dir + "/../env", "LC_ALL=C.UTF-8"}
	tidy(dir)
	out, err := os.Create(dir + "/../trace")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.ExtraFiles = []*os.File{nil, nil, nil, nil, nil, nil, out} // descriptor 9
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // its exit status is of no interest
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left in the background
	}
	if ctx.Err() != nil {
		return nil, "", false
	}
	data, err := os.ReadFile(dir + "/../trace")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(data), "\x01") {
		if words := strings.Split(line, "\x02"); len(words) > 1 {
			calls = append(calls, words[:len(words)-1])
		}
	}
	return calls, stderr.String(), true
}

// arena makes the directory that scripts run in, and what traces them.
func arena(t testing.TB) string {
	t.Helper()
	root := files(t, "w/a", "w/b", "w/d/x", "w/d/y", "w/o", "bin/.keep", "programs/.keep", "trace") // the record too, which a pattern may find
	handler := "command_not_found_handle() { local s; printf -v s '%s\\2' \"$@\"; printf '%s\\1' \"$s\" >&9; return $(( $# % 2 )); }\n"
	if err := os.WriteFile(filepath.Join(root, "env"), []byte(handler), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p", "q", "r", "cat"} {
		script := "#!/bin/sh\ns=$(printf '%s\\2' " + name + " \"$@\")\nprintf '%s\\1' \"$s\" >&9\nexit $(( ($# + 1) % 2 ))\n"
		if err := os.WriteFile(filepath.Join(root, "programs", name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for dir := root; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(root, "w")
}

// covers reports whether the fields may stand for the words.
func covers(fields []Field, words []string) bool {
	if len(fields) == 0 {
		return len(words) == 0
	}
	f := fields[0]
	if f.Many {
		if covers(fields[1:], words) {
			return true
		}
		return len(words) > 0 && covers(fields, words[1:])
	}
	return len(words) > 0 && fits(f.Value, words[0]) && covers(fields[1:], words[1:])
}

// fits reports whether the value may be the word.
func fits(v Value, word string) bool {
	if text, known := v.Known(); known {
		return text == word
	}
	if !strings.HasPrefix(word, v.Prefix()) || !strings.HasSuffix(word, v.Suffix()) {
		return false
	}
	rest, at := word, 0
	for _, h := range v.holes {
		piece := v.text[at:h.at]
		i := strings.Index(rest, piece)
		if i < 0 {
			return false
		}
		rest, at = rest[i+len(piece):], h.at
	}
	return strings.HasSuffix(rest, v.text[at:])
}

// repeats reports whether the text runs the same each time: one that says its
// process id, or does something beside the rest, proves nothing.
func repeats(t testing.TB, shell, text, dir string, first [][]string) bool {
	for range 5 {
		again, _, ok := trace(t, shell, text, dir)
		if !ok || !sameCalls(first, again) {
			return false
		}
	}
	return true
}

// compare runs a script in a shell and checks that the reading of it lists
// every program that the shell tried to run, with words that the reading
// allows for. Scripts that are refused or doubted may be read in any way.
func compare(t testing.TB, text, dir string, posix bool) {
	t.Helper()
	tidy(dir)
	parse, shell := Parse, "bash"
	if posix {
		parse, shell = ParsePOSIX, "dash"
	}
	s, err := parse(text)
	if err != nil || strings.Contains(text, `\1`) || strings.Contains(text, `\2`) {
		return // refused, or it may print what separates the words of a trace
	}
	run := s.Text
	if posix {
		run = text // nothing prints what stands in a word of another script
	}
	var commands []*Command
	for _, act := range s.Read(hostWorld{"/home/u"}, Start{Dirs: []string{dir}}) {
		switch a := act.(type) {
		case *Doubt:
			return
		case *Command:
			commands = append(commands, a)
		}
	}
	calls, _, ok := trace(t, shell, run, dir)
	if !ok {
		return
	}
	for _, words := range calls {
		if !slices.ContainsFunc(commands, func(c *Command) bool { return covers(c.Argv, words) }) {
			var have []string
			for _, c := range commands {
				have = append(have, fmt.Sprint(c.Argv))
			}
			t.Errorf("%s ran %q, which the reading lacks\n%s\n--- canonical:\n%s\n--- read:\n%s", shell, words, text, run, strings.Join(have, "\n"))
			return
		}
	}
	if posix {
		return
	}
	// After an error in an expansion bash drops the rest of the line, and the
	// canonical text has other lines.
	original, complaints, ok := trace(t, shell, text, dir)
	if ok && complaints == "" && len(s.Doubts) == 0 && !sameCalls(original, calls) && repeats(t, shell, text, dir, original) {
		t.Errorf("bash runs the canonical text differently:\n%s\n--- canonical:\n%s\n--- original ran %q\n--- canonical ran %q", text, run, original, calls)
	}
}

// sameCalls compares what ran, whatever the order, since pipes race.
func sameCalls(a, b [][]string) bool {
	key := func(calls [][]string) []string {
		var out []string
		for _, words := range calls {
			out = append(out, fmt.Sprintf("%q", words))
		}
		slices.Sort(out)
		return out
	}
	x, y := key(a), key(b)
	for _, s := range append(slices.Clone(x), y...) {
		if strings.Contains(s, "/dev/fd/") {
			return true // descriptors are numbered as they come
		}
	}
	return slices.Equal(x, y)
}

// choices returns the stream of choices of a seed.
func choices(seed int) []byte {
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	out := make([]byte, 50)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}

// What shells run is what was read, on scripts made at random.
func TestReadingCoversShells(t *testing.T) {
	dir := arena(t)
	n := 80
	if testing.Short() {
		n = 30
	}
	for _, posix := range []bool{false, true} {
		for seed := range n {
			g := generator{choices: choices(seed), posix: posix}
			compare(t, g.script(), dir, posix)
		}
	}
}

// Scripts that were once read otherwise than bash runs them.
func TestFoundScripts(t *testing.T) {
	dir := arena(t)
	for _, text := range []string{
		"~nobody-of-that-name a; p ~nobody-of-that-name/x",
		"p $(q && `p a`# x || cd d; p *\n)",
		"p $x{a,'b c'}", "x=1; p {$x,b}c",
		"p $(q){a,b}",
		"unset x; p '\\'`p \"a b\"`${x:-\"a b\"}",
		"cd nowhere; p *",
		"a=(1 2); a[0]=3; p \"${a[@]}\"",
		"p a | time p b",
		"declare x=1{a,'b c'}; p \"$x\"",
		"unset x; p${x:- ${x/a/b}\"a~*\"$'\\n' b} c",
		"x=$((2)) y=${x}a`p $x` p",
		"trap ^ EXIT;\ncd d 2>/dev/nul!l; p *",
		"x=1 >/no/such; x=2; x=3 >/no/such; p $x",
		"{ cd d; } >/no/such; p *", "f() { cd d; }; f >/no/such; p *", "cd d >&/no/such; p *", "cd d >no/such || p *",
		"read x </no/such; p ${x-unset}", "set -- a; set -- b >/no/such; p $1",
	} {
		compare(t, text, dir, false)
	}
}

// FuzzReadingCoversShells looks for scripts that bash or dash run otherwise
// than they were read.
func FuzzReadingCoversShells(f *testing.F) {
	dir := arena(f)
	for seed := range 20 {
		f.Add(choices(1000+seed), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, choices []byte, posix bool) {
		g := generator{choices: choices, posix: posix}
		compare(t, g.script(), dir, posix)
	})
}

// FuzzMutatedScripts does the same on scripts in which one piece of text, made
// of characters that matter to shells, was put at some place.
func FuzzMutatedScripts(f *testing.F) {
	dir := arena(f)
	for seed := range 20 {
		f.Add(choices(2000+seed), uint16(seed*7), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, place uint16, piece uint8) {
		g := generator{choices: choices}
		compare(t, mutate(g.script(), int(place), int(piece)), dir, false)
	})
}

// pieces are what mutations put into scripts.
var pieces = []string{"'", "\"", "`", "\\", "\\\n", "$", "#", " #", ")", "(", "}", "{", "${x:-", "$(", "<<E\n", "\n", ";", "&", "|", "!", " ! ", "~", "*", "[", "]",
	"$'", "\nE\n", ";;", "((", "))", "[[", "]]", " in ", " do ", "=", "+=", "\t", "\\\\", "@(", "\\'"}

func mutate(text string, place, piece int) string {
	place %= len(text) + 1
	return text[:place] + pieces[piece%len(pieces)] + text[place:]
}

// Scripts with a piece put into them are read as bash reads them, or refused,
// or doubted.
func TestMutatedScripts(t *testing.T) {
	dir := arena(t)
	n := 100
	if testing.Short() {
		n = 30
	}
	random := rand.New(rand.NewPCG(7, 7))
	for seed := range n {
		g := generator{choices: choices(5000 + seed)[:20]}
		compare(t, mutate(g.script(), random.IntN(200), random.IntN(len(pieces))), dir, false)
	}
}
