package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
)

const sessionUsage = `usage:
  pinfold session open [flags]             open a session in the project and print its id
  pinfold session list [flags]             list your sessions
  pinfold session show [flags] ID          show one, and what it has spent
  pinfold session batch [flags] ID         run the commands of stdin, a line each; those that only read side by side
  pinfold session close [flags] ID         end it, and every run in it
pinfold run --session ID runs a command in it
`

// A sessionClient is pinfold session with its flags.
type sessionClient struct {
	client      *api.Client
	ctx         context.Context
	socket      string
	flags       *flag.FlagSet
	json        bool
	req         api.SessionRequest
	budget      api.Budget
	ttl         time.Duration
	stopOnError bool
	unattended  bool
}

// A list is a flag that may be given more than once.
type list []string

// String implements [flag.Value].
func (l *list) String() string { return strings.Join(*l, ", ") }

// Set implements [flag.Value].
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// sessionCommand is pinfold session.
func sessionCommand(args []string) int {
	name := "help"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	c := &sessionClient{}
	operands := " ID"
	var do func() (int, error)
	switch name {
	case "open":
		do, operands = c.open, ""
	case "list":
		do, operands = c.list, ""
	case "show":
		do = c.show
	case "close":
		do = c.close
	case "batch":
		do = c.batch
	case "help":
		fmt.Print(sessionUsage)
		return exitOK
	default:
		complain("%s is nothing that pinfold session does", visible(name))
		fmt.Fprint(os.Stderr, sessionUsage)
		return exitUsage
	}
	c.flags = newFlags("session "+name, operands, &c.socket)
	c.flags.BoolVar(&c.json, "json", false, "print the answer as JSON")
	var disabled, env list
	switch name {
	case "open":
		c.openFlags(&disabled, &env)
	case "batch":
		c.flags.BoolVar(&c.stopOnError, "stop-on-error", false, "start nothing after a command that failed")
		c.flags.BoolVar(&c.unattended, "unattended", false, "nobody can approve: refuse at once what needs approval")
	}
	if status, ok := parse(c.flags, args, exitUsage); !ok {
		return status
	}
	if c.flags.NArg() != len(strings.Fields(operands)) {
		complain("session %s takes other operands, see pinfold session --help", name)
		return exitUsage
	}
	c.req.Disabled = disabled
	err := c.variables(env)
	if err == nil {
		c.ctx = cancelOnSignal()
		c.client, err = connect(c.socket)
	}
	status := exitOK
	if err == nil {
		status, err = do()
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		fprint(os.Stderr, "pinfold: "+explain(refused, ""))
		return exitFailed
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	return status
}

func (c *sessionClient) openFlags(disabled, env *list) {
	c.flags.StringVar(&c.req.Project, "project", "", "the project's `directory` (default the git top-level, else the current directory)")
	c.flags.BoolVar(&c.req.ReadOnly, "read-only", false, "refuse what writes in the project")
	c.flags.Var(disabled, "disable", "a `command` (\"git commit\" too), or the id of a rule that allows, that may not be used; may be given again")
	c.flags.Int64Var(&c.budget.Runs, "runs", 0, "end with so many `runs`")
	c.flags.Int64Var(&c.budget.CPUSeconds, "cpu", 0, "end with so many `seconds` of processor time")
	c.flags.Int64Var(&c.budget.WallSeconds, "wall", 0, "end with so many `seconds` that commands ran")
	c.flags.DurationVar(&c.ttl, "ttl", 0, "how `long` it lasts, up to 24h (default 8h)")
	c.flags.Var(env, "env", "a variable for every command, `NAME=VALUE`; may be given again")
}

// variables takes the variables of the flags.
func (c *sessionClient) variables(env list) error {
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			return fmt.Errorf("--env takes NAME=VALUE, not %s", visible(e))
		}
		if c.req.Env == nil {
			c.req.Env = map[string]string{}
		}
		c.req.Env[name] = value
	}
	return nil
}

func (c *sessionClient) open() (int, error) {
	dir, err := currentDir()
	if err == nil {
		c.req.Project, err = projectOf(c.req.Project, dir)
	}
	if err != nil {
		return 0, err
	}
	c.req.TTL = int64(c.ttl.Seconds())
	if c.budget != (api.Budget{}) {
		c.req.Budget = &c.budget
	}
	raw, s, err := c.client.OpenSession(c.ctx, c.req)
	if err != nil {
		return 0, err
	}
	if c.json {
		fprint(os.Stdout, string(raw))
	} else {
		fprint(os.Stdout, s.ID+"\n")
	}
	return exitOK, nil
}

func (c *sessionClient) list() (int, error) {
	raw, all, err := c.client.Sessions(c.ctx)
	if err != nil {
		return 0, err
	}
	if c.json {
		fprint(os.Stdout, string(raw))
		return exitOK, nil
	}
	for _, s := range all.Sessions {
		fprint(os.Stdout, fmt.Sprintf("%s  %s, until %s, %d active\n", s.ID, visible(s.Project), s.Expires.Local().Format(time.DateTime), s.Active))
	}
	return exitOK, nil
}

func (c *sessionClient) show() (int, error) { return c.one(c.client.Session) }

func (c *sessionClient) close() (int, error) { return c.one(c.client.CloseSession) }

func (c *sessionClient) one(ask func(context.Context, string) ([]byte, *api.Session, error)) (int, error) {
	raw, s, err := ask(c.ctx, c.flags.Arg(0))
	if err != nil {
		return 0, err
	}
	if c.json {
		fprint(os.Stdout, string(raw))
	} else {
		fprint(os.Stdout, describeSession(s))
	}
	return exitOK, nil
}

// describeSession shows a session to a person.
func describeSession(s *api.Session) string {
	var b strings.Builder
	of := func(spent float64, most int64) string {
		if most == 0 {
			return fmt.Sprintf("%.4g", spent)
		}
		return fmt.Sprintf("%.4g of %d", spent, most)
	}
	budget := api.Budget{}
	if s.Budget != nil {
		budget = *s.Budget
	}
	fmt.Fprintf(&b, "%s\nproject:  %s\n", s.ID, visible(s.Project))
	if s.ReadOnly {
		b.WriteString("read-only\n")
	}
	if len(s.Disabled) > 0 {
		fmt.Fprintf(&b, "disabled: %s\n", visible(strings.Join(s.Disabled, ", ")))
	}
	if len(s.Env) > 0 {
		fmt.Fprintf(&b, "env:      %s\n", visible(strings.Join(s.Env, ", ")))
	}
	fmt.Fprintf(&b, "spent:    %s runs, %s s of processor time, %s s\n", of(float64(s.Spent.Runs), budget.Runs),
		of(s.Spent.CPUSeconds, budget.CPUSeconds), of(s.Spent.WallSeconds, budget.WallSeconds))
	fmt.Fprintf(&b, "until:    %s, or %s when nothing is asked of it before\n", s.Expires.Local().Format(time.DateTime), s.IdleUntil.Local().Format(time.DateTime))
	fmt.Fprintf(&b, "active:   %d\n", s.Active)
	return b.String()
}

// batch runs the lines of stdin and prints what came of each, in their order. Its
// status is that of the first that failed.
func (c *sessionClient) batch() (int, error) {
	req := api.BatchRequest{StopOnError: c.stopOnError, Unattended: c.unattended}
	lines := bufio.NewScanner(io.LimitReader(os.Stdin, api.MaxRequest))
	lines.Buffer(nil, api.MaxRequest)
	for lines.Scan() {
		if text := strings.TrimSpace(lines.Text()); text != "" {
			req.Commands = append(req.Commands, api.BatchCommand{Command: text})
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	raw, answer, err := c.client.Batch(c.ctx, c.flags.Arg(0), req)
	if canceled, ok := errors.AsType[*signalError](context.Cause(c.ctx)); ok {
		return exitBySignal + int(canceled.signal), nil
	}
	if err != nil {
		return 0, err
	}
	if c.json {
		fprint(os.Stdout, string(raw))
	}
	first := exitOK
	for i, r := range answer.Results {
		became := exitOK
		switch {
		case r.Result != nil:
			became = status(c.ctx, &r.Result.Outcome, nil)
			if !r.Result.Success {
				became = status(c.ctx, &r.Result.Outcome, r.Result.Error)
			}
			if !c.json {
				fprint(os.Stdout, r.Result.Stdout)
				fprint(os.Stderr, r.Result.Stderr+remarks(&r.Result.Outcome))
			}
		case r.Refused != nil:
			became = status(c.ctx, nil, r.Refused.Error)
		}
		if failed := r.Failed(); failed != nil && !c.json {
			fprint(os.Stderr, fmt.Sprintf("pinfold: command %d: %s", i+1, explain(failed, req.Commands[i].Command)))
		}
		if first == exitOK {
			first = became
		}
	}
	return first, nil
}
