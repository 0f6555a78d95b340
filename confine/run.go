package confine

import (
	"io"
	"time"

	"github.com/pinfold/pinfold/policy"
)

// A Request is one command to run.
type Request struct {
	Caller  Caller
	Project string // absolute path, symlinks followed
	// Root says which directory Project was when it was judged, if it is not
	// the zero value: another one that is there now is refused.
	Root    Identity
	Dir     string // project-relative directory to start in; "." is the project
	Text    string // canonical text for bash
	Grant   policy.Grant
	Timeout time.Duration // wall time; SIGTERM to the tree when it is over, SIGKILL 2 s later
	// OutputLimit is the most bytes that stdout and stderr together may carry
	// before the run is ended with LimitOutput; 0 means DefaultOutputLimit.
	OutputLimit int64
	// Stdout and Stderr get the output as it comes, each from a goroutine of
	// its own, one call at a time. An error from them stops delivery, not the
	// command.
	Stdout, Stderr io.Writer
	// Started, if not nil, is called once when every layer has been applied
	// and probed and the shell is about to be executed.
	Started func(Receipt)
}

// An Identity tells a directory from every other: device and inode, as stat(2)
// gives them.
type Identity struct{ Dev, Ino uint64 }

// An Outcome is how a command ended. Nothing of it is left running.
type Outcome struct {
	ExitCode int    // the shell's exit status; -1 when it was killed by a signal
	Signal   string // "SIGKILL" and so on; "" when it exited
	Ended    Ended  // what ended it, when it was not the command itself
	Receipt  Receipt
	Usage    Usage
}

// Ended says who ended a command.
type Ended string

// What can end a command besides itself.
const (
	EndedItself  Ended = ""             // exited, or died by a signal of its own
	EndedTimeout Ended = "timeout"      // its time was over
	EndedOutput  Ended = "output_limit" // it wrote more than OutputLimit
	EndedCaller  Ended = "canceled"     // the context was canceled
	EndedKeeper  Ended = "interrupted"  // its keeper died; exit code and usage are unknown
)

// Usage is what a command used.
type Usage struct {
	Wall         time.Duration // from request to the last process gone
	User, System time.Duration // CPU time of the shell and what it waited for
	MaxRSSKiB    int64         // the largest resident set of one process
}

// A Receipt says what the kernel enforced, as seen from inside right before
// the shell was executed.
type Receipt struct {
	Setting     string            // "system" (root's daemon) or "user"
	UID, GID    uint32            // the credentials that the command ran with
	LandlockABI int               // ABI version in force
	Seccomp     int               // number of filters in force, at least 1
	NoNewPrivs  bool              // always true
	Namespaces  map[string]uint64 // "user", "mnt", "pid", "net", "ipc", "uts" → inode
	Layers      []string          // names of the layers that were probed and hold
	Limits      Limits            // resource limits in force
}

// Limits are resource bounds of one command.
type Limits struct {
	Processes     int    // tasks at once
	ProcessesHeld string // what holds Processes: "rlimit", "pids-cgroup-v1" or "pids-cgroup-v2"
	FileBytes     int64  // the size of one file
	OpenFiles     int    // descriptors of one process
}

// Unavailable is the error of a layer that the grant needs and that could not
// be applied or did not hold. Nothing ran.
type Unavailable struct {
	Layer string // "user namespace", "landlock", "seccomp", …
	Err   error
	Fix   string // what an administrator can do; may be empty
}

func (e *Unavailable) Error() string { return e.Layer + ": " + e.Err.Error() }
func (e *Unavailable) Unwrap() error { return e.Err }

// A Layer is one part of the confinement and whether this machine has it.
type Layer struct {
	Name   string // as in Unavailable
	OK     bool
	Detail string // what was found: "ABI 7", "pids-cgroup-v1"
	Fix    string // what to do when it is missing
}
