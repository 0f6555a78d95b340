package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

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

// policyReload is pinfold policy reload: the daemon is told by SIGHUP.
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
	client, err := connect(socket)
	if err == nil {
		err = hangUp(client)
	}
	if err != nil {
		complain("policy reload: %v", err)
		return exitFailed
	}
	fprint(os.Stdout, "the daemon was told; its log says what came of it, and pinfold doctor shows the policy in force\n")
	return exitOK
}

// hangUp sends SIGHUP to the client's daemon, while it surely is the process.
func hangUp(client *api.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	daemon, err := client.Connect(ctx)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(daemon.PID, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if again, err := client.Health(ctx); err != nil || again.PID != daemon.PID {
		return fmt.Errorf("the daemon ended meanwhile (%v)", err)
	}
	err = unix.PidfdSendSignal(fd, unix.SIGHUP, nil, 0)
	if errors.Is(err, unix.EPERM) {
		return errors.New("the daemon belongs to another user: its administrator sends it SIGHUP, as by systemctl reload pinfoldd")
	}
	return err
}
