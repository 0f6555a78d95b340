package trace

import (
	"time"

	"github.com/pinfold/pinfold/api"
)

// The events of what people decide.
const (
	EventApproval = "approval" // something happened to an approval
	EventHalt     = "halt"     // everything was stopped, or may go on
)

// An Approval is the record of what happened to an approval.
type Approval struct {
	Event    string `json:"event"` // set by Approved
	Approval string `json:"approval"`
	// Act is what happened: ask, allow, deny, expire, withdraw, start, spoil (what
	// would have run was not what was approved), revoke.
	Act      string        `json:"act"`
	Run      string        `json:"run"` // of the request that asked
	Caller   Caller        `json:"caller"`
	Project  string        `json:"project"`
	Text     string        `json:"text,omitempty"` // with ask: canonical
	Binding  string        `json:"binding"`
	Scope    string        `json:"scope,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Approver *api.Approver `json:"approver,omitempty"`
	WaitedMS int64         `json:"waited_ms"` // since it was asked
}

// Approved records what happened to an approval.
func (l *Log) Approved(a Approval) error {
	a.Event = EventApproval
	a.Text, a.Reason, a.Project, a.Caller.Executable = clean(a.Text), clean(a.Reason), clean(a.Project), clean(a.Caller.Executable)
	return l.appendNew(a)
}

// A Halt is the record of a stop of everything, or of its end.
type Halt struct {
	Event string       `json:"event"` // set by Halted
	Halt  bool         `json:"halt"`  // false: commands may start again
	By    api.Approver `json:"by"`
}

// Halted records that everything was stopped, or may go on.
func (l *Log) Halted(h Halt) error {
	h.Event = EventHalt
	return l.appendNew(h)
}

// The events of sessions.
const (
	EventSessionOpened = "session_opened"
	EventSessionClosed = "session_closed"
)

// A Session is the record of a session that was opened or closed.
type Session struct {
	Event    string      `json:"event"` // set by SessionOpened and SessionClosed
	Session  string      `json:"session"`
	Caller   Caller      `json:"caller"`
	Project  string      `json:"project"`
	ReadOnly bool        `json:"read_only"`
	Disabled []string    `json:"disabled,omitempty"`
	Budget   *api.Budget `json:"budget,omitempty"`
	Env      []string    `json:"env,omitempty"` // names alone
	Expires  time.Time   `json:"expires"`
	// Why and Spent are of one that was closed: closed, expired, idle or daemon.
	Why   string     `json:"why,omitempty"`
	Spent *api.Spent `json:"spent,omitempty"`
}

// SessionOpened records that a session was opened.
func (l *Log) SessionOpened(s Session) error { return l.session(EventSessionOpened, s) }

// SessionClosed records that a session was closed.
func (l *Log) SessionClosed(s Session) error { return l.session(EventSessionClosed, s) }

func (l *Log) session(event string, s Session) error {
	s.Event = event
	s.Project, s.Caller.Executable = clean(s.Project), clean(s.Caller.Executable)
	return l.appendNew(s)
}
