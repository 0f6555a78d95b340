package api

// The media types of an exec answer.
const (
	JSON   = "application/json"
	NDJSON = "application/x-ndjson"
)

// The events of a run, in the order in which they come; stdout and stderr any
// number of times.
const (
	EventApproval = "approval"
	EventDecided  = "decided"
	EventStarted  = "started"
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventFinished = "finished"
)

// An ApprovalEvent says that somebody has to approve, and is waited for.
type ApprovalEvent struct {
	Event    string    `json:"event"` // EventApproval
	Approval *Approval `json:"approval"`
}

// A DecidedEvent says that the command is allowed and recorded.
type DecidedEvent struct {
	Event    string    `json:"event"` // EventDecided
	Run      string    `json:"run"`
	Decision *Decision `json:"decision"`
	Grant    *Grant    `json:"grant"`
}

// A StartedEvent says that every layer holds and the shell is starting.
type StartedEvent struct {
	Event   string   `json:"event"` // EventStarted
	Run     string   `json:"run"`
	Receipt *Receipt `json:"receipt"`
}

// An OutputEvent is a piece of a stream.
type OutputEvent struct {
	Event    string `json:"event"`    // EventStdout or EventStderr
	Sequence int64  `json:"sequence"` // counts the pieces of both streams, from 1
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"` // Base64 when the piece is not text
}

// A FinishedEvent is the last one: the result without the streams.
type FinishedEvent struct {
	Event string `json:"event"` // EventFinished
	Outcome
}

// An Event is any event, as a client reads it. Which fields are set depends on
// the kind; see DecidedEvent and the others.
type Event struct {
	Event    string    `json:"event"`
	Sequence int64     `json:"sequence"`
	Data     string    `json:"data"`
	Encoding string    `json:"encoding"`
	Approval *Approval `json:"approval"`
	Outcome
}
