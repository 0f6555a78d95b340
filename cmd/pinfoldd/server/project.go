package server

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
)

// systemTrees can be no project, nor anything beneath them.
var systemTrees = []string{
	"/usr", "/etc", "/proc", "/sys", "/dev", "/run", "/boot",
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
}

// sharedPlaces can be no project themselves: what lies beneath them belongs to
// many.
var sharedPlaces = []string{
	"/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var",
	"/var/cache", "/var/lib", "/var/log", "/var/tmp",
}

// A projectCheck is one thing that a project must be.
type projectCheck struct {
	holds   func(p *place, c confine.Caller) bool
	message string
}

// projectChecks are made in this order; the first that fails is reported.
var projectChecks = []projectCheck{
	{func(p *place, _ confine.Caller) bool {
		return !slices.ContainsFunc(systemTrees, func(tree string) bool { return within(p.real, tree) })
	}, "must not be a part of the system"},
	{func(p *place, _ confine.Caller) bool {
		return !slices.Contains(sharedPlaces, p.real)
	}, "must not be a directory that many share; name one of your own inside it"},
	{func(p *place, _ confine.Caller) bool { return p.kind() == policy.Directory },
		"must be a directory that exists"},
	{func(p *place, c confine.Caller) bool { return !within(c.Home, p.real) },
		"must not be your home directory or one above it; name a directory inside it"},
	{func(p *place, c confine.Caller) bool { return p.stat.Uid == c.UID },
		"must be a directory that you own"},
}

// findProject resolves the project and checks that the caller may use it. It
// is called as the caller. state, socket and rules are the daemon's own.
func findProject(name string, c confine.Caller, state, socket, rules string) (string, *api.Error) {
	var t tree
	p, err := t.walk(name)
	if err != nil {
		return "", api.InvalidField("project", "cannot be followed: "+reason(err))
	}
	defer p.close()
	if !within(p.real, c.Home) { // a project in the home as it is named is not above it
		if home, _, err := t.Follow(c.Home); err == nil {
			c.Home = home
		}
	}
	for _, check := range projectChecks {
		if !check.holds(&p, c) {
			return "", api.InvalidField("project", check.message)
		}
	}
	if within(state, p.real) || within(socket, p.real) || within(rules, p.real) || within(p.real, state) {
		return "", api.InvalidField("project", "must not hold, or lie in, what is pinfold's own")
	}
	return p.real, nil
}

// findDir resolves cwd, a path relative to the project, and returns it relative
// to it. It is called as the caller.
func (t *tree) findDir(cwd string) (string, *api.Error) {
	if cwd == "" {
		return ".", nil
	}
	real, kind, err := t.Follow(path.Join(t.project, cwd))
	switch {
	case err != nil:
		return "", api.InvalidField("cwd", "cannot be followed: "+reason(err))
	case !within(real, t.project):
		return "", api.InvalidField("cwd", "must lie inside the project")
	case kind != policy.Directory:
		return "", api.InvalidField("cwd", "must be a directory that exists")
	case real == t.project:
		return ".", nil
	}
	return real[len(t.project)+1:], nil
}

// reason returns the error's cause without the path, which it must not repeat.
func reason(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	return "it is no path"
}
