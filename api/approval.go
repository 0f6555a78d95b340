package api

import (
	"strconv"
	"time"
)

// The states of an approval.
const (
	StatePending   = "pending"   // waits for somebody's yes or no
	StateAllowed   = "allowed"   // somebody said yes; with scope session it holds until it ends
	StateDenied    = "denied"    // somebody said no
	StateExpired   = "expired"   // nobody answered in time, or a yes was not used in time
	StateWithdrawn = "withdrawn" // the asker went away, or the daemon ended
	StateUsed      = "used"      // the command was started
	StateStale     = "stale"     // what would have run was no longer what was approved
	StateRevoked   = "revoked"   // a yes was taken back
)

// The scopes of a yes.
const (
	ScopeOnce    = "once"    // this run
	ScopeSession = "session" // exactly this command, asked by this user in this project, until it expires
)

// The decisions on an approval.
const (
	DecideAllow = "allow"
	DecideDeny  = "deny"
)

// The bounds of an approval.
const (
	ApprovalLife = 5 * time.Minute // how long it waits
	ScopeLife    = 8 * time.Hour   // how long a yes for the session holds
	MaxReason    = 1000            // bytes of a reason
)

// An Approval is a command that waits for somebody's yes, or what became of it.
type Approval struct {
	ID      string    `json:"id"`
	State   string    `json:"state"`
	Run     string    `json:"run"` // of the request that asked
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Caller is who asked, as the kernel says; the executable is information.
	Caller ApprovalCaller `json:"caller"`
	// Project and Cwd, relative to it, are where the command would run.
	Project string `json:"project"`
	Cwd     string `json:"cwd"`
	// Session is the one that the command is of, and Env what that gives it.
	Session string   `json:"session,omitempty"`
	Env     []string `json:"env,omitempty"` // "NAME=value"
	// Changed are the files of the project that changed last, of a command that runs
	// code which was not read: it may load them. One that changes until it runs
	// makes the approval stale, as far as the project was looked through.
	Changed []ChangedFile `json:"changed,omitempty"`
	// Unbound says that the project has too many files to look through all.
	Unbound bool `json:"unbound,omitempty"`
	// Beside are the asker's background runs in the project, which go on.
	Beside []ApprovalRun `json:"beside,omitempty"`
	// Stdin is the beginning of what the command would read, at most about 1,000
	// characters.
	Stdin string `json:"stdin,omitempty"`
	// Decision and Grant are what would run, why it is asked about, and the most
	// that it could do.
	Decision *Decision `json:"decision"`
	Grant    *Grant    `json:"grant"`
	// Explanation holds the command's parts with their effects.
	Explanation *Explanation `json:"explanation,omitempty"`
	// Binding is the SHA-256, in hexadecimal, over everything that a yes holds
	// for: text, stdin, directory, environment, programs, grant, policy, project, session.
	Binding string `json:"binding"`

	// What became of it.
	Scope  string `json:"scope,omitempty"`
	Reason string `json:"reason,omitempty"` // of a no
	// Keep and EndBeside are as in ApprovalDecision.
	Keep      bool `json:"keep,omitempty"`
	EndBeside bool `json:"end_beside,omitempty"`
	// Approver is who decided.
	Approver *Approver  `json:"approver,omitempty"`
	Decided  *time.Time `json:"decided,omitempty"`
}

// A ChangedFile is a file of the project and when it changed.
type ChangedFile struct {
	Path string    `json:"path"` // relative to the project
	At   time.Time `json:"at"`
}

// An ApprovalRun is a background run.
type ApprovalRun struct {
	Run     string `json:"run"`
	Command string `json:"command"`
}

// An ApprovalCaller is who asked.
type ApprovalCaller struct {
	UID        uint32 `json:"uid"`
	GID        uint32 `json:"gid"`
	User       string `json:"user"`
	PID        int    `json:"pid"`
	Executable string `json:"executable,omitempty"`
}

// An Approver is who decided.
type Approver struct {
	UID  uint32 `json:"uid"`
	User string `json:"user"`
	PID  int    `json:"pid"`
	// SameUID says that it is the user who asked, which only his own daemon
	// permits: then it proves no second person.
	SameUID bool `json:"approver_same_uid,omitempty"`
}

// An ApprovalDecision is the body of POST /v1/approvals/{id}.
type ApprovalDecision struct {
	Decision string `json:"decision"`         // DecideAllow or DecideDeny
	Reason   string `json:"reason,omitempty"` // of a no; reaches the agent
	Scope    string `json:"scope,omitempty"`  // of a yes; ScopeOnce when absent
	// Keep, with a yes, gives the command the /tmp, network and caches of its
	// session, which earlier commands may have filled; else it has empty ones.
	Keep bool `json:"keep,omitempty"`
	// EndBeside, with a yes, ends the background runs in the project first.
	EndBeside bool `json:"end_beside,omitempty"`
	// Binding, if given, must be the approval's: the yes is to what was shown.
	Binding string `json:"binding,omitempty"`
}

// An ApprovalAnswer is one approval.
type ApprovalAnswer struct {
	Success  bool      `json:"success"` // always true
	Approval *Approval `json:"approval"`
}

// An ApprovalList is the answer to GET /v1/approvals.
type ApprovalList struct {
	Success   bool        `json:"success"` // always true
	Approvals []*Approval `json:"approvals"`
}

// ParseApprovalDecision reads the body of a decision. The error, if any, has
// code INVALID_ARGUMENTS.
func ParseApprovalDecision(body []byte) (ApprovalDecision, *Error) {
	var d ApprovalDecision
	problems := decode(body, []field{
		stringField("decision", true, &d.Decision, oneOf(DecideAllow, DecideDeny)),
		stringField("reason", false, &d.Reason, func(s string) string {
			if len(s) > MaxReason {
				return "must be at most " + strconv.Itoa(MaxReason) + " bytes"
			}
			return ""
		}),
		stringField("scope", false, &d.Scope, oneOf(ScopeOnce, ScopeSession)),
		boolField("keep", &d.Keep),
		boolField("end_beside", &d.EndBeside),
		stringField("binding", false, &d.Binding, func(s string) string {
			if len(s) != 64 {
				return "must be 64 hexadecimal digits"
			}
			return ""
		}),
	})
	switch {
	case problems != nil:
	case d.Decision == DecideDeny && d.Scope != "":
		problems = []string{"scope: is for a yes only"}
	case d.Decision == DecideDeny && (d.Keep || d.EndBeside):
		problems = []string{"decision: a no keeps and ends nothing"}
	case d.Decision == DecideAllow && d.Reason != "":
		problems = []string{"reason: is for a no only"}
	}
	if problems != nil {
		return ApprovalDecision{}, invalid(problems)
	}
	return d, nil
}

// oneOf returns a check for one of the two words.
func oneOf(a, b string) func(string) string {
	return func(s string) string {
		if s != a && s != b {
			return "must be " + a + " or " + b
		}
		return ""
	}
}
