package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The bounds of a session.
const (
	DefaultTTL  = 8 * time.Hour  // how long it lasts unless it asks for less or more
	MaxTTL      = 24 * time.Hour // the most that it may ask for
	MaxDisabled = 64             // names in disabled
	MaxEnv      = 32             // variables
	MaxEnvBytes = 4 << 10        // of all names and values together
)

// The reasons for which a session ends.
const (
	EndClosed  = "closed"  // its owner closed it
	EndExpired = "expired" // its time was over
	EndIdle    = "idle"    // nothing was asked of it for a while
	EndDaemon  = "daemon"  // the daemon ended
)

// A SessionRequest opens a session. Nothing in it allows what would not be
// allowed without.
type SessionRequest struct {
	// Project is as in ExecRequest, and that of every command of the session.
	Project string `json:"project"`
	// ReadOnly refuses what writes in the project, and grants nothing there for
	// writing.
	ReadOnly bool `json:"read_only,omitempty"`
	// Disabled names commands ("git", "git commit") and ids of rules that allow:
	// what they are about is refused.
	Disabled []string `json:"disabled,omitempty"`
	Budget   *Budget  `json:"budget,omitempty"`
	// TTL is how many seconds the session lasts, up to [MaxTTL]; 0 means
	// [DefaultTTL].
	TTL int64 `json:"ttl,omitempty"`
	// Env has variables for every command, up to [MaxEnv] of them. One that steers
	// other programs is refused, as the policy would ask about it in a command.
	Env map[string]string `json:"env,omitempty"`
}

// A Budget bounds what all commands of a session use together; of what is 0 there
// is no bound.
type Budget struct {
	Runs        int64 `json:"runs,omitempty"`
	CPUSeconds  int64 `json:"cpu_seconds,omitempty"`
	WallSeconds int64 `json:"wall_seconds,omitempty"`
}

// Spent is what the commands of a session have used: those that ended, and of
// those under way the runs and the time so far.
type Spent struct {
	Runs        int64   `json:"runs"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	WallSeconds float64 `json:"wall_seconds"`
}

// A Session is one that is open.
type Session struct {
	ID       string    `json:"id"`
	Project  string    `json:"project"` // symlinks followed
	ReadOnly bool      `json:"read_only"`
	Disabled []string  `json:"disabled"`
	Budget   *Budget   `json:"budget,omitempty"`
	Spent    *Spent    `json:"spent"`
	Env      []string  `json:"env"` // names alone
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	// IdleUntil is when it ends unless something is asked of it before; it is as
	// Expires while a command is under way.
	IdleUntil time.Time `json:"idle_until"`
	Active    int       `json:"active"` // commands under way, or waiting for somebody's yes
}

// A SessionAnswer is one session.
type SessionAnswer struct {
	Success bool     `json:"success"` // always true
	Session *Session `json:"session"`
}

// A SessionList is the answer to GET /v1/sessions.
type SessionList struct {
	Success  bool       `json:"success"` // always true
	Sessions []*Session `json:"sessions"`
}

// ParseSession reads the body of a request for a session. The error, if any, has
// code INVALID_ARGUMENTS.
func ParseSession(body []byte) (SessionRequest, *Error) {
	var r SessionRequest
	var budget Budget
	problems := decode(body, []field{
		stringField("project", true, &r.Project, checkProject),
		boolField("read_only", &r.ReadOnly),
		listField("disabled", MaxDisabled, &r.Disabled),
		objectField("budget", []field{
			intField("runs", 1, 1_000_000_000, &budget.Runs),
			intField("cpu_seconds", 1, 1_000_000_000, &budget.CPUSeconds),
			intField("wall_seconds", 1, 1_000_000_000, &budget.WallSeconds),
		}),
		intField("ttl", 1, int64(MaxTTL.Seconds()), &r.TTL),
		envField(&r.Env),
	})
	if problems != nil {
		return SessionRequest{}, invalid(problems)
	}
	if budget != (Budget{}) {
		r.Budget = &budget
	}
	return r, nil
}

// objectField describes an optional object with the fields.
func objectField(name string, fields []field) field {
	return field{name: name, set: func(value []byte, k kind) string {
		if k != object {
			return "must be an object"
		}
		if problems := decode(value, fields); problems != nil {
			return problems[0]
		}
		return ""
	}}
}

// listField describes an optional list of strings.
func listField(name string, most int, dst *[]string) field {
	return field{name: name, set: func(value []byte, k kind) string {
		if k != array {
			return "must be a list of strings"
		}
		problem := ""
		elements(value, func(value []byte, k kind) {
			var s string
			if p := stringField("", true, &s, func(string) string { return "" }).set(value, k); p != "" && problem == "" {
				problem = "number " + strconv.Itoa(len(*dst)+1) + " " + p
			}
			*dst = append(*dst, s)
		})
		if problem == "" && len(*dst) > most {
			problem = "must have at most " + strconv.Itoa(most) + " elements"
		}
		return problem
	}}
}

// envField describes the optional object of variables.
func envField(dst *map[string]string) field {
	return field{name: "env", set: func(value []byte, k kind) string {
		if k != object {
			return "must be an object"
		}
		env, size, problem := map[string]string{}, 0, ""
		members(value, func(name string, ok bool, value []byte, k kind) {
			var text string
			_, twice := env[name]
			p := ""
			switch {
			case !ok || !isVariable(name):
				name, p = "a variable", "must be named by letters, digits and underscores"
			case twice:
				p = "given more than once"
			default:
				p = stringField("", true, &text, func(string) string { return "" }).set(value, k)
			}
			if p != "" && problem == "" {
				problem = name + " " + p
			}
			env[name] = text
			size += len(name) + len(text)
		})
		switch {
		case problem != "":
			return problem
		case len(env) > MaxEnv:
			return fmt.Sprintf("must have at most %d variables", MaxEnv)
		case size > MaxEnvBytes:
			return fmt.Sprintf("must be at most %d bytes in all", MaxEnvBytes)
		}
		*dst = env
		return ""
	}}
}

// isVariable reports whether the shell takes the name for a variable's.
func isVariable(name string) bool {
	digits := strings.IndexFunc(name, func(r rune) bool { return r < '0' || r > '9' })
	return len(name) <= 64 && digits == 0 && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// MaxBatch is the most commands of one batch.
const MaxBatch = 64

// A BatchRequest runs several commands of a session. Those that only read run
// side by side, a few at a time; each of the others runs alone, when all before it
// have ended and before any after it starts.
type BatchRequest struct {
	Commands []BatchCommand `json:"commands"` // up to [MaxBatch]
	// StopOnError does not start what comes after a command that failed: it could
	// not run, was ended, or its exit status is not 0.
	StopOnError bool `json:"stop_on_error,omitempty"`
	Unattended  bool `json:"unattended,omitempty"` // as in ExecRequest
}

// A BatchCommand is one of them. Its fields are as in ExecRequest.
type BatchCommand struct {
	Command     string `json:"command"`
	Cwd         string `json:"cwd,omitempty"`
	TimeoutMS   int64  `json:"timeout_ms,omitempty"`
	OutputLimit *int   `json:"output_limit,omitempty"` // up to [MaxOutputLimit] of all together
	ReadsOnly   bool   `json:"reads_only,omitempty"`
}

// A BatchAnswer has what came of each command, in the order asked.
type BatchAnswer struct {
	Success bool          `json:"success"` // always true: each result has its own
	Results []BatchResult `json:"results"`
}

// A BatchResult is how a command ended, or why it was not started.
type BatchResult struct {
	Result  *Result      `json:"result,omitempty"`
	Refused *ErrorAnswer `json:"refused,omitempty"`
}

// Failed returns the error that came of the command, nil when it ran to its own
// end.
func (r *BatchResult) Failed() *Error {
	switch {
	case r.Refused != nil:
		return r.Refused.Error
	case r.Result != nil:
		return r.Result.Error
	}
	return nil
}

// ParseBatch reads the body of a batch. The error, if any, has code
// INVALID_ARGUMENTS.
func ParseBatch(body []byte) (BatchRequest, *Error) {
	var r BatchRequest
	problems := decode(body, []field{
		{name: "commands", required: true, set: func(value []byte, k kind) string {
			if k != array {
				return "must be a list of objects"
			}
			problem := ""
			elements(value, func(value []byte, k kind) {
				c, p := parseBatchCommand(value, k)
				r.Commands = append(r.Commands, c)
				if p != "" && problem == "" {
					problem = "number " + strconv.Itoa(len(r.Commands)) + ": " + p
				}
			})
			switch n := len(r.Commands); {
			case problem != "":
				return problem
			case n == 0 || n > MaxBatch:
				return "must have 1 to " + strconv.Itoa(MaxBatch) + " elements"
			}
			return ""
		}},
		boolField("stop_on_error", &r.StopOnError),
		boolField("unattended", &r.Unattended),
	})
	kept := 0
	for _, c := range r.Commands {
		if c.OutputLimit != nil {
			kept += *c.OutputLimit
		}
	}
	if problems == nil && kept > MaxOutputLimit {
		problems = []string{"commands: may have an output_limit of " + strconv.Itoa(MaxOutputLimit) + " together"}
	}
	if problems != nil {
		return BatchRequest{}, invalid(problems)
	}
	return r, nil
}

func parseBatchCommand(value []byte, k kind) (c BatchCommand, problem string) {
	var limit int64 = -1
	problem = objectField("", []field{
		stringField("command", true, &c.Command, checkCommand),
		stringField("cwd", false, &c.Cwd, checkCwd),
		intField("timeout_ms", 1, MaxTimeout.Milliseconds(), &c.TimeoutMS),
		intField("output_limit", 0, MaxOutputLimit, &limit),
		boolField("reads_only", &c.ReadsOnly),
	}).set(value, k)
	if n := int(limit); limit >= 0 {
		c.OutputLimit = &n
	}
	return c, problem
}
