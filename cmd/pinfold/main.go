package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
)

// Set by make build.
var (
	version = "dev"
	build   = "dev"
)

// The exit statuses, besides those of the commands that are run.
const (
	exitOK       = 0
	exitMissing  = 1 // a layer is missing
	exitUsage    = 2
	exitAsk      = 3   // check: it would have to be approved
	exitTimeout  = 124 // the command's time was over
	exitFailed   = 125 // Pinfold itself failed
	exitRefused  = 126 // denied, not approved, or no shell text
	exitBySignal = 128 // and the signal's number
)

const usage = `usage:
  pinfold run [flags] 'git status && ls'   run shell text, confined
  pinfold run [flags] git status           run words, quoted for the shell
  pinfold check [flags] 'git status'       show the decision, run nothing
  pinfold explain [flags] 'git status'     show how the decision comes about, run nothing
  pinfold policy summary                   show what commands may do in the project
  pinfold policy --help                    check, show, test, compare and reload policies
  pinfold setup claude|codex|...           have a coding agent's commands judged and confined
  pinfold mcp [flags]                      serve the Model Context Protocol on stdin and stdout
  pinfold hook claude|codex|...            answer a coding agent's hook: deny, or run confined
  pinfold sh -c 'git status'               be the shell of a program that starts one; also a script, or -s
  pinfold shim install DIR                 make sh, bash and zsh in DIR that are pinfold sh
  pinfold runs --help                      list, show, read, signal and feed runs, those in the background too
  pinfold session --help                   open, show, list and close sessions: read-only, with a budget, …
  pinfold approvals --help                 list, show, allow and deny what waits for a yes
  pinfold halt, pinfold resume             end every run and let none start; let them start again
  pinfold doctor [flags]                   show every layer of the confinement
  pinfold trace [flags]                    show your own records; verify, stats, tail
  pinfold eval TASKS.jsonl                 run tasks and compare the trace with what they expect
  pinfold replay --policy NEW TRACE        decide again under another policy, run nothing
  pinfold completion bash|zsh|fish         print what completes commands and flags in that shell
  pinfold man                              print the manual page
  pinfold --version                        print the version and the build

pinfold run --help, and so on, lists the flags
`

func main() {
	if name := filepath.Base(strings.TrimPrefix(os.Args[0], "-")); slices.Contains(shellNames, name) {
		os.Exit(shell(name, os.Args[1:]))
	}
	os.Exit(pinfold(os.Args[1:]))
}

func pinfold(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	switch args[0] {
	case "run":
		return run(args[1:])
	case "check":
		return check(args[1:])
	case "explain":
		return explainCommand(args[1:])
	case "policy":
		return policyCommand(args[1:])
	case "mcp":
		return mcpCommand(args[1:])
	case "hook":
		return hook(args[1:])
	case "setup":
		return setup(args[1:])
	case "sh":
		if len(args) == 2 && (args[1] == "--help" || args[1] == "-h") {
			fmt.Print(shHelp)
			return exitOK
		}
		return shell("pinfold sh", args[1:])
	case "shim":
		return shim(args[1:])
	case "runs":
		return runsCommand(args[1:])
	case "session":
		return sessionCommand(args[1:])
	case "approvals":
		return approvalsCommand(args[1:])
	case "halt", "resume":
		return haltCommand(args[0], args[1:])
	case "doctor":
		return doctor(args[1:])
	case "eval", "replay":
		return execDaemon(args)
	case "trace":
		return showTrace(args[1:])
	case "completion":
		return completion(args[1:])
	case "man":
		fprint(os.Stdout, manual())
		return exitOK
	case "version", "-version", "--version":
		fmt.Printf("pinfold %s (%s)\n", version, build)
		return exitOK
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return exitOK
	}
	complain("%s is no command of pinfold", visible(args[0]))
	if meant := nearest(args[0], commandNames()); meant != "" {
		fmt.Fprintf(os.Stderr, "did you mean  pinfold %s\n", meant)
		return exitUsage
	}
	fmt.Fprint(os.Stderr, usage)
	return exitUsage
}

// complain says on stderr what went wrong.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "pinfold: "+format+"\n", args...)
}

// newFlags returns the flags of a subcommand, with the socket's.
func newFlags(name, operands string, socket *string) *flag.FlagSet {
	flags := flag.NewFlagSet("pinfold "+name, flag.ContinueOnError)
	flags.StringVar(socket, "socket", "", "the daemon's socket, a `path` (default $PINFOLD_SOCKET, the system's, the user's)")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: pinfold %s [flags]%s\n", name, operands)
		flags.PrintDefaults()
	}
	return flags
}

// parse parses the flags. When it reports false the program ends with the
// status.
func parse(flags *flag.FlagSet, args []string, wrong int) (status int, ok bool) {
	for _, arg := range args {
		if arg == "-h" || arg == "-help" || arg == "--help" {
			flags.SetOutput(os.Stdout)
		}
		if arg == "" || arg[0] != '-' || arg == "--" {
			break
		}
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK, false
	case err != nil:
		return wrong, false
	}
	return exitOK, true
}

// A seconds is a flag: a duration, or a plain number of seconds.
type seconds struct{ d time.Duration }

// String implements [flag.Value].
func (s *seconds) String() string {
	if s.d == 0 {
		return ""
	}
	return s.d.String()
}

// Set implements [flag.Value].
func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, notNumber := strconv.ParseFloat(text, 64); notNumber == nil {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d < time.Millisecond || d > api.MaxTimeout {
		return fmt.Errorf("must be from 1ms to %v, like 30, 30s or 2m", api.MaxTimeout)
	}
	s.d = d
	return nil
}

// where is what a command is asked about in.
type where struct {
	socket, project, session, cwd string
	readsOnly                     bool
}

// flags adds the flags that say where.
func (w *where) flags(name string) *flag.FlagSet {
	flags := newFlags(name, " 'command' | word...", &w.socket)
	flags.StringVar(&w.project, "project", "", "the project's `directory` (default the git top-level, else the current directory)")
	flags.StringVar(&w.session, "session", "", "in the session with this `id`, and its project; see pinfold session")
	flags.StringVar(&w.cwd, "cwd", "", "start in this `directory`, relative to the project (default the current one, when it lies inside)")
	flags.BoolVar(&w.readsOnly, "reads-only", false, "the command only reads: deny it when it writes in the project, and grant it nothing there")
	return flags
}

// complete fills in what the flags leave open.
func (w *where) complete() error {
	dir, err := currentDir()
	if err != nil {
		return err
	}
	if w.session != "" {
		if w.project != "" {
			return errors.New("--project is the session's")
		}
		return nil // the daemon knows the project, see find
	}
	given := w.project != ""
	if w.project, err = projectOf(w.project, dir); err != nil {
		return err
	}
	if w.cwd == "" {
		w.cwd = relative(w.project, dir, given)
	}
	return nil
}

// find fills in what only the daemon knows: where a session's project is.
func (w *where) find(ctx context.Context, client *api.Client) error {
	if w.session == "" || w.cwd != "" {
		return nil
	}
	dir, err := currentDir()
	if err != nil {
		return err
	}
	_, s, err := client.Session(ctx, w.session)
	if err == nil {
		w.cwd = relative(s.Project, dir, true)
	}
	return err
}

// command returns the shell text that the operands stand for.
func command(operands []string) (string, error) {
	switch len(operands) {
	case 0:
		return "", errors.New("no command given")
	case 1:
		return operands[0], nil
	}
	return quoteAll(operands), nil
}

// fprint writes text to a standard stream; when that fails there is nobody to
// tell.
func fprint(w io.Writer, text string) { _, _ = io.WriteString(w, text) }
