package policy

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// A program is what a name stands for on PATH.
type program struct {
	real   string   // where it is, symlinks followed; "" when there is none
	needs  []string // what must be executable to run it, itself included
	inside bool     // it lies in the project
}

// A target is a path that was followed.
type target struct {
	real string
	kind Kind
	err  error
}

// maxFollowed bounds the paths that one decision follows; a script that names
// more needs approval.
const maxFollowed = 5000

var errTooManyPaths = errors.New("too many paths to follow")

// follow is Files.Follow, asked once for each path.
func (j *judge) follow(full string) (string, Kind, error) {
	if t, ok := j.followed[full]; ok {
		return t.real, t.kind, t.err
	}
	var t target
	if len(j.followed) < maxFollowed {
		t.real, t.kind, t.err = j.env.Files.Follow(full)
	} else {
		t.err = errTooManyPaths
		j.unread(where{})
	}
	j.followed[full] = t
	return t.real, t.kind, t.err
}

// resolve returns the name by which facts and rules know the command, whether
// it is the system's program or builtin of that name, not another that is
// called alike, and whether it lies in the project.
func (j *judge) resolve(name string, dirs []string) (base string, real, inside bool) {
	if !strings.Contains(name, "/") {
		inside = j.lookup(name).inside
		return name, !inside, inside
	}
	base = path.Base(name)
	full := name
	if !path.IsAbs(name) {
		if len(dirs) != 1 {
			return base, false, len(dirs) > 0 && !slices.ContainsFunc(dirs, func(dir string) bool { return !j.inProject(dir + "/" + name) })
		}
		full = dirs[0] + "/" + name
	}
	if !slices.Contains(j.env.Path, path.Dir(full)) && !slices.Contains(systemDirs, path.Dir(full)) {
		return base, false, j.inProject(full)
	}
	p := j.inspect(full)
	return base, p.real != "" && !p.inside, p.inside
}

// inProject reports whether an absolute path leads into the project. What does
// not exist yet will be there when it does.
func (j *judge) inProject(full string) bool {
	to, _, err := j.follow(full)
	return err == nil && within(j.env.Project, to)
}

// isSystem reports whether the path names a program of the system.
func (j *judge) isSystem(name string) bool {
	_, real, _ := j.resolve(name, nil)
	return real
}

// systemDirs are where programs lie that everybody names by their paths.
var systemDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"}

// lookup finds a name on PATH, once.
func (j *judge) lookup(name string) program {
	if p, ok := j.programs[name]; ok {
		return p
	}
	var p program
	for _, dir := range j.env.Path {
		if p = j.inspect(dir + "/" + name); p.real != "" {
			break
		}
	}
	j.programs[name] = p
	return p
}

// maxInterpreters bounds the chain of interpreters of a script.
const maxInterpreters = 4

// inspect follows one path to a program and to what interprets it.
func (j *judge) inspect(full string) program {
	var p program
	for range maxInterpreters {
		real, kind, err := j.follow(full)
		if err != nil || kind != Regular {
			return p
		}
		if p.real == "" {
			p.real = real
		}
		if within(j.env.Project, real) {
			p.inside = true
			return p
		}
		p.needs = append(p.needs, real)
		interpreter, err := j.env.Files.Program(real)
		if err != nil || interpreter == "" || !path.IsAbs(interpreter) {
			return p
		}
		full = interpreter
	}
	return p
}

// executes adds a program by name or absolute path to the grant, with what it
// needs to run.
func (j *judge) executes(name string) {
	p := program{}
	if strings.Contains(name, "/") {
		p = j.inspect(name)
	} else {
		p = j.lookup(name)
	}
	if j.exec == nil {
		j.exec = map[string]bool{}
	}
	for _, real := range p.needs {
		if !isBash(real) {
			j.exec[real] = true
		}
	}
}

// isBash reports whether the path is the shell itself, which every grant
// implies.
func isBash(real string) bool {
	return real == "/usr/bin/bash" || real == "/bin/bash"
}

// A world answers for the reader of scripts.
type world struct{ j *judge }

// Var returns the variables that every command starts with.
func (w world) Var(name string) (string, bool) {
	switch name {
	case "HOME":
		return w.j.env.Home, w.j.env.Home != ""
	case "PATH":
		return strings.Join(w.j.env.Path, ":"), true
	}
	return "", false
}

// IsDir reports whether the path leads to a directory.
func (w world) IsDir(full string) bool {
	_, kind, err := w.j.follow(full)
	return err == nil && kind == Directory
}

// maxListed bounds the names of one directory that patterns are matched with.
const maxListed = 2000

// List returns the names in a directory of the project.
func (w world) List(full string) ([]string, bool) {
	real, kind, err := w.j.follow(full)
	if err != nil || kind != Directory || !within(w.j.env.Project, real) {
		return nil, false
	}
	if names, ok := w.j.listed[real]; ok {
		return names, names != nil
	}
	names, err := w.j.env.Files.List(real, maxListed)
	switch {
	case err != nil:
		names = nil
	case names == nil:
		names = []string{}
	}
	w.j.listed[real] = names
	return names, err == nil
}
