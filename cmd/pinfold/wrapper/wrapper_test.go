package wrapper

import (
	"strings"
	"testing"
)

const (
	claudeBegin = `source /home/u/.claude/shell-snapshots/snapshot-bash-1796101306969-mhjg44.sh 2>/dev/null || true && `
	claudeSetup = `\builtin shopt -u extglob 2>/dev/null || true && { \builtin unalias -- 'which'; \builtin unset -f -- 'which'; } >/dev/null 2>&1 || true && { \builtin unalias -- 'unsetenv'; \builtin unset -f -- 'unsetenv'; } >/dev/null 2>&1 || true && `
	claudeEnd   = ` < /dev/null && pwd -P >| /tmp/claude-52be-cwd`
	geminiBegin = "shopt -u promptvars nullglob extglob nocaseglob dotglob; _bgpids_file=/tmp/gemini-shell-UkqQQa/bgpids.tmp\n(\n  trap 'jobs -p > \"$_bgpids_file\"' EXIT\n"
	geminiEnd   = "\n)\n__code=$?\nexit $__code"
)

// TestUnwrap proves that what agents were seen to write around a command is
// recognised, and the command found as the model wrote it.
func TestUnwrap(t *testing.T) {
	for _, c := range []struct{ text, template, command string }{
		{claudeBegin + claudeSetup + `eval 'echo hi; cd sub; pwd'` + claudeEnd, "claude-snapshot", "echo hi; cd sub; pwd"},
		{claudeBegin + claudeSetup + `eval 'echo '"'"'it'"'"'\'"'"''"'"'s'"'"' "q"'` + claudeEnd, "claude-snapshot", `echo 'it'\''s' "q"`},
		{claudeSetup + `eval "echo \"\$x\" \\ 'y'"` + claudeEnd, "claude-plain", `echo "$x" \ 'y'`},
		{claudeSetup + `eval ls` + claudeEnd, "claude-plain", "ls"},
		{claudeSetup + "eval 'cat <<E\na\nE'" + claudeEnd, "claude-plain", "cat <<E\na\nE"},
		{geminiBegin + "echo hi; cd sub; pwd" + geminiEnd, "gemini", "echo hi; cd sub; pwd"},
		{geminiBegin + "cat <<E\n)\nE\nls # all" + geminiEnd, "gemini", "cat <<E\n)\nE\nls # all"},
		{geminiBegin + "# first\nls &" + geminiEnd, "gemini", "# first\nls &"},
	} {
		w, err := Unwrap(c.text)
		if err != nil || w == nil {
			t.Errorf("%s\nis not recognised: %v", c.text, err)
			continue
		}
		if w.Template != c.template || w.Command != c.command {
			t.Errorf("%s\nis %s of %q, want %s of %q", c.text, w.Template, w.Command, c.template, c.command)
		}
		claude := w.Agent == "claude"
		if w.Seen == "" || w.NoStdin != claude || (w.FinalDir == "/tmp/claude-52be-cwd") != claude || (w.Children == "/tmp/gemini-shell-UkqQQa/bgpids.tmp") == claude {
			t.Errorf("%s: %+v", c.template, w)
		}
	}
}

// TestUnwrapOnlyExact proves that text which is a wrapper but for a little is none:
// it is judged as it was written.
func TestUnwrapOnlyExact(t *testing.T) {
	claude := claudeBegin + claudeSetup + `eval 'ls'` + claudeEnd
	gemini := geminiBegin + "ls" + geminiEnd
	for what, text := range map[string]string{
		"nothing":                    "",
		"a command":                  "ls",
		"the wrapper in a command":   claude + "; ls",
		"more in front":              "ls; " + claude,
		"another list":               strings.Replace(claude, "&& pwd", "; pwd", 1),
		"another snapshot":           strings.Replace(claude, "/home/u/.claude/shell-snapshots/", "/home/u/", 1),
		"a snapshot that climbs":     strings.Replace(claude, "/home/u/.claude", "/home/u/../.claude", 1),
		"a snapshot that expands":    strings.Replace(claude, "/home/u", "$HOME", 1),
		"a command that expands":     strings.Replace(claude, "'ls'", `"$(ls)"`, 1),
		"a variable as the command":  strings.Replace(claude, "'ls'", `"$x"`, 1),
		"ANSI-C quotes":              strings.Replace(claude, "'ls'", `$'ls'`, 1),
		"two words":                  strings.Replace(claude, "'ls'", `'ls' 'x'`, 1),
		"an empty command":           strings.Replace(claude, "'ls'", `''`, 1),
		"the side file elsewhere":    strings.Replace(claude, "/tmp/claude-52be-cwd", "/tmp/x", 1),
		"the side file in the home":  strings.Replace(claude, "/tmp/claude-52be-cwd", "/home/u/.bashrc", 1),
		"a side file that climbs":    strings.Replace(claude, "/tmp/claude-52be-cwd", "/tmp/claude-../../x-cwd", 1),
		"stdin":                      strings.Replace(claude, "< /dev/null", "< x", 1),
		"another redirect":           strings.Replace(claude, ">| /tmp", "> /tmp", 1),
		"in the background":          claude + " &",
		"another trap":               strings.Replace(gemini, "jobs -p", "ls", 1),
		"a subshell that ends early": geminiBegin + "ls\n)\nrm x\n(" + geminiEnd,
		"without its end":            geminiBegin + "ls\n)\n__code=$?\n",
		"another exit":               strings.Replace(gemini, "exit $__code", "exit 0", 1),
		"children elsewhere":         strings.Replace(gemini, "/tmp/gemini-shell-UkqQQa/", "/etc/", 1),
		"no command":                 geminiBegin + geminiEnd,
		"unfinished":                 geminiBegin + "ls 'x" + geminiEnd,
		"NUL":                        claude + "\x00",
		"negated":                    "! " + claude,
	} {
		if w, err := Unwrap(text); err != nil || w != nil {
			t.Errorf("%s: %+v, %v", what, w, err)
		}
	}
}

// TestTemplates proves that each template reads, and says where it was seen.
func TestTemplates(t *testing.T) {
	all, err := load()
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	for _, c := range all {
		if c.agent == "" || c.seen == "" {
			t.Errorf("%s names no agent or version", c.name)
		}
	}
}

// FuzzUnwrap looks for text that panics, or that is found a wrapper though it does
// not hold the command.
func FuzzUnwrap(f *testing.F) {
	f.Add(claudeBegin + claudeSetup + `eval 'ls'` + claudeEnd)
	f.Add(geminiBegin + "ls\ncat <<E\nE" + geminiEnd)
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Unwrap(text)
		if err != nil || w != nil && (w.Command == "" || w.Children == "" && w.FinalDir == "") {
			t.Errorf("%+v, %v", w, err)
		}
	})
}
