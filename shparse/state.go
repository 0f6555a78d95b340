package shparse

import (
	"maps"
	"reflect"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// A state is what is known of the shell at one point of the script. States are
// copied where ways part and joined where they meet; what the copies have in
// common is shared until one of them changes it.
type state struct {
	vars      map[string]variable
	varsOwned bool
	funcs     map[string]function
	funcOwned bool
	dirs      []string // absolute; nil when unknown; never changed in place
	args      []Field  // $0, $1, …
	argsKnown bool
	stdin     Input
	ifs       bool // IFS is not the default, so splitting is unknown
	odds      odds
}

// odds order states by how likely they are reached. A join keeps the likelier.
type odds uint8

const (
	likely   odds = iota
	unlikely      // a directory that exists could not be entered
	never         // after exit
)

// A variable holds what a name may stand for.
type variable struct {
	values  []Value // none when it is certainly unset
	array   []Field // the elements of an array
	isArray bool
	integer bool // values are evaluated as arithmetic when assigned
	unset   bool // may be unset
	global  bool // not the script's: from the environment
}

// A function has several bodies when ways that define it differently met.
type function struct {
	bodies []*syntax.Stmt
	unsure bool // may also not be defined
}

func newState(w World, start Start) *state {
	return &state{dirs: start.Dirs, args: start.Args, argsKnown: start.ArgsKnown, stdin: start.Stdin}
}

func (s *state) copy() *state {
	s.varsOwned, s.funcOwned = false, false
	c := *s
	return &c
}

// later is a copy for code that runs at another time. The functions that are
// defined by then are not those of now, so it has none: sharing them would make
// each of many definitions copy all before it.
func (s *state) later() *state {
	s.varsOwned = false
	c := *s
	c.funcs, c.funcOwned = nil, false
	return &c
}

func (s *state) set(name string, v variable) {
	if !s.varsOwned {
		s.vars = maps.Clone(s.vars)
		if s.vars == nil {
			s.vars = map[string]variable{}
		}
		s.varsOwned = true
	}
	s.vars[name] = v
}

func (s *state) define(name string, f function) {
	if !s.funcOwned {
		s.funcs = maps.Clone(s.funcs)
		if s.funcs == nil {
			s.funcs = map[string]function{}
		}
		s.funcOwned = true
	}
	s.funcs[name] = f
}

// join returns the state after two ways have met. Either may be changed.
func join(a, b *state) *state {
	switch {
	case a == b || b == nil || a != nil && a.odds < b.odds:
		return a
	case a == nil || b.odds < a.odds:
		return b
	}
	out := a.copy()
	out.vars, out.varsOwned = joinVars(a, b)
	out.funcs, out.funcOwned = joinFuncs(a, b)
	out.dirs = joinDirs(a.dirs, b.dirs)
	out.ifs = a.ifs || b.ifs
	if a.argsKnown != b.argsKnown || !slices.EqualFunc(a.args, b.args, sameField) {
		out.args, out.argsKnown = nil, false
	}
	return out
}

func sameField(a, b Field) bool { return a.Many == b.Many && a.Value.equal(b.Value) }

func joinVars(a, b *state) (map[string]variable, bool) {
	if sameMap(a.vars, b.vars) {
		return a.vars, false
	}
	out := make(map[string]variable, len(a.vars))
	for name, v := range a.vars {
		w, ok := b.vars[name]
		if !ok {
			w = variable{values: []Value{Unknown(Any)}, unset: true, global: true}
		}
		out[name] = joinVariable(v, w)
	}
	for name, w := range b.vars {
		if _, ok := a.vars[name]; !ok {
			out[name] = joinVariable(variable{values: []Value{Unknown(Any)}, unset: true, global: true}, w)
		}
	}
	return out, true
}

func joinVariable(v, w variable) variable {
	out := variable{values: merge(v.values, w.values), integer: v.integer || w.integer, unset: v.unset || w.unset}
	if v.isArray && w.isArray && slices.EqualFunc(v.array, w.array, sameField) {
		out.isArray, out.array = true, v.array
	} else if v.isArray || w.isArray {
		out.isArray, out.array = true, []Field{{Value: Unknown(Any), Many: true}}
	}
	return out
}

func joinFuncs(a, b *state) (map[string]function, bool) {
	if sameMap(a.funcs, b.funcs) {
		return a.funcs, false
	}
	out := maps.Clone(a.funcs)
	if out == nil {
		out = map[string]function{}
	}
	for name, f := range out {
		g, ok := b.funcs[name]
		f.unsure = f.unsure || !ok || g.unsure
		out[name] = f
	}
	for name, g := range b.funcs {
		f, ok := out[name]
		f.unsure = f.unsure || g.unsure || !ok
		f.bodies = slices.Clip(f.bodies)
		for _, body := range g.bodies {
			if !slices.Contains(f.bodies, body) {
				f.bodies = append(f.bodies, body)
			}
		}
		out[name] = f
	}
	return out, true
}

// sameMap reports whether the maps are certainly equal. Maps that were shared
// and not written since are, which is the common case.
func sameMap[V any](a, b map[string]V) bool {
	return len(a) == 0 && len(b) == 0 || mapIdentity(a) == mapIdentity(b)
}

// maxDirs bounds the directories that the shell may be in at one point.
const maxDirs = 8

func joinDirs(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	out := slices.Clip(a)
	for _, d := range b {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	if len(out) > maxDirs {
		return nil
	}
	return out
}

// same reports whether two states cannot be told apart, so that another pass
// through a loop would find nothing new.
func (s *state) same(o *state) bool {
	return s.ifs == o.ifs && slices.Equal(s.dirs, o.dirs) && (s.dirs == nil) == (o.dirs == nil) &&
		s.argsKnown == o.argsKnown && slices.EqualFunc(s.args, o.args, sameField) &&
		maps.EqualFunc(s.vars, o.vars, sameVariable) && maps.EqualFunc(s.funcs, o.funcs, sameFunction)
}

func sameVariable(v, w variable) bool {
	return v.isArray == w.isArray && v.integer == w.integer && v.unset == w.unset &&
		slices.EqualFunc(v.values, w.values, Value.equal) && slices.EqualFunc(v.array, w.array, sameField)
}

func sameFunction(f, g function) bool {
	return f.unsure == g.unsure && slices.Equal(f.bodies, g.bodies)
}

// forget makes everything that the script has set unknown.
func (s *state) forget() {
	for name, v := range s.vars {
		v.values, v.unset = []Value{Unknown(Any)}, true
		if v.isArray {
			v.array = []Field{{Value: Unknown(Any), Many: true}}
		}
		s.set(name, v)
	}
	s.dirs, s.args, s.argsKnown, s.ifs = nil, nil, false, true
}

func mapIdentity[V any](m map[string]V) uintptr { return reflect.ValueOf(m).Pointer() }
