package api

import "strings"

// A Code says what kind of error it is. Codes are stable: clients may compare
// them.
type Code string

// The codes, each with what it means for the caller.
const (
	InvalidArguments       Code = "INVALID_ARGUMENTS"       // the request itself is wrong; Fields says where
	ParseError             Code = "PARSE_ERROR"             // the command is not shell text; At says where
	PermissionDenied       Code = "PERMISSION_DENIED"       // the policy says no; Rule and At say why and where
	ApprovalRequired       Code = "APPROVAL_REQUIRED"       // the policy asks for somebody's yes; it was not run
	ApprovalDenied         Code = "APPROVAL_DENIED"         // somebody said no; it was not run
	ApprovalTimeout        Code = "APPROVAL_TIMEOUT"        // nobody answered in time; it was not run
	ApprovalStale          Code = "APPROVAL_STALE"          // what would run is not what was approved; it was not run
	ToolNotAllowed         Code = "TOOL_NOT_ALLOWED"        // the session is read-only, or the command disabled in it; it was not run
	BudgetExhausted        Code = "BUDGET_EXHAUSTED"        // the session's budget is spent; it was not run
	Halted                 Code = "HALTED"                  // an administrator stopped everything; nothing starts
	NotFound               Code = "NOT_FOUND"               // no such thing, or not the caller's
	Timeout                Code = "TIMEOUT"                 // the run's time was over; output so far is kept
	LimitExceeded          Code = "LIMIT_EXCEEDED"          // the run used or wrote more than it may; output so far is kept
	OutOfMemory            Code = "OUT_OF_MEMORY"           // the run used more memory than it may; output so far is kept
	Interrupted            Code = "INTERRUPTED"             // the run was ended from outside; output so far is kept
	ConfinementUnavailable Code = "CONFINEMENT_UNAVAILABLE" // a layer of the confinement is missing; it was not run
	TraceUnavailable       Code = "TRACE_UNAVAILABLE"       // the decision could not be recorded; it was not run
	Busy                   Code = "BUSY"                    // too many at once; try again later
	Internal               Code = "INTERNAL"                // Pinfold failed
)

// statuses maps each code to its HTTP status. A run that started and ended has
// 200 whatever came of it.
var statuses = map[Code]int{
	InvalidArguments:       400,
	ParseError:             400,
	PermissionDenied:       403,
	ApprovalRequired:       403,
	ApprovalDenied:         403,
	ApprovalTimeout:        403,
	ApprovalStale:          409,
	ToolNotAllowed:         403,
	BudgetExhausted:        429,
	Halted:                 503,
	NotFound:               404,
	Timeout:                200,
	LimitExceeded:          200,
	OutOfMemory:            200,
	Interrupted:            200,
	ConfinementUnavailable: 503,
	TraceUnavailable:       503,
	Busy:                   429,
	Internal:               500,
}

// Status returns the HTTP status that an answer with the code has; 500 for a
// code that is not one of the above.
func (c Code) Status() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return 500
}

// An Error is why a request did not end as a command that ran to its own end.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // lower case, no full stop; names no secret
	// Rule is the id of the policy rule that decided, for PERMISSION_DENIED,
	// APPROVAL_REQUIRED and TOOL_NOT_ALLOWED.
	Rule string `json:"rule,omitempty"`
	// At is the place in the command, as it was sent.
	At *At `json:"at,omitempty"`
	// Fields lists what is wrong with the request, "<path>: <message>", at most
	// five, for INVALID_ARGUMENTS.
	Fields []string `json:"fields,omitempty"`
	// Retryable says whether the same request could succeed later.
	Retryable         bool   `json:"retryable"`
	RecommendedAction string `json:"recommended_action,omitempty"`
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// At is a place in the text of a command.
type At struct {
	Line   int    `json:"line"`   // 1-based
	Column int    `json:"column"` // 1-based, in bytes
	Text   string `json:"text"`   // the source of the part, at most 80 bytes
}

// An ErrorAnswer is the answer to a request that came to no run.
type ErrorAnswer struct {
	Success bool   `json:"success"` // always false
	Error   *Error `json:"error"`
	// StateChanged says whether anything in the project may have changed.
	StateChanged bool      `json:"state_changed"`
	Run          string    `json:"run,omitempty"`      // id of the trace's record, when a decision was recorded
	Decision     *Decision `json:"decision,omitempty"` // when one was made
}

// maxFields is the most fields that one refusal names.
const maxFields = 5

// invalid returns the refusal of a request with the given field errors, of
// which it takes the first five.
func invalid(fields []string) *Error {
	if len(fields) > maxFields {
		fields = fields[:maxFields]
	}
	return &Error{
		Code:              InvalidArguments,
		Message:           "invalid request: " + strings.Join(fields, "; "),
		Fields:            fields,
		RecommendedAction: "correct the named fields",
	}
}

// InvalidField returns the refusal of a request because of one field.
func InvalidField(path, message string) *Error { return invalid([]string{path + ": " + message}) }
