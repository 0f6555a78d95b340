package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// A placesFile lists the places that are the same for every site, as the
// built-in policy has them.
type placesFile struct {
	Readable []string `toml:"readable"` // absolute paths and, ending in "/", what is below them
	Null     []string `toml:"null"`     // writable devices, the same way
	Git      []string `toml:"git"`      // paths at any depth in a git directory
}

// any reports whether anything is listed.
func (f *placesFile) any() bool { return len(f.Readable)+len(f.Null)+len(f.Git) > 0 }

// places are the places that matter.
type places struct {
	placesFile
	protected, hidden, git Paths
}

func compilePlaces(file policyFile) (p places, err error) {
	p.placesFile = file.Places
	for _, list := range []struct {
		to    *Paths
		texts []string
	}{{&p.protected, file.Protected}, {&p.hidden, file.Hidden}, {&p.git, file.Places.Git}} {
		if *list.to, err = parsePaths(list.texts); err != nil {
			return p, err
		}
	}
	return p, nil
}

// A location is where a path leads, as far as it is known.
type location struct {
	place place
	real  string // absolute; "" when unknown
	kind  Kind
	exact bool // the path itself is known, not only its directory
}

// locate finds where the field leads from one directory; dir is "" when the
// directory is unknown.
func (j *judge) locate(f shparse.Field, dir string) location {
	text, known := f.Known()
	if known {
		return j.locatePath(text, dir)
	}
	prefix := f.Prefix()
	rest := f.Literal()[len(prefix):]
	if climbs(rest) || f.Class() == shparse.Any && strings.HasPrefix(rest, "..") {
		return location{place: placeClimbs}
	}
	if strings.HasPrefix(prefix, "/dev/fd/") {
		return location{place: placeNull}
	}
	if sure := j.surely(f); sure != placeProject {
		return location{place: sure}
	}
	slash := strings.LastIndexByte(prefix, '/')
	switch {
	case prefix == "/" || slash < 0 && f.Class() == shparse.Any && prefix == "":
		if prefix == "/" {
			return location{place: placeOutside, real: "/", kind: Directory}
		}
		return location{place: placeProject}
	case slash < 0:
		prefix = "."
	default:
		prefix = prefix[:slash+1]
	}
	loc := j.locatePath(prefix, dir)
	loc.exact = false
	return loc
}

// surely places a path by those of its components that are known, wherever it
// leads: "$d/.envrc" is protected whatever $d is. What its known beginning leads
// to is for others.
func (j *judge) surely(f shparse.Field) place {
	const hole = "…" // as Field shows it
	text := f.String()
	_, rest, found := strings.Cut(text, hole)
	for found {
		var known string
		known, rest, found = strings.Cut(rest, hole)
		_, known, inner := strings.Cut(known, "/")
		if end := strings.LastIndexByte(known, '/'); found {
			known = known[:max(end, 0)] // the last component goes on with a hole
		}
		if known = strings.Trim(path.Clean("/"+known), "/"); !inner || known == "" {
			continue
		}
		if at := j.policy.places.inProject(known); at != placeProject {
			return at
		}
	}
	return placeProject
}

// climbs reports whether the text has a component "..".
func climbs(text string) bool {
	return strings.Contains("/"+text+"/", "/../")
}

// locatePath finds where a known path leads.
func (j *judge) locatePath(text, dir string) location {
	if text == "" {
		return location{place: placeProject, exact: true}
	}
	if strings.IndexByte(text, 0) >= 0 || len(text) > 4096 {
		return location{place: placeOutside}
	}
	full := text
	if text[0] != '/' {
		if dir == "" {
			if climbs(text) {
				return location{place: placeClimbs}
			}
			return location{place: j.policy.places.inProject(path.Clean(text))}
		}
		full = dir + "/" + text
	}
	if special, ok := j.special(full); ok {
		return location{place: special, real: path.Clean(full), exact: true, kind: Other}
	}
	real, kind, err := j.follow(full)
	if err != nil {
		return location{place: j.unfollowed(full)}
	}
	return location{place: j.placeOf(real), real: real, kind: kind, exact: true}
}

// unfollowed places a path that could not be followed: inside when it cannot
// be anywhere else, since then the kernel refuses it too.
func (j *judge) unfollowed(full string) place {
	if !climbs(full) && within(j.env.Project, path.Clean(full)) {
		return placeProject
	}
	return placeOutside
}

// special places what must be judged by its spelling, because the links there
// lead elsewhere for each process: devices and /proc.
func (j *judge) special(full string) (place, bool) {
	if !strings.HasPrefix(strings.TrimLeft(full, "/"), "dev/") && !strings.HasPrefix(strings.TrimLeft(full, "/"), "proc/") &&
		full != "/dev" && full != "/proc" {
		return 0, false
	}
	if climbs(full) {
		return placeOutside, true
	}
	clean := path.Clean(full)
	p := &j.policy.places
	switch {
	case under(p.Null, clean):
		return placeNull, true
	case under(p.Readable, clean):
		return placeReadable, true
	case strings.HasPrefix(clean, "/dev/"):
		return placeDevice, true
	}
	return placeOutside, true
}

// under reports whether the path is one of the list, or below one of its
// entries that end in a slash.
func under(list []string, clean string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		if strings.HasSuffix(entry, "/") {
			return clean+"/" == entry || strings.HasPrefix(clean, entry)
		}
		return clean == entry
	})
}

// within reports whether the clean path is root or below it.
func within(root, clean string) bool {
	return clean == root || root == "/" || strings.HasPrefix(clean, root) && clean[len(root)] == '/'
}

// placeOf places an absolute path that has been followed.
func (j *judge) placeOf(real string) place {
	if within(j.env.Project, real) {
		return j.policy.places.inProject(relative(j.env.Project, real))
	}
	if special, ok := j.special(real); ok {
		return special
	}
	in := func(roots []string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return within(root, real) })
	}
	switch {
	case in(j.env.Writable):
		return placeWritable
	case in(j.env.Readable), under(j.policy.places.Readable, real):
		return placeReadable
	}
	return placeOutside
}

// relative returns the path below root, "." for root itself.
func relative(root, real string) string {
	if real == root {
		return "."
	}
	return strings.TrimPrefix(strings.TrimPrefix(real, root), "/")
}

// inProject places a project-relative path.
func (p *places) inProject(rel string) place {
	if rest, ok := inGitDir(rel); ok {
		return p.inGit(rest)
	}
	if p.protected.Covers(rel) {
		return placeProtected
	}
	return placeProject
}

// bareGit reports whether the project-relative path is what steers a bare
// repository: a directory with what git looks for there
// (gitrepository-layout(5)).
func (j *judge) bareGit(rel string) bool {
	for dir, rest := "", rel; rest != ""; {
		if j.policy.places.git.begins(rest) && j.isRepository(path.Join(j.env.Project, dir)) {
			return true
		}
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		dir = path.Join(dir, part)
	}
	return false
}

func (j *judge) isRepository(dir string) bool {
	for _, name := range [...]string{"HEAD", "objects", "refs"} {
		if _, kind, err := j.follow(dir + "/" + name); err != nil || kind == Missing {
			return false
		}
	}
	return true
}

// inGitDir returns what follows a component ".git".
func inGitDir(rel string) (rest string, ok bool) {
	for rest := rel; rest != ""; {
		var part string
		if part, rest, _ = strings.Cut(rest, "/"); part == ".git" {
			return rest, true
		}
	}
	return "", false
}

// inGit places a path below a git directory. The directory as a whole, which
// may also be a file that names one, is what steers git.
func (p *places) inGit(rest string) place {
	if rest == "" || p.git.Covers(rest) {
		return placeGit
	}
	return placeProtected
}
