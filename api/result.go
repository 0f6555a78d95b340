package api

import "encoding/json"

// An Outcome is what is known of a run apart from its output.
type Outcome struct {
	// Success is true when the command ran to its own end, whatever its exit
	// status. Else Error says what ended it.
	Success bool   `json:"success"`
	Error   *Error `json:"error,omitempty"`
	// StateChanged, with an error, says whether anything in the project may
	// have changed.
	StateChanged *bool  `json:"state_changed,omitempty"`
	Run          string `json:"run"` // id of the run, as in the trace
	// ExitCode is the shell's exit status, null when a signal killed it or it
	// is not known.
	ExitCode  *int      `json:"exit_code"`
	Signal    *string   `json:"signal"` // "SIGKILL" and so on, null when it exited
	Truncated Truncated `json:"truncated"`
	// FinalDir is where the shell was at its end, relative to the project, "."
	// for the project itself; null when that is outside or not known. It may be
	// the cwd of the next request.
	FinalDir *string `json:"final_dir"`
	// EndedChildren is how many processes were ended because they outlived the
	// shell.
	EndedChildren int `json:"ended_children"`
	// Redactions counts what was taken out of the output, by kind: it stands
	// there as [REDACTED:kind].
	Redactions map[string]int `json:"redactions,omitempty"`
	Provenance Provenance     `json:"provenance"`
	// Denied names what the confinement refused, as far as it is known.
	Denied []Denied `json:"denied"`
	// Masked are sockets and FIFOs of the project that the command found as
	// empty files.
	Masked []string `json:"masked"`
	// Hidden are the files in the project that the command read as empty: keys,
	// tokens and passwords that git does not track.
	Hidden []string `json:"hidden"`
	// ProtectedCreated are protected names that appeared while the command ran,
	// and were taken away when it had ended.
	ProtectedCreated []Created `json:"protected_path_created,omitempty"`
	// ProtectedExposed is a protected or hidden name that was replaced outside
	// while the command ran, so that the command was ended.
	ProtectedExposed string `json:"protected_path_exposed,omitempty"`
	// Left are git's lock files that are there since the command ran.
	Left []string `json:"left,omitempty"`
	// Network are the connections that were made or refused, where the grant names
	// hosts.
	Network  []Connection `json:"network,omitempty"`
	Decision *Decision    `json:"decision"`
	Grant    *Grant       `json:"grant"`
	Receipt  *Receipt     `json:"receipt"`
	Usage    *Usage       `json:"usage"`
}

// A Connection is what is known of a connection to a host, or of several that are
// alike.
type Connection struct {
	Name      string `json:"name"` // "" when it could not be read
	Port      int    `json:"port"`
	Address   string `json:"address,omitempty"` // the one that was dialled
	BytesUp   int64  `json:"bytes_up"`
	BytesDown int64  `json:"bytes_down"`
	Verdict   string `json:"verdict"`          // allowed, refused, or failed: allowed and then not reached
	Rule      string `json:"rule,omitempty"`   // the entry of the grant that has the name
	Reason    string `json:"reason,omitempty"` // why it was refused or failed
	Count     int    `json:"count"`
}

// A Created is a protected name that was taken away.
type Created struct {
	Path string `json:"path"` // relative to the project
	To   string `json:"to"`   // where it is now, absolute or relative to the project
}

// A Denied is something that the confinement refused.
type Denied struct {
	What string `json:"what"` // write, execute, read (not in the view) or network
	Path string `json:"path"` // absolute, empty for the network
}

// Provenance says what the streams are: data, and no instructions to anybody.
type Provenance struct {
	Source  string `json:"source"`  // always CommandOutput
	Trusted bool   `json:"trusted"` // always false
}

// CommandOutput is the source of every stream.
const CommandOutput = "command output"

// A Result is the JSON answer to an exec request whose command was started.
type Result struct {
	Outcome
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Encoding says which streams are not text.
	Encoding *Encoding `json:"encoding,omitempty"`
}

// Encoding says how streams that are not valid UTF-8 are given. Such a stream
// is cut and counted in bytes.
type Encoding struct {
	Stdout string `json:"stdout,omitempty"` // "base64", or absent for text
	Stderr string `json:"stderr,omitempty"` // "base64", or absent for text
}

// Base64 is the encoding of output that is not valid UTF-8.
const Base64 = "base64"

// Truncated counts what was left out of each stream, between its head and its
// tail: characters (code points) of text, bytes of what is given as base64.
type Truncated struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// A Decision is the verdict on a command.
type Decision struct {
	Verdict   string   `json:"verdict"` // allow, deny or require_approval
	Risk      string   `json:"risk"`    // low, medium or high
	Rules     []string `json:"rules"`   // ids of the rules that made the verdict
	Reasons   []Reason `json:"reasons"` // in source order
	TimeoutMS int64    `json:"timeout_ms"`
	Text      string   `json:"text"`   // canonical text: what was judged and what runs
	Policy    string   `json:"policy"` // hash of the policy that decided
}

// A Reason says why a part of the command got its verdict.
type Reason struct {
	Rule    string `json:"rule"`
	Verdict string `json:"verdict"`
	Risk    string `json:"risk"`
	Message string `json:"message"`
	Suggest string `json:"suggest,omitempty"` // what to do instead
	At      At     `json:"at"`
}

// A Grant is the most that the command may do, as the kernel holds it.
type Grant struct {
	Write     []string `json:"write"`          // project-relative files and directories; "." is the whole project
	Protected []string `json:"protected"`      // protected paths that were opened
	Exec      []string `json:"exec,omitempty"` // programs that may be executed besides bash; absent with exec_any
	ExecAny   bool     `json:"exec_any"`       // any program that the sandbox shows
	Net       Net      `json:"net"`
}

// Net is the network of a grant: the session's loopback, or with hosts one of its
// own, from which they alone are reached.
type Net struct {
	// Hosts are names or "*.suffix", each with a port or for 443 and 80, and with
	// " private" after it where it may be at an address of this machine or a private
	// network.
	Hosts []string `json:"hosts"`
}

// A Receipt says what the kernel enforced, as seen from inside right before the
// shell was executed.
type Receipt struct {
	Setting     string            `json:"setting"` // system or user
	UID         uint32            `json:"uid"`
	GID         uint32            `json:"gid"`
	LandlockABI int               `json:"landlock_abi"`
	Seccomp     int               `json:"seccomp"` // number of filters in force
	NoNewPrivs  bool              `json:"no_new_privs"`
	Namespaces  map[string]uint64 `json:"namespaces"` // user, mnt, pid, net, ipc, uts, cgroup → inode
	Layers      []string          `json:"layers"`     // names of the layers that were probed and hold
	Limits      Limits            `json:"limits"`
	// Capabilities has the bits of every set; none of them is set.
	Capabilities string   `json:"capabilities"`
	UIDMap       []string `json:"uid_map"` // "inside outside count" each, as in user_namespaces(7)
	GIDMap       []string `json:"gid_map"`
	// ProjectMounts are file systems mounted in the project: they came along,
	// read-only.
	ProjectMounts []string `json:"project_mounts"`
	Mounts        int      `json:"mounts"`   // of the command's own whose flags were probed
	ProbedUS      int64    `json:"probe_us"` // microseconds that probing took
}

// Limits are the resource bounds of a run.
type Limits struct {
	Processes     int    `json:"processes"`      // tasks at once
	ProcessesHeld string `json:"processes_held"` // what holds them: rlimit, pids-cgroup-v1 or cgroup-v2
	MemoryBytes   int64  `json:"memory_bytes"`   // of all processes together
	MemoryHeld    string `json:"memory_held"`    // what holds it: cgroup-v2, or sampled
	CPUMS         int64  `json:"cpu_ms"`         // of all processes together; 0 is none but the time
	FileBytes     int64  `json:"file_bytes"`     // size of one file
	OpenFiles     int    `json:"open_files"`     // descriptors of one process
	DiskBytes     int64  `json:"disk_bytes"`     // by which a file system may grow
	Files         int64  `json:"files"`          // by which their number may grow
}

// Usage is what a run used. Times are in milliseconds.
type Usage struct {
	WallMS    float64 `json:"wall_ms"`
	UserMS    float64 `json:"user_ms"`
	SystemMS  float64 `json:"system_ms"`
	MaxRSSKiB int64   `json:"max_rss_kib"` // the largest resident set of one process
}

// A CheckAnswer is the answer to a check request.
type CheckAnswer struct {
	Success  bool      `json:"success"` // always true: the question was answered
	Decision *Decision `json:"decision"`
	Grant    *Grant    `json:"grant"`
	// Explanation is there when it was asked for.
	Explanation *Explanation `json:"explanation,omitempty"`
}

// An Explanation says how a decision came about.
type Explanation struct {
	Parts []Part `json:"parts"` // in source order, at most 200
	Grant string `json:"grant"` // the grant in words, a sentence a line; "" when nothing is granted
	// Opaque says that code runs which the reading cannot see: the boundary is
	// the grant.
	Opaque   bool     `json:"opaque"`
	Remedies []string `json:"remedies"` // what would make it allowed; none when it is
}

// A Part is a place in the command, what is done there, and what the rules say.
type Part struct {
	At      At       `json:"at"`
	Verdict string   `json:"verdict"` // the strictest of its reasons; allow when no rule objects
	Effects []Effect `json:"effects"` // none for a command that only runs
	Reasons []Reason `json:"reasons"`
}

// An Effect is one thing that a part of a command does.
type Effect struct {
	Effect string `json:"effect"`           // reads, writes, deletes, … as in the rules
	Place  string `json:"place,omitempty"`  // project, outside, … as in the rules, of effects on paths
	Detail string `json:"detail,omitempty"` // the path, the host, or what is the matter
}

// A PolicySummary says in short what commands may do in a project.
type PolicySummary struct {
	Success bool   `json:"success"` // always true
	Project string `json:"project"` // symlinks followed
	// Tightened says that the project's own file tightens the site's policy.
	Tightened bool     `json:"tightened"`
	Policy    string   `json:"policy"`   // hash of the policy
	Text      string   `json:"text"`     // all of it in plain words
	Rules     []Rule   `json:"rules"`    // what commands and effects get
	Readable  []string `json:"readable"` // directories outside the project that commands see
	Writable  []string `json:"writable"` // directories outside the project that commands may write
}

// A Rule is one that a policy goes by. The strictest that applies wins.
type Rule struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict"`
	Risk    string `json:"risk"`
	Subject string `json:"subject"` // what it is about: commands, options, effects, places
	Reason  string `json:"reason"`
}

// A Status says what this daemon is and what the machine enforces.
type Status struct {
	Success  bool    `json:"success"` // always true
	Version  string  `json:"version"`
	Build    string  `json:"build"`     // id of the build
	Setting  string  `json:"setting"`   // system: adversaries are the agent and its commands. user: the commands only
	OnDemand bool    `json:"on_demand"` // started by a client, ends when idle
	Policy   string  `json:"policy"`    // hash of the policy in force
	Sessions int     `json:"sessions"`  // keepers alive
	Ready    bool    `json:"ready"`     // every layer is there
	Layers   []Layer `json:"layers"`
	// LeftOut lists directories that the site's policy shows to commands, and
	// that the caller's do not see as it says.
	LeftOut []LeftOut `json:"left_out"`
}

// LeftOut is a directory that commands do not see as the policy says.
type LeftOut struct {
	Path string `json:"path"`
	Why  string `json:"why"` // lower case, no full stop
}

// A Layer is one part of the confinement and whether this machine has it.
type Layer struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what was found
	Fix    string `json:"fix,omitempty"`    // what to do when it is missing
}

// The bounds of a trace request.
const (
	DefaultTraceLimit = 100  // records without limit=
	MaxTraceLimit     = 1000 // the most that limit= may ask for
)

// A TraceAnswer holds the caller's own records, the oldest first. Each is the
// very line of the trace, so that its hash can be checked.
type TraceAnswer struct {
	Success bool              `json:"success"` // always true
	Records []json.RawMessage `json:"records"`
	// Complete is false when older records of the caller may exist: the limit,
	// the answer's size or the length of the search was reached.
	Complete bool `json:"complete"`
}
