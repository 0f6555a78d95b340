package confine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/confine/door"
	"github.com/pinfold/pinfold/policy/hosts"
)

// #include "keeper.h"
import "C"

// inlineText is the longest script that goes as an argument: one is limited to
// 128 KiB (execve(2), MAX_ARG_STRLEN), and a message to 64 KiB with all else.
const inlineText = 32 << 10

// Run runs one command in the warm session of its caller and project, and
// starts one when there is none. It returns when nothing of the command is left
// running, and everything that it wrote has been delivered.
//
// The error is an *Unavailable (a layer is missing, nothing ran), a
// *ProjectError, ErrBusy, or the context's when that was canceled before the
// start. Everything that started has an Outcome and no error.
func (m *Manager) Run(ctx context.Context, r Request) (Outcome, error) {
	begin := time.Now()
	if err := ctx.Err(); err != nil {
		return Outcome{}, err
	}
	if !filepath.IsLocal(r.Dir) {
		return Outcome{}, &ProjectError{Path: r.Dir, Err: errors.New("not a directory of the project")}
	}
	out, err := m.runOnce(ctx, r)
	if errors.Is(err, errRetired) { // nothing ran: a new session may do
		out, err = m.runOnce(ctx, r)
	}
	out.Usage.Wall = time.Since(begin)
	return out, err
}

func (m *Manager) runOnce(ctx context.Context, r Request) (Outcome, error) {
	if r.Fresh {
		r.Session = freshPrefix + rand.Text()
		defer m.forget(r.Caller, r.Project, r.Session)
	}
	s, err := m.acquire(&r)
	if err != nil {
		return Outcome{}, err
	}
	defer m.release(s)
	return s.run(ctx, r)
}

// A command is a run under way.
type command struct {
	s        *session
	r        Request
	init     *spare
	bounds   *Bounds
	limits   Limits
	probes   uint32
	masked   []string
	readonly []string // of the project, whatever the grant writes
	guard    *guard
	hosts    hosts.List // see network.go
	listener *os.File   // for the door; nil when there is none
	door     *door.Door
	output   [2]*output   // of the second there is none when both are one
	input    *input       // nil when there is none
	total    atomic.Int64 // bytes of both streams

	mu      sync.Mutex
	stage   stage
	ended   Ended
	proc    *os.File // the command's own /proc; nil before it came, and when it was taken
	killed  bool     // by a signal that was asked for
	receipt Receipt
	err     error  // a receipt that is not good enough
	lost    string // a protected or hidden name whose mount went with the file
}

// A stage says how far a command is on its way out.
type stage uint8

const (
	starting stage = iota // the receipt is due
	running
	asked  // SIGTERM was sent to the tree
	killed // SIGKILL was sent to the init
	lost   // the keeper was killed
)

func (s *session) run(ctx context.Context, r Request) (Outcome, error) {
	b := s.m.bounds.Load()
	c := &command{s: s, r: r, bounds: b, limits: r.Limits.within(b.Limits)}
	if r.OutputLimit == 0 {
		c.r.OutputLimit = DefaultOutputLimit
	}
	defer c.s.under(c, false)
	if err := c.start(); err != nil {
		for _, o := range c.output {
			if o != nil {
				o.file.Close()
			}
		}
		if c.input != nil {
			c.input.file.Close()
		}
		if c.init != nil {
			c.free()
		}
		return Outcome{}, err
	}
	return c.follow(ctx)
}

// start prepares what the command needs and hands it to a spare init.
func (c *command) start() error {
	if len(c.s.mounts) > 0 && c.bounds.RefuseMounts {
		return &ProjectError{Path: filepath.Join(c.s.project, c.s.mounts[0]), Err: errors.New("a file system is mounted there, which this site refuses")}
	}
	p, ruleset, landlock, err := c.prepare()
	if err != nil {
		return err
	}
	defer ruleset.Close()
	c.probes, c.masked, c.readonly, c.hosts = p.probes, p.masked, p.readonly(), p.hosts
	fds, err := c.pipes()
	defer func() { closeAll(fds) }()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	script, err := c.script()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	pass, flags := c.order(fds, ruleset, script)
	if script != nil {
		defer script.Close()
	}
	message, err := c.encode(p, landlock, flags)
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	return c.hand(message, pass)
}

// prepare derives the plan and the ruleset, while the session's descriptors are
// held.
func (c *command) prepare() (*plan, *os.File, uint32, error) {
	c.s.open.RLock()
	defer c.s.open.RUnlock()
	if c.s.fds == nil {
		return nil, nil, 0, &Unavailable{Layer: "keeper", Err: errClosed}
	}
	p, err := c.s.newPlan(c.r.Grant)
	if err != nil {
		return nil, nil, 0, err
	}
	defer p.free()
	c.s.under(c, true)
	var marks map[string]mark
	if c.guard, marks, err = c.s.guard(c.r.Grant); err != nil {
		return nil, nil, 0, err
	}
	c.guard.absent = p.absent
	if err := p.hold(c.guard, marks); err != nil {
		return nil, nil, 0, err
	}
	if c.r.TTY != nil {
		p.terminal(c.r.Grant)
	}
	if c.s.m.tamper != nil {
		c.s.m.tamper(p)
	}
	var ports []uint16
	if len(p.hosts) > 0 {
		ports = []uint16{C.DOOR_PORT}
	}
	ruleset, flags, err := newRuleset(p.config, p.rules, ports...)
	return p, ruleset, flags, err
}

// pipes makes stdout, stderr and stdin, as far as they are wanted, and returns
// the command's ends.
func (c *command) pipes() ([]int, error) {
	var fds []int
	if c.r.TTY != nil {
		return nil, nil
	}
	outputs := []io.Writer{c.r.Stdout, c.r.Stderr}
	if c.r.Merge {
		outputs = outputs[:1]
	}
	for i, w := range outputs {
		ours, theirs, err := c.pipe()
		if err != nil {
			return fds, err
		}
		fds = append(fds, theirs)
		c.output[i] = newOutput(ours, w)
	}
	c.output[len(outputs)-1].keep = deniedTail
	if c.r.Stdin == nil {
		return fds, nil
	}
	theirs, ours, err := c.pipe()
	if err != nil {
		return fds, err
	}
	unix.SetNonblock(theirs, false)
	unix.SetNonblock(ours, true)
	c.input = newInput(ours, c.r.Stdin)
	return append(fds, theirs), nil
}

// pipe makes a pipe that does not block at the end that is read. It belongs to
// the caller: /dev/stdout is opened by its owner only.
func (c *command) pipe() (read, write int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	if c.s.m.system {
		err = unix.Fchown(p[1], int(c.s.caller.UID), int(c.s.caller.GID))
	}
	if err == nil {
		err = unix.SetNonblock(p[0], true)
	}
	if err != nil {
		closeAll(p[:])
		return -1, -1, err
	}
	return p[0], p[1], nil
}

// order puts the descriptors in the order in which command.c takes them, and
// says by flags which there are.
func (c *command) order(pipes []int, ruleset, script *os.File) (pass []int, flags uint32) {
	if len(c.hosts) > 0 {
		flags |= runDoor
	}
	if c.r.TTY != nil {
		flags |= runTTY
	} else {
		if c.input != nil {
			flags |= runStdin
		}
		pass = append(pass, pipes[0])
		if c.r.Merge {
			pass = append(pass, pipes[0])
		} else {
			pass = append(pass, pipes[1])
		}
	}
	pass = append(pass, int(ruleset.Fd()))
	if script != nil {
		flags |= runScript
		pass = append(pass, int(script.Fd()))
	}
	if flags&runStdin != 0 {
		pass = append(pass, pipes[len(pipes)-1])
	}
	return pass, flags
}

// script puts a text that is too long for an argument into a sealed memfd.
func (c *command) script() (*os.File, error) {
	if len(c.r.Text) <= inlineText {
		return nil, nil
	}
	f, err := sealed("script", []byte(c.r.Text))
	if err == nil && c.s.m.system {
		if err = f.Chown(int(c.s.caller.UID), int(c.s.caller.GID)); err != nil {
			f.Close()
		}
	}
	return f, err
}

// encode is the RUN message, as command.c reads it.
func (c *command) encode(p *plan, landlockFlags, flags uint32) ([]byte, error) {
	args := []string{"bash", "--norc", "--noprofile", "-c", c.r.Text}
	if flags&runScript != 0 {
		args = []string{"bash", "--norc", "--noprofile", procFD(C.SCRIPT)}
	}
	var window Window
	env := c.s.env
	if len(c.hosts) > 0 {
		env = doorEnvironment(env)
	}
	if c.r.TTY != nil {
		window = *c.r.TTY
		env = append(slices.Clone(env), "TERM=xterm-256color")
	}
	env = withEnv(env, c.r.Env)
	limits := c.limits
	m := begin(6<<10 + len(args[len(args)-1]))
	m.u32(p.filter)
	m.u32(p.probes)
	m.u32(flags | c.s.m.breaks)
	// counted over the whole session: a lower one of the request is sampled
	m.u32(uint32(c.bounds.Limits.Processes))
	m.u32(landlockFlags)
	m.u32(uint32(len(p.late)))
	m.u32(uint32(len(p.ops)))
	m.u32(uint32(len(args)))
	m.u32(uint32(len(env)))
	m.u32(uint32(window.Rows))
	m.u32(uint32(window.Columns))
	m.u64(uint64(limits.FileBytes))
	m.u64(uint64(limits.OpenFiles))
	m.u64(cpuSeconds(limits.CPU))
	m.str(c.r.Dir)
	m.str(c.s.m.shell.path)
	for _, l := range p.late {
		m.u64(uint64(l.rights & p.config.HandledAccessFS))
		m.str(l.path)
	}
	for _, a := range args {
		m.str(a)
	}
	for _, e := range env {
		m.str(e)
	}
	for _, o := range p.ops {
		m.op(o)
	}
	return m.end(C.MSG_RUN, 0)
}

// hand gives the run to a spare. One that somebody killed meanwhile is passed
// over, once.
func (c *command) hand(message []byte, fds []int) error {
	for try := 0; ; try++ {
		var err error
		if c.init, err = c.s.takeSpare(); err != nil {
			return err
		}
		unbound := c.bound()
		if unbound == nil {
			err = c.init.send(message, fds)
		}
		// after the send, so that the next one is made while this one runs
		if err := cmp.Or(c.s.send(begin(0), C.MSG_NEXT, 0), unbound); err != nil {
			return err
		}
		if err == nil {
			return nil
		}
		if try > 0 {
			return &Unavailable{Layer: "keeper", Err: err}
		}
		c.free()
	}
}

// bound has the kernel hold the limits where it can, and says what does.
func (c *command) bound() error {
	memory, pids := c.init.cgroup.limit(c.limits)
	c.limits.MemoryHeld, c.limits.ProcessesHeld = heldBySampling, c.s.held
	if memory {
		c.limits.MemoryHeld = heldByV2
	}
	if pids {
		c.limits.ProcessesHeld = heldByV2
	}
	switch {
	case c.bounds.RequireCgroup && !(memory && pids):
		return &Unavailable{Layer: "memory limit", Err: errors.New("a cgroup is required, and there is none for this run"), Fix: fixes["memory limit"]}
	case c.s.caller.UID == 0 && c.limits.ProcessesHeld == heldByRlimit:
		return &Unavailable{Layer: "process limit", Err: errors.New("root's processes can only be counted by a pids cgroup"),
			Fix: "mount the pids cgroup controller, or run as a user that is not root"}
	}
	return nil
}

// free gives the slot back.
func (c *command) free() {
	c.init.close()
	c.s.send(begin(0), C.MSG_FREE, c.init.slot)
	c.init = nil
}

// follow sees the command through to its end.
func (c *command) follow(ctx context.Context) (Outcome, error) {
	for _, o := range c.output {
		if o != nil {
			go o.deliver(c.count)
		}
	}
	if c.input != nil {
		go c.input.feed(nil)
	}
	receipt, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(receipt)
		c.hear()
	}()
	if c.r.Signals != nil || c.r.Resize != nil {
		go c.obey(receipt, gone)
	}
	watching := c.watch(gone)
	c.init.pidfd.SetReadDeadline(time.Now().Add(c.r.Timeout))
	stop := context.AfterFunc(ctx, func() { c.end(EndedCaller) })
	c.awaitEnd()
	stop()
	close(gone)
	watching.Stop()
	if c.r.Gone != nil {
		c.r.Gone()
	}
	// nobody is left to send one
	c.init.socket.SetReadDeadline(time.Now().Add(time.Second))
	<-receipt
	if c.input != nil {
		c.input.file.Close()
	}
	for _, o := range c.output {
		if o != nil {
			o.finish()
		}
	}
	network := c.closeDoor()
	c.takeProc().Close()
	var e ending
	c.s.open.RLock()
	if c.s.slots != nil {
		e = readEnding(c.s.slots, c.init.slot)
	}
	c.s.open.RUnlock()
	defer c.free()
	out, err := c.outcome(e)
	if err != nil {
		return out, err
	}
	out.Network = network
	c.settle(&out)
	return out, nil
}

// settle looks at what the run has left in the project.
func (c *command) settle(out *Outcome) {
	out.Hidden = c.guard.hidden
	created, left, stays := c.guard.clear()
	if len(c.guard.absent) > 0 {
		more, remains := c.guard.clearLinked()
		created, stays = append(created, more...), cmp.Or(stays, remains)
	}
	out.Created, out.Left = created, left
	if stays != "" && out.Exposed == "" {
		out.Exposed = stays
		if out.Ended == EndedItself {
			out.Ended = EndedExposed
		}
	}
}

// hear reads what the command's init and its own process say, up to the receipt.
func (c *command) hear() {
	for {
		e, fds, err := c.init.receive()
		if err != nil && !errors.Is(err, errProtocol) {
			return // it never started: the slot says why
		}
		switch {
		case err != nil:
		case e.kind == C.MSG_PROC && len(fds) == 1 && c.proc == nil && isProc(fds[0]):
			c.mu.Lock()
			c.proc = os.NewFile(uintptr(fds[0]), "proc")
			c.mu.Unlock()
			continue
		case e.kind == C.MSG_TTY && len(fds) == 1 && c.r.TTY != nil && c.output[0] == nil && isTerminal(fds[0]):
			c.attach(fds[0])
			continue
		case e.kind == C.MSG_DOOR && len(fds) == 1 && len(c.hosts) > 0 && c.listener == nil && isListener(fds[0]):
			c.listener = os.NewFile(uintptr(fds[0]), "door")
			continue
		case e.kind == C.MSG_STARTED && len(fds) == 0:
			r, err := newReceipt(e.receipt, c.probes, c.s.m.own, c.s.ns, len(c.hosts) > 0)
			if err == nil && len(c.hosts) > 0 {
				err = c.openDoor(c.hosts, r.Namespaces["net"])
			}
			c.begun(r, err)
			// not before there is somebody whom a ^C is for
			if c.r.TTY != nil && c.output[0] != nil && c.r.Stdin != nil {
				in := &input{c.output[0].file, c.r.Stdin}
				go in.feed([]byte{endOfFile})
			}
			return
		}
		closeAll(fds)
		c.begun(Receipt{}, errProtocol)
		return
	}
}

// attach connects the terminal.
func (c *command) attach(master int) {
	unix.SetNonblock(master, true)
	c.output[0] = newOutput(master, c.r.Stdout)
	c.output[0].keep = deniedTail
	go c.output[0].deliver(c.count)
}

// begun takes the receipt, or why it is none.
func (c *command) begun(r Receipt, err error) {
	c.mu.Lock()
	c.err = err
	if err != nil {
		c.mu.Unlock()
		c.s.kill()
		return
	}
	c.receipt = c.complete(r)
	if c.stage == starting {
		c.stage = running
	}
	lost := c.lost != ""
	c.mu.Unlock()
	if lost {
		c.end(EndedExposed)
	}
	if c.r.Started != nil {
		c.r.Started(c.receipt)
	}
}

// obey passes signals and sizes on, from when the command runs to its end.
func (c *command) obey(receipt, gone <-chan struct{}) {
	<-receipt
	for {
		select {
		case <-gone:
			return
		case sig := <-c.r.Signals:
			if sig == unix.SIGKILL {
				c.mu.Lock()
				c.killed = true
				c.mu.Unlock()
			}
			if slices.Contains(passedOn, sig) {
				c.init.signal(sig)
			}
		case w := <-c.r.Resize:
			if o := c.output[0]; o != nil && c.r.TTY != nil {
				withFD(o.file, func(fd int) error {
					return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Columns})
				})
			}
		}
	}
}

// passedOn are the signals that an init passes on to all that runs beneath it,
// see command.c, and the one that ends it.
var passedOn = []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT,
	unix.SIGTSTP, unix.SIGKILL}

// awaitEnd returns when the init is gone, and with it, by the kernel, every
// process of its pid namespace.
func (c *command) awaitEnd() {
	raw, err := c.init.pidfd.SyscallConn()
	if err != nil {
		return
	}
	for {
		err := raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(p, 0)
			return n > 0
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		c.end(EndedTimeout)
	}
}

// exposed ends the command when one of the names is held by its mounts: they
// went with what was there.
func (c *command) exposed(rels []string) {
	if c.guard == nil {
		return
	}
	c.mu.Lock()
	held := slices.IndexFunc(rels, func(rel string) bool { _, found := slices.BinarySearch(c.guard.held, rel); return found })
	if held >= 0 && c.lost == "" {
		c.lost = rels[held]
	}
	end := c.lost != "" && c.stage == running
	c.mu.Unlock()
	if end {
		c.end(EndedExposed)
	}
}

// end brings the command one step closer to its end, and says what comes if that
// does not help. A command that was asked politely is killed next, whatever the
// reason; the keeper, beneath which nothing is left then, last.
func (c *command) end(why Ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == EndedItself {
		c.ended = why
	}
	next := startDeadline
	switch {
	case c.stage < asked && !why.atOnce():
		c.stage, next = asked, killGrace
		c.init.signal(unix.SIGTERM)
	case c.stage < killed:
		c.stage = killed
		c.init.signal(unix.SIGKILL)
	default:
		c.stage = lost
		c.s.kill()
	}
	c.init.pidfd.SetReadDeadline(time.Now().Add(next))
}

// count adds to the output and ends the command when it is too much.
func (c *command) count(n int) {
	total := c.total.Add(int64(n))
	if limit := c.r.OutputLimit; total > limit && total-int64(n) <= limit {
		c.end(EndedOutput)
	}
}

func (c *command) complete(r Receipt) Receipt {
	r.Setting = c.s.m.Setting()
	r.LandlockABI = c.s.m.abi
	r.ProjectMounts = c.s.mounts
	r.UIDMap, r.GIDMap = c.s.maps[0], c.s.maps[1]
	r.Limits = c.limits
	return r
}

// outcome puts together what is known of the end.
func (c *command) outcome(e ending) (Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return Outcome{}, c.err
	case e.fail.step != C.STEP_NONE:
		return Outcome{}, c.explain(e.fail)
	case c.stage == starting && c.ended == EndedItself, c.receipt.Seccomp == 0:
		return Outcome{}, &Unavailable{Layer: "keeper", Err: errors.New("it ended before the command started")}
	}
	out := Outcome{Receipt: c.receipt, Usage: e.usage, Ended: c.ended, Masked: c.masked, Exposed: c.lost}
	if e.finished {
		out.FinalDir, out.Outlived = c.relative(e.dir), e.outlived
	}
	if out.Ended == EndedItself && c.init.cgroup.ranOut() {
		out.Ended = EndedMemory
	}
	if limit := c.limits.CPU; limit > 0 && out.Ended == EndedItself && e.usage.User+e.usage.System >= limit {
		out.Ended = EndedCPU // RLIMIT_CPU was faster
	}
	switch {
	case !e.finished:
		// its init was killed: by us, or by somebody else
		out.ExitCode, out.Signal = -1, unix.SignalName(syscall.SIGKILL)
		if out.Ended == EndedItself && !c.killed {
			out.Ended = EndedKeeper
		}
	case e.status.Signaled():
		out.ExitCode, out.Signal = -1, unix.SignalName(e.status.Signal())
	default:
		out.ExitCode = e.status.ExitStatus()
	}
	for _, o := range c.output {
		if o != nil && len(o.tail) > 0 {
			out.Denied = c.denied(o.tail, cmp.Or(out.FinalDir, c.r.Dir), c.r.Dir)
		}
	}
	return out, nil
}

// relative is the directory as it is named inside the project; "" when it lies
// outside, or has a name that a request could not have. What it says comes from
// memory that the command's own init writes: it is a name to be followed anew.
func (c *command) relative(dir string) string {
	if !utf8.ValidString(dir) || strings.ContainsFunc(dir, unicode.IsControl) || dir != filepath.Clean(dir) ||
		!filepath.IsAbs(dir) || !within(dir, c.s.project) {
		return ""
	}
	rel, err := filepath.Rel(c.s.project, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// explain tells a directory that is not there from a missing layer.
func (c *command) explain(f failure) error {
	if f.step == C.STEP_DIR && (f.errno == unix.ENOENT || f.errno == unix.ENOTDIR || f.errno == unix.ELOOP || f.errno == unix.EACCES) {
		return &ProjectError{Path: filepath.Join(c.r.Project, c.r.Dir), Err: f.errno}
	}
	return f.err()
}
