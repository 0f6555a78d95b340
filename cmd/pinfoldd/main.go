package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/cmd/pinfoldd/server"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

// Set by make build.
var (
	version = "dev"
	build   = "dev"
)

const (
	systemState = "/var/lib/pinfold"
	userIdle    = 15 * time.Minute
	endTime     = 15 * time.Second // for runs to end when the daemon does
	traceFile   = "trace.ndjson"
	logFile     = "pinfoldd.log"
	maxLog      = 1 << 20 // bytes at which a log is begun anew
)

// options are the flags.
type options struct {
	user          bool
	socket, state string
	policy        string
	site          policyFile
	idle          time.Duration
	readyFD       int
	traceSync     string
	traceKeep     time.Duration
	traceBytes    int64
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "policy":
			return policyCommand(args[1:])
		case "trace":
			return traceCommand(args[1:])
		case "replay":
			return replayCommand(args[1:])
		case "eval":
			return evalCommand(args[1:])
		}
	}
	var o options
	flags := flag.NewFlagSet("pinfoldd", flag.ContinueOnError)
	flags.BoolVar(&o.user, "user", false, "serve the calling user only, without privilege")
	flags.StringVar(&o.socket, "socket", "", "listen on this `path` (default "+api.SystemSocket+", or the user's)")
	flags.StringVar(&o.state, "state", "", "keep trace and caches in this `directory` (default "+systemState+", or $XDG_STATE_HOME/pinfold)")
	flags.StringVar(&o.policy, "policy", "", "the site's policy, a `file` (default "+systemPolicy+", or $XDG_CONFIG_HOME/pinfold/policy.toml; none is the built-in policy)")
	flags.StringVar(&o.traceSync, "trace-sync", "written", "when a record counts: `written`, which survives the death of any process, or always, on the disk")
	flags.DurationVar(&o.traceKeep, "trace-keep", trace.DefaultKeep, "keep the trace for so long")
	flags.Int64Var(&o.traceBytes, "trace-keep-mib", trace.DefaultKeepBytes>>20, "keep so many `MiB` of the trace at most")
	flags.DurationVar(&o.idle, "idle", -1, "end after so long without a request; 0 is never (default 15m with --user, else 0)")
	flags.IntVar(&o.readyFD, "ready-fd", -1, "started on demand: say on this `descriptor` that the daemon serves, or why not")
	showVersion := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "pinfoldd: takes no operands, see pinfoldd --help\n")
		return 2
	}
	if *showVersion {
		fmt.Printf("pinfoldd %s (%s)\n", version, build)
		return 0
	}
	ready := openReady(o.readyFD)
	if err := serve(o, ready); err != nil {
		if u, ok := errors.AsType[*confine.Unavailable](err); ok && u.Fix != "" {
			err = fmt.Errorf("%w; to get it: %s", err, u.Fix)
		}
		ready.failed(err)
		fmt.Fprintf(os.Stderr, "pinfoldd: %v\n", err)
		return 1
	}
	return 0
}

// serve runs the daemon to its end.
func serve(o options, ready *readiness) error {
	if err := o.complete(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, unix.SIGHUP)
	defer signal.Stop(reload)
	if err := makeDir(filepath.Dir(o.socket), o.socketDirMode()); err != nil {
		return err
	}
	if err := makeDir(o.state, o.stateMode()); err != nil {
		return err
	}
	lock, err := o.lock(ctx, ready)
	if err != nil || lock == nil {
		return err
	}
	defer lock.release()
	logger, err := o.openLog(ready)
	if err != nil {
		return err
	}
	return o.serveLocked(ctx, ready, logger, reload)
}

// complete fills in what the flags leave open.
func (o *options) complete() error {
	if !o.user && os.Geteuid() != 0 {
		return errors.New("the daemon of a machine runs as root; start pinfoldd --user for one of your own")
	}
	if o.socket == "" {
		o.socket = api.SystemSocket
		if o.user {
			o.socket = api.UserSocket()
		}
	}
	if o.state == "" {
		o.state = systemState
		if o.user {
			var err error
			if o.state, err = userState(); err != nil {
				return err
			}
		}
	}
	if o.idle < 0 {
		o.idle = 0
		if o.user {
			o.idle = userIdle
		}
	}
	if o.traceSync != "written" && o.traceSync != "always" || o.traceKeep <= 0 || o.traceBytes <= 0 {
		return errors.New("the trace's flags: sync is written or always, and what is kept is more than nothing")
	}
	if err := o.completePolicy(); err != nil {
		return err
	}
	var err1, err2 error
	o.socket, err1 = filepath.Abs(o.socket)
	o.state, err2 = filepath.Abs(o.state)
	if len(o.socket) > 107 {
		return fmt.Errorf("%s: is too long for a socket, which takes 107 bytes", o.socket)
	}
	return errors.Join(err1, err2)
}

// completePolicy finds where the site's policy lies.
func (o *options) completePolicy() (err error) {
	o.site = policyFile{path: o.policy, required: o.policy != ""}
	switch {
	case o.site.required:
	case o.user:
		o.site.path, err = userPolicy()
	default:
		o.site.path = systemPolicy
	}
	if err == nil {
		o.site.path, err = filepath.Abs(o.site.path)
	}
	return err
}

func (o *options) socketDirMode() os.FileMode {
	if o.user {
		return 0o700
	}
	return 0o755
}

// stateMode lets callers of a machine's daemon pass through to their caches.
func (o *options) stateMode() os.FileMode {
	if o.user {
		return 0o700
	}
	return 0o711
}

// openLog returns where the daemon logs: stderr, or a file of its own when it
// was started on demand.
func (o *options) openLog(ready *readiness) (*log.Logger, error) {
	out := io.Writer(os.Stderr)
	flags := 0
	if ready.onDemand() {
		name := filepath.Join(o.state, logFile)
		how := os.O_APPEND
		if info, err := os.Lstat(name); err == nil && info.Size() > maxLog {
			how = os.O_TRUNC
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|how, 0o600)
		if err != nil {
			return nil, err
		}
		out, flags = f, log.LstdFlags|log.LUTC
	}
	return log.New(out, "pinfoldd: ", flags|log.Lmsgprefix), nil
}

// serveLocked runs the daemon while it holds its lock.
func (o *options) serveLocked(ctx context.Context, ready *readiness, logger *log.Logger, reload <-chan os.Signal) (err error) {
	if o.site.state, err = filepath.EvalSymlinks(o.state); err != nil {
		return err
	}
	if o.site.sockets, err = filepath.EvalSymlinks(filepath.Dir(o.socket)); err != nil {
		return err
	}
	rules, err := o.site.load()
	if err != nil {
		return fmt.Errorf("the policy cannot be used: %w", err)
	}
	manager, err := confine.New(confine.Config{StateDir: o.state})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close()) }()
	records, recovery, err := trace.Open(trace.Options{
		Path: filepath.Join(o.state, traceFile), Mode: o.traceMode(), Version: version, Build: build, Setting: o.setting(),
		Always: o.traceSync == "always", Keep: o.traceKeep, KeepBytes: o.traceBytes << 20})
	if err != nil {
		return fmt.Errorf("the trace cannot be opened: %w", err)
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	if recovery != nil {
		logger.Printf("the trace was repaired: %d torn bytes, %d interrupted runs, breaks of the chain: %q",
			recovery.TornBytes, recovery.Interrupted, recovery.Breaks)
	}
	site := &siteRules{file: o.site, manager: manager, records: records, log: logger}
	site.adopt(rules)
	config := server.Config{
		Confiner: manager, Policy: rules, Trace: records, Version: version, Build: build,
		Setting: o.setting(), OnDemand: ready.onDemand(), Log: logger,
	}
	if o.user {
		uid := uint32(os.Geteuid())
		config.OnlyUID = &uid
	}
	if config.StateDir, err = filepath.EvalSymlinks(o.state); err != nil {
		return err
	}
	config.PolicyFile = realPath(o.site.path)
	config.Socket = filepath.Join(o.site.sockets, filepath.Base(o.socket))
	group, err := o.approvers()
	if err != nil {
		return err
	}
	config.Authority = server.Authority{System: !o.user, Group: group}
	listener, err := o.listen()
	if err != nil {
		return err
	}
	control, err := o.listenControl(group)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ready.ok()
	logger.Printf("serves %s (%s daemon, version %s, build %s, policy %.12s)", o.socket, o.setting(), version, build, rules.Hash())
	config.Reload = site.reload
	s := server.New(config)
	site.set = func(p *policy.Policy) { s.SetPolicy(p) }
	ctx, cancel := context.WithCancel(ctx)
	reloads := make(chan struct{})
	go func() {
		defer close(reloads)
		site.reloadOn(ctx, reload)
	}()
	defer func() { cancel(); <-reloads }() // before the trace is closed
	return serveUntil(ctx, s, listener, control, o.idle)
}

// setting says which promises hold.
func (o *options) setting() string {
	if o.user {
		return "user"
	}
	return "system"
}

func (o *options) traceMode() os.FileMode {
	if o.user {
		return 0o600
	}
	return 0o640
}

// serveUntil serves until ctx ends or the daemon is idle, and then ends in
// order: no more connections, every run ended and recorded.
func serveUntil(ctx context.Context, s *server.Server, l, control *net.UnixListener, idle time.Duration) error {
	served := make(chan error, 2)
	go func() { served <- s.Serve(l) }()
	go func() { served <- s.ServeControl(control) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if idle > 0 {
		go func() {
			s.AwaitIdle(ctx, idle)
			cancel()
		}()
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancelEnd := context.WithTimeout(context.Background(), endTime)
	defer cancelEnd()
	return s.Shutdown(end)
}
