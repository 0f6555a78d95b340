package confine

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	s, err := m.acquire(r.Caller, r.Project, r.Root)
	if err != nil {
		return Outcome{}, err
	}
	defer m.release(s)
	return s.run(ctx, r)
}

// A command is a run under way.
type command struct {
	s      *session
	r      Request
	init   *spare
	probes uint32
	output [2]*output
	total  atomic.Int64 // bytes of both streams

	mu      sync.Mutex
	stage   stage
	ended   Ended
	receipt Receipt
	err     error // a receipt that is not good enough
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
	c := &command{s: s, r: r}
	if r.OutputLimit == 0 {
		c.r.OutputLimit = DefaultOutputLimit
	}
	if err := c.start(); err != nil {
		for _, o := range c.output {
			if o != nil {
				o.file.Close()
			}
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
	p, ruleset, flags, err := c.prepare()
	if err != nil {
		return err
	}
	defer ruleset.Close()
	c.probes = p.probes
	fds, err := c.pipes()
	defer func() { closeAll(fds) }()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	script, err := c.script()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	pass := append(slices.Clone(fds), int(ruleset.Fd()))
	if script != nil {
		defer script.Close()
		pass = append(pass, int(script.Fd()))
	}
	message, err := c.encode(p, flags, script != nil)
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
	if c.s.m.tamper != nil {
		c.s.m.tamper(p)
	}
	ruleset, flags, err := newRuleset(p.config, p.rules)
	return p, ruleset, flags, err
}

// pipes makes stdout and stderr and returns the command's ends.
func (c *command) pipes() ([]int, error) {
	var fds []int
	for i, w := range []io.Writer{c.r.Stdout, c.r.Stderr} {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return fds, err
		}
		fds = append(fds, p[1])
		unix.SetNonblock(p[0], true)
		c.output[i] = newOutput(p[0], w)
		// /dev/stdout is opened by its owner only
		if c.s.m.system {
			if err := unix.Fchown(p[1], int(c.s.caller.UID), int(c.s.caller.GID)); err != nil {
				return fds, err
			}
		}
	}
	return fds, nil
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
func (c *command) encode(p *plan, landlockFlags uint32, script bool) ([]byte, error) {
	args := []string{"bash", "--norc", "--noprofile", "-c", c.r.Text}
	var flags uint32
	if script {
		args = []string{"bash", "--norc", "--noprofile", procFD(C.SCRIPT)}
		flags |= runScript
	}
	limits := c.s.m.limits
	m := begin(6<<10 + len(args[len(args)-1]))
	m.u32(p.filter)
	m.u32(p.probes)
	m.u32(flags)
	m.u32(uint32(limits.Processes))
	m.u32(landlockFlags)
	m.u32(uint32(len(p.late)))
	m.u32(uint32(len(p.ops)))
	m.u32(uint32(len(args)))
	m.u32(uint32(len(c.s.env)))
	m.u64(uint64(limits.FileBytes))
	m.u64(uint64(limits.OpenFiles))
	m.str(c.r.Dir)
	m.str(c.s.m.shell.path)
	for _, l := range p.late {
		m.u64(uint64(l.rights & p.config.HandledAccessFS))
		m.str(l.path)
	}
	for _, a := range args {
		m.str(a)
	}
	for _, e := range c.s.env {
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
		err = c.init.send(message, fds)
		// after the send, so that the next one is made while this one runs
		if err := c.s.send(begin(0), C.MSG_NEXT, 0); err != nil {
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

// free gives the slot back.
func (c *command) free() {
	c.init.close()
	c.s.send(begin(0), C.MSG_FREE, c.init.slot)
	c.init = nil
}

// follow sees the command through to its end.
func (c *command) follow(ctx context.Context) (Outcome, error) {
	for _, o := range c.output {
		go o.deliver(c.count)
	}
	receipt := make(chan struct{})
	go func() {
		defer close(receipt)
		c.awaitReceipt()
	}()
	c.init.pidfd.SetReadDeadline(time.Now().Add(c.r.Timeout))
	stop := context.AfterFunc(ctx, func() { c.end(EndedCaller) })
	c.awaitEnd()
	stop()
	// nobody is left to send one
	c.init.socket.SetReadDeadline(time.Now().Add(time.Second))
	<-receipt
	for _, o := range c.output {
		o.finish()
	}
	var e ending
	c.s.open.RLock()
	if c.s.slots != nil {
		e = readEnding(c.s.slots, c.init.slot)
	}
	c.s.open.RUnlock()
	c.free()
	return c.outcome(e)
}

// awaitReceipt reads the one message that the command's own process sends.
func (c *command) awaitReceipt() {
	var buf [256]byte
	n, err := c.init.socket.Read(buf[:])
	if err != nil {
		return // it never started: the slot says why
	}
	e, err := parseEvent(buf[:n])
	if err == nil && e.kind != C.MSG_STARTED {
		err = errProtocol
	}
	var r Receipt
	if err == nil {
		r, err = newReceipt(e.receipt, c.probes, c.s.m.own)
	}
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
	c.mu.Unlock()
	if c.r.Started != nil {
		c.r.Started(c.receipt)
	}
}

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
	case c.stage < asked && why != EndedOutput:
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
	r.Limits = c.s.m.limits
	r.Limits.ProcessesHeld = c.s.held
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
	out := Outcome{Receipt: c.receipt, Usage: e.usage, Ended: c.ended}
	switch {
	case !e.finished:
		// its init was killed: by us, or by somebody else
		out.ExitCode, out.Signal = -1, unix.SignalName(syscall.SIGKILL)
		if out.Ended == EndedItself {
			out.Ended = EndedKeeper
		}
	case e.status.Signaled():
		out.ExitCode, out.Signal = -1, unix.SignalName(e.status.Signal())
	default:
		out.ExitCode = e.status.ExitStatus()
	}
	return out, nil
}

// explain tells a directory that is not there from a missing layer.
func (c *command) explain(f failure) error {
	if f.step == C.STEP_DIR && (f.errno == unix.ENOENT || f.errno == unix.ENOTDIR || f.errno == unix.ELOOP || f.errno == unix.EACCES) {
		return &ProjectError{Path: filepath.Join(c.r.Project, c.r.Dir), Err: f.errno}
	}
	return f.err()
}
