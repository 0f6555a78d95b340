package server

import (
	"errors"
	"path"
	"slices"
	"strings"

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
	// what steers programs, or holds keys, has its protection from the project
	// that it lies in: it can be none itself
	{func(p *place, c confine.Caller) bool { return !inHiddenHome(p.real, c.Home) },
		"must not be a hidden directory of your home, nor lie in one"},
	{func(p *place, _ confine.Caller) bool { return !inGitDir(p.real) },
		"must not be a git directory, nor lie in one; name the work tree"},
}

// inHiddenHome reports whether the path is, or lies in, a directory of the home
// whose name begins with a dot. Agents keep work trees beneath theirs, in a
// directory named worktrees: those are as any other.
func inHiddenHome(real, home string) bool {
	if real == home || !within(real, home) {
		return false
	}
	parts := strings.Split(real[len(home)+1:], "/")
	return strings.HasPrefix(parts[0], ".") && !(len(parts) > 2 && parts[1] == "worktrees")
}

// inGitDir reports whether the path has a part named .git, or is, or lies in,
// a directory that git would take for a repository's (gitrepository-layout(5)).
func inGitDir(real string) bool {
	for dir := real; dir != "/"; dir = path.Dir(dir) {
		if path.Base(dir) == ".git" {
			return true
		}
		var st unix.Stat_t
		if unix.Lstat(dir+"/HEAD", &st) == nil && unix.Lstat(dir+"/objects", &st) == nil && unix.Lstat(dir+"/refs", &st) == nil {
			return true
		}
	}
	return false
}

// findProject resolves the project and checks that the caller may use it, and
// returns where it is and which directory it was. It
// is called as the caller. state, socket and rules are the daemon's own; it must
// lie in one of the roots when there are any.
func findProject(name string, c confine.Caller, state, socket, rules string, roots []string) (string, confine.Identity, *api.Error) {
	var t tree
	p, err := t.walk(name)
	if err != nil {
		return "", confine.Identity{}, api.InvalidField("project", "cannot be followed: "+reason(err))
	}
	defer p.close()
	if !within(p.real, c.Home) { // a project in the home as it is named is not above it
		if home, _, err := t.Follow(c.Home); err == nil {
			c.Home = home
		}
	}
	for _, check := range projectChecks {
		if !check.holds(&p, c) {
			return "", confine.Identity{}, api.InvalidField("project", check.message)
		}
	}
	if within(state, p.real) || within(socket, p.real) || within(rules, p.real) || within(p.real, state) {
		return "", confine.Identity{}, api.InvalidField("project", "must not hold, or lie in, what is pinfold's own")
	}
	if roots != nil && !slices.ContainsFunc(roots, func(root string) bool { return within(p.real, root) }) {
		return "", confine.Identity{}, api.InvalidField("project", "must lie in one of the directories for projects of this machine: "+strings.Join(roots, ", "))
	}
	return p.real, confine.Identity{Dev: p.stat.Dev, Ino: p.stat.Ino}, nil
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
