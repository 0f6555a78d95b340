package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/confine"
)

// A peer is who is at the other end of a connection, as the kernel says.
type peer struct {
	uid, gid   uint32
	groups     []uint32
	pid        int
	executable string // information only; "" when it could not be read
}

// identify asks the kernel who connected.
func identify(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var p peer
	var inner error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); inner != nil {
			return
		}
		p.uid, p.gid, p.pid = cred.Uid, cred.Gid, int(cred.Pid)
		p.groups, inner = peerGroups(int(fd))
	})
	if err = errors.Join(err, inner); err != nil {
		return peer{}, err
	}
	if p.uid == ^uint32(0) || p.gid == ^uint32(0) {
		return peer{}, errors.New("the kernel does not say who connected")
	}
	p.executable, _ = os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/exe")
	return p, nil
}

// member reports whether the peer is in the group.
func (p *peer) member(gid uint32) bool { return p.gid == gid || slices.Contains(p.groups, gid) }

// peerGroups returns the supplementary groups of the process that connected.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == unix.ERANGE && int(size) > len(groups)*4 && size <= 4*65536:
			groups = make([]uint32, size/4)
		default:
			return nil, fmt.Errorf("SO_PEERGROUPS: %w", errno)
		}
	}
}

// A listener accepts only connections whose peer is known, and bounds how many
// each user has.
type listener struct {
	*net.UnixListener

	most  int64         // connections of one user
	open  *atomic.Int64 // counts all
	mu    sync.Mutex
	conns map[uint32]int64 // by uid
}

func newListener(l *net.UnixListener, most int64, open *atomic.Int64) *listener {
	return &listener{UnixListener: l, most: most, open: open, conns: map[uint32]int64{}}
}

// Accept returns the next connection that may be served, a *peerConn. Others
// are closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		p, err := identify(c)
		if err == nil && l.enter(p.uid) {
			return &peerConn{UnixConn: c, peer: p, leave: sync.OnceFunc(func() { l.exit(p.uid) })}, nil
		}
		_ = c.Close()
	}
}

func (l *listener) enter(uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[uid] >= l.most {
		return false
	}
	l.conns[uid]++
	l.open.Add(1)
	return true
}

func (l *listener) exit(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Add(-1)
	if l.conns[uid]--; l.conns[uid] == 0 {
		delete(l.conns, uid)
	}
}

// A peerConn is a connection whose peer is known.
type peerConn struct {
	*net.UnixConn
	peer  peer
	leave func()
}

// Close closes the connection and makes room for another of its user.
func (c *peerConn) Close() error {
	c.leave()
	return c.UnixConn.Close()
}

type peerKey struct{}

// withPeer is the ConnContext of the HTTP server.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if pc, ok := c.(*peerConn); ok {
		return context.WithValue(ctx, peerKey{}, &pc.peer)
	}
	return ctx
}

// users remembers for a while what the system's user database says.
type users struct {
	mu    sync.Mutex
	known map[uint32]account
}

type account struct {
	name, home string
	until      time.Time
}

// accountLife is how long an answer of the user database is believed.
const accountLife = time.Minute

// caller returns the user that commands of the peer run as. A uid that the user
// database does not know has its number as its name and no home.
func (u *users) caller(p *peer) confine.Caller {
	now := time.Now()
	u.mu.Lock()
	a, ok := u.known[p.uid]
	u.mu.Unlock()
	if !ok || now.After(a.until) {
		a = account{name: strconv.FormatUint(uint64(p.uid), 10), home: "/nonexistent", until: now.Add(accountLife)}
		if entry, err := user.LookupId(a.name); err == nil {
			a.name = entry.Username
			if entry.HomeDir != "" {
				a.home = entry.HomeDir
			}
		}
		u.mu.Lock()
		if len(u.known) >= 1024 {
			clear(u.known)
		}
		u.known[p.uid] = a
		u.mu.Unlock()
	}
	return confine.Caller{UID: p.uid, GID: p.gid, Groups: p.groups, Name: a.name, Home: a.home}
}
