package policy

import (
	"fmt"
	"time"
)

// A Verdict is what a rule or a decision says of a command. Its zero value is
// Deny, so that a decision that was never made denies.
type Verdict uint8

// The verdicts, the strictest first: the least of several is the one that counts.
const (
	Deny            Verdict = iota // never runs
	RequireApproval                // runs when somebody other than the caller says yes
	Allow                          // runs at once
)

var verdictNames = [...]string{Deny: "deny", RequireApproval: "require_approval", Allow: "allow"}

// String returns the name that policy files, the API and the trace use.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return verdictNames[Deny]
}

// MarshalText implements [encoding.TextMarshaler].
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. Anything but the exact
// name of a verdict is an error.
func (v *Verdict) UnmarshalText(text []byte) error {
	for i, name := range verdictNames {
		if name == string(text) {
			*v = Verdict(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q: want deny, require_approval or allow", text)
}

// A Risk says how much harm a command could do within its grant.
type Risk uint8

// The risks, the least first: the greatest of several is the one that counts.
const (
	Low    Risk = iota // reads only
	Medium             // writes inside the project, or runs code there
	High               // destroys, leaves the project, or cannot be bounded well
)

var riskNames = [...]string{Low: "low", Medium: "medium", High: "high"}

// String returns the name that policy files, the API and the trace use.
func (r Risk) String() string {
	if int(r) < len(riskNames) {
		return riskNames[r]
	}
	return riskNames[High]
}

// MarshalText implements [encoding.TextMarshaler].
func (r Risk) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Risk) UnmarshalText(text []byte) error {
	for i, name := range riskNames {
		if name == string(text) {
			*r = Risk(i)
			return nil
		}
	}
	return fmt.Errorf("unknown risk %q: want low, medium or high", text)
}

// A Decision is the verdict on one command line and what it may do when it
// runs. Its zero value denies and grants nothing.
type Decision struct {
	Verdict Verdict
	Risk    Risk
	Rules   []string // ids of the rules that made the verdict, sorted, without repeats
	Reasons []Reason // in source order; at least one for every verdict
	Grant   Grant
	Timeout time.Duration // the default time limit: 10 s, or 120 s for builds and tests
	Text    string        // the canonical text that was judged, and the only text that may run
	// Programs lists the absolute paths of the programs that the text names, with
	// symlinks followed and with their interpreters and helpers, sorted; also when
	// the grant lets any program run.
	Programs []string
}

// A Reason says why a part of the command got its verdict.
type Reason struct {
	Rule    string // id of the rule
	Verdict Verdict
	Risk    Risk
	Message string // what is the matter, lower case, no full stop
	Suggest string // what to do instead; may be empty
	Span    Span
}

// A Span is a place in the text that the caller sent.
type Span struct {
	Line   int    // 1-based
	Column int    // 1-based, in bytes
	Text   string // the source of the part, at most 80 bytes of it
}

// Grant is the most that a command line may do. Its zero value allows nothing
// but to read the project and the system's libraries, and no program but the
// shell.
type Grant struct {
	// Write lists project-relative places, sorted: an existing file that is
	// written in place, or a directory with all beneath it; "." is the whole
	// project. Symlinks are already followed.
	Write []string
	// Protected lists the protected paths that an approval has opened.
	Protected []string
	// Exec lists the absolute paths of the programs that may be executed, with
	// symlinks followed and with the closure of what they start (interpreters,
	// helpers), sorted. Bash is implied. It is nil with ExecAny.
	Exec []string
	// ExecAny permits any program that the sandbox shows: interpreters and
	// build tools.
	ExecAny bool
	// Net is the network that the command may reach.
	Net Net
}

// Net is the network of a grant. Its zero value is the session's own loopback
// and nothing else.
type Net struct {
	// Hosts are entries as package hosts reads them, sorted: a name or "*.suffix",
	// with a port or for 443 and 80. With any, the command has a network of its own
	// and on it the door to these alone.
	Hosts []string
}

// Pinned reports whether the programs of the grant are a closed list.
func (g Grant) Pinned() bool { return !g.ExecAny }

// ReadOnly reports whether the grant writes nothing in the project.
func (g Grant) ReadOnly() bool { return len(g.Write) == 0 && len(g.Protected) == 0 }
