package server

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// The bounds of a walk.
const (
	maxLinks = 40  // symlinks followed in one walk, as in the kernel
	maxSteps = 512 // parts of one path, symlinks' targets included
)

// A tree looks names up for a decision, as policy.Files says. It walks the file
// system part by part with descriptors that can neither read nor write (O_PATH),
// so that no FIFO or device is ever opened, and is used on a thread that has the
// caller's file system ids (confine.Caller.Do). It is for one goroutine.
type tree struct {
	project string // symlinks followed; "" while it is not known
	// private lists places that a command does not share with the host: what is
	// there is not looked at, and names there are taken as they are written.
	private []string
}

var _ policy.Files = (*tree)(nil)

// alwaysPrivate are the places that every sandbox has of its own.
var alwaysPrivate = []string{"/dev", "/proc", "/run", "/sys"}

// A place is what a walk found. Its descriptor is -1 where nothing exists.
type place struct {
	fd   int
	real string
	stat unix.Stat_t
}

func (p *place) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
		p.fd = -1
	}
}

func (p *place) kind() policy.Kind {
	switch {
	case p.fd < 0:
		return policy.Missing
	case p.stat.Mode&unix.S_IFMT == unix.S_IFREG:
		return policy.Regular
	case p.stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		return policy.Directory
	}
	return policy.Other
}

// Follow implements [policy.Files].
func (t *tree) Follow(name string) (string, policy.Kind, error) {
	p, err := t.walk(name)
	if err != nil {
		return "", policy.Missing, err
	}
	defer p.close()
	if p.fd < 0 && t.isPrivateRoot(p.real) {
		return p.real, policy.Directory, nil
	}
	return p.real, p.kind(), nil
}

// List implements [policy.Files].
func (t *tree) List(dir string, limit int) ([]string, error) {
	p, err := t.walk(dir)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if p.kind() != policy.Directory {
		return nil, &os.PathError{Op: "list", Path: dir, Err: unix.ENOTDIR}
	}
	fd, err := unix.Openat(p.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "list", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, err := f.Readdirnames(limit + 1)
	if len(names) > limit {
		return nil, fmt.Errorf("%s: holds more than %d names", dir, limit)
	}
	if len(names) == 0 {
		return nil, nil // Readdirnames says io.EOF of an empty directory
	}
	return names, err
}

// Program implements [policy.Files]. It reads only regular files outside the
// project.
func (t *tree) Program(name string) (string, error) {
	p, err := t.walk(name)
	if err != nil {
		return "", err
	}
	defer p.close()
	if p.kind() != policy.Regular || within(p.real, t.project) {
		return "", &os.PathError{Op: "program", Path: name, Err: unix.EACCES}
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "program", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var head [256]byte
	n, err := unix.Pread(fd, head[:], 0)
	if err != nil {
		return "", &os.PathError{Op: "program", Path: name, Err: err}
	}
	line, isScript := bytes.CutPrefix(head[:n], []byte("#!"))
	if !isScript {
		return "", nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return "", &os.PathError{Op: "program", Path: name, Err: unix.ENOEXEC}
	}
	return words[0], nil
}

// walk resolves the absolute path. The caller closes the place.
func (t *tree) walk(name string) (place, error) {
	if !path.IsAbs(name) {
		return place{fd: -1}, &os.PathError{Op: "follow", Path: name, Err: unix.EINVAL}
	}
	if clean := path.Clean(name); clean == name && !t.entersPrivate(clean) {
		if p, ok := straight(clean); ok {
			return p, nil
		}
	}
	w := walker{tree: t, place: place{fd: -1, real: "/"}}
	if err := w.root(); err != nil {
		return w.place, &os.PathError{Op: "follow", Path: name, Err: err}
	}
	if err := w.run(name); err != nil {
		w.place.close()
		return w.place, &os.PathError{Op: "follow", Path: name, Err: err}
	}
	if w.unseen > 0 {
		w.place.close()
	}
	return w.place, nil
}

// straight resolves the clean path in the common cases: nothing on the way is a
// symlink, and the last part may not exist.
func straight(clean string) (place, bool) {
	fd, err := openStraight(clean)
	if err == unix.ENOENT {
		dir, name := path.Split(clean)
		if fd, err = openStraight(path.Clean(dir)); err != nil {
			return place{}, false
		}
		var st unix.Stat_t
		err = unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		_ = unix.Close(fd)
		return place{fd: -1, real: clean}, err == unix.ENOENT
	}
	if err != nil {
		return place{}, false
	}
	p := place{fd: fd, real: clean}
	if unix.Fstat(fd, &p.stat) != nil || p.stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		p.close()
		return place{}, false
	}
	return p, true
}

func openStraight(clean string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, clean, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

// entersPrivate reports whether the clean path leads into a private place.
func (t *tree) entersPrivate(clean string) bool {
	if t.project != "" && (within(clean, t.project) || within(t.project, clean)) {
		return false
	}
	for _, root := range alwaysPrivate {
		if within(clean, root) {
			return true
		}
	}
	for _, root := range t.private {
		if within(clean, root) {
			return true
		}
	}
	return false
}

// isPrivateRoot reports whether the path is a private place itself.
func (t *tree) isPrivateRoot(clean string) bool {
	return t.entersPrivate(clean) && !t.entersPrivate(path.Dir(clean))
}

// A walker is a walk under way: where it is, and how far from there the path
// has left what exists or may be looked at.
type walker struct {
	tree *tree
	place
	unseen int // parts of real that are beyond the descriptor
	links  int
	steps  int
}

// root goes to the root directory.
func (w *walker) root() error {
	w.close()
	w.real, w.unseen = "/", 0
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.fd = fd
	return unix.Fstat(fd, &w.stat)
}

// run follows the path from where the walk is.
func (w *walker) run(name string) error {
	for _, part := range strings.Split(name, "/") {
		if w.steps++; w.steps > maxSteps {
			return unix.ENAMETOOLONG
		}
		var err error
		switch {
		case part == "" || part == ".":
		case part == "..":
			err = w.up()
		default:
			err = w.down(part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// up goes to the parent directory.
func (w *walker) up() error {
	w.real = path.Dir(w.real)
	if w.unseen > 0 {
		w.unseen--
		return nil
	}
	return w.enter("..")
}

// down goes to the entry, and on to where it leads when it is a symlink.
func (w *walker) down(name string) error {
	parent := w.real
	w.real = path.Join(parent, name)
	if w.unseen > 0 || w.tree.entersPrivate(w.real) {
		w.unseen++
		return nil
	}
	fd, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		w.unseen++
		return nil
	}
	if err != nil {
		return err
	}
	next := place{fd: fd, real: w.real}
	if err := unix.Fstat(fd, &next.stat); err != nil {
		next.close()
		return err
	}
	if next.stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		w.place.close()
		w.place = next
		return nil
	}
	defer next.close()
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	target, err := readlink(fd)
	if err != nil {
		return err
	}
	w.real = parent
	if path.IsAbs(target) {
		if err := w.root(); err != nil {
			return err
		}
	}
	return w.run(target)
}

// enter changes to the directory entry, which is no symlink.
func (w *walker) enter(name string) error {
	fd, err := unix.Openat(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	real := w.real
	w.place.close()
	w.place = place{fd: fd, real: real}
	return unix.Fstat(fd, &w.stat)
}

// readlink returns where the symlink with the O_PATH descriptor points.
func readlink(fd int) (string, error) {
	buf := make([]byte, 4096)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	if n == 0 || n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// within reports whether the clean absolute path is root or lies beneath it.
func within(name, root string) bool {
	if root == "" {
		return false
	}
	if root == "/" {
		return true
	}
	return strings.HasPrefix(name, root) && (len(name) == len(root) || name[len(root)] == '/')
}
