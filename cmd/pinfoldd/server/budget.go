package server

import (
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
)

// spending is what the commands of a session have used.
type spending struct {
	runs      int64
	cpu, wall time.Duration
}

func (s spending) wire() *api.Spent {
	return &api.Spent{Runs: s.runs, CPUSeconds: s.cpu.Seconds(), WallSeconds: s.wall.Seconds()}
}

// An allowance is one command's share of its session's budget. It is taken when
// the command is judged, so that one that waits for somebody's yes has it when
// that comes, and given back when nothing was started. Its zero pointer is for a
// command without a session.
type allowance struct {
	session *session
	started bool
	over    bool
}

// exhausted is the refusal of a command for which nothing is left.
func exhausted(of string) *api.Error {
	return &api.Error{Code: api.BudgetExhausted, Message: "the session's budget of " + of + " is spent",
		RecommendedAction: "end here, and say what is left to do; whoever opened the session can open another"}
}

// allow takes an allowance.
func (s *session) allow() (*allowance, *api.Error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.budget.Runs > 0 && s.spent.runs >= s.budget.Runs {
		return nil, exhausted("runs")
	}
	if _, _, failed := s.left(); failed != nil {
		return nil, failed
	}
	s.spent.runs++
	return &allowance{session: s}, nil
}

// soFar returns what has been spent, with the time of those under way. The lock is
// held.
func (s *session) soFar() spending {
	spent := s.spent
	for _, at := range s.begun {
		spent.wall += time.Since(at)
	}
	return spent
}

// left returns what a command that starts now may use, 0 for as much as it wants.
// The lock is held.
func (s *session) left() (cpu, wall time.Duration, failed *api.Error) {
	spent := s.soFar()
	if s.budget.CPUSeconds > 0 {
		if cpu = time.Duration(s.budget.CPUSeconds)*time.Second - spent.cpu; cpu <= 0 {
			return 0, 0, exhausted("processor time")
		}
	}
	if s.budget.WallSeconds > 0 {
		if wall = time.Duration(s.budget.WallSeconds)*time.Second - spent.wall; wall <= 0 {
			return 0, 0, exhausted("time")
		}
	}
	return cpu, wall, nil
}

// start says that the command starts, and lowers its limits to what is left.
func (a *allowance) start(r *confine.Request) *api.Error {
	if a == nil {
		return nil
	}
	a.session.mu.Lock()
	defer a.session.mu.Unlock()
	cpu, wall, failed := a.session.left()
	if failed != nil {
		return failed
	}
	if wall > 0 {
		r.Timeout = min(r.Timeout, max(wall, time.Millisecond))
	}
	if cpu > 0 && (r.Limits.CPU == 0 || r.Limits.CPU > cpu) {
		r.Limits.CPU = cpu
	}
	a.started = true
	a.session.begun[a] = time.Now()
	return nil
}

// end says what the command has used. One that was not started gives its share
// back; later calls do nothing.
func (a *allowance) end(u confine.Usage) {
	if a == nil {
		return
	}
	s := a.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.over {
		return
	}
	a.over = true
	delete(s.begun, a)
	if !a.started {
		s.spent.runs--
		return
	}
	s.spent.cpu += u.User + u.System
	s.spent.wall += u.Wall
}
