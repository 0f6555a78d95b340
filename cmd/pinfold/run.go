package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

// run is pinfold run.
func run(args []string) int {
	var w where
	var timeout seconds
	var asJSON, unattended, plain bool
	flags := w.flags("run")
	flags.Var(&timeout, "timeout", "end the command after this `time`, up to an hour (default 10s, or 2m for builds and tests)")
	flags.BoolVar(&asJSON, "json", false, "print the whole result as JSON when the command has ended")
	flags.BoolVar(&plain, "plain", false, "take control sequences, such as colours, out of the output")
	flags.BoolVar(&unattended, "unattended", false, "nobody can approve: refuse at once what needs approval")
	if status, ok := parse(flags, args, exitFailed); !ok {
		return status
	}
	text, err := command(flags.Args())
	if err == nil {
		err = w.complete()
	}
	if err != nil {
		complain("%v, see pinfold run --help", err)
		return exitFailed
	}
	client, err := connect(w.socket)
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	ctx := cancelOnSignal()
	req := api.ExecRequest{Project: w.project, Command: text, Cwd: w.cwd, ReadsOnly: w.readsOnly, TimeoutMS: timeout.d.Milliseconds(), Unattended: unattended, Plain: plain}
	if asJSON {
		return runJSON(ctx, client, req)
	}
	return runStream(ctx, client, req)
}

// A signalError is the signal that canceled a run.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "canceled by " + unix.SignalName(e.signal) }

// cancelOnSignal returns a context that the first SIGINT, SIGTERM or SIGHUP
// cancels. The second one ends the program.
func cancelOnSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		first := (<-signals).(syscall.Signal)
		cancel(&signalError{first})
		<-signals
		os.Exit(exitBySignal + int(first))
	}()
	return ctx
}

// runJSON runs the command and prints the answer as it came.
func runJSON(ctx context.Context, client *api.Client, req api.ExecRequest) int {
	answer, result, err := client.ExecJSON(ctx, req)
	fprint(os.Stdout, string(answer))
	var outcome *api.Outcome
	if result != nil {
		outcome = &result.Outcome
	}
	if len(answer) == 0 {
		complain("%v", err)
	}
	return status(ctx, outcome, err)
}

// runStream runs the command and prints its output as it comes.
func runStream(ctx context.Context, client *api.Client, req api.ExecRequest) int {
	var outcome *api.Outcome
	err := client.Stream(ctx, req, func(e *api.Event) error {
		switch e.Event {
		case api.EventApproval:
			fprint(os.Stderr, waitsFor(e.Approval))
		case api.EventStdout:
			fprint(os.Stdout, e.Data)
		case api.EventStderr:
			fprint(os.Stderr, e.Data)
		case api.EventFinished:
			outcome = &e.Outcome
		}
		return nil
	})
	if outcome != nil && outcome.Error != nil {
		err = outcome.Error
	}
	refused, isAnswer := errors.AsType[*api.Error](err)
	switch {
	case isAnswer && ctx.Err() == nil:
		fprint(os.Stderr, "pinfold: "+explain(refused, req.Command))
	case err != nil && ctx.Err() == nil:
		complain("%v", err)
	}
	return status(ctx, outcome, err)
}

// waitsFor says that a run waits for somebody.
func waitsFor(a *api.Approval) string {
	return fmt.Sprintf("pinfold: waits for approval until %s: somebody who may approve can see it with  pinfold approvals show %s\n",
		a.Expires.Local().Format(time.TimeOnly), a.ID)
}

// status returns the exit status for what came of a run.
func status(ctx context.Context, outcome *api.Outcome, err error) int {
	if canceled, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		return exitBySignal + int(canceled.signal)
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		switch refused.Code {
		case api.PermissionDenied, api.ApprovalRequired, api.ApprovalDenied, api.ApprovalTimeout, api.ApprovalStale, api.ParseError:
			return exitRefused
		case api.Timeout:
			return exitTimeout
		}
		return exitFailed
	}
	switch {
	case err != nil || outcome == nil:
		return exitFailed
	case outcome.Signal != nil:
		return exitBySignal + int(unix.SignalNum(*outcome.Signal))
	case outcome.ExitCode != nil:
		return *outcome.ExitCode
	}
	return exitFailed
}
