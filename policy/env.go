package policy

// Env is what a decision depends on besides the text and the rules: where the
// command starts, and what names mean there. The decision itself does no I/O;
// Files does what there is, with the caller's rights.
type Env struct {
	Project  string   // absolute path of the project, symlinks followed
	Dir      string   // project-relative directory in which the command starts; "." is the project
	Home     string   // HOME inside the sandbox
	Path     []string // PATH inside the sandbox, absolute directories, in order
	Readable []string // absolute roots outside the project that the sandbox shows: /usr, toolchains, caches
	Writable []string // absolute roots outside the project that every command may write: /tmp
	// ReadsOnly is the word of whoever asks that the command only reads. It is
	// held to that: what writes in the project is denied, and nothing there is
	// granted for writing. Nothing is allowed by it.
	ReadsOnly bool
	Files     Files
	// Git tells what git commands would change; nil where nobody can tell, so that
	// only what is said on the command line is judged.
	Git Git
	// Registries tells which hosts package managers ask; nil where nobody can tell.
	Registries Registries
}

// Registries tells which hosts package managers ask, as their configuration outside
// has it.
type Registries interface {
	// Hosts returns entries of package hosts; none for a manager that it does not
	// know.
	Hosts(manager string) []string
}

// A Rewrite is a git command that changes files of its work tree.
type Rewrite struct {
	Dir     string // absolute: where it runs
	Command string // "switch", "stash pop"
	// Options are those given, by their longest name without dashes, or as they
	// were spelled where no fact lists them.
	Options  map[string]string
	Operands []string
	Vague    bool // not every word is known
}

// Git says what git would do in the project, without doing it.
type Git interface {
	// Rewrites returns the absolute paths of the files that the command would
	// change, remove or make, and perhaps more. It is asked again with the same
	// command, and answers the same.
	Rewrites(r Rewrite) []string
	// Hooks returns those of the hooks (githooks(5)) that the repository of the
	// directory has. It is asked again too.
	Hooks(dir string, names []string) []string
}

// Files looks names up as the calling user would, without opening any file of
// the project for reading. An implementation bounds its own time.
type Files interface {
	// Follow resolves the absolute path as the kernel would when the caller
	// opens it, through symlinks and "..", and reports where it leads and what
	// is there. A last part (or several) that does not exist is kept as it is
	// after what exists was followed. It fails when the caller may not search
	// a directory on the way, or on a loop of symlinks.
	Follow(path string) (real string, kind Kind, err error)
	// List returns the names in the directory, unsorted, without "." and
	// "..", and at most limit of them; more is an error. It is used to expand
	// patterns.
	List(dir string, limit int) ([]string, error)
	// Program reports the interpreter named on the first line of the program
	// at the absolute path, "" for a native one. The program is one of the
	// system's, never one in the project.
	Program(path string) (interpreter string, err error)
}

// A Kind is what Follow found at the end of a path.
type Kind uint8

// The kinds. Other is a device, socket or FIFO.
const (
	Missing Kind = iota
	Regular
	Directory
	Other
)

// Has reports whether one of the options was given.
func (r Rewrite) Has(names ...string) bool {
	for _, name := range names {
		if _, given := r.Options[name]; given {
			return true
		}
	}
	return false
}
