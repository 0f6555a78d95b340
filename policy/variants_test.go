package policy_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
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

// more placements, of which some run the script in a shell of its own.
func init() {
	for name, place := range map[string]func(string) string{
		"nested shells": func(s string) string { return "bash -c " + quote("bash -c "+quote(s)) },
		"backquotes": func(s string) string {
			if strings.ContainsAny(s, "\\`") { // which mean something else there
				return s
			}
			return "echo \"`bash -c " + quote(s) + "`\""
		},
		"split":        func(s string) string { return "env -S 'bash -c' " + quote(s) },
		"subscript":    func(s string) string { return "a_b[$(\n" + s + "\n)0]=1" },
		"subscript of": func(s string) string { return "echo ${a_b[$(\n" + s + "\n)0]}" },
		"let":          func(s string) string { return "(( a_b = $(\n" + s + "\n) + 1 ))" },
		"regexp":       func(s string) string { return "[[ x =~ $(\n" + s + "\n) ]]" },
		"subject":      func(s string) string { return "case $(\n" + s + "\n) in *) ;; esac" },
		"list":         func(s string) string { return "for i in $(\n" + s + "\n); do :; done" },
		"target":       func(s string) string { return "ls > \"out$(\n" + s + "\n)\"" },
		"document":     func(s string) string { return "cat <<E_O_F\n$(\n" + s + "\n)\nE_O_F" },
		"declared":     func(s string) string { return "declare x_y=$(\n" + s + "\n)" },
		"exported":     func(s string) string { return "export x_y=\"$(\n" + s + "\n)\"; ls" },
		"environment":  func(s string) string { return "x_y=$(\n" + s + "\n) ls" },
		"output":       func(s string) string { return "ls > >(\n" + s + "\n)" },
		"function run": func(s string) string { return "f_x() { eval \"$1\"; }\nf_x " + quote(s) },
		"positional":   func(s string) string { return "set -- " + quote(s) + "; eval \"$1\"" },
		"array run":    func(s string) string { return "a_b=(x " + quote(s) + "); eval \"${a_b[1]}\"" },
		"stdin":        func(s string) string { return "bash -s <<< " + quote(s) },
		"args":         func(s string) string { return "bash -c 'eval \"$1\"' x " + quote(s) },
		"find many":    func(s string) string { return "find . -maxdepth 0 -exec bash -c " + quote(s) + " {} +" },
		"xargs shell":  func(s string) string { return "echo x | xargs -I{} bash -c " + quote(s) + " {}" },
		"error trap":   func(s string) string { return "trap " + quote(s) + " ERR; false" },
		"debug trap":   func(s string) string { return "trap -- " + quote(s) + " DEBUG; ls" },
		"exec":         func(s string) string { return "exec bash -c " + quote(s) },
		"by path":      func(s string) string { return "/usr/bin/env /usr/bin/../bin/bash -c " + quote(s) },
		"elif":         func(s string) string { return "if false; then ls; elif\n" + s + "\nthen ls; fi" },
		"arithmetic for": func(s string) string {
			return "for ((i = 0; i < 1; i++)); do\n" + s + "\ndone"
		},
	} {
		placements[name] = place
	}
}

// plainWords matches commands of which every character is taken as it is, and
// which begin with no assignment.
var plainWords = regexp.MustCompile(`^[A-Za-z0-9_./-]+( [A-Za-z0-9_./:,@%+-][A-Za-z0-9_./=:,@%+-]*)*$`)

// each returns the words in another spelling.
func each(words []string, spell func(string) string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = spell(w)
	}
	return strings.Join(out, " ")
}

// hex spells every character of the word by its number.
func hex(w string) string {
	var b strings.Builder
	for i := range len(w) {
		fmt.Fprintf(&b, "\\x%02x", w[i])
	}
	return "$'" + b.String() + "'"
}

// spellings write a command of plain words in another way that bash reads the
// same.
var spellings = map[string]func(words []string) string{
	"quoted": func(w []string) string { return each(w, quote) },
	"doubly": func(w []string) string { return each(w, func(s string) string { return `"` + s + `"` }) },
	"hex":    func(w []string) string { return each(w, hex) },
	"in halves": func(w []string) string {
		return each(w, func(s string) string { return s[:len(s)/2] + `""` + s[len(s)/2:] })
	},
	"escaped": func(w []string) string {
		return each(w, func(s string) string { return regexp.MustCompile("(.)").ReplaceAllString(s, `\$1`) })
	},
	"continued": func(w []string) string {
		return each(w, func(s string) string { return s[:len(s)/2] + "\\\n" + s[len(s)/2:] })
	},
	"variable":  func(w []string) string { return "v_w=" + w[0] + "; $v_w " + strings.Join(w[1:], " ") },
	"split":     func(w []string) string { return "v_w=" + quote(strings.Join(w, " ")) + "; $v_w" },
	"array":     func(w []string) string { return "v_w=(" + strings.Join(w, " ") + `); "${v_w[@]}"` },
	"arguments": func(w []string) string { return "set -- " + strings.Join(w, " ") + `; "$@"` },
	"function":  func(w []string) string { return `v_w() { "$@"; }; v_w ` + strings.Join(w, " ") },
	"default":   func(w []string) string { return "${v_w:-" + w[0] + "} " + strings.Join(w[1:], " ") },
	"printed":   func(w []string) string { return "$(printf %s " + w[0] + ") " + strings.Join(w[1:], " ") },
	"assigned":  func(w []string) string { return "printf -v v_w %s " + w[0] + "; $v_w " + strings.Join(w[1:], " ") },
	"loop": func(w []string) string {
		return "for v_w in " + w[len(w)-1] + "; do " + strings.Join(w[:len(w)-1], " ") + ` "$v_w"; done`
	},
	"command":    func(w []string) string { return "command " + strings.Join(w, " ") },
	"exec":       func(w []string) string { return "exec " + strings.Join(w, " ") },
	"path":       func(w []string) string { return "/usr/bin/" + strings.Join(w, " ") },
	"long path":  func(w []string) string { return "/usr/bin/../bin/./" + strings.Join(w, " ") },
	"old path":   func(w []string) string { return "/bin/" + strings.Join(w, " ") },
	"env":        func(w []string) string { return "env -u X A=1 " + strings.Join(w, " ") },
	"env text":   func(w []string) string { return "env -S " + quote(strings.Join(w, " ")) },
	"timeout":    func(w []string) string { return "timeout -k 1 9 " + strings.Join(w, " ") },
	"wrappers":   func(w []string) string { return "nohup nice -n 5 stdbuf -oL timeout 9 " + strings.Join(w, " ") },
	"time":       func(w []string) string { return "time -p " + strings.Join(w, " ") },
	"redirected": func(w []string) string { return "</dev/null 2>&1 >/dev/null A=1 " + strings.Join(w, " ") },
	"coproc":     func(w []string) string { return "coproc " + strings.Join(w, " ") },
	"shell":      func(w []string) string { return "sh -c " + quote(strings.Join(w, " ")) },
	"shell args": func(w []string) string { return `bash -c '"$@"' x ` + strings.Join(w, " ") },
	"document":   func(w []string) string { return "sh <<'E'\n" + strings.Join(w, " ") + "\nE" },
	"xargs":      func(w []string) string { return "true | xargs " + strings.Join(w, " ") },
	"find":       func(w []string) string { return "find . -maxdepth 0 -exec " + strings.Join(w, " ") + ` \;` },
}

// faithful are the spellings that change nothing of what is run, so that what is
// allowed stays so.
var faithful = []string{"quoted", "doubly", "hex", "in halves", "escaped", "continued", "variable", "array", "arguments", "function", "time", "redirected"}

// variants returns the command of a row in other places, and in other spellings
// where it is of plain words.
func variants(row corpusRow) map[string]string {
	out := map[string]string{}
	for name, place := range placements {
		out["in "+name] = place(row.Command)
	}
	if words := strings.Fields(row.Command); plainWords.MatchString(row.Command) {
		for name, spell := range spellings {
			out["spelled "+name] = spell(words)
		}
	}
	return out
}

// someOf says, for each corpus, of how many variants of a row one is tried, each
// row others. PINFOLD_VARIANTS=all tries all of them, which takes a minute.
var someOf = []int{3, 24}

// skipped reports whether a variant is not tried.
func skipped(corpus, row, variant int) bool {
	return (row+variant)%someOf[corpus] != 0 && os.Getenv("PINFOLD_VARIANTS") != "all"
}

// leastVariants is how many variants of each class are tried.
const leastVariants = 300

// Wherever a script of the corpora that must not be allowed is placed, and
// however it is spelled, it is not allowed.
func TestVariants(t *testing.T) {
	p, at, n, classes := builtin(t), projects{}, 0, map[string]int{}
	for i, file := range corpora {
		for k, row := range readCorpus(t, file) {
			if row.Expect != "must_not_allow" || row.Confidence == "judgement" {
				continue
			}
			env := policytest.Env(at.of(t, row))
			q, err := p.AllowAlso(row.ExtraAllow)
			if err != nil {
				t.Fatal(err)
			}
			list := variants(row)
			for v, name := range slices.Sorted(maps.Keys(list)) {
				if skipped(i, k, v) {
					continue
				}
				n++
				classes[row.Class]++
				s, err := shparse.Parse(list[name])
				if err != nil {
					continue // refused
				}
				if d := q.Decide(s, env); d.Verdict == policy.Allow {
					t.Errorf("%s %s is allowed: %q", row.ID, name, list[name])
				}
			}
		}
	}
	t.Logf("%d variants: %v", n, classes)
	for class, n := range classes {
		if n < leastVariants {
			t.Errorf("%s: %d variants, want %d", class, n, leastVariants)
		}
	}
}

// structures are the placements that run a script as it is.
var structures = []string{"subshell", "group", "if", "else", "while", "for", "case", "function", "and", "or", "pipe", "piped", "negated",
	"background", "substitution", "process", "assignment", "time", "after", "before", "eval", "bash -c", "heredoc"}

// A script of the corpus that must be allowed is allowed in other places and
// spellings, too.
func TestAllowedVariants(t *testing.T) {
	p, at, n := builtin(t), projects{}, 0
	for k, row := range slices.Concat(readCorpus(t, corpora[0]), readCorpus(t, corpora[1])) {
		if row.Expect != "must_allow" || row.Confidence == "judgement" {
			continue
		}
		env := policytest.Env(at.of(t, row))
		q, err := p.AllowAlso(row.ExtraAllow)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]string{}
		for _, name := range structures {
			list["in "+name] = placements[name](row.Command)
		}
		if words := strings.Fields(row.Command); plainWords.MatchString(row.Command) {
			for _, name := range faithful {
				list["spelled "+name] = spellings[name](words)
			}
		}
		for v, name := range slices.Sorted(maps.Keys(list)) {
			text := list[name]
			if skipped(0, k, v) {
				continue
			}
			n++
			s, err := shparse.Parse(text)
			if err != nil {
				t.Errorf("%s %s: %v: %q", row.ID, name, err, text)
				continue
			}
			if d := q.Decide(s, env); d.Verdict != policy.Allow {
				t.Errorf("%s %s: %v: %q: %+v", row.ID, name, d.Verdict, text, d.Reasons)
			}
		}
	}
	t.Logf("%d variants", n)
}
