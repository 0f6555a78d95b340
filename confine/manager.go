package confine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/confine/door"
	"github.com/pinfold/pinfold/policy"
)

// #include "keeper.h"
import "C"

// Config of a Manager.
type Config struct {
	// StateDir is absolute. Caches live in StateDir/cache, one directory per
	// caller and project; the callers must be able to pass through StateDir
	// (mode 0711).
	StateDir    string
	Idle        time.Duration // a session without a run for so long is ended; 0 means 10 minutes
	Bounds      Bounds        // until SetBounds
	MaxSessions int           // sessions of one caller at once; 0 means 8
}

// DefaultLimits bound a command where the configuration says nothing else.
var DefaultLimits = Limits{Processes: 512, MemoryBytes: 4 << 30, FileBytes: 2 << 30, OpenFiles: 4096, DiskBytes: 16 << 30, Files: 150_000}

// DefaultReserve is what stays free where the configuration says nothing else.
var DefaultReserve = Reserve{Percent: 5, Bytes: 1 << 30}

// Bounds are the limits of every command, and what goes with them.
type Bounds struct {
	Limits  Limits  // zero fields mean DefaultLimits
	Reserve Reserve // the zero value means DefaultReserve
	// RequireCgroup makes every run fail where no cgroup v2 bounds its memory and
	// its processes.
	RequireCgroup bool
	// RefuseMounts makes every run fail in a project that file systems are
	// mounted in; else they come along, read-only, and the receipt lists them.
	RefuseMounts bool
}

// DefaultOutputLimit is the most that one command may write to stdout and
// stderr together.
const DefaultOutputLimit = 64 << 20

// NoOutputLimit is for output that is not kept.
const NoOutputLimit = 1 << 62

// ErrBusy is returned when the caller has as many sessions as it may, each with
// a command running.
var ErrBusy = errors.New("too many sessions: each has a command running")

// A ProjectError says that the project cannot be used as it is now.
type ProjectError struct {
	Path string
	Err  error
}

func (e *ProjectError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *ProjectError) Unwrap() error { return e.Err }

// A Manager runs commands and keeps their sessions warm. Its methods may be
// called from several goroutines.
type Manager struct {
	stateDir    string
	idle        time.Duration
	maxSessions int
	system      bool // root's daemon
	bounds      atomic.Pointer[Bounds]

	abi     int
	shell   shell
	filters filters
	cgroups cgroups
	own     [C.NS_COUNT]uint64 // the daemon's namespaces
	null    *os.File
	thread  chan func()

	internet door.Config // how doors resolve and dial, in tests; zero is the machine's

	tamper func(*plan) // tests break a layer here
	keeper string      // the program that becomes the keeper: this one, but for tests
	breaks uint32      // or there: BREAK_* of keeper.h, which only a test's build knows

	mu       sync.Mutex
	sessions map[sessionKey]*session
	making   map[sessionKey]chan struct{}
	site     roots
	paths    *pathSet
	closed   bool
	sweeper  *time.Ticker
	stop     chan struct{}
}

// A sessionKey tells sessions apart. The name is "" for the one that a caller's
// requests in a project share when they name none.
type sessionKey struct {
	uid     uint32
	project string
	name    string
}

// New finds what this machine has and compiles the seccomp filters, about 10 ms
// of work. It fails with an Unavailable error when a layer cannot exist here;
// whether all of them hold is seen by each run.
func New(cfg Config) (*Manager, error) {
	m := &Manager{
		stateDir: cfg.StateDir, idle: cfg.Idle, maxSessions: cfg.MaxSessions,
		system: os.Geteuid() == 0, keeper: ownProgram,
		sessions: map[sessionKey]*session{}, making: map[sessionKey]chan struct{}{},
		thread: make(chan func()), stop: make(chan struct{}), paths: &pathSet{},
	}
	if m.idle == 0 {
		m.idle = 10 * time.Minute
	}
	if m.maxSessions == 0 {
		m.maxSessions = 8
	}
	m.SetBounds(cfg.Bounds)
	var err error
	// what is bound from it must have no links on its way
	if m.stateDir, err = filepath.EvalSymlinks(cfg.StateDir); err != nil {
		return nil, err
	}
	if m.abi, err = landlockABI(); err != nil {
		return nil, err
	}
	if m.shell, err = findShell(); err != nil {
		return nil, err
	}
	if m.own, err = ownNamespaces(); err != nil {
		return nil, err
	}
	if m.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, &Unavailable{Layer: "keeper", Err: err}
	}
	if m.filters, err = newFilters(); err != nil {
		m.null.Close()
		return nil, err
	}
	m.forgetAll()
	m.cgroups = findCgroups()
	m.sweeper = time.NewTicker(max(m.idle/4, time.Millisecond))
	go m.serveThread()
	go m.sweep()
	return m, nil
}

// serveThread is the thread that starts keepers: they die with it
// (PR_SET_PDEATHSIG names the parent thread), so that it lives as long as the
// daemon.
func (m *Manager) serveThread() {
	runtime.LockOSThread()
	for {
		select {
		case f := <-m.thread:
			f()
		case <-m.stop:
			return // every keeper is gone by then
		}
	}
}

func (m *Manager) onThread(f func()) {
	done := make(chan struct{})
	m.thread <- func() { f(); close(done) }
	<-done
}

// Setting says which promises hold: "system" for root's daemon, "user" for one
// user's own.
func (m *Manager) Setting() string {
	if m.system {
		return "system"
	}
	return "user"
}

// LandlockABI returns the version of Landlock that this kernel has.
func (m *Manager) LandlockABI() int { return m.abi }

// Sessions returns how many sessions there are.
func (m *Manager) Sessions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// View returns what commands of the caller see besides the project.
func (m *Manager) View(c Caller, project string) (View, error) {
	m.mu.Lock()
	s := m.sessions[sessionKey{c.UID, project, ""}]
	site := m.site
	m.mu.Unlock()
	if s != nil && s.site.equal(site) {
		return s.base.view, nil
	}
	v, _, err := viewOf(c, project, site)
	return v, err
}

// SetRoots names directories of the host, absolute, that every command sees
// besides: readable ones, and writable ones that it may write too. One that does
// not exist, that lies in the project or where the new root has something of its
// own, or a writable one above the project or the home, is left out; View tells
// which are there, and those that are left out whoever calls are returned.
// Sessions with other roots are renewed at their next command.
func (m *Manager) SetRoots(readable, writable []string) []LeftOut {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.site = roots{slices.Clone(readable), slices.Clone(writable)}
	_, left := m.site.existing("", "")
	return left
}

// A pathSet is the names in a project that concern what commands see.
type pathSet struct{ protected, hidden policy.Paths }

// SetPaths says which names in a project, besides those of git, are read-only
// even where a grant writes, and which are read as empty. Sessions with others
// are renewed at their next command.
func (m *Manager) SetPaths(protected, hidden policy.Paths) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paths = &pathSet{protected, hidden}
}

// SetBounds sets the limits of the runs that start from now on. No run gets more
// than three quarters of the machine's memory.
func (m *Manager) SetBounds(b Bounds) {
	b.Limits = b.Limits.or(DefaultLimits).within(Limits{MemoryBytes: machineMemory() / 4 * 3})
	if b.Reserve == (Reserve{}) {
		b.Reserve = DefaultReserve
	}
	m.bounds.Store(&b)
}

// Close ends every run and every session. No run can be started afterwards.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	for len(m.making) > 0 {
		for _, c := range m.making {
			m.mu.Unlock()
			<-c
			m.mu.Lock()
			break
		}
	}
	sessions := m.sessions
	m.sessions = map[sessionKey]*session{}
	m.mu.Unlock()
	for _, s := range sessions {
		s.close()
	}
	m.sweeper.Stop()
	close(m.stop)
	m.filters.close()
	m.null.Close()
	return nil
}

// sweep ends sessions that are idle.
func (m *Manager) sweep() {
	for {
		select {
		case <-m.stop:
			return
		case now := <-m.sweeper.C:
			m.mu.Lock()
			for k, s := range m.sessions {
				if s.active == 0 && (now.Sub(s.used) >= m.idle && k.name == "" || !s.usable()) {
					delete(m.sessions, k)
					go s.close()
				}
			}
			m.mu.Unlock()
		}
	}
}

// acquire returns a session with its run counted. A session whose project was
// replaced on the host, or whose keeper is gone, is renewed.
func (m *Manager) acquire(r *Request) (*session, error) {
	c, project, judged := r.Caller, r.Project, r.Root
	key := sessionKey{c.UID, project, r.Session}
	root, links, err := lookAt(c, project)
	if err == nil && judged != (Identity{}) && judged != (Identity{root.Dev, root.Ino}) {
		err = errors.New("replaced since it was judged; try again")
	}
	if err != nil {
		return nil, &ProjectError{Path: project, Err: err}
	}
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return nil, &Unavailable{Layer: "keeper", Err: errClosed}
		}
		if s := m.sessions[key]; s != nil {
			if s.usable() && s.root.Dev == root.Dev && s.root.Ino == root.Ino && s.caller.same(c) && s.site.equal(m.site) && s.paths == m.paths && s.links.equal(links) {
				s.active++
				s.used = time.Now()
				m.mu.Unlock()
				return s, nil
			}
			delete(m.sessions, key)
			if s.active == 0 {
				go s.close()
			}
		}
		if c, ok := m.making[key]; ok {
			m.mu.Unlock()
			<-c
			continue
		}
		if key.name == "" { // whoever names sessions bounds them
			if err := m.makeRoom(c.UID); err != nil {
				m.mu.Unlock()
				return nil, err
			}
		}
		making := make(chan struct{})
		m.making[key] = making
		site, paths := m.site, m.paths
		m.mu.Unlock()

		s, err := newSession(m, c, project, root, links, site, paths, key.name)
		m.mu.Lock()
		delete(m.making, key)
		close(making)
		if err == nil {
			s.key, s.active, s.used = key, 1, time.Now()
			m.sessions[key] = s
		}
		m.mu.Unlock()
		return s, err
	}
}

// lookAt finds the directory as the caller. No part of the path may be a link:
// they were followed before, and one that is there now was put there meanwhile.
func lookAt(c Caller, project string) (root unix.Stat_t, links gitLinks, err error) {
	err = c.Do(func() error {
		fd, err := unix.Openat2(unix.AT_FDCWD, project, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		links = gitLinksOf(project)
		return unix.Fstat(fd, &root)
	})
	return root, links, err
}

// same reports whether a session of c still fits: groups may have changed.
func (c Caller) same(o Caller) bool {
	if c.UID != o.UID || c.GID != o.GID || c.Home != o.Home || len(c.Groups) != len(o.Groups) {
		return false
	}
	for i := range c.Groups {
		if c.Groups[i] != o.Groups[i] {
			return false
		}
	}
	return true
}

// makeRoom ends the caller's least recently used idle session when it has as
// many as it may.
func (m *Manager) makeRoom(uid uint32) error {
	count := 0
	var oldest *session
	var oldestKey sessionKey
	for k, s := range m.sessions {
		if k.uid != uid || k.name != "" {
			continue
		}
		count++
		if s.active == 0 && (oldest == nil || s.used.Before(oldest.used)) {
			oldest, oldestKey = s, k
		}
	}
	for k := range m.making {
		if k.uid == uid && k.name == "" {
			count++
		}
	}
	if count < m.maxSessions {
		return nil
	}
	if oldest == nil {
		return ErrBusy
	}
	delete(m.sessions, oldestKey)
	go oldest.close()
	return nil
}

// release ends a run's use of the session.
func (m *Manager) release(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.active--
	s.used = time.Now()
	if s.active == 0 && m.sessions[s.key] != s {
		go s.close() // renewed or closed meanwhile
	}
}

// End ends the caller's session with the name: at once, or with its last command.
func (m *Manager) End(uid uint32, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, s := range m.sessions {
		if k.uid != uid || k.name != name || name == "" {
			continue
		}
		delete(m.sessions, k)
		if s.active == 0 {
			go s.close()
		}
	}
}

// retireIfAlone ends a session that does not answer, as when somebody has stopped
// its keeper, unless other commands run in it. It reports whether it did.
func (m *Manager) retireIfAlone(s *session) bool {
	m.mu.Lock()
	alone := s.active <= 1
	m.mu.Unlock()
	if alone {
		s.kill()
		<-s.dead
	}
	return alone
}

// freshPrefix begins the names of sessions for one command, and of their caches.
const freshPrefix = "fresh-"

// cacheName is the name of the cache directory of a session in a project: they
// share one, but for those of one command.
func cacheName(project, session string) string {
	if strings.HasPrefix(session, freshPrefix) {
		return session
	}
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:12])
}

// forget ends a session for one command and removes its caches.
func (m *Manager) forget(c Caller, project, name string) {
	m.mu.Lock()
	key := sessionKey{c.UID, project, name}
	s := m.sessions[key]
	delete(m.sessions, key)
	m.mu.Unlock()
	if s != nil {
		s.close()
	}
	m.removeCache(c, filepath.Join(m.stateDir, "cache", strconv.Itoa(int(c.UID)), name))
}

// forgetAll removes the caches that a daemon which was killed has left.
func (m *Manager) forgetAll() {
	left, _ := filepath.Glob(filepath.Join(m.stateDir, "cache", "*", freshPrefix+"*"))
	for _, dir := range left {
		var st unix.Stat_t
		if uid, err := strconv.ParseUint(filepath.Base(filepath.Dir(dir)), 10, 32); err == nil && unix.Lstat(dir, &st) == nil {
			m.removeCache(Caller{UID: uint32(uid), GID: st.Gid}, dir)
		}
	}
}

// removeCache removes the directory, and as its owner all beneath it: what
// commands have left there is nothing for the daemon's own rights, and root
// without the capabilities over files has none of its own.
func (m *Manager) removeCache(c Caller, dir string) {
	err := c.Do(func() error { return removeBeneath(dir) })
	if err = cmp.Or(err, os.Remove(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Printf("pinfold: the caches of a run are left: %v", err)
	}
}

// removeBeneath empties a directory, also where its owner has made parts of it
// unwritable.
func removeBeneath(dir string) error {
	empty := func() (err error) {
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			err = cmp.Or(os.RemoveAll(filepath.Join(dir, e.Name())), err)
		}
		return err
	}
	if empty() == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return empty()
}

// Layers says which layers this machine has, by running `true` confined for the
// caller in the project under each kind of grant.
func (m *Manager) Layers(ctx context.Context, c Caller, project string) []Layer {
	layers := []Layer{
		{Name: "landlock", OK: true, Detail: "ABI " + strconv.Itoa(m.abi)},
		{Name: "shell", OK: true, Detail: m.shell.path},
		m.processLayer(c),
		m.memoryLayer(),
	}
	held := map[string]bool{}
	for _, g := range []policy.Grant{{}, {ExecAny: true, Write: []string{"."}}} {
		out, err := m.Run(ctx, Request{Caller: c, Project: project, Dir: ".", Text: "true", Grant: g, Timeout: 10 * time.Second})
		var u *Unavailable
		switch {
		case errors.As(err, &u):
			return append(layers, Layer{Name: u.Layer, Detail: u.Err.Error(), Fix: u.Fix})
		case err == nil && (out.ExitCode != 0 || out.Ended != EndedItself):
			err = fmt.Errorf("the command true ended with status %d %s", out.ExitCode, out.Ended)
			fallthrough
		case err != nil:
			return append(layers, Layer{Name: "keeper", Detail: err.Error()})
		}
		for _, name := range out.Receipt.Layers {
			held[name] = true
		}
	}
	return append(layers, probedLayers(held, m.abi)...)
}

func (m *Manager) processLayer(c Caller) Layer {
	l := Layer{Name: "process limit", OK: true, Detail: "rlimit, per session"}
	if c.UID == 0 {
		l.Detail = heldByV1 + ", per session"
		if m.cgroups.dir == "" {
			l.OK, l.Detail = false, m.cgroups.why.Error()
			l.Fix = "mount the pids cgroup controller, or run as a user that is not root"
		}
	}
	if m.cgroups.v2 && m.cgroups.pids {
		l.Detail = heldByV2
	}
	return l
}

func (m *Manager) memoryLayer() Layer {
	if m.cgroups.memory {
		return Layer{Name: "memory limit", OK: true, Detail: heldByV2}
	}
	return Layer{Name: "memory limit", OK: !m.bounds.Load().RequireCgroup, Detail: heldBySampling + ": no cgroup v2 with the memory controller was delegated",
		Fix: fixes["memory limit"]}
}
