package confine

import (
	"io"
	"syscall"
	"time"

	"github.com/pinfold/pinfold/confine/door"
	"github.com/pinfold/pinfold/policy"
)

// A Request is one command to run.
type Request struct {
	Caller  Caller
	Project string // absolute path, symlinks followed
	// Root says which directory Project was when it was judged, if it is not
	// the zero value: another one that is there now is refused.
	Root Identity
	// Session names a session of the caller's in the project that lasts until
	// Manager.End; "" is the one that is kept warm.
	Session string
	// Fresh gives the command a session of its own instead, with an empty /tmp,
	// home and caches, of which nothing is left when it has ended.
	Fresh bool
	Dir   string // project-relative directory to start in; "." is the project
	// Env is what the command's environment has besides, "NAME=value" each, in
	// the place of what it would have.
	Env     []string
	Text    string // canonical text for bash
	Grant   policy.Grant
	Timeout time.Duration // wall time; SIGTERM to the tree when it is over, SIGKILL 2 s later
	// Limits lower those of the manager; higher ones count for nothing.
	Limits Limits
	// OutputLimit is the most bytes that stdout and stderr together may carry
	// before the run is ended with LimitOutput; 0 means DefaultOutputLimit.
	OutputLimit int64
	// Stdin is what the command reads, through a pipe that is closed at its end;
	// nil is for /dev/null. It is read from a goroutine that Run does not wait
	// for: a Read that blocks should return once the run has ended.
	Stdin io.Reader
	// Stdout and Stderr get the output as it comes, each from a goroutine of
	// its own, one call at a time. An error from them stops delivery, not the
	// command.
	Stdout, Stderr io.Writer
	// Merge sends both streams through one pipe to Stdout, in the order in which
	// they were written.
	Merge bool
	// TTY, if not nil, gives the command a terminal of that size for stdin,
	// stdout and stderr, which all go through Stdin and Stdout. The end of Stdin
	// is an end-of-file character (^D).
	TTY *Window
	// Signals are sent to every process of the command, once it runs: SIGHUP,
	// SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP and SIGKILL; others
	// are dropped. Resize changes the size of the terminal. Either may be nil.
	Signals <-chan syscall.Signal
	Resize  <-chan Window
	// Gone, if not nil, is called when no process of the command is left; what
	// it wrote may still be on its way.
	Gone func()
	// Started, if not nil, is called once when every layer has been applied
	// and probed and the shell is about to be executed.
	Started func(Receipt)
}

// A Window is the size of a terminal, in characters.
type Window struct{ Columns, Rows uint16 }

// An Identity tells a directory from every other: device and inode, as stat(2)
// gives them.
type Identity struct{ Dev, Ino uint64 }

// An Outcome is how a command ended. Nothing of it is left running.
type Outcome struct {
	ExitCode int    // the shell's exit status; -1 when it was killed by a signal
	Signal   string // "SIGKILL" and so on; "" when it exited
	Ended    Ended  // what ended it, when it was not the command itself
	// FinalDir is the project-relative directory where the shell was when it
	// exited, "." for the project; "" when that was outside, removed or is not
	// known. Whoever uses it follows it anew.
	FinalDir string
	Outlived int // processes that were ended because they outlived the shell
	// Masked are sockets and FIFOs of the project, by their project-relative
	// paths, that the command found as empty files.
	Masked []string
	Denied []Denied // what is known of it, see Denied
	// Hidden are the names in the project that the command read as empty.
	Hidden []string
	// Created are the protected names that appeared while the command ran, and
	// were taken away when it had ended.
	Created []Created
	// Left are git's lock files that are there since the command ran.
	Left []string
	// Exposed, with EndedExposed, is a protected or hidden name that somebody on
	// the host replaced, so that it was held no more; or one that appeared and
	// could not be taken away.
	Exposed string
	// Network are the connections that were made or refused, where the grant
	// names hosts.
	Network []door.Connection
	Receipt Receipt
	Usage   Usage
}

// Ended says who ended a command.
type Ended string

// What can end a command besides itself.
const (
	EndedItself    Ended = ""             // exited, or died by a signal of its own
	EndedTimeout   Ended = "timeout"      // its time was over
	EndedOutput    Ended = "output_limit" // it wrote more than OutputLimit
	EndedMemory    Ended = "memory"       // its processes together used more than Limits.MemoryBytes
	EndedProcesses Ended = "processes"    // it had more than Limits.Processes
	EndedCPU       Ended = "cpu"          // it used more than Limits.CPU
	EndedDisk      Ended = "disk"         // a file system that it writes grew by more than Limits.DiskBytes
	EndedFiles     Ended = "files"        // it made more than Limits.Files
	EndedReserve   Ended = "disk_reserve" // too little is free on a file system that it writes
	EndedExposed   Ended = "exposed"      // a protected or hidden name was held no more, see Outcome.Exposed
	EndedCaller    Ended = "canceled"     // the context was canceled
	EndedKeeper    Ended = "interrupted"  // its keeper died; exit code and usage are unknown
)

// atOnce reports whether the command is killed without being asked to end first:
// what it has too much of it could go on using up.
func (e Ended) atOnce() bool {
	switch e {
	case EndedOutput, EndedMemory, EndedProcesses, EndedCPU, EndedDisk, EndedFiles, EndedReserve, EndedExposed:
		return true
	}
	return false
}

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
	Namespaces  map[string]uint64 // "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" → inode
	Layers      []string          // names of the layers that were probed and hold
	Limits      Limits            // resource limits in force

	Capabilities   uint64        // all five sets together: always 0
	UIDMap, GIDMap []string      // of the user namespace, "inside outside count" (user_namespaces(7))
	ProjectMounts  []string      // file systems that are mounted in the project, project-relative: they came along, read-only
	Mounts         int           // of the command's own whose flags were looked at
	Took           time.Duration // to probe all that
}

// Limits are resource bounds of one command. In a request and a configuration, a
// field that is zero says nothing.
type Limits struct {
	Processes     int           // tasks at once
	ProcessesHeld string        // what holds Processes: "rlimit", "pids-cgroup-v1" or "cgroup-v2"
	MemoryBytes   int64         // of all processes together, with what they keep in memory file systems
	MemoryHeld    string        // what holds MemoryBytes: "cgroup-v2", or "sampled", some 20 times a second
	CPU           time.Duration // processor time of all processes together; 0 is no limit but the wall's
	FileBytes     int64         // the size of one file
	OpenFiles     int           // descriptors of one process
	DiskBytes     int64         // by which a file system that the command writes may grow meanwhile
	Files         int64         // by which the number of its files may grow meanwhile
}

// A Reserve is what stays free on the file systems that commands write.
type Reserve struct {
	Percent int   // of the file system
	Bytes   int64 // at least, but not more than a quarter of the file system
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
