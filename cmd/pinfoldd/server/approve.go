package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

// approve has somebody approve the command, and decides on it again when he has:
// what runs is what he saw, or nothing. The verdict that it returns has the
// approval, or the error that keeps the command from running.
func (s *Server) approve(ctx context.Context, o *order, v verdict) verdict {
	refused := func(v verdict, e *api.Error) verdict {
		v.err = e
		return v
	}
	q, p := o.question(), o.peer
	q.explain, q.looksThrough = true, true
	if v = s.judge(ctx, q, o.slot); v.err != nil || !v.asks() {
		return v
	}
	bound, err := binding(&v)
	if err != nil {
		return refused(v, &api.Error{Code: api.Internal, Message: "what would be approved cannot be read: " + err.Error()})
	}
	// Who asked is above the client's process while it waits, not when somebody
	// has decided and it is gone.
	side, _ := ancestry(p.pid) // without it nobody is apart from it
	a, failed := s.approvals.ask(api.Approval{
		ID: o.id, Run: o.id, Stdin: shownStdin(o.req), Project: v.project, Cwd: v.dir, Binding: bound,
		Session: o.session.name(), Env: cleanAll(o.session.variables()),
		Changed: v.footprint.changed, Unbound: v.footprint.part, Beside: s.beside(o, v.project),
		Caller:   api.ApprovalCaller{UID: p.uid, GID: p.gid, User: q.caller.Name, PID: p.pid, Executable: p.executable},
		Decision: wireDecision(&v.decision, v.policy), Grant: wireGrant(&v.decision.Grant), Explanation: wireExplanation(v.explanation),
	}, asking(side), v.footprint.hash)
	if failed != nil {
		return refused(v, failed)
	}
	if o.asked != nil {
		o.asked(s.approvals.show(a))
	}
	if failed = s.approvals.await(ctx, a); failed != nil {
		return refused(v, failed)
	}
	if s.approvals.show(a).EndBeside {
		s.endBeside(ctx, o, v.project)
	}
	// Nothing else of the project may change it between the second look and the
	// end of the run.
	leave, err := s.gates.alone(ctx, v.project)
	if err != nil {
		s.approvals.happen(a, actWithdraw)
		return refused(v, &api.Error{Code: api.Interrupted, Message: "the request was canceled", Retryable: true})
	}
	again := s.judge(ctx, q, o.slot)
	if again.err == nil && again.decision.Verdict == policy.Deny {
		again.err = o.session.refusal(&again.decision)
	}
	if again.err == nil {
		bound, err = binding(&again)
		if err != nil {
			bound = ""
		}
		again.err = s.approvals.use(a, bound, again.footprint.hash)
	} else {
		s.approvals.happen(a, actSpoil)
	}
	if again.err != nil {
		leave()
		return again
	}
	again.approval, again.leave = s.approvals.show(a), leave
	return again
}

// beside returns the asker's other background runs in the project.
func (s *Server) beside(o *order, project string) (list []api.ApprovalRun) {
	for _, r := range s.runningBeside(o, project) {
		list = append(list, api.ApprovalRun{Run: r.info.Run, Command: r.info.Command})
	}
	return list
}

func (s *Server) runningBeside(o *order, project string) []*running {
	return slices.DeleteFunc(s.registry.of(o.peer.uid), func(r *running) bool {
		return r.info.Run == o.id || r.info.Project != project || r.now().State != api.RunRunning || !r.info.Background
	})
}

// endBeside ends them, and returns when they have ended.
func (s *Server) endBeside(ctx context.Context, o *order, project string) {
	list := s.runningBeside(o, project)
	for _, r := range list {
		select {
		case r.signals <- unix.SIGKILL:
		case <-r.ended:
		case <-ctx.Done():
		}
	}
	for _, r := range list {
		select {
		case <-r.ended:
		case <-ctx.Done():
		}
	}
}

// howOf is what a yes holds for besides the text: what the command reads, that it
// has a terminal, that it runs in the background.
func howOf(r *api.ExecRequest) string {
	input := sha256.Sum256(r.Input())
	return fmt.Sprintf("stdin %x %v, tty %v, background %v", input, r.StdinStream, r.TTY, r.Background)
}

// shownStdin is what whoever approves gets to see of the stdin.
func shownStdin(r *api.ExecRequest) string {
	const most = 1000 // characters
	shown := clean(strings.ToValidUTF8(string(r.Input()), "\uFFFD"))
	if cut := []rune(shown); len(cut) > most {
		shown = string(cut[:most]) + "… (more)"
	}
	if r.StdinStream {
		shown += "(more is sent while it runs)"
	}
	return shown
}

// maxBound is the most bytes of one program that a binding reads; of a longer
// one it holds only what stat(2) says.
const maxBound = 64 << 20

// A boundProgram is a program as a yes holds for it.
type boundProgram struct {
	Path  string
	Inode uint64
	Dev   uint64
	Size  int64
	Mtime unix.Timespec
	Hash  string
}

// binding returns the SHA-256 over everything that a yes holds for. Two
// decisions have the same one only when they would run the same.
func binding(v *verdict) (string, error) {
	programs := make([]boundProgram, 0, len(v.decision.Programs))
	for _, path := range v.decision.Programs {
		p, err := bindProgram(path)
		if err != nil {
			return "", err
		}
		programs = append(programs, p)
	}
	data, err := json.Marshal(struct {
		Text, Project, Dir, Policy string
		How                        string
		Dev, Ino                   uint64
		Grant                      policy.Grant
		Programs                   []boundProgram
	}{v.decision.Text, v.project, v.dir, v.policy, v.how, v.root.Dev, v.root.Ino, v.decision.Grant, programs})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// bindProgram reads a program of the system's.
func bindProgram(path string) (boundProgram, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return boundProgram{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return boundProgram{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return boundProgram{}, errors.New(path + ": is no plain file")
	}
	p := boundProgram{Path: path, Inode: st.Ino, Dev: uint64(st.Dev), Size: st.Size, Mtime: st.Mtim}
	if st.Size > maxBound {
		return p, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxBound)); err != nil {
		return boundProgram{}, err
	}
	p.Hash = hex.EncodeToString(h.Sum(nil))
	return p, nil
}

// recordApproval puts what happened to an approval on the trace.
func (s *Server) recordApproval(a *api.Approval, what act) error {
	r := trace.Approval{
		Approval: a.ID, Act: string(what), Run: a.Run, Project: a.Project, Binding: a.Binding, Scope: a.Scope, Reason: a.Reason, Approver: a.Approver,
		Caller:   trace.Caller{UID: a.Caller.UID, GID: a.Caller.GID, PID: a.Caller.PID, Executable: a.Caller.Executable},
		WaitedMS: time.Since(a.Created).Milliseconds(),
	}
	if what == actAsk {
		r.Text = a.Decision.Text
	}
	s.metrics.approvals.WithLabelValues(string(what)).Inc()
	err := s.Trace.Approved(r)
	if err != nil {
		s.Log.Printf("the trace cannot be written: %v", err)
	}
	return err
}

// gates keep an approved run alone in its project: it waits for the other runs
// there that may write, and none of those starts before it has ended.
type gates struct {
	mu  sync.Mutex
	all map[string]*gate // by project
}

// A gate is passed by many that share it, or by one alone.
type gate struct {
	sem   *semaphore.Weighted
	users int
}

// gateWidth is how many may pass together: more than there can be runs at once.
const gateWidth = 1 << 20

// alone waits until no other run that may write is in the project.
func (g *gates) alone(ctx context.Context, project string) (leave func(), err error) {
	return g.enter(ctx, project, gateWidth)
}

// shared waits until no run is alone in the project.
func (g *gates) shared(ctx context.Context, project string) (leave func(), err error) {
	return g.enter(ctx, project, 1)
}

func (g *gates) enter(ctx context.Context, project string, width int64) (leave func(), err error) {
	g.mu.Lock()
	p := g.all[project]
	if p == nil {
		p = &gate{sem: semaphore.NewWeighted(gateWidth)}
		g.all[project] = p
	}
	p.users++
	g.mu.Unlock()
	done := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(g.all, project)
		}
	}
	if err := p.sem.Acquire(ctx, width); err != nil {
		done()
		return nil, err
	}
	return sync.OnceFunc(func() { p.sem.Release(width); done() }), nil
}
