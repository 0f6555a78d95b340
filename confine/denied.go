package confine

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Denied is something that the confinement refused the command, so that whoever
// asked learns why it failed.
//
// The kernel tells nobody which call it refused. What a program says of it on
// stderr, a path and an error, is only where to look: it is named when the grant
// and the view do refuse that, whoever wrote the line. A program that says nothing
// leaves nothing to name.
type Denied struct {
	What string // "write", "execute", "read" (it is on the host and not in the view) or "network"
	Path string // absolute; "" for the network
}

// Bounds of what is looked at and named.
const (
	deniedTail = 8 << 10 // of the end of stderr
	deniedMost = 16
)

// complaints are how the C library's errors end a line: "tool: path: error", the
// path perhaps in quotes or after a few words.
var complaints = regexp.MustCompile(`(?m)^(.*): (Permission denied|Read-only file system|Operation not permitted|No such file or directory|` +
	`Network is unreachable|Temporary failure in name resolution|Could not resolve host.*|bad interpreter.*)\r?$|` +
	`(?m)\[Errno \d+\] (Permission denied|Read-only file system|Operation not permitted|No such file or directory|Network is unreachable)(?:: '([^'\n]+)')?`)

var quoted = regexp.MustCompile(`['"‘“]([^'"‘’“”\n]+)['"’”]`)

// denied names what the last lines of stderr complain of and the grant refuses.
// Paths that are not absolute are taken from each of the directories.
func (c *command) denied(stderr []byte, dirs ...string) []Denied {
	var list []Denied
	for _, m := range complaints.FindAllStringSubmatch(strings.ToValidUTF8(string(stderr), "�"), -1) {
		about, what := cmp.Or(m[4], m[1]), cmp.Or(m[2], m[3])
		if strings.HasPrefix(what, "Network") || strings.HasPrefix(what, "Temporary") || strings.HasPrefix(what, "Could not") {
			list = append(list, Denied{What: "network"}) // no grant has one
		} else {
			for _, path := range paths(about) {
				if d, ok := c.refuses(path, what, dirs); ok {
					list = append(list, d)
					break
				}
			}
		}
		if len(list) >= deniedMost {
			break
		}
	}
	slices.SortFunc(list, func(a, b Denied) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Path, b.Path))
	})
	return slices.Compact(list)
}

// paths are what a complaint may be about, the likeliest first.
func paths(about string) []string {
	var list []string
	for _, m := range quoted.FindAllStringSubmatch(about, -1) {
		list = append(list, m[1])
	}
	parts := strings.Split(about, ": ")
	last := parts[len(parts)-1]
	list = append(list, last)
	if words := strings.Fields(last); len(words) > 1 {
		list = append(list, words[len(words)-1])
	}
	return list
}

// refuses reports whether the grant or the view refuses what went wrong with the
// path, which is relative to one of the directories.
func (c *command) refuses(path, what string, dirs []string) (Denied, bool) {
	if path == "" || len(path) > 4096 || strings.ContainsRune(path, 0) {
		return Denied{}, false
	}
	for _, dir := range dirs {
		full := path
		if !filepath.IsAbs(full) {
			full = filepath.Join(c.s.project, dir, path)
		}
		full = filepath.Clean(full)
		switch {
		case what == "No such file or directory":
			if !c.visible(full) && c.onHost(full) {
				return Denied{"read", full}, true
			}
		case c.isProgram(full) && !c.r.Grant.ExecAny && !slices.Contains(c.r.Grant.Exec, full):
			return Denied{"execute", full}, true
		case what != "No such file or directory" && !strings.HasPrefix(what, "bad") && !c.mayWrite(full) && c.known(full):
			return Denied{"write", full}, true
		}
	}
	return Denied{}, false
}

// visible reports whether the path lies in a place that the command sees.
func (c *command) visible(full string) bool {
	v := c.s.base.view
	inside := func(dir string) bool { return within(full, dir) }
	return inside(c.s.project) || slices.ContainsFunc(v.Readable, inside) || slices.ContainsFunc(v.Writable, inside) ||
		slices.ContainsFunc([]string{"/proc", "/dev", "/etc", "/.pinfold"}, inside)
}

// onHost asks with the caller's rights: what they do not let him see is not told.
func (c *command) onHost(full string) bool {
	return c.s.caller.Do(func() error {
		var st unix.Stat_t
		return unix.Fstatat(unix.AT_FDCWD, full, &st, unix.AT_SYMLINK_NOFOLLOW)
	}) == nil
}

// known reports whether the path, or the directory that it would be made in, is
// there at all: else the complaint is about something else.
func (c *command) known(full string) bool {
	return c.visible(full) && (c.onHost(full) || c.onHost(filepath.Dir(full))) || filepath.Dir(full) == c.s.base.view.Home
}

// mayWrite says what the grant says of the path.
func (c *command) mayWrite(full string) bool {
	v, g := c.s.base.view, c.r.Grant
	if !within(full, c.s.project) {
		caches := slices.ContainsFunc(homeCaches, func(t string) bool { return within(full, filepath.Join(v.Home, t)) })
		return slices.ContainsFunc(v.Writable, func(dir string) bool { return within(full, dir) }) ||
			caches && g.ExecAny && !g.ReadOnly() || within(full, "/dev") || within(full, "/proc")
	}
	name, err := filepath.Rel(c.s.project, full)
	if err != nil {
		return false
	}
	if slices.Contains(c.readonly, name) || slices.ContainsFunc(c.readonly, func(p string) bool { return within("/"+name, "/"+p) }) {
		return false
	}
	return slices.ContainsFunc(g.Write, func(w string) bool { return within("/"+name, filepath.Join("/", w)) })
}

// isProgram reports whether the path is one that could be executed, to the caller.
func (c *command) isProgram(full string) bool {
	return errors.Is(c.s.caller.Do(func() error {
		st, err := os.Stat(full)
		if err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return errFound
		}
		return err
	}), errFound)
}

var errFound = errors.New("found")
