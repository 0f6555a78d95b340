package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A synopsis is one line of the usage: the one source of the help, the completions and
// the manual page.
type synopsis struct{ name, text, summary string }

// synopses returns the lines of the usage, in its order.
func synopses() []synopsis {
	var all []synopsis
	for line := range strings.Lines(usage) {
		rest, ok := strings.CutPrefix(line, "  pinfold ")
		if !ok {
			continue
		}
		text, summary, _ := strings.Cut(rest, "  ")
		name, _, _ := strings.Cut(text, " ")
		all = append(all, synopsis{strings.TrimSuffix(name, ","), "pinfold " + strings.TrimSpace(text), strings.TrimSpace(summary)})
	}
	return all
}

// commandNames returns the commands, each once.
func commandNames() []string {
	var names []string
	for _, s := range synopses() {
		if !strings.HasPrefix(s.name, "-") && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	return append(names, "resume", "help")
}

// The completions: commands from the usage, agents where one is named, and flags from
// the command's own help when they are asked for.
const bashCompletion = `_pinfold() {
	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W "COMMANDS" -- "$word"))
	elif [[ $word == -* ]]; then
		COMPREPLY=($(compgen -W "$(pinfold "$command" --help 2>/dev/null | sed -n 's/^  \(-[a-z-]*\).*/-\1/p')" -- "$word"))
	elif [ "$command" = setup ] || [ "$command" = hook ]; then
		COMPREPLY=($(compgen -W "AGENTS" -- "$word"))
	else
		COMPREPLY=($(compgen -f -- "$word"))
	fi
}
complete -F _pinfold pinfold
`

const zshCompletion = `#compdef pinfold
_pinfold() {
	if ((CURRENT == 2)); then
		compadd -- COMMANDS
	elif [[ $words[CURRENT] == -* ]]; then
		compadd -- $(pinfold "$words[2]" --help 2>/dev/null | sed -n 's/^  \(-[a-z-]*\).*/-\1/p')
	elif [[ $words[2] == (setup|hook) ]]; then
		compadd -- AGENTS
	else
		_files
	fi
}
compdef _pinfold pinfold
`

const fishCompletion = `complete -c pinfold -n __fish_use_subcommand -f -a "COMMANDS"
complete -c pinfold -n "__fish_seen_subcommand_from setup hook" -f -a "AGENTS"
complete -c pinfold -n "not __fish_use_subcommand" -a "(pinfold (commandline -opc)[2] --help 2>/dev/null | sed -n 's/^  \(-[a-z-]*\).*/-\1/p')"
`

// completion is pinfold completion.
func completion(args []string) int {
	scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if len(args) != 1 || scripts[args[0]] == "" {
		fprint(os.Stderr, "usage: pinfold completion bash|zsh|fish\n")
		return exitUsage
	}
	var agents []string
	for name := range installations {
		agents = append(agents, name)
	}
	slices.Sort(agents)
	script := strings.ReplaceAll(scripts[args[0]], "COMMANDS", strings.Join(commandNames(), " "))
	fprint(os.Stdout, strings.ReplaceAll(script, "AGENTS", strings.Join(agents, " ")))
	return exitOK
}

// statuses are the exit statuses, as the manual lists them.
var statuses = []struct {
	status  int
	meaning string
}{
	{exitOK, "done; for check and explain: allowed"},
	{exitMissing, "doctor: a layer is missing"},
	{exitUsage, "wrong usage; hook: a denial"},
	{exitAsk, "check and explain: it would have to be approved"},
	{exitTimeout, "run and sh: the command's time was over"},
	{exitFailed, "Pinfold itself failed"},
	{exitRefused, "denied, not approved, or no shell text"},
	{exitBySignal, "and the signal's number: a signal ended the command"},
}

// manual returns the manual page pinfold(1).
func manual() string {
	escape := func(s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\e`), "-", `\-`)
		if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
			s = `\&` + s
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH PINFOLD 1 \"\" \"pinfold %s\"\n.SH NAME\npinfold \\- run shell commands, judged and confined\n.SH COMMANDS\n", escape(version))
	for _, s := range synopses() {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape(s.text), escape(s.summary))
	}
	b.WriteString(".PP\nEach command lists its flags with \\-\\-help.\n.SH EXIT STATUS\nThat of run and sh is the command's, else:\n")
	for _, s := range statuses {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", s.status, escape(s.meaning))
	}
	b.WriteString(".SH ENVIRONMENT\n.TP\n.B PINFOLD_SOCKET\nthe daemon's socket\n.TP\n.B PINFOLD_PROJECT\nsh: the project's directory\n" +
		".TP\n.B PINFOLD_UNATTENDED\nrun and sh: when set, what needs approval is refused at once\n.SH SEE ALSO\n.BR pinfoldd (8)\n")
	return b.String()
}

// nearest returns the name that a mistyped word may mean: the one that differs least, by
// at most two letters put in, left out or changed, "" for none.
func nearest(word string, names []string) string {
	if len(word) > 20 {
		return ""
	}
	best, least := "", 3
	for _, name := range names {
		if d := distance(word, name); d < least && d < len(name)-1 {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters have to be put in, left out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
