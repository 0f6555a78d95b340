package confine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	s, err := m.acquire(r.Caller, r.Project)
	if err != nil {
		return Outcome{}, err
	}
	defer m.release(s)
	out, err := s.run(ctx, r)
	out.Usage.Wall = time.Since(begin)
	return out, err
}

// A command is a run under way.
type command struct {
	s      *session
	r      Request
	id     uint64
	events chan event
	probes uint32
	output [2]*output
	total  atomic.Int64 // bytes of both streams
	over   chan struct{}
}

func (s *session) run(ctx context.Context, r Request) (Outcome, error) {
	c := &command{s: s, r: r, over: make(chan struct{}, 1)}
	if r.OutputLimit == 0 {
		c.r.OutputLimit = DefaultOutputLimit
	}
	if err := c.start(); err != nil {
		c.abandon()
		return Outcome{}, err
	}
	return c.wait(ctx)
}

// start prepares what the command needs and hands it to the keeper.
func (c *command) start() error {
	c.s.open.RLock()
	defer c.s.open.RUnlock()
	if c.s.fds == nil {
		return &Unavailable{Layer: "keeper", Err: errClosed}
	}
	p, err := c.s.newPlan(c.r.Grant)
	if err != nil {
		return err
	}
	defer p.free()
	c.probes = p.probes
	ruleset, flags, err := newRuleset(p.config, p.rules)
	if err != nil {
		return err
	}
	defer ruleset.Close()
	fds, err := c.pipes()
	defer closeAll(fds)
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	fds = append(fds, int(ruleset.Fd()))
	script, err := c.script()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	if script != nil {
		defer script.Close()
	}
	return c.send(p, flags, fds, script)
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

func (c *command) send(p *plan, landlockFlags uint32, fds []int, script *os.File) error {
	args := []string{"bash", "--norc", "--noprofile", "-c", c.r.Text}
	var flags uint32
	if script != nil {
		args = []string{"bash", "--norc", "--noprofile", fmt.Sprintf("/proc/self/fd/%d", C.SCRIPT)}
		flags |= runScript
		fds = append(fds, int(script.Fd()))
	}
	if c.s.caller.UID == 0 {
		flags |= runRootProc
	}
	limits := c.s.m.limits
	m := begin(4<<10 + len(c.r.Text))
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
	var err error
	c.id, c.events, err = c.s.register()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	return c.s.send(m, C.MSG_RUN, c.id, fds...)
}

// abandon frees what start made.
func (c *command) abandon() {
	for _, o := range c.output {
		if o != nil {
			o.file.Close()
		}
	}
	if c.events != nil {
		c.s.mu.Lock()
		delete(c.s.runs, c.id)
		c.s.mu.Unlock()
	}
}

// wait sees the command through.
func (c *command) wait(ctx context.Context) (Outcome, error) {
	for _, o := range c.output {
		go o.deliver(c.count)
	}
	out, started, err := c.follow(ctx)
	for _, o := range c.output {
		o.finish()
	}
	if err != nil {
		return Outcome{}, err
	}
	if !started {
		return Outcome{}, &Unavailable{Layer: "keeper", Err: errors.New("the keeper ended before the command started")}
	}
	return out, nil
}

// count adds to the output and tells when it is too much.
func (c *command) count(n int) {
	if c.total.Add(int64(n)) > c.r.OutputLimit {
		select {
		case c.over <- struct{}{}:
		default:
		}
	}
}

// follow waits for the command's events and ends it when its time is over, its
// output too long or its caller gone.
func (c *command) follow(ctx context.Context) (out Outcome, started bool, err error) {
	timeout := time.NewTimer(c.r.Timeout)
	defer timeout.Stop()
	var kill, lost <-chan time.Time // SIGKILL is due; the keeper does not answer
	lost = time.After(startDeadline)
	done := ctx.Done()
	end := func(why Ended, sig syscall.Signal) {
		if out.Ended == EndedItself {
			out.Ended = why
		}
		c.s.signal(c.id, sig)
		if sig == syscall.SIGKILL {
			lost = time.After(startDeadline)
			return
		}
		kill = time.After(killGrace)
	}
	for {
		select {
		case e := <-c.events:
			if e.kind == C.MSG_GONE {
				err := c.finish(e, &out)
				return out, started, err
			}
			if started {
				c.s.kill() // twice: not our keeper any more
				continue
			}
			rec, err := newReceipt(e.receipt, c.probes, c.s.m.own)
			if err != nil {
				c.s.kill()
				<-c.s.dead
				return out, false, err
			}
			started, lost = true, nil
			out.Receipt = c.complete(rec)
			if c.r.Started != nil {
				c.r.Started(out.Receipt)
			}
		case <-timeout.C:
			end(EndedTimeout, syscall.SIGTERM)
		case <-done:
			done = nil
			end(EndedCaller, syscall.SIGTERM)
		case <-c.over:
			end(EndedOutput, syscall.SIGKILL)
		case <-kill:
			end(out.Ended, syscall.SIGKILL)
		case <-lost:
			c.s.kill()
		case <-c.s.dead:
			// what it said last may still be there
			select {
			case e := <-c.events:
				if e.kind == C.MSG_GONE {
					err := c.finish(e, &out)
					return out, started, err
				}
				if rec, err := newReceipt(e.receipt, c.probes, c.s.m.own); err == nil && !started {
					started = true
					out.Receipt = c.complete(rec)
				}
				continue
			default:
			}
			if out.Ended == EndedItself {
				out.Ended = EndedKeeper
			}
			out.ExitCode, out.Signal = -1, unix.SignalName(syscall.SIGKILL)
			return out, started, nil
		}
	}
}

func (c *command) complete(r Receipt) Receipt {
	r.Setting = c.s.m.Setting()
	r.LandlockABI = c.s.m.abi
	r.Limits = c.s.m.limits
	r.Limits.ProcessesHeld = c.s.held
	return r
}

// finish reads the last event. An init that was killed left no status.
func (c *command) finish(e event, out *Outcome) error {
	if e.fail.step != C.STEP_NONE {
		return c.explain(e.fail)
	}
	out.Usage = e.usage
	switch {
	case !e.finished || e.status.Signaled():
		sig := syscall.SIGKILL
		if e.finished {
			sig = e.status.Signal()
		}
		out.ExitCode, out.Signal = -1, unix.SignalName(sig)
	default:
		out.ExitCode = e.status.ExitStatus()
	}
	return nil
}

// explain tells a directory that is not there from a missing layer.
func (c *command) explain(f failure) error {
	if f.step == C.STEP_DIR && (f.errno == unix.ENOENT || f.errno == unix.ENOTDIR || f.errno == unix.ELOOP || f.errno == unix.EACCES) {
		return &ProjectError{Path: filepath.Join(c.r.Project, c.r.Dir), Err: f.errno}
	}
	return f.err()
}
