package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// A Created is a protected name that appeared while a command ran, and was taken
// away when it had ended.
type Created struct {
	Path string // relative to the project; absolute in the git directory of a linked work tree
	To   string // where it is now: absolute beside the home, else relative to the project
}

// guard is what one run needs of the survey: what there was when it started.
type guard struct {
	survey *survey
	grant  policy.Grant
	seq    uint64
	began  time.Time
	hidden []string // what was masked
	held   []string // what was mounted read-only, or masked
	absent []string // see plan
}

// guard looks at the project as it is before a command starts.
func (s *session) guard(g policy.Grant) (*guard, map[string]mark, error) {
	seq, err := s.survey.look()
	if err != nil {
		return nil, nil, &ProjectError{Path: s.project, Err: err}
	}
	s.survey.mu.Lock()
	defer s.survey.mu.Unlock()
	return &guard{survey: s.survey, grant: g, seq: seq, began: time.Now()}, s.survey.all(), nil
}

// opened reports whether the grant opens the marked name, or something beneath
// it.
func opened(g policy.Grant, rel string, m mark) bool {
	return m.concern != steers && slices.ContainsFunc(g.Protected, func(p string) bool { return within("/"+p, "/"+rel) })
}

// reaches reports whether the grant writes the name, or something above it.
func reaches(g policy.Grant, rel string) bool {
	return slices.ContainsFunc(g.Write, func(w string) bool { return within("/"+rel, path.Join("/", w)) })
}

// maxHeld is how many names a run can hold by mounts of their own: a message to
// its init has room for so many.
const maxHeld = 300

// hold plans the mounts that protect and hide: after those of the grant's
// writes, since the later mount is the one that counts. The parents of a
// protected name are mount points, so that none can be renamed away.
func (p *plan) hold(gd *guard, marks map[string]mark) error {
	names := make([]string, 0, len(marks))
	for rel := range marks {
		names = append(names, rel)
	}
	slices.Sort(names)
	pinned := map[string]bool{}
	for _, rel := range names {
		m := marks[rel]
		switch {
		case m.concern == hides:
			p.hide(gd, rel, m)
		case m.concern == locks || !reaches(gd.grant, rel):
		case opened(gd.grant, rel, m):
			p.pinParents(rel, pinned)
			gd.held = append(gd.held, rel)
			p.open(gd.grant, rel, m)
		case m.mode&fs.ModeSymlink != 0:
			if m.concern == steers {
				return &ProjectError{Path: rel, Err: errors.New("is a symbolic link, which cannot be kept from being changed; put what it leads to in its place")}
			}
		default:
			p.pinParents(rel, pinned)
			gd.held = append(gd.held, rel)
			p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: rel, set: attrRO})
		}
	}
	// A work tree's own git directory is a mount point even when nothing in it
	// is protected yet.
	if reaches(gd.grant, ".git") && !pinned[".git"] {
		p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: ".git"})
	}
	if len(gd.held) > maxHeld {
		return &ProjectError{Path: gd.held[0], Err: fmt.Errorf("is one of %d protected or hidden names, more than the %d that can be held; let the command write in a part of the project", len(gd.held), maxHeld)}
	}
	return nil
}

// pinParents makes the directories above a name mount points, once each.
func (p *plan) pinParents(rel string, pinned map[string]bool) {
	var above []string
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		above = append(above, dir)
	}
	slices.Reverse(above)
	for _, dir := range above {
		if !pinned[dir] {
			pinned[dir] = true
			p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: dir})
		}
	}
}

// open leaves what an approval has opened writable, and what lies beside it
// beneath the same protected name read-only.
func (p *plan) open(g policy.Grant, rel string, m mark) {
	if !m.mode.IsDir() || slices.Contains(g.Protected, rel) {
		return
	}
	p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: rel, set: attrRO})
	for _, place := range g.Protected {
		if !within("/"+place, "/"+rel) {
			continue
		}
		// a file that is to be made, or replaced, needs its directory
		for _, w := range g.Write {
			if within("/"+place, "/"+w) && within("/"+w, "/"+rel) {
				place = w
			}
		}
		p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: place, clear: attrRO})
	}
}

// hide plans a mask over a name that git does not track.
func (p *plan) hide(gd *guard, rel string, m mark) {
	mask := emptyFile
	switch {
	case m.mode.IsDir():
		mask = emptyDir
	case !m.mode.IsRegular():
		return // what a link leads to has a name of its own
	}
	if slices.ContainsFunc(gd.grant.Protected, func(p string) bool { return within("/"+p, "/"+rel) }) || gd.survey.tracks(rel, m) {
		return
	}
	gd.hidden = append(gd.hidden, rel)
	gd.held = append(gd.held, rel)
	p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: rel, b: mask, set: attrRO | attrNoexec})
}

// tracks reports whether git tracks the name, or something beneath it; where
// that cannot be told, it does: git would show a masked file as changed and
// commit the emptiness.
func (t *survey) tracks(rel string, m mark) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	tracked := false
	err := t.caller.Do(func() error {
		top, git := t.gitOf(rel)
		if git == "" {
			return nil
		}
		data, err := t.readFile(path.Join(git, "index"))
		if errors.Is(err, unix.ENOENT) {
			return nil // nothing was added yet
		}
		if err != nil {
			return err
		}
		inside := beneath(rel, top)
		found, err := indexEntries(data, func(name string) bool {
			return name == inside || m.mode.IsDir() && strings.HasPrefix(name, inside+"/")
		})
		tracked = len(found) > 0
		return err
	})
	return tracked || err != nil
}

// gitOf returns the top of the work tree in which the name lies, relative to
// the project, and its git directory; "" when there is none inside the project.
// The caller's ids are taken.
func (t *survey) gitOf(rel string) (top, git string) {
	for dir := path.Dir(rel); ; dir = path.Dir(dir) {
		if d := t.directory(dir); d != nil {
			if d.children[".git"] != nil {
				return dir, path.Join(dir, ".git")
			}
			if m, ok := d.marks[".git"]; ok && m.mode.IsRegular() {
				to, _ := t.follow(path.Join(dir, ".git"), dir, "gitdir: ") // one that leads outside has none here
				return dir, to
			}
		}
		if dir == "." {
			return "", ""
		}
	}
}

// clear takes away what the run should not have left, when nothing of it runs
// any more, and returns that. What git's index has of the same content is the
// project's own: a checkout brought it. So is a repository that names no
// program, hook or other place, and a link between the project's own.
// stays is one that could not be taken away.
func (gd *guard) clear() (created []Created, left []string, stays string) {
	t := gd.survey
	if gd.grant.ReadOnly() {
		return nil, nil, ""
	}
	if _, err := t.look(); err != nil {
		return nil, nil, "."
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var fresh []string
	for rel, m := range t.all() {
		switch {
		case m.seq <= gd.seq || m.concern == hides:
		case m.concern == locks:
			left = append(left, rel)
		case !opened(gd.grant, rel, m):
			fresh = append(fresh, rel)
		}
	}
	if len(fresh) == 0 {
		return nil, left, ""
	}
	slices.Sort(fresh)
	slices.Sort(left)
	if err := t.caller.Do(func() error {
		moved := map[string]bool{}
		for _, rel := range fresh {
			unit := gd.unit(rel)
			if slices.ContainsFunc(slices.Collect(maps.Keys(moved)), func(m string) bool { return within("/"+unit, "/"+m) }) || gd.isOwn(rel) {
				continue
			}
			moved[unit] = true
			to, err := t.quarantine(unit)
			if errors.Is(err, unix.ENOENT) {
				continue // it is gone by itself
			}
			if err != nil {
				stays = unit
				continue
			}
			created = append(created, Created{unit, to})
		}
		return nil
	}); err != nil {
		stays = fresh[0]
	}
	return created, left, stays
}

// unit returns what is taken away as one: of a new repository all of it.
func (gd *guard) unit(rel string) string {
	t := gd.survey
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if d := t.directory(dir); d != nil && d.role&roleGit != 0 && gd.isNew(dir) {
			return dir
		}
	}
	return rel
}

// isNew reports whether the git directory was made by the run: everything in it
// that is marked appeared since.
func (gd *guard) isNew(dir string) bool {
	d := gd.survey.directory(dir)
	if d == nil || len(d.marks) == 0 {
		return false
	}
	for _, m := range d.marks {
		if m.seq <= gd.seq {
			return false
		}
	}
	return true
}

// isOwn reports whether a name that appeared is the project's own.
func (gd *guard) isOwn(rel string) bool {
	t := gd.survey
	m, ok := t.find(rel)
	if !ok {
		return true // gone
	}
	if m.concern == protects {
		return t.isCheckedOut(rel, m)
	}
	dir, name := path.Dir(rel), path.Base(rel)
	switch {
	case name == ".git":
		return m.mode.IsRegular() && t.linksInside(rel, dir, "gitdir: ")
	case name == "config" || name == "config.worktree":
		return t.isHarmlessConfig(rel)
	case name == "hooks":
		return t.onlySamples(rel)
	case name == "commondir":
		return t.linksInside(rel, dir, "")
	case name == "gitdir":
		return t.linksInside(rel, dir, "")
	case name == "alternates":
		return t.linksInside(rel, path.Dir(dir), "")
	case name == "exclude" || name == "attributes" || name == "sparse-checkout":
		return gd.isNew(path.Dir(dir))
	}
	return false
}

// isCheckedOut reports whether git's index has the name with this content; of a
// directory, everything in it.
func (t *survey) isCheckedOut(rel string, m mark) bool {
	top, git := t.gitOf(rel)
	if git == "" {
		return false
	}
	data, err := t.readFile(path.Join(git, "index"))
	if err != nil {
		return false
	}
	inside := beneath(rel, top)
	entries, err := indexEntries(data, func(name string) bool { return name == inside || strings.HasPrefix(name, inside+"/") })
	if err != nil {
		return false
	}
	own := true
	visit := func(file string, mode fs.FileMode) {
		content, err := t.content(file, mode)
		name := beneath(file, top)
		own = own && err == nil && entries[name] == blobName(content)
	}
	if !m.mode.IsDir() {
		visit(rel, m.mode)
		return own
	}
	n := 0
	if err := t.walk(rel, func(file string, mode fs.FileMode) bool {
		n++
		visit(file, mode)
		return own && n < 10_000
	}); err != nil {
		return false
	}
	return own && n > 0
}

// content returns what git keeps of a file: of a link, where it leads.
func (t *survey) content(rel string, mode fs.FileMode) ([]byte, error) {
	if mode&fs.ModeSymlink == 0 {
		return t.readFile(rel)
	}
	dir, err := t.openDir(path.Dir(rel))
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, path.Base(rel), buf)
	return buf[:max(n, 0)], err
}

// linksInside reports whether the file holds one path, after the prefix, that
// leads from the directory to something inside the project: to a git directory
// of its own, or back.
func (t *survey) linksInside(rel, dir, prefix string) bool {
	to, ok := t.follow(rel, dir, prefix)
	if !ok {
		return false
	}
	if d := t.directory(to); d != nil {
		return d.role&(roleGit|roleObjects) != 0
	}
	return path.Base(to) == ".git" // gitdir leads back to the link
}

// follow returns where the path leads that a file holds after the prefix,
// relative to the project; false when that is outside, or no path. Relative ones
// begin at dir.
func (t *survey) follow(rel, dir, prefix string) (to string, inside bool) {
	data, err := t.readFile(rel)
	if err != nil {
		return "", false
	}
	full, ok := linkedPath(data, prefix, path.Join(t.project, dir))
	if !ok {
		return "", false
	}
	to, err = filepath.Rel(t.project, full)
	return to, err == nil && filepath.IsLocal(to)
}

// linkedPath returns the path, absolute and clean, that one of git's files holds
// after the prefix; a relative one begins at dir.
func linkedPath(data []byte, prefix, dir string) (string, bool) {
	text, ok := strings.CutPrefix(strings.TrimSuffix(string(data), "\n"), prefix)
	if !ok || text == "" || len(data) > unix.PathMax || strings.ContainsAny(text, "\n\x00") {
		return "", false
	}
	if !path.IsAbs(text) {
		text = path.Join(dir, text)
	}
	return path.Clean(text), true
}

// beneath returns the path relative to the directory that it lies in.
func beneath(rel, dir string) string {
	if dir == "." {
		return rel
	}
	return strings.TrimPrefix(rel, dir+"/")
}

// isHarmlessConfig reports whether a configuration that a run made runs nothing
// and leads nowhere outside.
func (t *survey) isHarmlessConfig(rel string) bool {
	data, err := t.readFile(rel)
	if err != nil {
		return false
	}
	settings, err := parseGitConfig(data)
	if err != nil {
		return false
	}
	for _, s := range settings {
		if s.name == "core.worktree" {
			// of a submodule: back to where it is checked out
			to := path.Join(path.Dir(rel), s.value)
			if path.IsAbs(s.value) || to == ".." || strings.HasPrefix(to, "../") {
				return false
			}
			continue
		}
		if !s.isHarmless() {
			return false
		}
	}
	return true
}

// onlySamples reports whether a directory of hooks has none that git would run.
func (t *survey) onlySamples(rel string) bool {
	only := true
	err := t.walk(rel, func(file string, _ fs.FileMode) bool {
		only = only && strings.HasSuffix(file, ".sample")
		return only
	})
	return err == nil && only
}

// walk calls f with every file beneath the directory until it returns false.
func (t *survey) walk(rel string, f func(rel string, mode fs.FileMode) bool) error {
	dir, err := t.list(rel)
	if err != nil {
		return err
	}
	for _, e := range dir {
		full := path.Join(rel, e.Name())
		if e.IsDir() {
			if err := t.walk(full, f); err != nil {
				return err
			}
		} else if !f(full, e.Type()) {
			return nil
		}
	}
	return nil
}

// quarantine moves the name away, to a directory beside the caller's home when
// that is on the same file system, else to another name where it is.
func (t *survey) quarantine(rel string) (to string, err error) {
	dir, err := t.openDir(path.Dir(rel))
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	return t.moveAway(dir, path.Dir(rel), rel)
}

// moveAway is quarantine for a name in an open directory, which is called at.
func (t *survey) moveAway(dir int, at, rel string) (to string, err error) {
	stamp := strconv.FormatInt(time.Now().UnixNano(), 36)
	name := path.Base(rel)
	if place, fd, err := t.quarantineDir(); err == nil {
		defer unix.Close(fd)
		away := stamp + "-" + strings.TrimPrefix(strings.ReplaceAll(rel, "/", "%"), ".")
		if len(away) > 200 {
			away = away[:200]
		}
		err := unix.Renameat2(dir, name, fd, away, unix.RENAME_NOREPLACE)
		if err == nil {
			return path.Join(place, away), nil
		}
		if !errors.Is(err, unix.EXDEV) {
			return "", err
		}
	}
	aside := "pinfold-quarantined-" + stamp + "-" + strings.TrimPrefix(name, ".")
	if err := unix.Renameat2(dir, name, dir, aside, unix.RENAME_NOREPLACE); err != nil {
		return "", err
	}
	return path.Join(at, aside), nil
}

// quarantineDir opens the directory for what is taken away, in the caller's
// home, and makes it.
func (t *survey) quarantineDir() (place string, fd int, err error) {
	at, err := unix.Openat2(unix.AT_FDCWD, t.caller.Home, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", -1, err
	}
	place = t.caller.Home
	for _, name := range []string{".local", "state", "pinfold-quarantine"} {
		mode := uint32(0o755)
		if name == "pinfold-quarantine" {
			mode = 0o700
		}
		if err := unix.Mkdirat(at, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
			unix.Close(at)
			return "", -1, err
		}
		next, err := unix.Openat2(at, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
		unix.Close(at)
		if err != nil {
			return "", -1, err
		}
		at, place = next, path.Join(place, name)
	}
	return place, at, nil
}
