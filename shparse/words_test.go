package shparse

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostWorld is the file system of the test, with HOME and PATH set.
type hostWorld struct{ home string }

func (w hostWorld) Var(name string) (string, bool) {
	if name == "HOME" {
		return w.home, true
	}
	return "", false
}

func (hostWorld) IsDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (hostWorld) List(path string) ([]string, bool) {
	entries, err := os.ReadDir(path)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err == nil
}

// files makes a directory with the named files and returns it.
func files(t testing.TB, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// args returns the words of every command named "args" in the script, each
// known word as it is, each with a hole with "…" for the hole, and "…" behind
// a word that may be many.
func args(t testing.TB, text, dir string) (out [][]string) {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	for _, act := range s.Read(hostWorld{"/home/u"}, Start{Dirs: []string{dir}}) {
		c, ok := act.(*Command)
		if !ok {
			continue
		}
		if name, _ := c.Argv[0].Known(); name != "args" {
			continue
		}
		words := []string{}
		for _, f := range c.Argv[1:] {
			word := f.String()
			if f.Many {
				word += "…"
			}
			words = append(words, word)
		}
		out = append(out, words)
	}
	return out
}

// bashArgs runs the script in bash with a function args, and returns the words
// of each call.
func bashArgs(t testing.TB, text, dir string) (out [][]string) {
	t.Helper()
	cmd := exec.Command("bash", "--norc", "-c", `args() { printf '%s\0' "$@" END >&9; }; eval "$1" 9>&1 >/dev/null 2>&1`, "bash", text)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=/home/u", "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	stdout, err := cmd.Output()
	if err != nil && len(stdout) == 0 {
		t.Fatalf("bash: %q: %v", text, err)
	}
	words := []string{}
	for _, w := range strings.Split(strings.TrimSuffix(string(stdout), "\x00"), "\x00") {
		if w != "END" {
			words = append(words, w)
			continue
		}
		out = append(out, words)
		words = []string{}
	}
	return out
}

// Words whose value does not depend on the run are known, and are what bash
// makes of them.
func TestKnownWordsAreBashs(t *testing.T) {
	dir := files(t, "a.go", "b.go", "sub/x.txt", "-dash", ".hidden", "sp ace", "sub/y[1]")
	for _, text := range []string{
		`args a b c`,
		`args 'a b' "c d" e\ f`,
		`args r\m i''d $'\x72m' {r,m} "a"'b'c`,
		`args $'\t\n\\\'' $'\101\x41\u0041\U00000041' $'a\qb' $'\cA' $'\e'`,
		`args "a\$b\"c\\d\e\` + "`" + `"`,
		`args a{1..3}b {a,b}{c,d} {x} {x,} {,y} {a..c} {3..1} {1..10..3} {01..03}`,
		`args '{a,b}' "{a,b}" \{a,b} a{b c}`,
		`args ~ ~/x ~/"y" "~" '~/x' \~ a~ x=~/y x=a:~/b --x=~/y`,
		`args *.go ./*.go sub/* *nothing* "*.go" \*.go *`,
		`args [ab].go [!a].go ?.go .h* [ x`,
		`args sub/y[1] 'sub/y[1]' sub/y\[1\]`,
		`x=5; args $x "$x" ${x} a${x}b "${x}y"`,
		`x='a b'; args $x "$x" $x$x c$x"d"`,
		`x='*.go'; args $x "$x"`,
		`x=; args $x "$x" a$x`,
		`x=a; x+=b; args $x`,
		`x=abc.go; args ${x%.go} ${x#a} ${x%zz} "${x%%.go}"`,
		`x=/a/b/c.tar.gz; args ${x%/*} ${x%%.*} ${x##*/} ${x#*/} "${x%.*}" ${x%%/} ${x#/a}`,
		`x=abcabc; args ${x/b/X} ${x//b/X} ${x/b} ${x//bc/} ${x/zz/y} ${x:1} ${x:1:2} ${x:9} ${x^^} ${x,,}`,
		`args "$(echo a b)" $(echo a b) "$(printf %s cu rl)" "$(dirname /a/b/c)" $(basename /a/b)x "$(pwd)" "$(echo)"`,
		`x=/a/b; args "$(dirname "$x")/c" "$(echo $x/d)"`,
		`unset x; x=1 y=$x args a; args "${x-unset}"`,
		`cd sub; args "$(pwd)" "$PWD"`,
		`x=1; args ${x:-2} ${x:+3} ${x-2} ${x+3}`,
		`x=; args ${x:-2} ${x-2} "${x:-a b}"`,
		`a=(1 "2 3" 4); args "${a[@]}" ${a[0]} "${a[1]}" x"${a[@]}"y`,
		`a=(); args "${a[@]}" x`,
		`set -- p 'q r'; args "$@" $1 "$2" x"$@"y; shift; args "$@"`,
		`for i in 1 2 3; do :; done; args x`,
		`f() { args "$1" "$2"; }; f a 'b c'`,
		`f() { local x=1; args $x; }; x=2; f; args $x`,
		`f() { local x=a$x; args $x; }; x=2; f; args $x`,
		`f() { local x; args "${x-unset}"; }; x=2; f; args $x`,
		`eval 'args a b'; eval args '"c d"'`,
		`cd sub; args *`,
		`(cd sub; args *); args *.go`,
		`args $'multi\nline' "multi
line"`,
		`args a\
b`,
		"args é 文件 'ä'",
		`unset u; args ${u:-a b} x${u:- a "b c" }y "${u:-a b}" ${u:-a\ b} ${u:-*.go} ${u-"*.go"} ${u:-"a"'b c'd}`,
		`unset u; args "${u-}" "${u-x}" "${u:+x}" ''`,
		`if true; then x=1; else x=1; fi; args $x`,
		`IFS=:; args a:b`,
		`args !x "!x" a!b`,
		`args a#b '#' \#`,
		`args -- -x --y=z`,
		`x=y; y=$x$x; args $y`,
		`command eval 'args a'`,
		`readonly x=1; args $x; export y=2; args $y; declare z=3; args $z`,
	} {
		got, want := args(t, text, dir), bashArgs(t, text, dir)
		for _, words := range got {
			for _, w := range words {
				if strings.Contains(w, "…") {
					t.Errorf("%q: unknown word in %q", text, words)
				}
			}
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("%q:\n got %q\nbash %q", text, got, want)
		}
	}
}

// Words that depend on the run are unknown around what is known of them, and
// every value that they can take is covered.
func TestUnknownWords(t *testing.T) {
	dir := files(t, "a.go", "b.go")
	for _, row := range []struct {
		text string
		want [][]string
	}{
		{`args $x`, [][]string{{"……"}}},
		{`args "$x"`, [][]string{{"…"}}},
		{`args "a$x"b`, [][]string{{"a…b"}}},
		{`args $(ls)`, [][]string{{"……"}}},
		{`args "$(ls)"`, [][]string{{"…"}}},
		{"args `ls`", [][]string{{"……"}}},
		{`args $((1+1)) $? $#`, [][]string{{"…", "…", "…"}}},
		{`args "$@"`, [][]string{{"……"}}},
		{`args <(ls)`, [][]string{{"/dev/fd/…"}}},
		{`for f in a b; do args "$f"; done`, [][]string{{"a"}, {"b"}}},
		{`for f in a b; do for g in c d; do args $f$g; done; done`, [][]string{{"ac"}, {"ad"}, {"bc"}, {"bd"}}},
		{`for f in *.go; do args "$f"; done`, [][]string{{"a.go"}, {"b.go"}}},
		{`if ls; then x=1; else x=2; fi; args $x`, [][]string{{"1"}, {"2"}}},
		{`x=1; ls && x=2; args $x`, [][]string{{"1"}, {"2"}}},
		{`x=1; while ls; do x=2; done; args $x`, [][]string{{"1"}, {"2"}}},
		{`case $y in a) x=1;; b) x=2;; esac; args "${x:-0}"`, [][]string{{"…"}, {"0"}, {"1"}, {"2"}}},
		{`x=a; while ls; do x=a$x; done; args $x`, [][]string{{"……"}, {"a……"}, {"a"}, {}}},
		{`x=1; x=2 y=$(args $x) args $x; args $x`, [][]string{{"2"}, {"1"}, {"1"}, {"1"}}},
		{`f() { args "$x"; }; x=1; x=2 f; args $x`, [][]string{{"2"}, {"1"}, {"1"}}},
		{`x=1; x=2 eval 'args $x'; args $x`, [][]string{{"2"}, {"1"}, {"1"}}},
		{`read x; args "$x"`, [][]string{{"…"}}},
		{`x=1; read x; args "$x"`, [][]string{{"…"}}},
		{`x=1; (x=2); args $x`, [][]string{{"1"}}},
		{`x=1; x=2 ls; args $x`, [][]string{{"1"}}},
		{`x=1; ls | x=2; args $x`, [][]string{{"1"}}},
		{`x=1; { x=2; } & args $x`, [][]string{{"1"}}},
		{`x=1; unset x; args "$x"`, [][]string{{""}}},
		{`printf -v x %s y; args "$x"`, [][]string{{"…"}}},
		{`x=1; ((x=2)); args $x`, [][]string{{"…"}}},
		{`x=1; : $((x++)); args $x`, [][]string{{"…"}}},
		{`IFS=:; x=a:b; args $x`, [][]string{{"a:b"}, {"……"}}},
		{`x=1; for x in 2 3; do :; done; args $x`, [][]string{{"1"}, {"2"}, {"3"}}},
		{`f() { x=2; }; x=1; f; args $x`, [][]string{{"2"}}},
		{`f() { x=2; }; x=1; ls && f; args $x`, [][]string{{"1"}, {"2"}}},
		{`x=1; eval "$y"; args "$x"`, [][]string{{"…"}, {""}}},
		{`a=(1 2); a[0]=3; args "${a[@]}"`, [][]string{{"……"}}},
		{`RANDOM=5; args $RANDOM; LINENO=x; args $LINENO`, [][]string{{"…"}, {"…"}}},
		{`args ${x:-$(ls)}`, [][]string{{"……"}, {"……"}}},
		{`mapfile -t a; args "${a[@]}"`, [][]string{{"……"}}},
		{`args {1..999999}`, [][]string{{"……"}}},
		{`x=1; while read x; do args $x; done; args $x`, [][]string{{"……"}, {"1"}, {"……"}}},
		{`declare -i n=1; args $n`, [][]string{{"……"}}},
		{`set -- a b; f() { args "$1"; }; f c; args "$1"`, [][]string{{"c"}, {"a"}}},
	} {
		got := args(t, row.text, dir)
		slices.SortFunc(got, slices.Compare[[]string])
		slices.SortFunc(row.want, slices.Compare[[]string])
		if !slices.EqualFunc(got, row.want, slices.Equal[[]string]) {
			t.Errorf("%q:\n got %q\nwant %q", row.text, got, row.want)
		}
	}
}
