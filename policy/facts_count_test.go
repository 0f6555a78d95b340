package policy

import (
	"slices"
	"strings"
	"testing"
)

// leastCommands is how many commands, of distinct names and not counting what
// bash has built in, the facts must describe.
const leastCommands = 150

// The facts describe many commands. A family that shares one fact that only
// says to ask is counted apart: nothing is known of its options.
func TestFactsAreMany(t *testing.T) {
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	facts, names, asked, builtins, subcommands := 0, 0, 0, 0, 0
	for name, f := range p.facts {
		first := name == f.Names[0]
		switch {
		case strings.HasPrefix(name, modulePrefix):
		case f.Builtin:
			builtins++
		case f.onlyAsks():
			asked++
		default:
			names++
			if first {
				facts++
				subcommands += f.subcommands()
			}
		}
	}
	t.Logf("%d commands by %d facts, with %d subcommands; %d more that are only asked about; %d words of the shell",
		names, facts, subcommands, asked, builtins)
	if facts < leastCommands {
		t.Errorf("%d facts, want at least %d", facts, leastCommands)
	}
}

// onlyAsks reports whether all that the fact says is that the command is asked
// about, whatever its arguments.
func (f *fact) onlyAsks() bool {
	return f.Ask != "" && len(f.Options) == 0 && len(f.Sub) == 0
}

func (f *fact) subcommands() int {
	n := len(f.Sub)
	for _, sub := range f.Sub {
		n += sub.subcommands()
	}
	return n
}

// MustBeSampled returns the first names of the facts of which samples must be
// run: programs that are neither opaque nor always asked about.
func (p *Policy) MustBeSampled() []string {
	var names []string
	for name, f := range p.facts {
		if name == f.Names[0] && !f.Builtin && !f.Opaque && f.Ask == "" && !strings.HasPrefix(name, modulePrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Synonyms returns the names that share the fact of a command.
func (p *Policy) Synonyms(name string) []string {
	if f := p.facts[name]; f != nil {
		return f.Names
	}
	return nil
}
