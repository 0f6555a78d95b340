package confine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

const (
	// maxDirectories is how many directories of a project are kept watch over,
	// the nearest to its top first. Each costs about 1 KiB of the kernel's memory
	// (inotify(7)) and 200 bytes of ours.
	maxDirectories = 20_000
	watchMask      = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// dependencies are directories in which others' projects lie by the hundred.
// Nothing in them is looked for.
var dependencies = map[string]bool{
	"node_modules": true, "bower_components": true, ".venv": true, "venv": true, "site-packages": true, ".tox": true, ".nox": true,
	"__pycache__": true, ".pnpm-store": true, ".yarn": true, "Pods": true, ".gradle": true, ".m2": true, "target": true,
	".mypy_cache": true, ".pytest_cache": true, ".ruff_cache": true, ".cache": true, ".terraform": true,
}

// A concern says why a name in the project concerns what a command sees or
// leaves there.
type concern uint8

const (
	protects concern = 1 + iota // read-only, by the policy
	steers                      // read-only: git runs it or is steered by it
	hides                       // read as empty
	locks                       // git's: what a killed command leaves behind
)

// A mark is a name that concerns the view.
type mark struct {
	concern concern
	mode    fs.FileMode // its type
	seq     uint64      // when it was seen to appear
}

// The roles of a directory, as bits.
const (
	rolePlain       = 1 << iota // a part of the work tree
	roleGit                     // a git directory, see gitrepository-layout(5)
	roleInfo                    // info of one
	roleObjects                 // objects of one
	roleObjectsInfo             // objects/info of one
	roleModules                 // modules of one, or a part of a module's name in it
	roleWorktrees               // worktrees of one
)

// A directory is one that is watched.
type directory struct {
	parent   *directory
	name     string
	role     int
	watch    int
	children map[string]*directory
	marks    map[string]mark
}

// rel returns the directory's path relative to the project, "" for its top.
func (d *directory) rel() string {
	if d.parent == nil {
		return ""
	}
	return path.Join(d.parent.rel(), d.name)
}

// A survey knows the names in a project that concern the view, at every depth. It
// reads every directory once, and then what inotify(7) tells: an event is queued
// before the call that caused it returns, so that what is read before a command
// starts tells all that was there.
type survey struct {
	caller            Caller
	project           string
	protected, hidden policy.Paths
	fd                int // of the project, as the host has it

	mu      sync.Mutex
	events  *os.File // inotify; nil when there is none
	top     *directory
	watched map[int]*directory
	marked  map[*directory]bool // those that may have marks
	steered map[string]bool     // what git's configuration points at
	count   int
	seq     uint64
	stale   bool // not everything is watched: all is read again each time
	closed  bool
	// replaced is called with names that were marked and have been replaced or
	// removed since, on a goroutine of the survey's.
	replaced func(rels []string)
}

// openSurvey reads the project, which must be the directory that root says.
func openSurvey(c Caller, project string, root Identity, protected, hidden policy.Paths) (*survey, error) {
	t := &survey{caller: c, project: project, protected: protected, hidden: hidden, fd: -1}
	err := c.Do(func() error {
		fd, err := unix.Openat2(unix.AT_FDCWD, project, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			return err
		}
		t.fd = fd
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Dev != root.Dev || st.Ino != root.Ino {
			return errors.New("replaced while the sandbox was made; try again")
		}
		return nil
	})
	if err != nil {
		t.close()
		return nil, &ProjectError{Path: project, Err: err}
	}
	if err := t.readAll(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// watch reads events as they come, and calls replaced with the names that were
// marked and have been replaced or removed since.
func (t *survey) watch(replaced func(rels []string)) {
	t.mu.Lock()
	t.replaced = replaced
	t.mu.Unlock()
	if t.events != nil {
		go t.listen()
	}
}

// readAll reads the whole project anew.
func (t *survey) readAll() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reread()
}

// reread is readAll with the lock held.
func (t *survey) reread() error {
	if t.closed {
		return errClosed
	}
	if t.events == nil {
		if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
			t.events = os.NewFile(uintptr(fd), "inotify")
		}
	} else {
		for watch := range t.watched {
			t.unwatch(watch)
		}
	}
	before := t.all()
	t.watched, t.marked = map[int]*directory{}, map[*directory]bool{}
	t.count, t.stale = 0, t.events == nil
	t.top = &directory{role: rolePlain, watch: -1}
	return t.caller.Do(func() error {
		t.readBreadthFirst(t.top, before)
		t.steer()
		return nil
	})
}

// all returns the marks by their paths.
func (t *survey) all() map[string]mark {
	list := map[string]mark{}
	t.each(func(rel string, m mark) { list[rel] = m })
	return list
}

// each calls f for every mark. The lock is held.
func (t *survey) each(f func(rel string, m mark)) {
	for d := range t.marked {
		if len(d.marks) == 0 {
			delete(t.marked, d)
			continue
		}
		rel := d.rel()
		for name, m := range d.marks {
			f(path.Join(rel, name), m)
		}
	}
}

// readBreadthFirst reads a directory and all below it, the nearest first, so
// that a bound cuts off what is deep. Marks of before keep the time when they
// appeared.
func (t *survey) readBreadthFirst(from *directory, before map[string]mark) {
	for queue := []*directory{from}; len(queue) > 0; queue = queue[1:] {
		queue = append(queue, t.read(queue[0], before)...)
	}
}

// read reads one directory and returns those in it that are to be read too. One
// that is gone, or that the caller may not read, has nothing in it.
func (t *survey) read(d *directory, before map[string]mark) []*directory {
	rel := d.rel()
	fd, err := unix.Openat2(t.fd, cmp.Or(rel, "."), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	t.watchOver(d, fd) // before it is read, so that nothing is missed
	entries, err := f.ReadDir(-1)
	if err != nil {
		t.stale = true
	}
	d.children, d.marks = nil, nil
	d.role |= roleBySight(d.role, entries)
	var next []*directory
	for _, e := range entries {
		if child := t.enter(d, rel, e.Name(), e.Type(), before); child != nil {
			next = append(next, child)
		}
	}
	return next
}

// roleBySight sees what git would take for one of its directories.
func roleBySight(role int, entries []fs.DirEntry) int {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	switch {
	case role&roleModules != 0 && has("HEAD"), role&rolePlain != 0 && has("HEAD") && has("objects") && has("refs"):
		return roleGit
	}
	return 0
}

// watchOver has the kernel tell of changes in the open directory.
func (t *survey) watchOver(d *directory, fd int) {
	d.watch = -1
	if t.events == nil {
		return
	}
	if t.count >= maxDirectories {
		t.stale = true
		return
	}
	err := withFD(t.events, func(events int) (err error) {
		d.watch, err = unix.InotifyAddWatch(events, procFD(fd), watchMask)
		return err
	})
	if err != nil {
		d.watch, t.stale = -1, true
		return
	}
	t.count++
	t.watched[d.watch] = d
}

func (t *survey) unwatch(watch int) {
	_ = withFD(t.events, func(events int) error { // one that is gone needs none
		_, err := unix.InotifyRmWatch(events, uint32(watch))
		return err
	})
	delete(t.watched, watch)
}

// enter takes a name into the survey, and returns its directory when that has to
// be read too.
func (t *survey) enter(d *directory, rel, name string, mode fs.FileMode, before map[string]mark) *directory {
	full := path.Join(rel, name)
	what, role := t.classify(d, full, name, mode)
	if what != 0 {
		if d.marks == nil {
			d.marks = map[string]mark{}
		}
		m := mark{concern: what, mode: mode}
		if old, known := before[full]; known && old.concern == what {
			m.seq = old.seq
		} else {
			t.seq++
			m.seq = t.seq
		}
		d.marks[name] = m
		t.marked[d] = true
	}
	if role == 0 || !mode.IsDir() {
		return nil
	}
	if d.children == nil {
		d.children = map[string]*directory{}
	}
	child := &directory{parent: d, name: name, role: role, watch: -1}
	d.children[name] = child
	return child
}

// gitNames are the names in a git directory that steer git, or that it runs.
var gitNames = map[string]bool{"config": true, "config.worktree": true, "commondir": true, "gitdir": true, "hooks": true}

// classify says what concern a name is, and which roles the directory of that
// name has; none when nothing in it can be of concern.
func (t *survey) classify(d *directory, full, name string, mode fs.FileMode) (what concern, role int) {
	if d.role&roleGit != 0 {
		switch {
		case gitNames[name]:
			what = steers
		case strings.HasSuffix(name, ".lock"):
			what = locks
		case name == "info":
			role |= roleInfo
		case name == "objects":
			role |= roleObjects
		case name == "modules":
			role |= roleModules
		case name == "worktrees":
			role |= roleWorktrees
		}
	}
	switch {
	case d.role&roleInfo != 0 && (name == "exclude" || name == "attributes" || name == "grafts" || name == "sparse-checkout"),
		d.role&roleObjectsInfo != 0 && (name == "alternates" || name == "http-alternates"):
		return steers, 0
	case d.role&roleObjects != 0 && name == "info":
		return 0, roleObjectsInfo
	case d.role&roleModules != 0:
		role |= roleModules
	case d.role&roleWorktrees != 0:
		role |= roleGit
	}
	if d.role&rolePlain == 0 {
		return what, role
	}
	switch {
	case name == ".git" && mode.IsDir():
		return what, roleGit
	case name == ".git", t.steered[full]:
		return steers, 0
	case what != 0:
		return what, 0
	case t.protected.Match(full):
		return protects, 0
	case t.hidden.Match(full):
		return hides, 0
	case !dependencies[name]:
		role |= rolePlain
	}
	return 0, role
}

// look reads what has happened since, and returns the time that it is now: what
// appears later has a later one.
func (t *survey) look() (seq uint64, err error) {
	t.mu.Lock()
	replaced, err := t.catchUp()
	seq = t.seq
	notify := t.replaced
	t.mu.Unlock()
	if len(replaced) > 0 && notify != nil {
		notify(replaced)
	}
	return seq, err
}

// catchUp applies the events that are there. It returns the names that were
// marked and are replaced or gone. The lock is held.
func (t *survey) catchUp() (replaced []string, err error) {
	if t.closed {
		return nil, errClosed
	}
	if t.stale {
		if t.events != nil {
			t.pending() // all is read anyway
		}
		before := t.all()
		err := t.reread()
		for rel := range before {
			if m, ok := t.find(rel); !ok || m.seq != before[rel].seq {
				replaced = append(replaced, rel)
			}
		}
		return replaced, err
	}
	events, overflowed := t.pending()
	if len(events) > 0 {
		err = t.caller.Do(func() error {
			for _, e := range events {
				replaced = append(replaced, t.apply(e)...)
			}
			t.steer()
			return nil
		})
	}
	if overflowed && err == nil {
		err = t.reread()
	}
	return replaced, err
}

// find returns the mark at the path. The lock is held.
func (t *survey) find(rel string) (mark, bool) {
	d := t.directory(path.Dir(rel))
	if d == nil {
		return mark{}, false
	}
	m, ok := d.marks[path.Base(rel)]
	return m, ok
}

// directory returns the directory at the path, nil when it is not in the survey.
func (t *survey) directory(rel string) *directory {
	d := t.top
	if rel == "." || rel == "" {
		return d
	}
	for name := range strings.SplitSeq(rel, "/") {
		if d = d.children[name]; d == nil {
			return nil
		}
	}
	return d
}

// A change is an event of a directory that is watched.
type change struct {
	watch int
	mask  uint32
	name  string
}

// pending returns the events that are queued, and whether some were lost.
func (t *survey) pending() (list []change, overflowed bool) {
	var buf [16 << 10]byte
	for {
		n := 0
		err := withFD(t.events, func(fd int) (err error) { n, err = unix.Read(fd, buf[:]); return err })
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return list, overflowed
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			name := buf[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+int(e.Len)]
			at += unix.SizeofInotifyEvent + int(e.Len)
			overflowed = overflowed || e.Mask&unix.IN_Q_OVERFLOW != 0
			list = append(list, change{int(e.Wd), e.Mask, strings.TrimRight(string(name), "\x00")})
		}
	}
}

// apply brings the survey in line with one event, by looking at what is there now.
func (t *survey) apply(e change) (replaced []string) {
	d := t.watched[e.watch]
	if d == nil {
		return nil
	}
	if e.mask&unix.IN_IGNORED != 0 {
		delete(t.watched, e.watch)
		t.count--
		return nil
	}
	if e.name == "" {
		return nil
	}
	rel := d.rel()
	full := path.Join(rel, e.name)
	if m, ok := d.marks[e.name]; ok && m.concern != locks {
		replaced = append(replaced, full)
	}
	delete(d.marks, e.name)
	if child := d.children[e.name]; child != nil {
		replaced = append(replaced, t.drop(child, full)...)
		delete(d.children, e.name)
	}
	var st unix.Stat_t
	if t.stat(rel, e.name, &st) != nil {
		return replaced
	}
	if d.role&roleGit == 0 && d.role&(rolePlain|roleModules) != 0 && (e.name == "HEAD" || e.name == "objects" || e.name == "refs") {
		if t.looksLikeGit(d, rel) { // all in it is another matter now
			t.dropBelow(d, rel)
			t.readBreadthFirst(d, nil)
			return replaced
		}
	}
	t.reenter(d, e.name, nil)
	return replaced
}

func (t *survey) looksLikeGit(d *directory, rel string) bool {
	var st unix.Stat_t
	if d.role&roleModules != 0 {
		return t.stat(rel, "HEAD", &st) == nil
	}
	return t.stat(rel, "HEAD", &st) == nil && t.stat(rel, "objects", &st) == nil && t.stat(rel, "refs", &st) == nil
}

// drop forgets the directory and what is below it, and returns the marks there.
func (t *survey) drop(d *directory, rel string) (marks []string) {
	marks = t.dropBelow(d, rel)
	if d.watch >= 0 && t.watched[d.watch] == d {
		t.unwatch(d.watch)
		t.count--
	}
	return marks
}

func (t *survey) dropBelow(d *directory, rel string) (marks []string) {
	for name, m := range d.marks {
		if m.concern != locks {
			marks = append(marks, path.Join(rel, name))
		}
	}
	for name, child := range d.children {
		marks = append(marks, t.drop(child, path.Join(rel, name))...)
	}
	d.marks, d.children = nil, nil
	return marks
}

// list returns what is in a directory of the project.
func (t *survey) list(rel string) ([]fs.DirEntry, error) {
	fd, err := unix.Openat2(t.fd, cmp.Or(rel, "."), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	return f.ReadDir(-1)
}

// stat looks at a name in a directory of the project, without following links.
func (t *survey) stat(rel, name string, st *unix.Stat_t) error {
	dir, err := t.openDir(rel)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
}

// openDir opens a directory of the project without following links.
func (t *survey) openDir(rel string) (int, error) {
	return unix.Openat2(t.fd, cmp.Or(rel, "."), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// maxRead is the most bytes of a file of the project that is read: git's
// configuration, its links, its index.
const maxRead = 32 << 20

// readFile reads a plain file of the project, as the caller.
func (t *survey) readFile(rel string) ([]byte, error) {
	fd, err := unix.Openat2(t.fd, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxRead {
		return nil, fmt.Errorf("%s: is no plain file of at most %d MiB", rel, maxRead>>20)
	}
	f, err := os.OpenFile(procFD(fd), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, st.Size)
	n, err := f.ReadAt(data, 0)
	if n < len(data) {
		return nil, fmt.Errorf("%s: changes while it is read: %w", rel, err)
	}
	return data, nil
}

// typeOf returns the type of a file as package io/fs has it.
func typeOf(st *unix.Stat_t) fs.FileMode {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// listen reads events as they come, so that none are lost while a command makes
// many, and tells of what is replaced.
func (t *survey) listen() {
	raw, err := t.events.SyscallConn()
	if err != nil {
		return
	}
	for {
		if err := raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(p, 0)
			return n > 0
		}); err != nil {
			return // closed
		}
		t.mu.Lock()
		stale := t.stale
		if stale && !t.closed {
			t.pending() // all is read before and after each command
		}
		t.mu.Unlock()
		if stale {
			continue
		}
		if _, err := t.look(); err != nil {
			return
		}
	}
}

// close lets go of the project.
func (t *survey) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	if t.events != nil {
		t.events.Close()
	}
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
}
