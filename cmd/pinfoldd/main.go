package main

import (
	"context"
	"errors"
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

// options are what pinfold.toml and the flags say: settings.go lists them.
type options struct {
	user bool
	site policyFile

	socket, state, policy  string
	idle                   time.Duration
	callers, approverGroup string
	projects               []string

	traceSync            string
	traceKeep            time.Duration
	traceMiB, segmentMiB int64

	memoryMiB, processes, fileMiB, openFiles, diskMiB, files int64
	cpu                                                      time.Duration
	reservePercent, reserveMiB                               int64
	requireCgroup, refuseMounts                              bool
	landlockABI                                              int64

	sessionIdle time.Duration
	sessions    int64
	caps        server.Caps
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
		case "manual": // for the packages
			fmt.Print(manual())
			return 0
		}
	}
	c, status := parseCommand(args)
	if c == nil {
		return status
	}
	ready := openReady(c.readyFD)
	o, err := c.options()
	switch {
	case err != nil:
	case c.check:
		err = o.check(c.files)
	default:
		err = serve(o, c, ready)
	}
	if err != nil {
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
func serve(o *options, c *command, ready *readiness) error {
	if !o.user && os.Geteuid() != 0 {
		return errors.New("the daemon of a machine runs as root; start pinfoldd --user for one of your own")
	}
	unix.Umask(0o022) // callers pass through directories of ours
	sockets, err := takeSockets()
	if err != nil {
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
	return o.serveLocked(ctx, c, sockets, ready, logger, reload)
}

// complete fills in the places that nobody has named.
func (o *options) complete() error {
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
func (o *options) serveLocked(ctx context.Context, c *command, sockets []*net.UnixListener, ready *readiness, logger *log.Logger, reload <-chan os.Signal) (err error) {
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
	manager, err := confine.New(confine.Config{StateDir: o.state, Idle: o.sessionIdle, Bounds: o.bounds(), MaxSessions: int(o.sessions)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close()) }()
	if abi := manager.LandlockABI(); abi < int(o.landlockABI) {
		return &confine.Unavailable{Layer: "landlock", Err: fmt.Errorf("the configuration requires ABI %d, this kernel has %d", o.landlockABI, abi)}
	}
	records, recovery, err := trace.Open(trace.Options{
		Path: filepath.Join(o.state, traceFile), Mode: o.traceMode(), Version: version, Build: build, Setting: o.setting(),
		Always: o.traceSync == "always", Keep: o.traceKeep, KeepBytes: o.traceMiB * mib, Segment: o.segmentMiB * mib})
	if err != nil {
		return fmt.Errorf("the trace cannot be opened: %w", err)
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	if recovery != nil {
		logger.Printf("the trace was repaired: %d torn bytes, %d interrupted runs, breaks of the chain: %q",
			recovery.TornBytes, recovery.Interrupted, recovery.Breaks)
	}
	site := &siteRules{file: o.site, manager: manager, records: records, log: logger, again: c.bounds}
	site.adopt(rules)
	config := server.Config{
		Confiner: manager, Policy: rules, Trace: records, Version: version, Build: build,
		Setting: o.setting(), OnDemand: ready.onDemand(), Log: logger, Caps: o.caps,
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
	if config.Projects, err = realDirs(o.projects); err != nil {
		return err
	}
	if o.callers != "" {
		if config.Callers, err = groupID(o.callers); err != nil {
			return err
		}
	}
	group, err := o.approvers()
	if err != nil {
		return err
	}
	config.Authority = server.Authority{System: !o.user, Group: group}
	listener, control, err := o.listenBoth(sockets, group)
	if err != nil {
		return err
	}
	ready.ok()
	tell("READY=1\nSTATUS=serves " + o.socket)
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
	go watch(ctx, s.Alive)
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
	tell("STOPPING=1\nSTATUS=ends its runs")
	end, cancelEnd := context.WithTimeout(context.Background(), endTime)
	defer cancelEnd()
	return s.Shutdown(end)
}
