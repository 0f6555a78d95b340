package main

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
)

const runsUsage = `usage:
  pinfold runs [flags]                     list your runs under way, and those in the background that ended
  pinfold runs show [flags] ID             show one, with its result when it has ended
  pinfold runs output [flags] ID           print what a run in the background wrote; --follow until it ends
  pinfold runs signal [flags] ID [SIGNAL]  send every process of a run a signal (default TERM)
  pinfold runs stdin [flags] ID            send the own stdin to a run, and close it; --keep leaves it open
an ID may be cut short, as long as it is clear
`

// follow is how long one request for output waits.
const follow = 20 * time.Second

// A runsClient is pinfold runs with its flags.
type runsClient struct {
	client *api.Client
	ctx    context.Context
	socket string
	flags  *flag.FlagSet
	json   bool
	follow bool
	keep   bool
}

// runsCommand is pinfold runs.
func runsCommand(args []string) int {
	name := "list"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	if name == "help" || len(args) > 0 && (args[0] == "--help" || args[0] == "-h") && name == "list" {
		fmt.Print(runsUsage)
		return exitOK
	}
	c := &runsClient{ctx: cancelOnSignal()}
	c.flags = newFlags("runs "+name, " ID", &c.socket)
	var do func() (int, error)
	least, most := 1, 1
	switch name {
	case "list":
		do, least, most = c.list, 0, 0
		c.flags.BoolVar(&c.json, "json", false, "print the list as JSON")
	case "show":
		do = c.show
		c.flags.BoolVar(&c.json, "json", false, "print the run as JSON")
	case "output":
		do = c.output
		c.flags.BoolVar(&c.follow, "follow", false, "go on until the run ends, and exit with its status")
	case "signal":
		do, most = c.signal, 2
	case "stdin":
		do = c.stdin
		c.flags.BoolVar(&c.keep, "keep", false, "leave the run's stdin open after that")
	default:
		complain("%s is nothing that pinfold runs does", visible(name))
		fmt.Fprint(os.Stderr, runsUsage)
		return exitUsage
	}
	if status, ok := parse(c.flags, args, exitUsage); !ok {
		return status
	}
	if n := c.flags.NArg(); n < least || n > most {
		complain("runs %s takes other operands, see pinfold runs --help", name)
		return exitUsage
	}
	var err error
	status := exitFailed
	if c.client, err = connect(c.socket); err == nil {
		status, err = do()
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	return status
}

// id returns the id of the run that the first operand begins.
func (c *runsClient) id() (string, error) {
	begin := c.flags.Arg(0)
	_, all, err := c.client.Runs(c.ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, r := range all.Runs {
		if strings.HasPrefix(r.Run, begin) {
			found = append(found, r.Run)
		}
	}
	switch {
	case len(found) > 1:
		return "", fmt.Errorf("%s begins the ids of %d runs", visible(begin), len(found))
	case len(found) == 0:
		return begin, nil // the daemon says what there is to say
	}
	return found[0], nil
}

func (c *runsClient) list() (int, error) {
	raw, all, err := c.client.Runs(c.ctx)
	if err != nil {
		return 0, err
	}
	if c.json {
		fprint(os.Stdout, string(raw))
		return exitOK, nil
	}
	for i := range all.Runs {
		fprint(os.Stdout, runInWords(&all.Runs[i]))
	}
	return exitOK, nil
}

// runInWords is a line on a run.
func runInWords(r *api.RunInfo) string {
	began := "?"
	if at, err := time.Parse(time.RFC3339Nano, r.StartedAt); err == nil {
		began = at.Local().Format(time.DateTime)
	}
	state := r.State
	if r.Result != nil {
		state = resultInWords(r.Result)
	}
	return fmt.Sprintf("%s  %s  %-14s %s\n", began, r.Run, state, visible(r.Command))
}

func resultInWords(o *api.Outcome) string {
	switch {
	case o.Error != nil:
		return strings.ToLower(strings.ReplaceAll(string(o.Error.Code), "_", " "))
	case o.Signal != nil:
		return *o.Signal
	case o.ExitCode != nil:
		return fmt.Sprintf("exit %d", *o.ExitCode)
	}
	return api.RunEnded
}

func (c *runsClient) show() (int, error) {
	id, err := c.id()
	if err != nil {
		return 0, err
	}
	raw, r, err := c.client.Run(c.ctx, id, 0, 0)
	if err != nil {
		return 0, err
	}
	if c.json {
		fprint(os.Stdout, string(raw))
		return exitOK, nil
	}
	fprint(os.Stdout, runInWords(&r.RunInfo))
	fprint(os.Stdout, fmt.Sprintf("project %s, in the background: %v, terminal: %v, stdin open: %v, output so far: %d bytes\n",
		visible(r.Project), r.Background, r.TTY, r.Stdin, r.Cursor+r.Dropped))
	if r.Result != nil && r.Result.Error != nil {
		fprint(os.Stdout, visible(r.Result.Error.Message)+"\n")
	}
	return exitOK, nil
}

func (c *runsClient) output() (int, error) {
	id, err := c.id()
	if err != nil {
		return 0, err
	}
	var wait time.Duration
	for cursor := int64(0); ; {
		_, r, err := c.client.Run(c.ctx, id, cursor, wait)
		if err != nil {
			return 0, err
		}
		if !r.Background {
			return 0, errors.New("only the output of runs in the background is kept")
		}
		if r.Dropped > 0 {
			complain("%d bytes of output are not kept any more", r.Dropped)
		}
		if err := printPieces(r.Output); err != nil {
			return 0, err
		}
		cursor = r.Cursor
		switch {
		case len(r.Output) > 0:
		case !c.follow:
			return exitOK, nil
		case r.Result != nil:
			var err error
			if r.Result.Error != nil {
				err = r.Result.Error
				complain("%s", visible(r.Result.Error.Message))
			}
			return status(c.ctx, r.Result, err), nil
		}
		if c.follow {
			wait = follow
		}
	}
}

func printPieces(pieces []api.Piece) error {
	for _, p := range pieces {
		data := p.Data
		if p.Encoding == api.Base64 {
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return err
			}
			data = string(raw)
		}
		if p.Stream == api.EventStderr {
			fprint(os.Stderr, data)
		} else {
			fprint(os.Stdout, data)
		}
	}
	return nil
}

func (c *runsClient) signal() (int, error) {
	name := "SIGTERM"
	if c.flags.NArg() > 1 {
		name = "SIG" + strings.TrimPrefix(strings.ToUpper(c.flags.Arg(1)), "SIG")
	}
	id, err := c.id()
	if err != nil {
		return 0, err
	}
	return exitOK, c.client.Signal(c.ctx, id, name)
}

func (c *runsClient) stdin() (int, error) {
	id, err := c.id()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, inputPiece)
	for {
		n, err := os.Stdin.Read(buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		last := err != nil && !c.keep
		if n > 0 || last {
			if err := c.client.WriteStdin(c.ctx, id, buf[:n], last); err != nil {
				return 0, err
			}
		}
		if err != nil {
			return exitOK, nil
		}
	}
}
