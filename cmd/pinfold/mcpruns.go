//go:build mcp

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pinfold/pinfold/api"
)

const (
	// mcpKept is how many runs that have ended are kept for run_output.
	mcpKept = 64
	// mcpBuffer is the most bytes of each stream of a run that are kept: the
	// latest.
	mcpBuffer = 4 << 20
)

// mcpRuns are the runs that one MCP client started. They end with it.
type mcpRuns struct {
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu   sync.Mutex
	next int
	all  []*mcpRun // in the order in which they were started
}

func newMCPRuns(ctx context.Context) *mcpRuns {
	r := &mcpRuns{}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// close ends every run and waits until each has.
func (r *mcpRuns) close() {
	r.cancel()
	r.wait.Wait()
}

// An mcpRun is one command, from its start until it is forgotten.
type mcpRun struct {
	id, command string
	cancel      context.CancelFunc
	done        chan struct{} // closed when it has ended

	mu             sync.Mutex
	changed        chan struct{} // closed when the daemon has started it
	started        bool
	waits          *api.Approval // for somebody's yes
	stdout, stderr tail
	outcome        *api.Outcome
	err            error
}

// start starts a command.
func (r *mcpRuns) start(client *api.Client, req api.ExecRequest) *mcpRun {
	ctx, cancel := context.WithCancel(r.ctx)
	r.mu.Lock()
	r.next++
	run := &mcpRun{id: "run-" + strconv.Itoa(r.next), command: req.Command, cancel: cancel,
		done: make(chan struct{}), changed: make(chan struct{})}
	r.all = append(r.all, run)
	r.forget()
	r.mu.Unlock()
	r.wait.Go(func() {
		defer client.Close()
		defer cancel()
		run.follow(ctx, client, req)
	})
	return run
}

// forget lets go of the oldest runs that have ended. The lock is held.
func (r *mcpRuns) forget() {
	for i := 0; len(r.all) > mcpKept && i < len(r.all); {
		if r.all[i].ended() {
			r.all = slices.Delete(r.all, i, i+1)
		} else {
			i++
		}
	}
}

// find returns the run with the id.
func (r *mcpRuns) find(id string) (*mcpRun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.all {
		if run.id == id {
			return run, nil
		}
	}
	return nil, fmt.Errorf("no run %s; session_status lists those there are", strconv.QuoteToASCII(id))
}

// list describes the runs, a line each.
func (r *mcpRuns) list() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return "no runs\n"
	}
	var b strings.Builder
	for _, run := range r.all {
		a := run.answer()
		state := a.State
		if a.ExitCode != nil {
			state = fmt.Sprintf("exit status %d", *a.ExitCode)
		}
		command := visible(run.command)
		if len(command) > excerptWidth {
			command = strings.ToValidUTF8(command[:excerptWidth], "") + "…"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", run.id, state, command)
	}
	return b.String()
}

// follow runs the command and keeps what comes of it.
func (run *mcpRun) follow(ctx context.Context, client *api.Client, req api.ExecRequest) {
	defer close(run.done)
	err := client.Stream(ctx, req, func(e *api.Event) error {
		run.mu.Lock()
		defer run.mu.Unlock()
		switch e.Event {
		case api.EventApproval:
			run.waits = e.Approval
		case api.EventStarted:
			run.waits = nil
			if !run.started {
				run.started = true
				close(run.changed)
			}
		case api.EventStdout:
			run.stdout.write(e.Data)
		case api.EventStderr:
			run.stderr.write(e.Data)
		case api.EventFinished:
			outcome := e.Outcome
			run.outcome = &outcome
		}
		return nil
	})
	run.mu.Lock()
	defer run.mu.Unlock()
	run.err = err
}

func (run *mcpRun) ended() bool {
	select {
	case <-run.done:
		return true
	default:
		return false
	}
}

// await waits until the run has ended, until it has started and enough reports
// true, until the time is over or the context done.
func (run *mcpRun) await(ctx context.Context, limit time.Duration, enough func() bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	changed := run.changed
	for {
		select {
		case <-changed:
			changed = nil
			run.mu.Lock()
			is := enough()
			run.mu.Unlock()
			if is {
				return
			}
		case <-run.done:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// answer says what has come of the run so far.
func (run *mcpRun) answer() *runAnswer {
	ended := run.ended()
	run.mu.Lock()
	defer run.mu.Unlock()
	a := &runAnswer{State: "running", Run: run.id}
	a.Stdout, a.OmittedOut = run.stdout.excerpt(mcpStreamLimit)
	a.Stderr, a.OmittedErr = run.stderr.excerpt(mcpStreamLimit)
	if !ended {
		if run.waits != nil {
			a.State = "waiting"
			a.Error = &answerError{Code: string(api.ApprovalRequired), Message: strings.TrimSuffix(waitsFor(run.waits), "\n")}
		}
		return a
	}
	a.State = "finished"
	err := run.err
	if o := run.outcome; o != nil {
		a.ExitCode = o.ExitCode
		if o.Signal != nil {
			a.Signal = *o.Signal
		}
		if o.Error != nil {
			err = o.Error
		}
	} else {
		a.State = "refused"
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		a.Error = &answerError{Code: string(refused.Code), Message: strings.TrimSuffix(explain(refused, run.command), "\n")}
	} else if err != nil {
		a.Error = &answerError{Code: string(api.Internal), Message: err.Error()}
	}
	return a
}

// read returns what the stream holds from the offset on, at most limit bytes.
func (run *mcpRun) read(stream string, offset int64, limit int) (*outputReply, error) {
	ended := run.ended()
	run.mu.Lock()
	defer run.mu.Unlock()
	t := &run.stdout
	switch stream {
	case "", "stdout":
	case "stderr":
		t = &run.stderr
	default:
		return nil, errors.New("stream: must be stdout or stderr")
	}
	reply := &outputReply{Run: run.id, State: "running", Total: t.total}
	if ended {
		reply.State = "finished"
	}
	reply.Data, reply.Offset, reply.Next = t.read(offset, limit)
	return reply, nil
}

// A tail is the latest bytes of a stream.
type tail struct {
	data  []byte
	total int64 // bytes written, kept or not
}

func (t *tail) write(s string) {
	t.data = append(t.data, s...)
	t.total += int64(len(s))
	if len(t.data) > 2*mcpBuffer {
		t.data = append([]byte(nil), t.data[len(t.data)-mcpBuffer:]...)
	}
}

// read returns text from the offset on, at most limit bytes, where it begins and
// where to read on. A negative offset counts from the end; what is no longer
// kept is skipped; characters are not cut in two.
func (t *tail) read(offset int64, limit int) (data string, begin, next int64) {
	first := t.total - int64(len(t.data))
	if offset < 0 {
		offset += t.total
	}
	begin = min(max(offset, first), t.total)
	rest := t.data[begin-first:]
	if len(rest) > limit {
		rest = cutBefore(rest, limit)
	}
	return strings.ToValidUTF8(string(rest), "\uFFFD"), begin, begin + int64(len(rest))
}

// excerpt returns head and tail of the stream, and how many bytes are left out
// between them.
func (t *tail) excerpt(limit int) (text string, omitted int64) {
	if t.total <= int64(limit) {
		return strings.ToValidUTF8(string(t.data), "\uFFFD"), 0
	}
	head := cutBefore(t.data, limit/2)
	end := t.data[len(t.data)-limit/2:]
	for i := 0; i < utf8.UTFMax && len(end) > 0 && !utf8.RuneStart(end[0]); i++ {
		end = end[1:]
	}
	omitted = t.total - int64(len(head)) - int64(len(end))
	text = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, omitted, end)
	return strings.ToValidUTF8(text, "\uFFFD"), omitted
}

// cutBefore returns the first n bytes, less what is only part of a character.
func cutBefore(data []byte, n int) []byte {
	cut := data[:n]
	for i := 0; i < utf8.UTFMax && len(cut) > 0 && !utf8.RuneStart(data[len(cut)]); i++ {
		cut = cut[:len(cut)-1]
	}
	return cut
}
