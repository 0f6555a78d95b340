package confine

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Landlock stops no connect(2) to a socket with a path before ABI 9, and a FIFO is
// a file like any other. Below that ABI both are ends of something on the host: a
// command that may open sockets finds an empty file in their place.

// abiPathnameSockets is the first ABI that stops connections to sockets that were
// made outside.
const abiPathnameSockets = 9

// Bounds of the walk for them.
const (
	endsMost     = 500             // more than a plan has room for
	endsDirsMost = 500_000         // directories of a project
	endsDeadline = 3 * time.Second // as for a file system that hangs
	endsDepth    = 256
	// a directory that changed so shortly ago may change again without
	// another time
	endsSettled = 50 * time.Millisecond
)

// projectEnds finds the sockets and FIFOs in a project. What it read of a directory
// it keeps as long as the directory's times stay.
type projectEnds struct {
	mu   sync.Mutex
	dirs map[string]endsDir
}

type endsDir struct {
	id   Identity
	time unix.Timespec // of the last change
	sub  []string      // directories in it
	ends []string      // sockets and FIFOs in it
	shut bool          // the caller may not list it
}

// find returns the project-relative paths of sockets and FIFOs, and of directories
// that the caller cannot list but could open up. It runs as the caller.
func (e *projectEnds) find(c Caller, project int) (ends, shut []string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := endsWalk{old: e.dirs, dirs: make(map[string]endsDir, len(e.dirs)), begin: time.Now()}
	if err := c.Do(func() error { return w.dir(project, ".", 0) }); err != nil {
		return nil, nil, &ProjectError{Path: ".", Err: fmt.Errorf("look for sockets: %w", err)}
	}
	e.dirs = w.dirs
	slices.Sort(w.ends)
	return w.ends, w.shut, nil
}

type endsWalk struct {
	old, dirs  map[string]endsDir
	begin      time.Time
	ends, shut []string
}

var errTooManyEnds = fmt.Errorf("more than %d sockets and FIFOs", endsMost)

func (w *endsWalk) dir(project int, name string, depth int) error {
	if len(w.dirs) >= endsDirsMost || depth > endsDepth {
		return errors.New("too many directories")
	}
	if time.Since(w.begin) > endsDeadline {
		return os.ErrDeadlineExceeded
	}
	var st unix.Stat_t
	if err := unix.Fstatat(project, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return gone(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil // replaced meanwhile
	}
	d, ok := w.old[name]
	if !ok || d.id != (Identity{st.Dev, st.Ino}) || d.time != st.Ctim {
		var err error
		if d, err = readEnds(project, name, st); err != nil {
			return gone(err)
		}
	}
	if settled := w.begin.Add(-endsSettled); time.Unix(st.Ctim.Unix()).Before(settled) {
		w.dirs[name] = d
	}
	if d.shut {
		w.shut = append(w.shut, name)
		return nil
	}
	for _, end := range d.ends {
		if p := path.Join(name, end); alive(project, p) {
			w.ends = append(w.ends, p)
		}
	}
	if len(w.ends)+len(w.shut) > endsMost {
		return errTooManyEnds
	}
	for _, sub := range d.sub {
		if err := w.dir(project, path.Join(name, sub), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// gone leaves out what is not there any more.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// readEnds lists one directory.
func readEnds(project int, name string, st unix.Stat_t) (endsDir, error) {
	d := endsDir{id: Identity{st.Dev, st.Ino}, time: st.Ctim}
	fd, err := unix.Openat2(project, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		d.shut = true
		return d, nil
	}
	if err != nil {
		return d, err
	}
	f := os.NewFile(uintptr(fd), procFD(fd)) // where the type is not in the directory it is looked up by this name
	defer f.Close()
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		switch kind := e.Type(); {
		case kind.IsDir():
			d.sub = append(d.sub, e.Name())
		case kind&(os.ModeSocket|os.ModeNamedPipe) != 0:
			d.ends = append(d.ends, e.Name())
		}
	}
	return d, err
}

// alive reports whether something may be at the other end: of a FIFO always, of a
// socket unless the kernel says that nobody has it open. Connecting by datagrams
// tells that without reaching who listens for a stream.
func alive(project int, name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(project, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return st.Mode&unix.S_IFMT == unix.S_IFIFO
	}
	fd, err := unix.Openat2(project, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer unix.Close(s)
	return !errors.Is(unix.Connect(s, &unix.SockaddrUnix{Name: procFD(fd)}), unix.ECONNREFUSED)
}

// mask puts an empty file over each socket and FIFO of the project, for a command
// that may open sockets, and makes what cannot be listed impossible to open up.
func (p *plan) mask(s *session) error {
	if p.filter != filterAny || s.m.abi >= abiPathnameSockets {
		return nil
	}
	ends, shut, err := s.ends.find(s.caller, s.projectFD)
	if err != nil {
		return err
	}
	for _, name := range ends {
		p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: name, b: emptyFile, set: attrRO | attrNoexec})
	}
	for _, name := range shut {
		p.ops = append(p.ops, op{kind: opRebind, flags: opfProject | opfOptional, a: name, set: attrRO})
	}
	p.masked = ends
	return nil
}
