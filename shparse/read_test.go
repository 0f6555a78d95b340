package shparse

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

var useNames = map[Use]string{Read: "read", Truncate: "write", Append: "append", ReadWrite: "readwrite", Stat: "stat", List: "list"}

// show writes an act in a line.
func show(a Act, dir string) string {
	at := func(dirs []string) string {
		switch {
		case dirs == nil:
			return "@?"
		case len(dirs) == 1 && dirs[0] == dir:
			return ""
		}
		return "@" + strings.ReplaceAll(strings.Join(dirs, "|"), dir, ".")
	}
	switch a := a.(type) {
	case *Command:
		var words []string
		for _, f := range a.Argv {
			words = append(words, f.String())
		}
		return "run" + at(a.Dirs) + " " + strings.Join(words, " ")
	case *Path:
		return useNames[a.Use] + at(a.Dirs) + " " + a.Target.String()
	case *Assign:
		return "set " + a.Name + "=" + a.Value.String()
	case *Doubt:
		return string(a.Kind)
	}
	return fmt.Sprint(a)
}

// What a script does is listed wherever it stands, in the order in which it
// happens.
func TestActs(t *testing.T) {
	dir := files(t, "a", "sub/b")
	for _, row := range []struct {
		text string
		want string // acts, joined by "; "
	}{
		// Commands, wherever they stand.
		{"ls", "run ls"},
		{"a && b || c; d | e & f", "run a; run b; run c; run d; run e; run f"},
		{"(a); { b; }; ! c; time d", "run a; run b; run c; run d"},
		{"if a; then b; elif c; then d; else e; fi", "run a; run b; run c; run d; run e"},
		{"case x in a) b;; *) c;; esac", "run b; run c"},
		{"echo $(a `b`) \"$(c)\"", "run b; run a …; run c; run echo … …"},
		{"echo <(a) >(b)", "run a; run b; run echo /dev/fd/… /dev/fd/…"},
		{"echo ${x:-$(a)} ${y/$(b)/$(c)} ${z:$(d)}", "run a; run b; run c; run d; run echo … … …; run echo … … …"},
		{"echo $(( $(a) + b[$(c)] ))", "run a; run c; run echo …"},
		{"[[ -n $(a) && $(b) == $(c) ]]", "run a; run b; run c"},
		{"x=$(a); y[$(b)]=$(c)", "run a; set x=…; run b; run c; set y=…"},
		{"x=([$(a)]=$(b))", "run a; run b; set x=…"},
		{"for x in $(a); do b; done", "run a; set x=…; run b"},
		{"for ((i=$(a);i<$(b);i++)); do c; done", "run a; set i=…; run b; run c; set i=…"},
		{"while a; do b; done", "run a; run b"},
		{"cat <<E\n$(a)\nE", "run a; run cat"},
		{"cat <<'E'\n$(a)\nE", "run cat"},
		{"cat <<< \"$(a)\"", "run a; run cat"},
		{"coproc a { b; }", "set a=…; run b"},
		{"case $(a) in $(b)) c;; esac", "run a; run b; run c"},
		{"declare x=$(a); export y=\"$(b)\"", "run a; set x=…; run declare x=…; set y=…; run b; set y=…; run export y=…"},
		{"a=$(b) c", "run b; run c"},
		{"> \"$(a)\"", "run a; write …"},
		// Functions run where they are called, and once where they are not.
		{"f() { a \"$1\"; }; f x; f y", "run f x; run a x; run f y; run a y"},
		{"f() { a \"$1\"; }", "run a …; run@? a …"},
		{"f() { g; }; g() { a; }; f", "run f; run g; run a"},
		{"f() { f; }; f", strings.Repeat("run f; ", 9) + "unmodeled"},
		{"if x; then f() { a; }; fi; f", "run x; run f; run a"},
		{"command_not_found_handle() { a; }; b", "run b; run a; run@? a"},
		// Text that is run as code.
		{"eval 'a; b'; eval a \"b c\"", "run eval a; b; run a; run b; run eval a b c; run a b c"},
		{"eval \"$x\"", "run eval …; code"},
		{"eval '('", "run eval (; code"},
		{"trap 'a' EXIT; b", "run trap a EXIT; run b; run a; run@? a"},
		{"trap \"$x\" EXIT", "run trap … EXIT; code"},
		{"trap - EXIT; trap '' INT; trap", "run trap - EXIT; run trap  INT; run trap"},
		{"source f; . f", "run source f; code; run@? . f; code"},
		{"command eval a; builtin eval b", "run command eval a; run a; run builtin eval b; run b"},
		{"echo ${x@P}", "code; run echo …"},
		{"[[ 'a[$(b)]' -eq 1 ]]", "code"},
		{"test -v 'a[$(b)]'", "run test -v a[$(b)]; code"},
		{"let 'a[$(b)]=1'", "code"},
		{"x='a[$(b)]'; echo $((x)) ${y[x]}", "set x=a[$(b)]; code; code; run echo … …"},
		{"x='a[$(b)]'; y=x; ((y))", "set x=a[$(b)]; set y=x; code"},
		{"printf -v 'a[$(b)]' c", "run printf -v a[$(b)] c; code; set a=…"},
		{"declare -i n='a[$(b)]'", "code; set n=…; run declare -i n=…"},
		{"declare -i n; n='a[$(b)]'", "run declare -i n; code; set n=…"},
		{"declare 'a[$(b)]=1'", "code; set a=1; run declare a[$(b)]=1"},
		{"x='a[$(b)]'; echo ${!x}", "set x=a[$(b)]; code; run echo …"},
		// What is not followed.
		{"declare -n r=x", "unmodeled; set r=x; run declare -n r=…"},
		{"read \"$x\"; unset \"$x\"", "run read …; unmodeled; run unset …; unmodeled"},
		{"x=PATH; : ${!x:=.}", "set x=PATH; unmodeled; run : …"},
		{"set -o posix; set -k; set +B", "run set -o posix; unmodeled; run set -k; unmodeled; run set +B; unmodeled"},
		{"set -euo pipefail; set -x -- a", "run set -euo pipefail; run set -x -- a"},
		{"export -f f", "code; set f=…; run export -f f"},
		// Variables.
		{"x=1; x+=2; y=$x", "set x=1; set x=12; set y=12"},
		{"read x y <<< z", "run read x y; set x=…; set y=…"},
		{"mapfile -t x; getopts ab o; printf -v p %s q; wait -p w", "run mapfile -t x; set x=…; run getopts ab o; set o=…; run printf -v p %s q; set p=…; run wait -p w; set w=…"},
		{"for x in a b; do :; done; select y in c; do :; done", "set x=a; set x=b; run :; set y=c; set y=; run :"},
		{": ${x:=1}", "set x=1; run : …; run : 1"},
		{"((x=1, y++))", "set x=…; set y=…"},
		{"echo hi {fd}>f; exec {fd}>&-", "set fd=…; write f; run echo hi; set fd=…; run exec"},
		{"x=1 a; b", "run a; run b"},
		{"x=1 $y", "run …"},
		// Redirects.
		{"a <i >o 2>e >>p <>q >|r &>s &>>t", "read i; write o; write e; append p; readwrite q; write r; write s; append t; run a"},
		{"a >&f 2>&1 <&3 >&- 3>&1-", "write f; run a"},
		{"{ a; } >f; (b) <g; while c; do d; done >h", "write f; run a; read g; run b; write h; run c; run d"},
		{"f() { a; } >g; f", "run f; write g; run a"},
		{">f", "write f"},
		{"a >$x >\"$y\"z >{b,c}", "write …; write …z; write …; run a"},
		// Patterns and file tests.
		{"a *", "list .; run a a sub"},
		{"a sub/* ../*", "list sub/; list ../; run a sub/b ../001"},
		{"a \"*\" \\* '*' [", "run a * * * ["},
		{"[[ -f a && a -nt b && -v x ]]", "stat a; stat a; stat b"},
		// Directories.
		{"cd sub; a; cd ..; b", "run cd sub; run@./sub a; run@./sub cd ..; run b"},
		{"(cd sub; a); b", "run cd sub; run@./sub a; run b"},
		{"cd sub | a; b", "run cd sub; run a; run b"},
		{"cd sub && a || b", "run cd sub; run@./sub a; run@./sub b"},
		{"cd no; a", "run cd no; run@./no|. a"},
		{"cd no && a", "run cd no; run@./no a"},
		{"cd no || exit; a", "run cd no; run exit; run@./no a"},
		{"cd $x; a", "run cd …; run@? a"},
		{"cd; a", "run cd; run@/home/u|. a"},
		{"CDPATH=x cd sub; a", "run cd sub; run@? a"},
		{"pushd sub; a; popd; b", "run pushd sub; run@./sub a; run@./sub popd; run@? b"},
		{"f() { cd sub; }; f; a", "run f; run cd sub; run@./sub a"},
		{"eval cd sub; a", "run eval cd sub; run cd sub; run@./sub a"},
		{"command cd sub; a", "run command cd sub; run@./sub a"},
		{"for d in sub x; do cd $d; a; done", "set d=sub; set d=x; run cd sub; run cd x; run@./sub|./x|. a; set d=sub; set d=x; run@? cd sub; run@? cd x; run@? a"},
	} {
		s, err := Parse(row.text)
		if err != nil {
			t.Errorf("%q: %v", row.text, err)
			continue
		}
		var got []string
		for _, a := range s.Read(hostWorld{"/home/u"}, Start{Dirs: []string{dir}}) {
			got = append(got, show(a, dir))
		}
		if text := strings.Join(got, "; "); text != row.want {
			t.Errorf("%q:\n got %s\nwant %s", row.text, text, row.want)
		}
	}
}

// Work is bounded: what takes too many steps ends with a doubt.
func TestStepsAreBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("for a in 1 2 3; do ", 60) + "x" + strings.Repeat("; done", 60),
		strings.Repeat("while read x; do ", 60) + "x=a$x" + strings.Repeat("; done", 60),
		"f() { g; g; g; g; }; g() { h; h; h; h; }; h() { i; i; i; i; }; i() { j; j; j; j; }; j() { k; k; k; k; }; k() { l; l; l; l; }; l() { m; m; m; m; }; m() { a; a; a; a; }; f; f; f; f",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		steps := 20_000
		acts := s.Read(hostWorld{}, Start{Dirs: []string{"/"}, Steps: &steps})
		doubted := slices.ContainsFunc(acts, func(a Act) bool {
			d, ok := a.(*Doubt)
			return ok && strings.Contains(d.Message, "too many steps")
		})
		if !doubted && steps <= 0 || len(acts) > 50_000 {
			t.Errorf("%.60q: %d acts, doubted %v, %d steps left", text, len(acts), doubted, steps)
		}
	}
}

// Values are widened to what they have in common, and their classes hold.
func TestWiden(t *testing.T) {
	for _, row := range []struct {
		values []Value
		want   string
		class  Class
	}{
		{[]Value{Text("a.go"), Text("b.go")}, "….go", Name},
		{[]Value{Text("src/a.go"), Text("src/b.go")}, "src/….go", Name},
		{[]Value{Text("a1"), Text("a22")}, "a…", Number},
		{[]Value{Text("-x"), Text("y")}, "…", Any},
		{[]Value{Text("a"), Text("a/../b")}, "a…", Any},
		{[]Value{Text("aa"), Text("aaa")}, "aa…", Name},
		{[]Value{Text("a"), Unknown(Any)}, "…", Any},
		{[]Value{Text("../a"), Text("../b")}, "../…", Name},
		{[]Value{Text(""), Text("a")}, "…", Any},
	} {
		got := widen(row.values)
		if got.String() != row.want || got.Class() != row.class {
			t.Errorf("%v: %s of class %d, want %s of class %d", row.values, got, got.Class(), row.want, row.class)
		}
		for _, v := range row.values {
			if s, known := v.Known(); known && !fits(got, s) {
				t.Errorf("%v: %s does not stand for %q", row.values, got, s)
			}
		}
	}
}
