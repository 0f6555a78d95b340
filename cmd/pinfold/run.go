package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

// run is pinfold run.
func run(args []string) int {
	var w where
	var timeout seconds
	var asJSON, unattended, background, noWait, noStdin, keepStdin, plain bool
	var req api.ExecRequest
	flags := w.flags("run")
	flags.Var(&timeout, "timeout", "end the command after this `time`, up to an hour (default 10s, or 2m for builds and tests)")
	flags.BoolVar(&asJSON, "json", false, "print the whole result as JSON when the command has ended")
	flags.BoolVar(&plain, "plain", false, "take control sequences, such as colours, out of the output")
	flags.BoolVar(&unattended, "unattended", os.Getenv("PINFOLD_UNATTENDED") != "", "nobody can approve: refuse at once what needs approval (also $PINFOLD_UNATTENDED)")
	flags.BoolVar(&background, "background", false, "print the run's id as soon as it has started, and let it run on; see pinfold runs")
	flags.BoolVar(&noWait, "no-wait", false, "when somebody has to approve, print the run's id and let it run in the background then")
	flags.BoolVar(&req.TTY, "tty", false, "give the command a terminal, and pass this one's keys and size on")
	flags.BoolVar(&req.MergeStderr, "merge", false, "give stderr in stdout, in the order in which both are written")
	flags.BoolVar(&noStdin, "no-stdin", false, "give the command nothing to read (default: the own stdin, when it is a pipe or a file)")
	flags.BoolVar(&keepStdin, "keep-stdin", false, "with --background, leave stdin open for pinfold runs stdin")
	limits := limitFlags(flags)
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
	if err := w.find(context.Background(), client); err != nil {
		if refused, ok := errors.AsType[*api.Error](err); ok {
			fprint(os.Stderr, "pinfold: "+explain(refused, text))
		} else {
			complain("%v", err)
		}
		return exitFailed
	}
	req.Session = w.session
	req.Project, req.Command, req.Cwd, req.TimeoutMS, req.Unattended = w.project, text, w.cwd, timeout.d.Milliseconds(), unattended
	req.ReadsOnly, req.Plain, req.Limits = w.readsOnly, plain, limits()
	if background {
		req.StdinStream = keepStdin
		return runBackground(cancelOnSignal(), client, req, asJSON)
	}
	if noWait {
		return runNoWait(cancelOnSignal(), client, req, asJSON)
	}
	in, err := takeInput(&req, noStdin, false)
	if err == nil && asJSON && req.TTY {
		err = errors.New("--tty shows the output as it comes: it does not go with --json")
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	ctx := cancelOnSignal()
	defer in.restore()
	if asJSON {
		return runJSON(ctx, client, req, in)
	}
	return runStream(ctx, client, req, in)
}

// limitFlags adds the flags that lower limits, and returns what to call for the
// limits after they were parsed.
func limitFlags(flags *flag.FlagSet) func() *api.LimitsRequest {
	var memory, processes, cpu int64
	flags.Int64Var(&memory, "memory", 0, "end the command when it uses more than so many `MiB` (lower than the site's)")
	flags.Int64Var(&processes, "processes", 0, "end the command when it has more than `n` processes (lower than the site's)")
	flags.Int64Var(&cpu, "cpu", 0, "end the command when it has used so many `seconds` of processor time")
	return func() *api.LimitsRequest {
		l := api.LimitsRequest{MemoryBytes: memory << 20, Processes: processes, CPUMS: cpu * 1000}
		if l == (api.LimitsRequest{}) {
			return nil
		}
		return &l
	}
}

// runBackground starts the command and prints its id.
func runBackground(ctx context.Context, client *api.Client, req api.ExecRequest, asJSON bool) int {
	answer, started, err := client.Background(ctx, req)
	if err != nil {
		if refused, ok := errors.AsType[*api.Error](err); ok {
			fprint(os.Stderr, "pinfold: "+explain(refused, req.Command))
		} else {
			complain("%v", err)
		}
		return status(ctx, nil, err)
	}
	if asJSON {
		fprint(os.Stdout, string(answer))
	} else {
		fprint(os.Stdout, started.Run+"\n")
	}
	return exitOK
}

// runNoWait runs the command; when somebody has to approve it, it prints its id.
func runNoWait(ctx context.Context, client *api.Client, req api.ExecRequest, asJSON bool) int {
	wait := false
	req.Wait = &wait
	answer, result, err := client.ExecJSON(ctx, req)
	var waiting api.WaitingAnswer
	if err == nil && result == nil {
		err = json.Unmarshal(answer, &waiting)
	}
	refused, isAnswer := errors.AsType[*api.Error](err)
	switch {
	case asJSON && len(answer) > 0:
		fprint(os.Stdout, string(answer))
	case isAnswer:
		fprint(os.Stderr, "pinfold: "+explain(refused, req.Command))
	case err != nil:
		complain("%v", err)
	case result != nil:
		fprint(os.Stdout, result.Stdout)
		fprint(os.Stderr, result.Stderr+remarks(&result.Outcome))
	default:
		fprint(os.Stderr, waitsFor(waiting.Approval))
		fprint(os.Stdout, waiting.Run+"\n")
	}
	if result == nil {
		if err == nil {
			return exitOK
		}
		return status(ctx, nil, err)
	}
	return status(ctx, &result.Outcome, err)
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
func runJSON(ctx context.Context, client *api.Client, req api.ExecRequest, in *input) int {
	answer, result, err := client.ExecStdin(ctx, req, func(run string) { in.pump(ctx, client, run) })
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
func runStream(ctx context.Context, client *api.Client, req api.ExecRequest, in *input) int {
	var outcome *api.Outcome
	err := client.Stream(ctx, req, func(e *api.Event) error {
		switch e.Event {
		case api.EventApproval:
			fprint(os.Stderr, waitsFor(e.Approval))
		case api.EventStarted:
			if in.stream {
				in.makeRaw()
				go in.pump(ctx, client, e.Run)
			}
		case api.EventStdout:
			fprint(os.Stdout, e.Data)
		case api.EventStderr:
			fprint(os.Stderr, e.Data)
		case api.EventFinished:
			outcome = &e.Outcome
		}
		return nil
	})
	in.restore()
	if outcome != nil {
		fprint(os.Stderr, remarks(outcome))
	}
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

// remarks says what the caller of a command should know besides its output.
func remarks(o *api.Outcome) string {
	var b strings.Builder
	for _, c := range o.ProtectedCreated {
		fmt.Fprintf(&b, "pinfold: %s is protected, and was taken away: it is now %s\n", visible(c.Path), visible(c.To))
	}
	if o.ProtectedExposed != "" {
		fmt.Fprintf(&b, "pinfold: %s is protected or hidden, and was replaced while the command ran\n", visible(o.ProtectedExposed))
	}
	for _, name := range o.Left {
		fmt.Fprintf(&b, "pinfold: %s is left behind, and will be in git's way\n", visible(name))
	}
	return b.String()
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
		case api.PermissionDenied, api.ApprovalRequired, api.ApprovalDenied, api.ApprovalTimeout, api.ApprovalStale, api.ParseError, api.ToolNotAllowed, api.BudgetExhausted:
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
