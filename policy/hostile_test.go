package policy_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// Text that is made to take long is decided within 100 ms, by the processor's
// time.
func TestHostileDecisions(t *testing.T) {
	p := builtin(t)
	dir := project(t)
	env := policytest.Env(dir)
	rep := strings.Repeat
	var names strings.Builder
	for i := range 18_000 {
		fmt.Fprintf(&names, "c%d\n", i)
	}
	for name, text := range map[string]string{
		"denied commands":  rep("cat ../x\n", 15_000),
		"allowed commands": rep("cat a.go\n", 15_000),
		"names":            names.String(),
		"operands":         "rm " + rep("a ", 45_000),
		"paths":            "cat " + rep("sub/x/../../a.go ", 8_000),
		"long path":        "cat " + rep("a/", 400_000),
		"patterns":         "ls " + rep("* ", 45_000),
		"bad patterns":     "ls " + rep("*a*b*c*d*e*f*g*h*i*j*k ", 3_000),
		"deep patterns":    "ls " + rep("*/", 1000),
		"loops":            rep("for a in 1 2 3 4 5 6 7 8; do ", 60) + "x" + rep("; done", 60),
		"loops of loops":   rep("for a in 1 2; do x=$a$x; ", 100) + "x" + rep("; done", 100),
		"sets":             "a=1; " + rep("[ $x ] && a=$a$RANDOM; ", 3000) + "cat $a",
		"doubling":         "a=xx; " + rep("a=$a$a; ", 40) + "cat $a",
		"doubling array":   "a=(x x); " + rep("a=(\"${a[@]}\" \"${a[@]}\"); ", 30) + "cat \"${a[@]}\"",
		"doubling args":    "set -- x x; " + rep("set -- \"$@\" \"$@\"; ", 30) + "cat \"$@\"",
		"evals":            "x=" + "'" + rep("cat a.go;", 3000) + "'; " + rep("eval \"$x\";", 200),
		"functions":        "f() { " + rep("cat a.go; ", 100) + "}; g() { " + rep("f; ", 100) + "}; " + rep("g; ", 100),
		"function chains":  "f() { g; g; g; g; }; g() { h; h; h; h; }; h() { i; i; i; i; }; i() { j; j; j; j; }; j() { k; k; k; k; }; k() { l; l; l; l; }; l() { cat a.go; cat a.go; }; f; f; f; f",
		"shells":           rep("sh -c 'cat a.go; cat a.go' && ", 2_500) + "ls",
		"finds":            "find . " + rep("-exec cat a.go \\; ", 10_000),
		"xargs":            rep("xargs ", 10_000) + "ls",
		"envs":             "env " + rep("A=1 ", 20_000) + "ls",
		"brace products":   "cat " + rep("{a,b}", 8) + " " + rep(rep("{a,b}", 8)+" ", 400),
		"sed":              "sed '" + rep("s/a/b/;", 40_000) + "'",
		"awk":              "awk '{" + rep("print $1;", 30_000) + "}'",
		"traps":            rep("trap 'cat a.go' EXIT; ", 5_000),
		"trims":            "x=" + rep("ab", 2000) + "; " + rep("y=${x%%b*c}; ", 200),
		"case":             "case $x in " + rep("a) cat a.go;; ", 8_000) + "esac",
		"arithmetic":       "a=b; b=c; c=d; d=e; (( " + rep("a+", 20_000) + "1 ))",
		"directories":      rep("cd sub; cd ..; ", 5_000) + "ls",
		"unknown dirs":     rep("cd $x; cat a.go; ", 5_000),
		"assignments":      rep("x=$x$y; ", 8_000),
		"constants":        rep("a=1 ", 50_000),
		"constant lines":   rep("a=1\n", 40_000),
		"parentheses":      rep("(", 10_000) + "ls" + rep(")", 10_000),
		"substitutions":    "echo " + rep("$(echo ", 5_000) + "a" + rep(")", 5_000),
		"words":            "echo " + rep("word ", 100_000),
		"megabyte":         "echo " + rep("a", 1_000_000),
		"nested braces":    "echo " + rep("{a,", 5_000) + "b" + rep("}", 5_000),
		"here-documents":   rep("cat <<E\n$x\nE\n", 10_000),
		"long pipeline":    "ls" + rep(" | env nice timeout 5 cat", 4_000),
		"wrappers":         rep("env ", 10_000) + "ls",
		"variables":        numbered("v%[1]d=$v%[2]d; ", 8_000),
		"defined":          numbered("f%[1]d() { f%[2]d; }; ", 3_000) + "f2999",
	} {
		t.Log(name)
		before := cpuTime(t)
		s, err := shparse.Parse(text)
		verdict := policy.Deny
		if err == nil {
			verdict = p.Decide(s, env).Verdict
		}
		took := cpuTime(t) - before
		t.Logf("%s: %v (%v, %.40v)", name, took, verdict, err)
		if took > slack*100*time.Millisecond {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// numbered is n copies of format, with the number of each and the one before.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i, max(i-1, 0))
	}
	return b.String()
}

func cpuTime(t *testing.T) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
