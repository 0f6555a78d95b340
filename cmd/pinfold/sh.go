package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/cmd/pinfold/wrapper"
)

// shellNames are the names under which this program is a shell.
var shellNames = []string{"sh", "bash", "zsh"}

// shUsage is the status of bash for wrong usage.
const shUsage = 2

const shHelp = `usage:
  pinfold sh [options] -c TEXT [NAME [ARGUMENT...]]   run shell text, confined
  pinfold sh [options] FILE [ARGUMENT...]             run a script
  pinfold sh [options] -s [ARGUMENT...]               run what stdin holds
Runs text as bash does, judged and confined like pinfold run: the same stdin, stdout,
stderr and exit status, for an hour at most. What a coding agent is known to write around
a command is not judged. Options are those of bash; login and rc files are not read.
$PINFOLD_SOCKET names the daemon, $PINFOLD_PROJECT the project; with $PINFOLD_UNATTENDED
what needs approval is refused at once. See also pinfold shim.
`

// An invocation is what the words of a shell's command line ask for.
type invocation struct {
	text       string
	hasText    bool     // -c
	readsStdin bool     // -s, or nothing else to run
	script     []string // a script and its arguments
	name       string   // $0, which stays the shell's own
	arguments  []string // $1 and on
	set        []string // words for set
	shopt      []string // options for shopt -s and -u, with the sign + or -
	about      string   // --version or --help
}

// The options of bash that have no word after them and say nothing here: what a
// login or interactive shell does is not done.
var ignoredOptions = []string{
	"login", "norc", "noprofile", "noediting", "interactive", "no-rcs", "no-globalrcs",
}

// parseInvocation reads the words after the shell's name as bash does: options
// first, also after -c, then operands.
func parseInvocation(args []string) (*invocation, error) {
	v := &invocation{}
	var hasCommand bool
	for len(args) > 0 {
		arg := args[0]
		if len(arg) < 2 || arg[0] != '-' && arg[0] != '+' {
			if arg == "-" {
				args = args[1:]
			}
			break
		}
		args = args[1:]
		if arg == "--" {
			break
		}
		var err error
		if long, ok := strings.CutPrefix(arg, "--"); ok {
			args, err = v.long(long, args)
		} else {
			args, err = v.short(arg[0], arg[1:], args, &hasCommand)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case v.about != "":
	case hasCommand && len(args) == 0:
		return nil, errors.New("-c: option requires an argument")
	case hasCommand:
		v.hasText, v.text, args = true, args[0], args[1:]
		if len(args) > 0 {
			v.name, v.arguments = args[0], args[1:]
		}
	case v.readsStdin || len(args) == 0:
		v.readsStdin, v.arguments = true, args
	default:
		v.script = args
	}
	return v, nil
}

func (v *invocation) long(name string, rest []string) ([]string, error) {
	switch {
	case slices.Contains(ignoredOptions, name):
		return rest, nil
	case name == "version" || name == "help":
		v.about = "--" + name
		return rest, nil
	case name == "posix":
		v.set = append(v.set, "-o", "posix")
		return rest, nil
	case name == "rcfile" || name == "init-file":
		if len(rest) == 0 {
			return nil, fmt.Errorf("--%s: option requires an argument", name)
		}
		return rest[1:], nil
	}
	return nil, fmt.Errorf("--%s: invalid option", name)
}

// short reads the letters of one word, which may take words from the rest.
func (v *invocation) short(sign byte, letters string, rest []string, hasCommand *bool) ([]string, error) {
	for _, letter := range letters {
		switch letter {
		case 'c':
			*hasCommand = true
		case 's':
			v.readsStdin = true
		case 'l', 'i':
		case 'o', 'O':
			if len(rest) == 0 {
				return nil, fmt.Errorf("%c%c: option requires an argument", sign, letter)
			}
			if letter == 'o' {
				v.set = append(v.set, string(sign)+"o", rest[0])
			} else {
				v.shopt = append(v.shopt, string(sign)+rest[0])
			}
			rest = rest[1:]
		case 'a', 'b', 'e', 'f', 'h', 'k', 'm', 'n', 'p', 'r', 't', 'u', 'v', 'x', 'B', 'C', 'E', 'H', 'P', 'T':
			v.set = append(v.set, string(sign)+string(letter))
		default:
			return nil, fmt.Errorf("%c%c: invalid option", sign, letter)
		}
	}
	return rest, nil
}

// command returns the text that does what the invocation asks for. Options and
// arguments are set in front of it. $0 stays the shell's own name: bash could be told another only by a variable
// that steers it.
func (v *invocation) command() string {
	var before strings.Builder
	for _, option := range v.shopt {
		flag := map[byte]string{'-': "-s", '+': "-u"}[option[0]]
		before.WriteString("shopt " + flag + " " + quote(option[1:]) + "; ")
	}
	if v.script != nil {
		words := append([]string{"bash"}, v.set...)
		for _, option := range v.shopt {
			words = append(words, option[:1]+"O", option[1:])
		}
		return quoteAll(append(words, v.script...))
	}
	words := v.set
	if len(v.arguments) > 0 {
		words = slices.Concat(words, []string{"--"}, v.arguments)
	}
	if len(words) > 0 {
		before.WriteString("set " + quoteAll(words) + "; ")
	}
	return before.String() + v.text
}

// shell is pinfold sh: a shell for programs that start one.
func shell(name string, args []string) int {
	v, err := parseInvocation(args)
	if err != nil {
		fprint(os.Stderr, name+": "+visible(err.Error())+"\n")
		return shUsage
	}
	var req api.ExecRequest
	var wrapped *wrapper.Wrapper
	if err = v.load(); err == nil {
		wrapped, err = v.unwrap(&req)
	}
	var client *api.Client
	dir := ""
	if err == nil {
		dir, err = v.place(&req)
	}
	if err == nil {
		client, err = connect("")
	}
	var in *input
	if err == nil {
		in, err = v.input(&req, wrapped)
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	req.TimeoutMS, req.Unattended = api.MaxTimeout.Milliseconds(), os.Getenv("PINFOLD_UNATTENDED") != ""
	r := &shellRun{client: client, req: req, in: in}
	status := r.run()
	if wrapped != nil && r.outcome != nil {
		err = writeSideFiles(wrapped, r.outcome, status, req.Project, dir)
		if err != nil {
			complain("%v", err)
		}
	}
	r.dieLike()
	return status
}

// load reads the text that is not on the command line.
func (v *invocation) load() error {
	switch {
	case v.about != "":
		v.text, v.hasText = "bash "+v.about, true
	case v.readsStdin && isTerminal(0):
		return errors.New("this is no interactive shell: give it -c TEXT, a script, or text on stdin")
	case v.readsStdin:
		text, err := io.ReadAll(io.LimitReader(os.Stdin, api.MaxRequest+1))
		if err != nil {
			return err
		}
		v.text = string(text)
	}
	return nil
}

// unwrap sets the request's command to what has to be judged.
func (v *invocation) unwrap(req *api.ExecRequest) (*wrapper.Wrapper, error) {
	req.Command = v.command()
	if !v.hasText || len(v.arguments)+len(v.set)+len(v.shopt) > 0 {
		return nil, nil // a wrapper is started with none of these
	}
	w, err := wrapper.Unwrap(v.text)
	if err == nil && w != nil {
		req.Command = w.Command
	}
	return w, err
}

// place fills in where the command runs, and returns that absolute.
func (v *invocation) place(req *api.ExecRequest) (string, error) {
	dir, err := currentDir()
	if err != nil {
		return "", err
	}
	w, err := whereOf("", os.Getenv("PINFOLD_PROJECT"), dir)
	if err != nil {
		return "", err
	}
	req.Project, req.Cwd = w.project, w.cwd
	return dir, nil
}

// input takes what stdin holds for the command. With terminals on all sides the
// command gets one of its own.
func (v *invocation) input(req *api.ExecRequest, w *wrapper.Wrapper) (*input, error) {
	none := v.readsStdin || w != nil && w.NoStdin
	req.TTY = !none && isTerminal(0) && isTerminal(1) && isTerminal(2)
	return takeInput(req, none, true)
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// A shellRun is one command of pinfold sh.
type shellRun struct {
	client  *api.Client
	req     api.ExecRequest
	in      *input
	outcome *api.Outcome
	died    syscall.Signal // what ended the command
}

// run runs the command with the own streams, and returns its exit status.
func (r *shellRun) run() int {
	if strings.TrimSpace(r.req.Command) == "" {
		return exitOK // nothing to run, and no request
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	started := make(chan string, 1)
	go r.passSignals(ctx, cancel, started)
	err := r.client.Stream(ctx, r.req, func(e *api.Event) error {
		switch e.Event {
		case api.EventApproval:
			fprint(os.Stderr, waitsFor(e.Approval))
		case api.EventStarted:
			started <- e.Run
			if r.in.stream {
				r.in.makeRaw()
				go r.in.pump(ctx, r.client, e.Run)
			}
		case api.EventStdout:
			return r.write(os.Stdout, e.Data)
		case api.EventStderr:
			return r.write(os.Stderr, e.Data)
		case api.EventFinished:
			r.outcome = &e.Outcome
		}
		return nil
	})
	r.in.restore()
	return r.status(ctx, err)
}

// write passes output on. Nobody reads a stream that breaks: that ends the run, as
// SIGPIPE would have ended a shell's command.
func (r *shellRun) write(f *os.File, data string) error {
	_, err := io.WriteString(f, data)
	if err != nil {
		r.died = unix.SIGPIPE
	}
	return err
}

// status says on stderr what a shell would not know, and returns the exit status.
func (r *shellRun) status(ctx context.Context, err error) int {
	if r.died == unix.SIGPIPE {
		return exitBySignal + int(unix.SIGPIPE)
	}
	if r.outcome != nil {
		fprint(os.Stderr, remarks(r.outcome))
		if r.outcome.Error != nil {
			err = r.outcome.Error
		}
		if r.outcome.Signal != nil {
			r.died = unix.SignalNum(*r.outcome.Signal)
		}
	}
	if canceled, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		r.died = canceled.signal
	} else if refused, ok := errors.AsType[*api.Error](err); ok {
		fprint(os.Stderr, "pinfold: "+explain(refused, r.req.Command))
	} else if err != nil {
		complain("%v", err)
	}
	return status(ctx, r.outcome, err)
}

// passSignals sends the signals that this process gets to the command, as they would
// reach it if it were a child on the same terminal. Before it has started they end
// this program.
func (r *shellRun) passSignals(ctx context.Context, cancel context.CancelCauseFunc, started <-chan string) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCONT)
	run := ""
	for {
		select {
		case <-ctx.Done():
			return
		case run = <-started:
		case s := <-signals:
			sig := s.(syscall.Signal)
			select {
			case run = <-started:
			default:
			}
			if run != "" {
				_ = r.client.Signal(ctx, run, unix.SignalName(sig)) // it may have ended by now
			} else if sig != unix.SIGTSTP && sig != unix.SIGCONT {
				cancel(&signalError{sig})
			}
			if sig == unix.SIGTSTP {
				_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			}
		}
	}
}

// dieLike ends this process by the signal that ended the command, as a shell's parent
// expects. It returns when the signal is none that does that here.
func (r *shellRun) dieLike() {
	switch r.died {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL:
		signal.Reset(r.died)
		_ = unix.Kill(os.Getpid(), r.died)
		time.Sleep(time.Second) // it is on its way
	}
}

// writeSideFiles writes what the agent reads after the command: where it ended, and
// which processes it left, of which there are none.
func writeSideFiles(w *wrapper.Wrapper, o *api.Outcome, status int, project, dir string) error {
	if w.Children != "" {
		if err := writeSideFile(w.Children, ""); err != nil {
			return err
		}
	}
	if w.FinalDir == "" || status != 0 {
		return nil
	}
	// What is not in the project stays where it was: nothing can begin out there.
	if o.FinalDir != nil {
		real, err := filepath.EvalSymlinks(project)
		if err != nil {
			return err
		}
		dir = filepath.Join(real, *o.FinalDir)
	}
	return writeSideFile(w.FinalDir, dir+"\n")
}

// writeSideFile writes a file of the agent's, which may be there already. It follows
// no symlink in the last place, and opens nothing but a file of the user's own.
func writeSideFile(file, content string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return fmt.Errorf("%s: is no file of this user's own; not written", file)
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return err
}
