package shparse

// A World answers what a reading depends on besides the text.
type World interface {
	// Var returns the value that the variable has when the shell starts. What
	// is not known may be unset or have any value.
	Var(name string) (value string, known bool)
	// IsDir reports whether the absolute path is a directory that can be
	// entered.
	IsDir(path string) bool
	// List returns the names in the directory at the absolute path. It fails
	// when there are too many, or when they must not be known.
	List(path string) (names []string, ok bool)
}

// A Start is the state in which the shell begins.
type Start struct {
	Dirs []string // absolute directories, one of which is the current one; nil when it is unknown
	// Args are $0, $1, … when ArgsKnown.
	Args      []Field
	ArgsKnown bool
	Stdin     Input
	// Steps bounds the work; a reading takes from it. Nil means MaxSteps.
	Steps *int
}

// MaxSteps is how many nodes and values a reading looks at unless its Start
// says otherwise. A reading that would need more ends with a [Doubt].
const MaxSteps = 400_000

// An Act is one thing that a script does: a [Command], [Path], [Assign] or
// [Doubt].
type Act interface{ place() (offset, end int) }

// Place returns where in the source the act stands.
func Place(a Act) (offset, end int) { return a.place() }

// A Command is one simple command, with one of the lists of words that it may
// be run with.
type Command struct {
	Argv        []Field // the first is the name; never empty
	Vars        []Assign
	Dirs        []string // where it runs, one of these; nil when unknown
	Stdin       Input
	Function    bool // a function of the script runs, whose commands are listed on their own
	Offset, End int
}

// An Input is what a command reads on its standard input.
type Input struct {
	Kind InputKind
	Text Value // of a here-document
}

// An InputKind says where standard input comes from.
type InputKind uint8

// The kinds of input.
const (
	Inherited InputKind = iota // the request's
	Piped                      // another command's output
	Document                   // text in the script
	FromFile                   // a file, also a descriptor
)

// A Use says what happens to a path.
type Use uint8

// The uses of paths by the shell itself.
const (
	Read      Use = iota // opened for reading
	Truncate             // created, or opened and emptied
	Append               // created, or written at the end
	ReadWrite            // created, or opened for both
	Stat                 // a file test
	List                 // the directory that a pattern lists
)

// A Path is a path that the shell itself uses: in a redirect, a file test or a
// pattern.
type Path struct {
	Use         Use
	Target      Field
	Dirs        []string
	Offset, End int
}

// An Assign is a variable that gets a value.
type Assign struct {
	Name        string
	Value       Value
	Local       bool   // for one command only
	Command     string // the name of that command, or of the builtin that assigns
	Offset, End int
}

func (c *Command) place() (int, int) { return c.Offset, c.End }
func (p *Path) place() (int, int)    { return p.Offset, p.End }
func (a *Assign) place() (int, int)  { return a.Offset, a.End }
func (d *Doubt) place() (int, int)   { return d.Offset, d.End }

// Read lists what the script does when it is run in the world, in about the
// order in which it does it. It begins with the doubts of parsing.
func (s *Script) Read(w World, start Start) []Act {
	steps := MaxSteps
	if start.Steps == nil {
		start.Steps = &steps
	}
	r := &reader{world: w, script: s, steps: start.Steps}
	for i := range s.Doubts {
		r.emit(&s.Doubts[i])
	}
	st := newState(w, start)
	r.stmts(s.stmts, st)
	r.leftovers(st)
	return r.acts
}
