package trace

import (
	"time"

	"github.com/pinfold/pinfold/api"
)

// Tool is the name of the tool in every record of a command.
const Tool = "run_shell"

// The events.
const (
	EventStart    = "start"    // the log was opened
	EventDecided  = "decided"  // a command was judged
	EventFinished = "finished" // a command that was allowed ended, or could not be started
	EventStop     = "stop"     // the log was closed in order
)

// Interrupted is the error_type of a run whose end nobody saw, or that ended
// because its caller or the daemon went away.
const Interrupted = "interrupted"

// A Caller is who asked.
type Caller struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	PID int    `json:"pid"` // of the process that connected
	// Executable is the program of that process when it connected, at most
	// 1,024 bytes of it: information, not identity.
	Executable string `json:"executable,omitempty"`
}

// Args are the arguments of the tool.
type Args struct {
	Command string `json:"command"` // as it was sent
}

// Decided is the record of a decision.
type Decided struct {
	Event            string       `json:"event"` // set by Decide
	Run              string       `json:"run"`
	Session          string       `json:"session,omitempty"` // that the command is one of, when its caller named one
	Tool             string       `json:"tool"`              // set by Decide
	Args             Args         `json:"args"`
	RiskLevel        string       `json:"risk_level"`
	ApprovalRequired bool         `json:"approval_required"`
	Approved         bool         `json:"approved"` // it may start: a finished record follows
	PolicyDecision   string       `json:"policy_decision"`
	RiskReason       string       `json:"risk_reason"`
	ErrorType        string       `json:"error_type,omitempty"` // why it may not start
	Caller           Caller       `json:"caller"`
	Project          string       `json:"project"`
	Cwd              string       `json:"cwd"`  // project-relative
	Text             string       `json:"text"` // canonical: what was judged and what runs
	Rules            []string     `json:"rules"`
	Reasons          []api.Reason `json:"reasons"`
	Grant            *api.Grant   `json:"grant"`
	Policy           string       `json:"policy"` // hash of the policy
	TimeoutMS        int64        `json:"timeout_ms"`
	// Approval and Approver say how what had to be approved was.
	Approval string        `json:"approval,omitempty"`
	Approver *api.Approver `json:"approver,omitempty"`
	// Redacted, set by Decide, says that something was taken out of the command
	// or its text, which are then not what was judged.
	Redacted bool `json:"redacted,omitempty"`
}

// Finished is the record of how a run ended.
type Finished struct {
	Event     string  `json:"event"` // set by Finish
	Run       string  `json:"run"`   // set by Finish
	Tool      string  `json:"tool"`  // set by Finish
	ErrorType string  `json:"error_type,omitempty"`
	Detail    string  `json:"detail,omitempty"` // the error in words, at most 512 bytes
	Caller    Caller  `json:"caller"`           // set by Finish, without the executable
	ExitCode  *int    `json:"exit_code"`        // null when a signal ended it or it is not known
	Signal    *string `json:"signal"`
	Output    Output  `json:"output"`
	// Redactions counts what was taken out of the output, by kind.
	Redactions map[string]int `json:"redactions,omitempty"`
	Truncated  *api.Truncated `json:"truncated,omitempty"` // what the answer left out; absent when it had all
	Receipt    *api.Receipt   `json:"receipt,omitempty"`   // absent when nothing was started
	Usage      *api.Usage     `json:"usage,omitempty"`
	// Network are the connections that were made or refused.
	Network []api.Connection `json:"network,omitempty"`
}

// Output counts what a run wrote, in bytes.
type Output struct {
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
}

// start is the record of a log that was opened.
type start struct {
	Event    string    `json:"event"`
	Version  string    `json:"version"`
	Build    string    `json:"build"`
	Setting  string    `json:"setting"`
	PID      int       `json:"pid"`
	Recovery *Recovery `json:"recovery,omitempty"`
}

// stop is the record of a log that was closed.
type stop struct {
	Event string `json:"event"`
}

// Recovery is what was found wrong, and repaired, when a log was opened.
type Recovery struct {
	TornBytes   int64    `json:"torn_bytes,omitempty"`  // of a last line that was not written whole; removed
	Interrupted int      `json:"interrupted,omitempty"` // runs that were open and are now closed
	Breaks      []string `json:"breaks,omitempty"`      // what breaks the chain, "line 7: …", the first few; left as it is
}

// A Record is any record, as it is read. Which fields are set depends on the
// event; see Decided and Finished.
type Record struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Prev string    `json:"prev"`
	Hash string    `json:"hash"`

	Event            string         `json:"event"`
	Run              string         `json:"run"`
	Session          string         `json:"session"`
	Tool             string         `json:"tool"`
	Args             Args           `json:"args"`
	RiskLevel        string         `json:"risk_level"`
	ApprovalRequired bool           `json:"approval_required"`
	Approved         bool           `json:"approved"`
	PolicyDecision   string         `json:"policy_decision"`
	RiskReason       string         `json:"risk_reason"`
	ErrorType        string         `json:"error_type"`
	Detail           string         `json:"detail"`
	Caller           Caller         `json:"caller"`
	Project          string         `json:"project"`
	Cwd              string         `json:"cwd"`
	Text             string         `json:"text"`
	Rules            []string       `json:"rules"`
	Reasons          []api.Reason   `json:"reasons"`
	Grant            *api.Grant     `json:"grant"`
	Policy           string         `json:"policy"`
	TimeoutMS        int64          `json:"timeout_ms"`
	Approval         string         `json:"approval"`
	Approver         *api.Approver  `json:"approver"`
	Act              string         `json:"act"`
	ExitCode         *int           `json:"exit_code"`
	Signal           *string        `json:"signal"`
	Output           Output         `json:"output"`
	Redactions       map[string]int `json:"redactions"`
	Redacted         bool           `json:"redacted"`
	Truncated        *api.Truncated `json:"truncated"`
	Receipt          *api.Receipt   `json:"receipt"`
	Usage            *api.Usage     `json:"usage"`
	Version          string         `json:"version"`
	Build            string         `json:"build"`
	Setting          string         `json:"setting"`
	PID              int            `json:"pid"`
	Recovery         *Recovery      `json:"recovery"`
}
