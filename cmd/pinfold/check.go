package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pinfold/pinfold/api"
)

// check is pinfold check.
func check(args []string) int {
	var w where
	flags := w.flags("check")
	asJSON := flags.Bool("json", false, "print the decision as JSON")
	if status, ok := parse(flags, args, exitFailed); !ok {
		return status
	}
	text, err := command(flags.Args())
	if err == nil {
		err = w.complete()
	}
	if err != nil {
		complain("%v, see pinfold check --help", err)
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
	raw, answer, err := client.CheckJSON(context.Background(), api.CheckRequest{Project: w.project, Session: w.session, Command: text, Cwd: w.cwd, ReadsOnly: w.readsOnly})
	switch refused, isAnswer := errors.AsType[*api.Error](err); {
	case *asJSON && len(raw) > 0:
		fprint(os.Stdout, string(raw))
	case isAnswer:
		fprint(os.Stderr, "pinfold: "+explain(refused, text))
	case err != nil:
		complain("%v", err)
	default:
		fprint(os.Stdout, describe(answer, text))
	}
	if err != nil {
		return status(context.Background(), nil, err)
	}
	return verdictStatus(answer.Decision.Verdict)
}

// verdictStatus returns the exit status for a verdict; that of a verdict which
// this client does not know is deny's.
func verdictStatus(verdict string) int {
	switch verdict {
	case "allow":
		return exitOK
	case "require_approval":
		return exitAsk
	default:
		return exitRefused
	}
}

// describe returns the decision for a person.
func describe(a *api.CheckAnswer, command string) string {
	d := a.Decision
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s risk\n", verdictInWords(d.Verdict), d.Risk)
	for _, r := range d.Reasons {
		fmt.Fprintf(&b, "- %s: %s (rule %s, line %d, column %d)\n", r.Verdict, visible(r.Message), visible(r.Rule), r.At.Line, r.At.Column)
		if r.Verdict == d.Verdict && r.Verdict != "allow" {
			b.WriteString(pointAt(command, &r.At))
		}
		if r.Suggest != "" {
			fmt.Fprintf(&b, "  what to do: %s\n", visible(r.Suggest))
		}
	}
	if d.Text != command {
		fmt.Fprintf(&b, "would run as: %s\n", visible(d.Text))
	}
	if d.Verdict != "deny" {
		b.WriteString(grantInWords(a.Grant))
		fmt.Fprintf(&b, "time:      %g s\n", float64(d.TimeoutMS)/1000)
	}
	return b.String()
}

func verdictInWords(verdict string) string {
	switch verdict {
	case "allow":
		return "allowed"
	case "require_approval":
		return "not allowed unasked: somebody would have to approve"
	default:
		return "denied"
	}
}
