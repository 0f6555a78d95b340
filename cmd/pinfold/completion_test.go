package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestNearest proves that a mistyped command is recognised, and nothing else.
func TestNearest(t *testing.T) {
	for word, want := range map[string]string{
		"rum": "run", "chekc": "check", "approval": "approvals", "docter": "doctor", "set-up": "setup", "polcy": "policy",
		"frobnicate": "", "x": "", "ls": "", "": "",
	} {
		if got := nearest(word, commandNames()); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// TestCompletion proves that bash completes commands and agents by the script, and that
// the manual has every command and status.
func TestCompletion(t *testing.T) {
	complete := func(words ...string) string {
		script := strings.ReplaceAll(bashCompletion, "COMMANDS", strings.Join(commandNames(), " "))
		script = strings.ReplaceAll(script, "AGENTS", "claude codex copilot")
		script += "\nCOMP_WORDS=(" + quoteAll(words) + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _pinfold; echo \"${COMPREPLY[*]}\""
		out, err := exec.Command("bash", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := complete("pinfold", "ch"); got != "check" {
		t.Errorf("ch: %q", got)
	}
	if got := complete("pinfold", "setup", "co"); got != "codex copilot" {
		t.Errorf("setup co: %q", got)
	}
	page := manual()
	for _, s := range synopses() {
		if s.summary == "" || !strings.Contains(page, strings.ReplaceAll(s.summary, "-", `\-`)) {
			t.Errorf("%s is not in the manual, or says nothing", s.text)
		}
	}
	for _, name := range []string{"run", "sh", "shim", "setup", "doctor", "resume"} {
		if !slices.Contains(commandNames(), name) {
			t.Errorf("%s is no command of the usage", name)
		}
	}
}
