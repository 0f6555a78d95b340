package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/pinfold/pinfold/api"
)

// policyCommand is pinfold policy. What needs no daemon is done by the daemon's
// program, so that this one stays small: pinfold policy check is executed as
// pinfoldd policy check.
func policyCommand(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "summary":
			return policySummary(args[1:])
		case "reload":
			return policyReload(args[1:])
		}
	}
	program, err := findProgram("pinfoldd")
	if err == nil {
		err = syscall.Exec(program, append([]string{"pinfoldd", "policy"}, args...), os.Environ())
	}
	complain("policy: %v", err)
	return exitFailed
}

// policySummary is pinfold policy summary.
func policySummary(args []string) int {
	var socket, project string
	flags := newFlags("policy summary", "", &socket)
	flags.StringVar(&project, "project", "", "the project's `directory` (default the git top-level, else the current directory)")
	asJSON := flags.Bool("json", false, "print the summary as JSON")
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		complain("policy summary takes no operands")
		return exitUsage
	}
	dir, err := currentDir()
	if err == nil {
		project, err = projectOf(project, dir)
	}
	var client *api.Client
	if err == nil {
		client, err = connect(socket)
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	raw, answer, err := client.PolicySummary(context.Background(), project)
	switch refused, isAnswer := errors.AsType[*api.Error](err); {
	case *asJSON && len(raw) > 0:
		fprint(os.Stdout, string(raw))
	case isAnswer:
		fprint(os.Stderr, "pinfold: "+explain(refused, ""))
	case err != nil:
		complain("%v", err)
	default:
		for line := range strings.Lines(answer.Text) {
			fprint(os.Stdout, visible(strings.TrimSuffix(line, "\n"))+"\n")
		}
	}
	if err != nil {
		return status(context.Background(), nil, err)
	}
	return exitOK
}

// policyReload is pinfold policy reload.
func policyReload(args []string) int {
	var socket string
	flags := newFlags("policy reload", "", &socket)
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		complain("policy reload takes no operands")
		return exitUsage
	}
	client, err := connectControl(socket)
	var answer *api.ReloadAnswer
	if err == nil {
		defer client.Close()
		answer, err = client.Reload(context.Background())
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		fprint(os.Stderr, "pinfold: "+explain(refused, ""))
		return exitFailed
	}
	if err != nil {
		complain("policy reload: %s", visible(err.Error()))
		return exitFailed
	}
	fprint(os.Stdout, reloaded(answer))
	return exitOK
}

// reloaded returns the answer for a person.
func reloaded(a *api.ReloadAnswer) string {
	text := "nothing has changed, policy "
	if a.Changed {
		text = "reloaded, policy "
	}
	return text + visible(a.Policy) + "\n" + leftOut(a.LeftOut)
}

// leftOut says which directories of the policy commands do not see.
func leftOut(list []api.LeftOut) string {
	var b strings.Builder
	for _, l := range list {
		fmt.Fprintf(&b, "left out %s: %s\n", visible(l.Path), visible(l.Why))
	}
	return b.String()
}
