package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pinfold/pinfold/api"
)

const (
	// maxStanding is how many of one caller's may hold for the session.
	maxStanding = 64
	// maxDecided is how many that are over are kept to be looked at.
	maxDecided = 256
)

// An act is what can happen to an approval.
type act string

const (
	actAsk      act = "ask"      // it is made
	actAllow    act = "allow"    // an approver says yes
	actDeny     act = "deny"     // an approver says no
	actExpire   act = "expire"   // its time is over
	actWithdraw act = "withdraw" // the asker went away, or nothing may start any more
	actStart    act = "start"    // the command starts
	actSpoil    act = "spoil"    // what would start is not what was approved
	actRevoke   act = "revoke"   // an approver takes a yes back
)

// becomes is the whole life of an approval: what each act makes of it in each
// state. What is not here cannot happen.
var becomes = map[string]map[act]string{
	api.StatePending: {
		actAllow: api.StateAllowed, actDeny: api.StateDenied, actExpire: api.StateExpired, actWithdraw: api.StateWithdrawn,
	},
	api.StateAllowed: {
		actStart: api.StateUsed, actSpoil: api.StateStale, actRevoke: api.StateRevoked,
		actExpire: api.StateExpired, actWithdraw: api.StateWithdrawn,
	},
}

// approvals are the commands that wait for a yes, those that have one for the
// session, and the latest that are over. There is one look-up, by owner and id:
// what is another's is not there.
type approvals struct {
	now  func() time.Time
	note func(*api.Approval, act) error // records it; an error keeps a yes from counting
	most int64                          // of one caller that wait at once

	mu      sync.Mutex
	all     map[string]*approval
	over    []string // ids of those that are over, the oldest first
	changed map[chan struct{}]bool
}

// An approval is one that is kept.
type approval struct {
	api.Approval
	side    []process     // the asker's, when it asked
	files   string        // footprint of the project, when it was asked
	decided chan struct{} // closed when it is pending no more
}

func newApprovals(note func(*api.Approval, act) error) *approvals {
	return &approvals{now: time.Now, note: note, most: DefaultCaps.Pending, all: map[string]*approval{}, changed: map[chan struct{}]bool{}}
}

// errNoApproval is the answer for an approval that is not there, and for one
// that is another's.
var errNoApproval = &api.Error{Code: api.NotFound, Message: "there is no such approval"}

// ask makes a pending approval of what is given, or finds one that a yes for the
// session holds for, which is allowed at once.
func (a *approvals) ask(given api.Approval, side []process, files string) (*approval, *api.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	pending := 0
	for _, p := range a.all {
		if p.Caller.UID != given.Caller.UID {
			continue
		}
		if p.State == api.StateAllowed && p.Scope == api.ScopeSession && p.Binding == given.Binding {
			return p, nil
		}
		if p.State == api.StatePending {
			pending++
		}
	}
	if pending >= int(a.most) {
		return nil, &api.Error{Code: api.Busy, Message: "too many of your commands wait for approval", Retryable: true,
			RecommendedAction: "wait until one of them has been decided"}
	}
	p := &approval{Approval: given, side: side, files: files, decided: make(chan struct{})}
	p.State, p.Created = api.StatePending, a.now()
	p.Expires = p.Created.Add(api.ApprovalLife)
	if err := a.note(&p.Approval, actAsk); err != nil {
		return nil, &api.Error{Code: api.TraceUnavailable, Message: "what was asked could not be recorded, so nothing was run", Retryable: true}
	}
	a.all[p.ID] = p
	a.tell()
	return p, nil
}

// await waits until the approval is decided, and returns nil for a yes. When ctx
// ends first it is withdrawn.
func (a *approvals) await(ctx context.Context, p *approval) *api.Error {
	timer := time.NewTimer(time.Until(p.Expires))
	defer timer.Stop()
	select {
	case <-p.decided:
	case <-timer.C:
		a.happen(p, actExpire)
	case <-ctx.Done():
		a.happen(p, actWithdraw)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch p.State {
	case api.StateAllowed:
		return nil
	case api.StateDenied:
		message := "an approver said no"
		if p.Reason != "" {
			message += ": " + p.Reason
		}
		return &api.Error{Code: api.ApprovalDenied, Message: message, RecommendedAction: "go on without this command"}
	case api.StateExpired:
		return &api.Error{Code: api.ApprovalTimeout, Message: "nobody approved it in time", Retryable: true,
			RecommendedAction: "go on without this command, or ask again when somebody can approve"}
	default:
		return &api.Error{Code: api.Interrupted, Message: "the request was withdrawn before it was decided", Retryable: true}
	}
}

// use takes the yes for a command that starts now, bound to what would run and, for
// this run, to the project's files. A yes for the session stays, whatever became of
// the files; one for this run is used up. It is called last, when everything was
// decided again.
func (a *approvals) use(p *approval, binding, files string) *api.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	if p.State != api.StateAllowed {
		return &api.Error{Code: api.ApprovalStale, Message: "the approval is " + p.State + " by now", Retryable: true, RecommendedAction: "ask again"}
	}
	if binding != p.Binding {
		_ = a.become(p, actSpoil) // it is refused in any case
		return &api.Error{Code: api.ApprovalStale, Message: "what would run now is not what was approved: a program, the policy or the project has changed",
			Retryable: true, RecommendedAction: "ask again"}
	}
	if p.Scope == api.ScopeSession {
		return nil
	}
	if files != p.files {
		_ = a.become(p, actSpoil)
		return &api.Error{Code: api.ApprovalStale, Message: "files of the project have changed since it was asked, and the command may load them",
			Retryable: true, RecommendedAction: "ask again"}
	}
	if err := a.become(p, actStart); err != nil {
		return &api.Error{Code: api.TraceUnavailable, Message: "the use of the approval could not be recorded, so nothing was run", Retryable: true}
	}
	return nil
}

// mayDecide reports why an approver may not decide on what the owner asked.
type mayDecide func(owner uint32, side []process) *api.Error

// decidable returns the approval on which the approver may decide, and notes
// whether it is his own. The lock is held.
func (a *approvals) decidable(id string, by *api.Approver, may mayDecide) (*approval, *api.Error) {
	a.expire()
	p, ok := a.all[id]
	if !ok {
		return nil, errNoApproval
	}
	if failed := may(p.Caller.UID, p.side); failed != nil {
		return nil, failed
	}
	by.SameUID = by.UID == p.Caller.UID
	return p, nil
}

// decide is an approver's yes or no, when he may decide on it.
func (a *approvals) decide(id string, by api.Approver, may mayDecide, d api.ApprovalDecision) (*api.Approval, *api.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, failed := a.decidable(id, &by, may)
	if failed != nil {
		return nil, failed
	}
	if d.Binding != "" && d.Binding != p.Binding {
		return nil, &api.Error{Code: api.ApprovalStale, Message: "this is not what you were shown", RecommendedAction: "look at it again"}
	}
	what := actDeny
	if d.Decision == api.DecideAllow {
		what = actAllow
	}
	if becomes[p.State][what] == "" {
		return nil, tooLate(p)
	}
	before := p.Approval
	now := a.now()
	p.Approver, p.Decided, p.Reason = &by, &now, d.Reason
	if what == actAllow {
		p.Keep, p.EndBeside = d.Keep, d.EndBeside
		p.Scope = cmp.Or(d.Scope, api.ScopeOnce)
		if p.Scope == api.ScopeSession {
			if a.standing(p.Caller.UID) >= maxStanding {
				p.Approval = before
				return nil, &api.Error{Code: api.Busy, Message: "too many approvals hold for this user's session", RecommendedAction: "revoke some"}
			}
			p.Expires = now.Add(api.ScopeLife)
		}
	}
	if err := a.become(p, what); err != nil {
		p.Approval = before
		return nil, &api.Error{Code: api.TraceUnavailable, Message: "the decision could not be recorded, so it does not count", Retryable: true}
	}
	shown := p.Approval
	return &shown, nil
}

// tooLate is the answer to a decision on what is decided: it says by whom.
func tooLate(p *approval) *api.Error {
	message := "it is " + p.State + " already"
	if p.Approver != nil {
		message += ", by " + p.Approver.User
	}
	return &api.Error{Code: api.ApprovalStale, Message: message}
}

// revoke takes a yes back that is not used up.
func (a *approvals) revoke(id string, by api.Approver, may mayDecide) (*api.Approval, *api.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, failed := a.decidable(id, &by, may)
	if failed != nil {
		return nil, failed
	}
	if becomes[p.State][actRevoke] == "" {
		return nil, tooLate(p)
	}
	now := a.now()
	p.Approver, p.Decided = &by, &now
	_ = a.become(p, actRevoke) // it is revoked even when that cannot be recorded
	shown := p.Approval
	return &shown, nil
}

// happen does the act when the state permits it.
func (a *approvals) happen(p *approval, what act) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if becomes[p.State][what] != "" {
		_ = a.become(p, what) // nothing starts by it
	}
}

// withdraw withdraws those that which names and that wait or are not used: nothing
// starts by them.
func (a *approvals) withdraw(which func(*api.Approval) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.all {
		if which(&p.Approval) && becomes[p.State][actWithdraw] != "" {
			_ = a.become(p, actWithdraw)
		}
	}
}

// become changes the state by the table, records it, and lets whoever waits
// know. A yes, and the start by one, count only when they are recorded. The lock
// is held.
func (a *approvals) become(p *approval, what act) error {
	next := becomes[p.State][what]
	if next == "" {
		return errors.New("bug: " + string(what) + " of an approval that is " + p.State)
	}
	before := p.State
	p.State = next
	if err := a.note(&p.Approval, what); err != nil && (what == actAllow || what == actStart) {
		p.State = before
		return err
	}
	if before == api.StatePending {
		close(p.decided)
	}
	if becomes[next] == nil {
		a.over = append(a.over, p.ID)
		if len(a.over) > maxDecided {
			delete(a.all, a.over[0])
			a.over = a.over[1:]
		}
	}
	a.tell()
	return nil
}

// expire lets those expire whose time is over. The lock is held.
func (a *approvals) expire() {
	now := a.now()
	for _, p := range a.all {
		if becomes[p.State][actExpire] != "" && now.After(p.Expires) {
			_ = a.become(p, actExpire)
		}
	}
}

func (a *approvals) standing(uid uint32) (n int) {
	for _, p := range a.all {
		if p.Caller.UID == uid && p.State == api.StateAllowed && p.Scope == api.ScopeSession {
			n++
		}
	}
	return n
}

// show returns the approval as it is now.
func (a *approvals) show(p *approval) *api.Approval {
	a.mu.Lock()
	defer a.mu.Unlock()
	shown := p.Approval
	return &shown
}

// find returns the approval of the owner with the id.
func (a *approvals) find(owner uint32, id string) (*api.Approval, *api.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	p, ok := a.all[id]
	if !ok || p.Caller.UID != owner {
		return nil, errNoApproval
	}
	shown := p.Approval
	return &shown, nil
}

// list returns those that show permits, the oldest first.
func (a *approvals) list(show func(*api.Approval) bool) []*api.Approval {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	list := []*api.Approval{}
	for p := range maps.Values(a.all) {
		if show(&p.Approval) {
			shown := p.Approval
			list = append(list, &shown)
		}
	}
	slices.SortFunc(list, func(x, y *api.Approval) int {
		return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
	})
	return list
}

// watch returns a channel that gets a value after changes, until stop is called.
func (a *approvals) watch() (changes <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed[c] = true
	return c, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.changed, c)
	}
}

func (a *approvals) tell() {
	for c := range a.changed {
		select {
		case c <- struct{}{}:
		default: // it will look anyway
		}
	}
}
