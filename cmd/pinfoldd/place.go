package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

// userState returns the state directory of the calling user.
func userState() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pinfold"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%w; name a state directory with --state", err)
	}
	return filepath.Join(home, ".local", "state", "pinfold"), nil
}

// makeDir makes the directory, and what is missing above it, and checks that it
// is the daemon's own and that nobody else can write in it.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, mode)
	if err == nil {
		return os.Chmod(dir, mode) // whatever the umask
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s: must be a directory that belongs to uid %d and that nobody else can write", dir, os.Geteuid())
	}
	return nil
}

// A lock is held by the one daemon that may listen on a socket.
type lock struct {
	file *os.File
	path string
}

// release removes the lock's file and lets go of it.
func (l *lock) release() {
	_ = os.Remove(l.path)
	_ = l.file.Close()
}

// lock takes the lock of the socket. A daemon that was started on demand waits
// for another one to end, or finds that it serves, says so and gets no lock.
func (o *options) lock(ctx context.Context, ready *readiness) (*lock, error) {
	name := o.socket + ".lock"
	for end := time.Now().Add(endTime); ; {
		l, err := tryLock(name)
		if l != nil || err != nil {
			return l, err
		}
		if !ready.onDemand() || time.Now().After(end) {
			return nil, fmt.Errorf("%s: another pinfoldd serves there", o.socket)
		}
		if c, err := net.Dial("unix", o.socket); err == nil {
			_ = c.Close()
			ready.ok()
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// tryLock returns nil and no error when another process holds the lock.
func tryLock(name string) (*lock, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, name) {
			return &lock{f, name}, nil
		}
		_ = f.Close()
		switch {
		case err == nil: // removed by who held it before: once more
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, nil
		default:
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// sameFile reports whether the name still leads to the open file.
func sameFile(f *os.File, name string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(name)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// listen makes the socket, in the place of one that a dead daemon left: the lock
// is held, so that nobody listens there.
func (o *options) listen() (*net.UnixListener, error) {
	mode := os.FileMode(0o666)
	if o.user {
		mode = 0o600
	}
	return listenAt(o.socket, mode, nil)
}

// listenControl makes the control socket, which only root and the group of
// approvers can connect to, or the user whose daemon it is.
func (o *options) listenControl(group *uint32) (*net.UnixListener, error) {
	mode := os.FileMode(0o600)
	if group != nil {
		mode = 0o660
	}
	return listenAt(api.ControlSocket(o.socket), mode, group)
}

func listenAt(socket string, mode os.FileMode, group *uint32) (*net.UnixListener, error) {
	if info, err := os.Lstat(socket); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s: exists and is no socket", socket)
		}
		if err := os.Remove(socket); err != nil {
			return nil, err
		}
	}
	// Nobody may connect before the mode is right. Nothing else runs yet that
	// the umask could matter to.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: socket})
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if group != nil {
		err = os.Chown(socket, -1, int(*group))
	}
	if err == nil {
		err = os.Chmod(socket, mode)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// approverGroup is whose members may approve in the daemon of a machine.
const approverGroup = "pinfold"

// approvers returns the group of approvers; nil when nobody has named one and
// the usual one does not exist.
func (o *options) approvers() (*uint32, error) {
	if o.user {
		return nil, nil
	}
	id, err := groupID(o.approverGroup)
	if _, none := errors.AsType[user.UnknownGroupError](err); none && o.approverGroup == approverGroup {
		return nil, nil
	}
	return id, err
}

// groupID returns the number of the group.
func groupID(name string) (*uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(g.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", name, err)
	}
	id := uint32(gid)
	return &id, nil
}

// realDirs follows the symlinks of the directories, which must exist.
func realDirs(names []string) (dirs []string, err error) {
	for _, name := range names {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			return nil, fmt.Errorf("projects: %w", err)
		}
		dirs = append(dirs, real)
	}
	return dirs, nil
}

// A readiness is where the daemon says that it serves. The client that started
// it reads one line: "ready", or what went wrong.
type readiness struct{ pipe *os.File }

// openReady takes the descriptor; a negative one means that nobody waits.
func openReady(fd int) *readiness {
	if fd < 0 {
		return &readiness{}
	}
	unix.CloseOnExec(fd)
	return &readiness{os.NewFile(uintptr(fd), "ready")}
}

// onDemand reports whether a client started the daemon.
func (r *readiness) onDemand() bool { return r.pipe != nil }

func (r *readiness) ok()              { r.say("ready") }
func (r *readiness) failed(err error) { r.say(err.Error()) }

// say writes the line, once.
func (r *readiness) say(line string) {
	if r.pipe != nil {
		_, _ = fmt.Fprintln(r.pipe, strings.ReplaceAll(line, "\n", "; ")) // who waited may be gone
		_ = r.pipe.Close()
	}
}
