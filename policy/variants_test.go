package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// quote returns the text as one word of the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// placements put a script in other places where it still runs.
var placements = map[string]func(string) string{
	"subshell":      func(s string) string { return "(\n" + s + "\n)" },
	"group":         func(s string) string { return "{\n" + s + "\n}" },
	"if":            func(s string) string { return "if true; then\n" + s + "\nfi" },
	"else":          func(s string) string { return "if false; then ls; else\n" + s + "\nfi" },
	"condition":     func(s string) string { return "if\n" + s + "\nthen ls; fi" },
	"while":         func(s string) string { return "while true; do\n" + s + "\nbreak; done" },
	"until":         func(s string) string { return "until\n" + s + "\ndo ls; done" },
	"for":           func(s string) string { return "for i in 1 2; do\n" + s + "\ndone" },
	"case":          func(s string) string { return "case x in a) ls;; *)\n" + s + "\n;; esac" },
	"function":      func(s string) string { return "f_x() {\n" + s + "\n}\nf_x" },
	"and":           func(s string) string { return "true && {\n" + s + "\n}" },
	"or":            func(s string) string { return "false || {\n" + s + "\n}" },
	"pipe":          func(s string) string { return "{\n" + s + "\n} | cat" },
	"piped":         func(s string) string { return "ls | {\n" + s + "\n}" },
	"negated":       func(s string) string { return "! {\n" + s + "\n}" },
	"background":    func(s string) string { return "{\n" + s + "\n} & wait" },
	"substitution":  func(s string) string { return "echo \"$(\n" + s + "\n)\"" },
	"process":       func(s string) string { return "cat <(\n" + s + "\n)" },
	"assignment":    func(s string) string { return "x_y=$(\n" + s + "\n)" },
	"arithmetic":    func(s string) string { return "echo $((1 + $(\n" + s + "\n)))" },
	"default":       func(s string) string { return "echo ${x_y:-$(\n" + s + "\n)}" },
	"test":          func(s string) string { return "[[ -n $(\n" + s + "\n) ]]" },
	"array":         func(s string) string { return "a_b=($(\n" + s + "\n))" },
	"herestring":    func(s string) string { return "cat <<< \"$(\n" + s + "\n)\"" },
	"coproc":        func(s string) string { return "coproc {\n" + s + "\n}" },
	"time":          func(s string) string { return "time {\n" + s + "\n}" },
	"after":         func(s string) string { return "ls\n" + s },
	"before":        func(s string) string { return s + "\nls" },
	"eval":          func(s string) string { return "eval " + quote(s) },
	"eval twice":    func(s string) string { return "eval " + quote("eval "+quote(s)) },
	"trap":          func(s string) string { return "trap " + quote(s) + " EXIT" },
	"bash -c":       func(s string) string { return "bash -c " + quote(s) },
	"timeout":       func(s string) string { return "timeout 5 bash -c " + quote(s) },
	"env":           func(s string) string { return "env A=1 nice -n 5 bash -c " + quote(s) },
	"xargs":         func(s string) string { return "echo x | xargs -n1 bash -c " + quote(s) },
	"find":          func(s string) string { return "find . -maxdepth 0 -exec bash -c " + quote(s) + " \\;" },
	"heredoc":       func(s string) string { return "bash <<'E_O_F'\n" + s + "\nE_O_F" },
	"variable":      func(s string) string { return "c_d=" + quote(s) + "; eval \"$c_d\"" },
	"bash variable": func(s string) string { return "c_d=" + quote(s) + "; bash -c \"$c_d\"" },
	"command eval":  func(s string) string { return "command eval " + quote(s) },
}

// Wherever a script of the corpus that must not be allowed is placed, it is
// not allowed.
func TestPlacements(t *testing.T) {
	p := builtin(t)
	n := 0
	for _, row := range readCorpus(t, "../testdata/corpus/policy.jsonl") {
		if row.Expect != "must_not_allow" || row.Confidence == "judgement" {
			continue
		}
		env := policytest.Env(corpusProject(t, row))
		q, err := p.AllowAlso(row.ExtraAllow)
		if err != nil {
			t.Fatal(err)
		}
		for name, place := range placements {
			n++
			text := place(row.Command)
			s, err := shparse.Parse(text)
			if err != nil {
				continue // refused
			}
			if d := q.Decide(s, env); d.Verdict == policy.Allow {
				t.Errorf("%s in %s is allowed: %q", row.ID, name, text)
			}
		}
	}
	t.Logf("%d variants", n)
}

// structures are the placements that run a script as it is.
var structures = []string{"subshell", "group", "if", "else", "while", "for", "case", "function", "and", "or", "pipe", "piped", "negated",
	"background", "substitution", "process", "assignment", "time", "after", "before", "eval", "bash -c", "heredoc"}

// A script of the corpus that must be allowed is allowed in other places too.
func TestAllowedPlacements(t *testing.T) {
	p := builtin(t)
	for _, row := range readCorpus(t, "../testdata/corpus/policy.jsonl") {
		if row.Expect != "must_allow" || row.Confidence == "judgement" {
			continue
		}
		env := policytest.Env(corpusProject(t, row))
		q, err := p.AllowAlso(row.ExtraAllow)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range structures {
			text := placements[name](row.Command)
			s, err := shparse.Parse(text)
			if err != nil {
				t.Errorf("%s in %s: %v: %q", row.ID, name, err, text)
				continue
			}
			if d := q.Decide(s, env); d.Verdict != policy.Allow {
				t.Errorf("%s in %s: %v: %q: %+v", row.ID, name, d.Verdict, text, d.Reasons)
			}
		}
	}
}
