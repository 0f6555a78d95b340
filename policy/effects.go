package policy

import (
	"slices"

	"github.com/pinfold/pinfold/shparse"
)

// An effectKind is a kind of thing that a command does.
type effectKind uint8

const (
	effectReads     effectKind = iota // a path
	effectWrites                      // a path
	effectDeletes                     // a path, or a name of it
	effectEnters                      // a directory, to run there
	effectExecutes                    // a program that is not known
	effectOpaque                      // code that no fact describes
	effectNetwork                     // a host
	effectModes                       // makes something writable for everybody
	effectCode                        // shell text that is not known
	effectSteers                      // a variable that changes what other commands do
	effectOption                      // an option that the facts do not know
	effectAsked                       // something that the facts say to ask about
	effectAmbiguous                   // text that shells read differently
	effectCount
)

var effectNames = [effectCount]string{"reads", "writes", "deletes", "enters", "executes", "opaque", "network",
	"world-writable", "code", "steers", "option", "asked", "ambiguous"}

func effectByName(name string) (effectKind, bool) {
	i := slices.Index(effectNames[:], name)
	return effectKind(max(i, 0)), i >= 0
}

// A place is where a path lies.
type place uint8

const (
	placeProject   place = iota // in the project, or not known: then the grant bounds it
	placeProtected              // a protected path of the project
	placeGit                    // what steers or runs inside a git directory
	placeReadable               // a root that the sandbox shows
	placeWritable               // a root that every command may write
	placeNull                   // /dev/null and its kind, and standard streams
	placeDevice                 // anything else under /dev
	placeOutside                // anywhere else
	placeHidden                 // a file of the project that is read as empty, when it is written
	placeClimbs                 // leaves an unknown place upwards
	placeCount
)

var placeNames = [placeCount]string{"project", "protected", "git", "readable", "writable", "null", "device", "outside", "hidden", "climbs"}

func placeByName(name string) (place, bool) {
	i := slices.Index(placeNames[:], name)
	return place(max(i, 0)), i >= 0
}

// An effect is one thing that a command does.
type effect struct {
	kind   effectKind
	place  place
	detail string // the path, the host, the reason: what to show
	at     where
	path   string // project-relative, symlinks followed; "" when it is not there, or not known
	vague  bool   // no more than a directory of the path is known
	// What the grant needs for it, when it is allowed.
	write     string // project-relative place to write
	protected string // protected path to open
}

// A writing says how a file is written, which decides what the grant must hold.
type writing uint8

const (
	inPlace  writing = iota // the file itself when it exists, else its directory
	inParent                // its directory: it is created, renamed or replaced
	inside                  // the directory itself
)

// A where is a place in the text that is being read: two offsets.
type where struct{ offset, end int }

// A spanner makes spans for places in the source that the caller sent, or one
// fixed span for text that stands inside one of its words.
type spanner struct {
	source string
	lines  []int // offsets of the beginnings of lines, made on demand
	fixed  *Span
}

func (s *spanner) span(at where) Span {
	if s.fixed != nil {
		return *s.fixed
	}
	if s.lines == nil {
		s.lines = []int{0}
		for i := 0; i < len(s.source); i++ {
			if s.source[i] == '\n' {
				s.lines = append(s.lines, i+1)
			}
		}
	}
	line, exact := slices.BinarySearch(s.lines, at.offset)
	if !exact {
		line--
	}
	return Span{Line: line + 1, Column: at.offset - s.lines[line] + 1, Text: shparse.Excerpt(s.source, at.offset, at.end)}
}
