package confine

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// hostileTime is how long the test goes on, when it is not told to run
// everything.
const hostileTime = 12 * time.Second

// hostileWords are what an unknown word may turn out to be. OUT is a directory
// beside the project.
var hostileWords = []string{
	"OUT/file", "../OUTNAME/file", "-o OUT/new", "--output=OUT/new", "--output=../OUTNAME/new", "-i OUT/file", "-f OUT/file",
	"$(touch OUT/new)", "`touch OUT/new`", "; touch OUT/new", "x\ntouch OUT/new\n", "| tee OUT/new", "> OUT/new",
	"-exec touch OUT/new ;", ". -delete", "OUT -delete", "--pre=touch", "--compress-program=touch OUT/new", "--to-command=touch OUT/new",
	"a[$(touch OUT/new)]", "-rf OUT", "-R 777 OUT", "w OUT/new", "e touch OUT/new", "BEGIN{system(\"touch OUT/new\")}", "-c core.pager=touch",
	".git/config", ".git/hooks/post-checkout", ".pinfold.toml", "-o .git/config", "--output=.git/hooks/pre-commit",
	"/etc/pinfold-hostile", "/tmp/../OUT/file", "/dev/tcp/127.0.0.1/9", "-", "--", "--files0-from=OUT/file", "@OUT/file", "*", "{OUT/file,x}",
}

// TestHostileWords: every command of the corpora that is allowed, with each of
// its unknown words replaced by hostile ones, changes nothing outside the grant
// that was decided before the words were known. It goes on for hostileTime, each
// command with other words; PINFOLD_HOSTILE=all runs each with all of them.
func TestHostileWords(t *testing.T) {
	needs(t, "git", "bash")
	if testing.Short() && os.Geteuid() != 0 {
		t.Skip("root's daemon runs it for an ordinary user")
	}
	m := newManager(t)
	var c Caller
	for name, caller := range callers(t) {
		if name != "root" {
			c = caller
		}
	}
	w := newHostileWorld(t, m, c)
	all := os.Getenv("PINFOLD_HOSTILE") == "all"
	end := time.Now().Add(hostileTime)
	rows := w.rows(t)
	runs, complete := 0, 0
	defer func() {
		if w.writers == 0 {
			t.Error("no run changed anything: what they change is not seen")
		}
	}()
	for round := 0; round < len(hostileWords); round++ {
		for i, row := range rows {
			if !all && time.Now().After(end) {
				t.Logf("%d commands with unknown words, %d runs (%d that wrote), %d words for each", len(rows), runs, w.writers, complete)
				return
			}
			w.run(t, row, hostileWords[(i*7+round)%len(hostileWords)])
			runs++
		}
		complete++
	}
	t.Logf("%d commands with unknown words, %d runs (%d that wrote), all words for each", len(rows), runs, w.writers)
}

// A hostileWorld is a project with something beside it, as they are before each
// run.
type hostileWorld struct {
	box
	template string // what the project is made of
	outside  string
	before   map[string]string // the project and what is beside it
	writers  int               // runs that changed something they were granted
}

func newHostileWorld(t *testing.T, m *Manager, c Caller) *hostileWorld {
	t.Helper()
	top := newProject(t, c, c.Home)
	w := &hostileWorld{box: box{m, c, filepath.Join(top, "project")}, template: filepath.Join(t.TempDir(), "template"), outside: filepath.Join(top, "outside")}
	for name, content := range map[string]string{
		"f.txt": "one\ntwo\n", "file": "x\n", "README.md": "# read\n", "src/main.go": "package main\nfunc main() {}\n", "sub/a.txt": "a\n",
		"go.mod": "module x\n", "package.json": "{\"name\":\"x\"}\n", "Makefile": "all:\n\t@echo all\n", "test.py": "print(1)\n", ".pinfold.toml": "",
		// names that a pattern finds
		"-rf": "", "--output=x": "", "$(touch pwned)": "", "; touch pwned": "", "a\nb": "", "-exec": "",
	} {
		path := filepath.Join(w.template, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := exec.Command("git", "init", "-q", w.template)
	git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	w.restore(t)
	return w
}

// restore makes everything as it was.
func (w *hostileWorld) restore(t *testing.T) {
	t.Helper()
	_ = filepath.WalkDir(w.project, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	for _, dir := range []string{w.project, w.outside} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(w.project, os.DirFS(w.template)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.outside, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.outside, "file"), []byte("outside\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{w.project, w.outside} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			own(t, w.caller, path)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.before = w.snapshot(t)
}

// snapshot describes what there is beside the project and in it, by paths
// relative to what holds both.
func (w *hostileWorld) snapshot(t *testing.T) map[string]string {
	t.Helper()
	top := filepath.Dir(w.project)
	seen := map[string]string{}
	if err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // a command has made it unreadable: that it did shows above
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, path)
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, _ := os.ReadFile(path)
			text += fmt.Sprintf(" %v %s", info.ModTime().UnixNano(), content)
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			text += " " + target
		}
		seen[rel] = text
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return seen
}

// changes returns what is not as it was, relative to what holds project and
// outside.
func (w *hostileWorld) changes(t *testing.T) (changed []string) {
	t.Helper()
	now := w.snapshot(t)
	for path, text := range now {
		if w.before[path] != text {
			changed = append(changed, path)
		}
	}
	for path := range w.before {
		if _, ok := now[path]; !ok {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed
}

// A hostileRow is an allowed command with holes where its unknown words are.
type hostileRow struct {
	id    string
	text  string // with HOLE in the place of each
	grant policy.Grant
}

// hole is the variable that stands in the place of what is not known: as it is
// expanded, with quotes around it or without, so is what stood there.
const hole = "PINFOLD_HOLE"

// rows decides the commands of the corpora and returns those that are allowed,
// under either profile, and have unknown words.
func (w *hostileWorld) rows(t *testing.T) (rows []hostileRow) {
	t.Helper()
	view, err := w.m.View(w.caller, w.project)
	if err != nil {
		t.Fatal(err)
	}
	env := policytest.Env(w.project)
	env.Home, env.Path, env.Readable, env.Writable = view.Home, view.Path, view.Readable, view.Writable
	seen := map[string]bool{}
	for _, profile := range []string{"default", "workspace"} {
		p, err := policy.Load(policy.Source{Name: "site", Text: "profile = '" + profile + "'"})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"policy", "agent-commands", "more"} {
			for id, command := range corpusCommands(t, name) {
				s, err := shparse.Parse(strings.ReplaceAll(command, "/home/user/project", w.project))
				if err != nil {
					continue
				}
				d := p.Decide(s, env)
				text, holes := withHoles(d.Text)
				if d.Verdict != policy.Allow || holes == 0 || seen[text] {
					continue
				}
				seen[text] = true
				rows = append(rows, hostileRow{id: profile + " " + id, text: text, grant: d.Grant})
			}
		}
	}
	slices.SortFunc(rows, func(a, b hostileRow) int { return strings.Compare(a.id, b.id) })
	if len(rows) < 100 {
		t.Fatalf("only %d commands with unknown words are allowed", len(rows))
	}
	return rows
}

// corpusCommands returns the commands of a file of testdata, by their ids.
func corpusCommands(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open("../testdata/corpus/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for n := 0; lines.Scan(); n++ {
		var row struct{ ID, Command string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("%s %s %04d", name, row.ID, n)] = row.Command
	}
	return out
}

// withHoles puts the variable in the place of each command substitution, and of
// each variable that the text does not set itself.
func withHoles(text string) (string, int) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return text, 0
	}
	set := map[string]bool{"HOME": true, "PATH": true, "PWD": true, "OLDPWD": true, "IFS": true, "BASH_REMATCH": true, "PIPESTATUS": true}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				set[n.Name.Value] = true
			}
		case *syntax.WordIter:
			set[n.Name.Value] = true
		}
		return true
	})
	type place struct{ from, to uint }
	var places []place
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
		case *syntax.ParamExp:
			if n.Param == nil || set[n.Param.Value] || !syntax.ValidName(n.Param.Value) {
				return true
			}
		default:
			return true
		}
		places = append(places, place{n.Pos().Offset(), n.End().Offset()})
		return false
	})
	for _, p := range slices.Backward(places) {
		text = text[:p.from] + "${" + hole + "}" + text[p.to:]
	}
	return text, len(places)
}

// run runs the command with the word in its holes, under the grant that was
// decided without it, and looks at what has changed.
func (w *hostileWorld) run(t *testing.T, row hostileRow, word string) {
	t.Helper()
	word = strings.NewReplacer("OUTNAME", filepath.Base(w.outside), "OUT", w.outside).Replace(word)
	text := hole + "=" + quoteWord(word) + "\n" + row.text
	r, _, _ := w.request(row.grant, text)
	r.Timeout = time.Second
	if _, err := w.m.Run(context.Background(), r); err != nil {
		t.Fatalf("%s: %q: %v", row.id, text, err)
	}
	changed := w.changes(t)
	for _, path := range changed {
		if !w.granted(path, row.grant) {
			t.Errorf("%s: %q changed %s, and was granted %+v", row.id, text, path, row.grant)
		}
	}
	if _, err := os.Lstat("/etc/pinfold-hostile"); err == nil {
		t.Fatalf("%s: %q wrote /etc/pinfold-hostile", row.id, text)
	}
	if len(changed) > 0 {
		w.writers++
		w.restore(t)
	}
}

// granted reports whether the grant lets the path be changed.
func (w *hostileWorld) granted(path string, g policy.Grant) bool {
	rel, inside := strings.CutPrefix(path, filepath.Base(w.project)+"/")
	if !inside {
		return false
	}
	for _, held := range []string{".git/config", ".git/hooks", ".pinfold.toml"} {
		if within("/"+rel, "/"+held) {
			return false
		}
	}
	return slices.ContainsFunc(g.Write, func(place string) bool { return within("/"+rel, filepath.Join("/", place)) })
}

func quoteWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// The holes stand where what they replace stood, and nowhere else.
func TestWithHoles(t *testing.T) {
	h := "${" + hole + "}"
	for text, want := range map[string]string{
		`cat "$x" $(ls)`: `cat "` + h + `" ` + h, `x=1; cat $x "${y:-a}z"`: `x=1; cat $x "` + h + `z"`,
		`for f in *; do cat "$f" "$g"; done`: `for f in *; do cat "$f" "` + h + `"; done`, "while read f; do cat $f; done": "while read f; do cat " + h + "; done",
		`echo $? $1 $HOME '$x' $(( y + $(z) ))`: `echo $? $1 $HOME '$x' $(( y + ` + h + ` ))`, "ls -la": "ls -la",
	} {
		if got, _ := withHoles(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
