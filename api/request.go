package api

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of a request.
const (
	MaxRequest         = 1 << 20   // bytes of a request's body
	MaxPath            = 4096      // bytes of project and cwd
	MaxTimeout         = time.Hour // the longest time that a request may ask for
	DefaultOutputLimit = 8000      // characters of each stream in a JSON answer
	MaxOutputLimit     = 1_000_000 // the most that output_limit may ask for
)

// An ExecRequest asks for one command to be run.
type ExecRequest struct {
	// Project is the absolute path of a directory that the caller owns. The
	// command sees it at this path (symlinks followed), and nothing beside it.
	// With Session it is the session's, and absent.
	Project string `json:"project,omitempty"`
	// Session is the id of the session that the command is one of.
	Session string `json:"session,omitempty"`
	// Command is text for bash.
	Command string `json:"command"`
	// Cwd is the directory to start in, relative to the project; "" is the
	// project. It must lie inside, also after symlinks.
	Cwd string `json:"cwd,omitempty"`
	// TimeoutMS is the most milliseconds that the run may take, up to
	// [MaxTimeout]; 0 leaves it to the policy (10 s, or 120 s for builds and
	// tests).
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// OutputLimit is the most characters (code points) of each stream that a
	// JSON answer keeps, up to [MaxOutputLimit]: the first half, rounded up, and
	// the last. nil means [DefaultOutputLimit]. Events are not cut.
	OutputLimit *int `json:"output_limit,omitempty"`
	// Plain takes control sequences, such as colours, out of the streams.
	Plain bool `json:"plain,omitempty"`
	// Unattended says that nobody can approve: what would need approval is
	// refused at once, with APPROVAL_REQUIRED, and not asked about.
	Unattended bool `json:"unattended,omitempty"`
	// Wait, when it is false, has a command that somebody must approve answered at
	// once, with a WaitingAnswer: when it is approved it runs in the background.
	Wait *bool `json:"wait,omitempty"`
	// ReadsOnly says that the command only reads, and has it held to that: it
	// is denied when it writes in the project, and can write nothing there
	// otherwise. Nothing is allowed by it that would not be without.
	ReadsOnly bool `json:"reads_only,omitempty"`
	// Stdin is what the command reads, up to [MaxInput] bytes; without it, and
	// without StdinStream, there is nothing to read (/dev/null).
	Stdin         string `json:"stdin,omitempty"`
	StdinEncoding string `json:"stdin_encoding,omitempty"` // Base64, or absent for text
	// StdinStream leaves stdin open after that, for POST /v1/runs/{id}/stdin. The
	// answer's head comes at once then, with the run's id in [HeaderRun].
	StdinStream bool `json:"stdin_stream,omitempty"`
	// MergeStderr gives stderr in stdout, in the order in which both were written.
	MergeStderr bool `json:"merge_stderr,omitempty"`
	// TTY gives the command a terminal of its own, of Columns × Rows (80 × 24
	// unless said): stdin is typed into it, all output is stdout. The end of stdin
	// is typed as ^D.
	TTY     bool  `json:"tty,omitempty"`
	Columns int64 `json:"columns,omitempty"`
	Rows    int64 `json:"rows,omitempty"`
	// Background answers as soon as the command has started. It runs on, for an
	// hour unless TimeoutMS says otherwise, until it ends, is signalled, or its
	// session ends. See GET /v1/runs/{id}.
	Background bool `json:"background,omitempty"`
	// Limits can only lower those in force.
	Limits *LimitsRequest `json:"limits,omitempty"`
}

// A CheckRequest asks how a command would be decided.
type CheckRequest struct {
	Project string `json:"project,omitempty"` // as in ExecRequest
	Session string `json:"session,omitempty"` // as in ExecRequest
	Command string `json:"command"`           // as in ExecRequest
	Cwd     string `json:"cwd,omitempty"`     // as in ExecRequest
	// Explain asks for an explanation too.
	Explain bool `json:"explain,omitempty"`
	// ReadsOnly is as in ExecRequest.
	ReadsOnly bool `json:"reads_only,omitempty"`
}

// ParseExec reads the body of an exec request. The error, if any, has code
// INVALID_ARGUMENTS.
func ParseExec(body []byte) (ExecRequest, *Error) {
	var r ExecRequest
	var limit int64 = -1
	var limits LimitsRequest
	wait := true
	problems := decode(body, []field{
		unless("session", stringField("project", false, &r.Project, checkProject)),
		stringField("session", false, &r.Session, checkID),
		boolField("wait", &wait),
		stringField("command", true, &r.Command, checkCommand),
		stringField("cwd", false, &r.Cwd, checkCwd),
		intField("timeout_ms", 1, MaxTimeout.Milliseconds(), &r.TimeoutMS),
		intField("output_limit", 0, MaxOutputLimit, &limit),
		boolField("plain", &r.Plain),
		boolField("unattended", &r.Unattended),
		boolField("reads_only", &r.ReadsOnly),
		bytesField("stdin", &r.Stdin),
		stringField("stdin_encoding", false, &r.StdinEncoding, among(Base64)),
		boolField("stdin_stream", &r.StdinStream),
		boolField("merge_stderr", &r.MergeStderr),
		boolField("tty", &r.TTY),
		intField("columns", 1, MaxTerminal, &r.Columns),
		intField("rows", 1, MaxTerminal, &r.Rows),
		boolField("background", &r.Background),
		limitsField(&limits),
	})
	if problems == nil {
		_, problems = r.input()
	}
	if problems == nil && !r.TTY && (r.Columns != 0 || r.Rows != 0) {
		problems = []string{"columns: is for tty"}
	}
	if problems != nil {
		return ExecRequest{}, invalid(problems)
	}
	if limit >= 0 {
		n := int(limit)
		r.OutputLimit = &n
	}
	if limits != (LimitsRequest{}) {
		r.Limits = &limits
	}
	if !wait {
		r.Wait = &wait
	}
	return r, nil
}

// input returns the bytes of stdin, or what is wrong with it.
func (r *ExecRequest) input() ([]byte, []string) {
	return decodeData("stdin", r.Stdin, r.StdinEncoding)
}

// Input returns the bytes of stdin in a request that was parsed.
func (r *ExecRequest) Input() []byte {
	data, _ := r.input()
	return data
}

// ParseCheck reads the body of a check request. The error, if any, has code
// INVALID_ARGUMENTS.
func ParseCheck(body []byte) (CheckRequest, *Error) {
	var r CheckRequest
	problems := decode(body, []field{
		unless("session", stringField("project", false, &r.Project, checkProject)),
		stringField("session", false, &r.Session, checkID),
		stringField("command", true, &r.Command, checkCommand),
		stringField("cwd", false, &r.Cwd, checkCwd),
		boolField("explain", &r.Explain),
		boolField("reads_only", &r.ReadsOnly),
	})
	if problems != nil {
		return CheckRequest{}, invalid(problems)
	}
	return r, nil
}

// A field is one member that a request may have.
type field struct {
	name     string
	required bool
	// set stores the value and returns "", or says what is wrong with it.
	set func(value []byte, k kind) string
	// instead names the field that is given in the place of this one, if not "":
	// exactly one of both has to be.
	instead string
}

// decode reads the object in body into the fields and returns what is wrong,
// each as "<path>: <message>", or nil.
func decode(body []byte, fields []field) []string {
	if err := checkJSON(body); err != nil {
		return []string{"body: " + err.Error()}
	}
	var problems []string
	seen := make([]bool, len(fields))
	n := 0
	members(body, func(name string, ok bool, value []byte, k kind) {
		n++
		i := slices.IndexFunc(fields, func(f field) bool { return ok && f.name == name })
		switch {
		case i < 0:
			problems = append(problems, showName(name, n)+": unknown field")
		case seen[i]:
			problems = append(problems, name+": given more than once")
		default:
			seen[i] = true
			if message := fields[i].set(value, k); message != "" {
				problems = append(problems, name+": "+message)
			}
		}
	})
	for i, f := range fields {
		other := f.instead != "" && seen[slices.IndexFunc(fields, func(o field) bool { return o.name == f.instead })]
		switch {
		case (f.required || f.instead != "" && !other) && !seen[i]:
			problems = append(problems, f.name+": is missing")
		case other && seen[i]:
			problems = append(problems, f.name+": is not for a request with "+f.instead)
		}
	}
	return problems
}

// showName returns the unknown field's name when it looks like one, and else
// its number: what was put in its place by mistake may be a secret.
func showName(name string, n int) string {
	plain := len(name) > 0 && len(name) <= 32
	for _, c := range []byte(name) {
		plain = plain && (c == '_' || 'a' <= c && c <= 'z')
	}
	if plain {
		return name
	}
	return "field " + strconv.Itoa(n)
}

// unless returns the field as one that is given when the other is not.
func unless(other string, f field) field {
	f.instead = other
	return f
}

// stringField describes a string that check accepts by returning "".
func stringField(name string, required bool, dst *string, check func(string) string) field {
	return field{name: name, required: required, set: func(value []byte, k kind) string {
		if k != text {
			return "must be a string"
		}
		s, ok := unquote(value)
		if !ok {
			return "must be valid Unicode, without lone surrogates"
		}
		if strings.IndexByte(s, 0) >= 0 {
			return "must not contain NUL"
		}
		*dst = s
		return check(s)
	}}
}

// intField describes an optional whole number from low to high.
func intField(name string, low, high int64, dst *int64) field {
	return field{name: name, set: func(value []byte, k kind) string {
		if k != number {
			return "must be a number"
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < low || n > high {
			return "must be a whole number from " + strconv.FormatInt(low, 10) + " to " + strconv.FormatInt(high, 10)
		}
		*dst = n
		return ""
	}}
}

// boolField describes an optional true or false.
func boolField(name string, dst *bool) field {
	return field{name: name, set: func(value []byte, k kind) string {
		if k != boolean {
			return "must be true or false"
		}
		*dst = value[0] == 't'
		return ""
	}}
}

// CheckProject says what is wrong with the path of a project, "" for nothing.
func CheckProject(s string) string {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		return "must be valid UTF-8 without NUL"
	}
	return checkProject(s)
}

func checkProject(s string) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > MaxPath:
		return "must be at most " + strconv.Itoa(MaxPath) + " bytes"
	case !path.IsAbs(s):
		return "must be an absolute path"
	case hasControl(s):
		return "must not contain control characters"
	}
	return ""
}

// checkID accepts what may be an id: the look-up decides.
func checkID(s string) string {
	if s == "" || len(s) > 64 || hasControl(s) {
		return "must be an id"
	}
	return ""
}

func checkCommand(s string) string {
	if strings.TrimSpace(s) == "" {
		return "must not be empty"
	}
	return ""
}

func checkCwd(s string) string {
	switch clean := path.Clean(s); {
	case len(s) > MaxPath:
		return "must be at most " + strconv.Itoa(MaxPath) + " bytes"
	case path.IsAbs(s):
		return "must be relative to the project"
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "must lie inside the project"
	case hasControl(s):
		return "must not contain control characters"
	}
	return ""
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
