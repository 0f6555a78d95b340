package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/pinfold/pinfold/api"
)

// explainCommand is pinfold explain.
func explainCommand(args []string) int {
	var w where
	flags := w.flags("explain")
	asJSON := flags.Bool("json", false, "print the explanation as JSON")
	if status, ok := parse(flags, args, exitFailed); !ok {
		return status
	}
	text, err := command(flags.Args())
	if err == nil {
		err = w.complete()
	}
	if err != nil {
		complain("%v, see pinfold explain --help", err)
		return exitFailed
	}
	client, err := connect(w.socket)
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	if err := w.find(context.Background(), client); err != nil {
		complain("%v", err)
		return exitFailed
	}
	raw, answer, err := client.CheckJSON(context.Background(), api.CheckRequest{Project: w.project, Session: w.session, Command: text, Cwd: w.cwd, ReadsOnly: w.readsOnly, Explain: true})
	switch refused, isAnswer := errors.AsType[*api.Error](err); {
	case *asJSON && len(raw) > 0:
		fprint(os.Stdout, string(raw))
	case isAnswer:
		fprint(os.Stderr, "pinfold: "+explain(refused, text))
	case err != nil:
		complain("%v", err)
	case answer.Explanation == nil:
		err = errors.New("the daemon is older than this client and explains nothing")
		complain("%v", err)
	default:
		fprint(os.Stdout, inFull(answer, text, paletteFor(os.Stdout)))
	}
	if err != nil {
		return status(context.Background(), nil, err)
	}
	return verdictStatus(answer.Decision.Verdict)
}

// A palette colours text; its zero value leaves it as it is.
type palette struct{ on bool }

// paletteFor colours what goes to a terminal, unless $NO_COLOR is set or the
// terminal is a dumb one.
func paletteFor(f *os.File) palette {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return palette{}
	}
	return palette{isTerminal(int(f.Fd()))}
}

// verdict colours the text for the verdict: green, yellow or red.
func (p palette) verdict(verdict, text string) string {
	colour := "31"
	switch verdict {
	case "allow":
		colour = "32"
	case "require_approval":
		colour = "33"
	}
	return p.paint(colour, text)
}

func (p palette) bold(text string) string { return p.paint("1", text) }

func (p palette) paint(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// inFull returns the explanation for a person: the command with its parts
// underlined, what each does and gets, the grant, and what would help.
func inFull(a *api.CheckAnswer, command string, p palette) string {
	d, e := a.Decision, a.Explanation
	var b strings.Builder
	b.WriteString(p.bold(p.verdict(d.Verdict, verdictInWords(d.Verdict))) + ", " + visible(d.Risk) + " risk\n\n")
	lines := strings.Split(command, "\n")
	line := 0
	for i := range e.Parts {
		part := &e.Parts[i]
		if part.At.Line != line && part.At.Line >= 1 && part.At.Line <= len(lines) {
			line = part.At.Line
			b.WriteString("  " + visible(lines[line-1]) + "\n")
		}
		b.WriteString(partInWords(part, lines, p))
	}
	if d.Text != command {
		fmt.Fprintf(&b, "\nruns as: %s\n", visible(d.Text))
	}
	if e.Grant != "" {
		b.WriteString("\n" + p.bold("what the kernel holds it to") + "\n")
		for sentence := range strings.Lines(e.Grant) {
			b.WriteString("  " + visible(strings.TrimSuffix(sentence, "\n")) + "\n")
		}
		fmt.Fprintf(&b, "  ends after %g s\n", float64(d.TimeoutMS)/1000)
	}
	if e.Opaque {
		b.WriteString("\n" + p.bold("runs code that this reading cannot see: the boundary is the grant, not the reading") + "\n")
	}
	if len(e.Remedies) > 0 {
		b.WriteString("\n" + p.bold("what would make it allowed") + "\n")
		for _, r := range e.Remedies {
			b.WriteString("  - " + visible(r) + "\n")
		}
	}
	return b.String()
}

// partInWords underlines the part in its line and says what it does and gets.
func partInWords(part *api.Part, lines []string, p palette) string {
	var b strings.Builder
	if part.At.Line >= 1 && part.At.Line <= len(lines) && part.At.Column >= 1 {
		line := lines[part.At.Line-1]
		before := line[:min(part.At.Column-1, len(line))]
		text, _, _ := strings.Cut(part.At.Text, "\n")
		b.WriteString("  " + strings.Repeat(" ", utf8.RuneCountInString(visible(before))) +
			p.verdict(part.Verdict, strings.Repeat("^", max(1, utf8.RuneCountInString(visible(text))))) + "\n")
	}
	for _, seen := range part.Effects {
		fmt.Fprintf(&b, "    %s\n", effectInWords(seen))
	}
	for _, r := range part.Reasons {
		fmt.Fprintf(&b, "    %s: %s (rule %s)\n", p.verdict(r.Verdict, verdictWord(r.Verdict)), visible(r.Message), visible(r.Rule))
	}
	if len(part.Reasons) == 0 {
		fmt.Fprintf(&b, "    %s: no rule objects\n", p.verdict(part.Verdict, verdictWord(part.Verdict)))
	}
	return b.String()
}

func verdictWord(verdict string) string {
	switch verdict {
	case "allow":
		return "allowed"
	case "require_approval":
		return "asked about"
	default:
		return "denied"
	}
}

// places says where a path lies.
var places = map[string]string{
	"project": "in the project", "protected": "a protected path", "git": "what steers git", "readable": "shown read-only by the sandbox",
	"writable": "writable by every command", "null": "harmless", "device": "a device", "outside": "outside the project", "hidden": "read as empty",
	"climbs": "out of an unknown directory",
}

func effectInWords(e api.Effect) string {
	what := map[string]string{
		"executes": "runs a program", "opaque": "runs code that the reading cannot see", "network": "uses the network",
		"world-writable": "makes writable for everybody", "code": "runs text as code", "steers": "steers other programs",
		"option": "has an option", "asked": "does more", "ambiguous": "may be read otherwise",
	}[e.Effect]
	if what == "" {
		what = visible(e.Effect)
	}
	if e.Detail != "" {
		what += " " + visible(e.Detail)
	}
	if e.Place != "" {
		where := places[e.Place]
		if where == "" {
			where = visible(e.Place)
		}
		what += ", " + where
	}
	return what
}
