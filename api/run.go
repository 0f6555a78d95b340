package api

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The bounds of requests about runs.
const (
	MaxWait     = 30_000    // milliseconds that wait_ms may ask for
	RingBytes   = 1 << 20   // of a background run's output that are kept, the latest
	MaxInput    = 512 << 10 // bytes of stdin in one request, decoded
	MaxTerminal = 1000      // columns and rows of a terminal
)

// The states of a run.
const (
	RunWaiting = "waiting" // for somebody's yes
	RunRunning = "running"
	RunEnded   = "ended"
)

// A RunInfo is a command under way, or one in the background that has ended.
type RunInfo struct {
	Run        string `json:"run"`
	State      string `json:"state"` // RunWaiting, RunRunning or RunEnded
	Background bool   `json:"background"`
	TTY        bool   `json:"tty"`
	Stdin      bool   `json:"stdin"`   // POST …/stdin is taken
	Project    string `json:"project"` // symlinks followed
	Session    string `json:"session,omitempty"`
	Command    string `json:"command"`    // as it was sent
	StartedAt  string `json:"started_at"` // RFC 3339, UTC
	// Receipt is there from when the shell starts.
	Receipt *Receipt `json:"receipt,omitempty"`
	// Result is how it ended, and there then.
	Result *Outcome `json:"result,omitempty"`
}

// A BackgroundAnswer is the answer to an exec request for a background run, once
// that has started.
type BackgroundAnswer struct {
	Success bool `json:"success"` // always true: it has started
	RunInfo
	Decision *Decision `json:"decision"`
	Grant    *Grant    `json:"grant"`
}

// A WaitingAnswer is the answer to an exec request without wait, for a command
// that somebody has to approve. It is a background run from then on.
type WaitingAnswer struct {
	Success bool `json:"success"` // always true: it was asked
	RunInfo
	Approval *Approval `json:"approval"`
}

// A RunsAnswer lists the caller's runs, the oldest first.
type RunsAnswer struct {
	Success bool      `json:"success"` // always true
	Runs    []RunInfo `json:"runs"`
}

// A RunAnswer is one run, with a part of its output.
type RunAnswer struct {
	Success bool `json:"success"` // always true: the question was answered
	RunInfo
	// Output is what a background run wrote from the asked cursor on, in the order
	// in which it came, up to 256 KiB.
	Output []Piece `json:"output"`
	// Cursor is where the next part begins: bytes of both streams together.
	Cursor int64 `json:"cursor"`
	// Dropped is how many bytes before this part are not kept any more.
	Dropped int64 `json:"dropped"`
}

// A Piece is a part of one stream.
type Piece struct {
	Stream   string `json:"stream"` // EventStdout or EventStderr
	Data     string `json:"data"`
	Encoding string `json:"encoding,omitempty"` // Base64 when it is not text
}

// A LimitsRequest asks for bounds of a run. Each can only be lower than the one in
// force without it, a higher one counts for nothing; 0 says nothing.
type LimitsRequest struct {
	MemoryBytes int64 `json:"memory_bytes,omitempty"` // of all processes together
	Processes   int64 `json:"processes,omitempty"`    // at once
	CPUMS       int64 `json:"cpu_ms,omitempty"`       // of all processes together
	FileBytes   int64 `json:"file_bytes,omitempty"`   // of one file
	DiskBytes   int64 `json:"disk_bytes,omitempty"`   // by which a file system may grow
	Files       int64 `json:"files,omitempty"`        // by which their number may grow
}

// A SignalRequest sends a signal to every process of a run.
type SignalRequest struct {
	Signal string `json:"signal"` // SIGINT and so on, see SignalNames
}

// SignalNames are the signals that a run can be sent.
var SignalNames = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGTSTP", "SIGKILL"}

// A StdinRequest writes to the stdin of a run.
type StdinRequest struct {
	Data     string `json:"data,omitempty"`
	Encoding string `json:"encoding,omitempty"` // Base64, or absent for text
	Close    bool   `json:"close,omitempty"`    // nothing comes after the data
}

// A ResizeRequest changes the size of a run's terminal.
type ResizeRequest struct {
	Columns int64 `json:"columns"`
	Rows    int64 `json:"rows"`
}

// A DoneAnswer says that a request was carried out.
type DoneAnswer struct {
	Success bool `json:"success"` // always true
}

// ParseSignal reads the body of a signal request.
func ParseSignal(body []byte) (SignalRequest, *Error) {
	var r SignalRequest
	problems := decode(body, []field{stringField("signal", true, &r.Signal, among(SignalNames...))})
	if problems != nil {
		return SignalRequest{}, invalid(problems)
	}
	return r, nil
}

// ParseStdin reads the body of a stdin request and returns the bytes.
func ParseStdin(body []byte) (data []byte, last bool, problem *Error) {
	var r StdinRequest
	problems := decode(body, []field{
		bytesField("data", &r.Data),
		stringField("encoding", false, &r.Encoding, among(Base64)),
		boolField("close", &r.Close),
	})
	if problems == nil {
		data, problems = decodeData("data", r.Data, r.Encoding)
	}
	if problems != nil {
		return nil, false, invalid(problems)
	}
	return data, r.Close, nil
}

// ParseResize reads the body of a resize request.
func ParseResize(body []byte) (ResizeRequest, *Error) {
	var r ResizeRequest
	columns, rows := intField("columns", 1, MaxTerminal, &r.Columns), intField("rows", 1, MaxTerminal, &r.Rows)
	columns.required, rows.required = true, true
	if problems := decode(body, []field{columns, rows}); problems != nil {
		return ResizeRequest{}, invalid(problems)
	}
	return r, nil
}

// limitsField describes the object of limits.
func limitsField(dst *LimitsRequest) field {
	const most = 1 << 50
	return objectField("limits", []field{
		intField("memory_bytes", 1<<20, most, &dst.MemoryBytes),
		intField("processes", 1, 1<<22, &dst.Processes),
		intField("cpu_ms", 1, MaxTimeout.Milliseconds()*1024, &dst.CPUMS),
		intField("file_bytes", 1, most, &dst.FileBytes),
		intField("disk_bytes", 1<<20, most, &dst.DiskBytes),
		intField("files", 1, most, &dst.Files),
	})
}

// among accepts the listed values.
func among(values ...string) func(string) string {
	return func(s string) string {
		if slices.Contains(values, s) {
			return ""
		}
		return "must be " + strings.Join(values, ", ")
	}
}

// bytesField describes an optional string that stands for bytes: NUL is one.
func bytesField(name string, dst *string) field {
	return field{name: name, set: func(value []byte, k kind) string {
		if k != text {
			return "must be a string"
		}
		s, ok := unquote(value)
		if !ok {
			return "must be valid Unicode, without lone surrogates"
		}
		*dst = s
		return ""
	}}
}

// decodeData returns the bytes of a field, or what is wrong with it.
func decodeData(name, data, encoding string) ([]byte, []string) {
	out := []byte(data)
	if encoding == Base64 {
		var err error
		if out, err = base64.StdEncoding.DecodeString(data); err != nil {
			return nil, []string{name + ": must be base64"}
		}
	}
	if len(out) > MaxInput {
		return nil, []string{name + ": must be at most " + strconv.Itoa(MaxInput) + " bytes"}
	}
	return out, nil
}

// EncodeData returns bytes as they travel: text where it is, else base64.
func EncodeData(data []byte) (text, encoding string) {
	if utf8.Valid(data) {
		return string(data), ""
	}
	return base64.StdEncoding.EncodeToString(data), Base64
}
