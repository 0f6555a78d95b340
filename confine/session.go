package confine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// #include "keeper.h"
import "C"

// startDeadline bounds what the keeper may take for a step: its process belongs
// to the caller, who can stop it.
const startDeadline = 10 * time.Second

// ownProgram is this program, whatever lies at its path meanwhile.
const ownProgram = "/proc/self/exe"

// spareDeadline is how long a run waits for an init.
const spareDeadline = 5 * time.Second

// killGrace is how long a tree that was asked to end has before SIGKILL.
const killGrace = 2 * time.Second

// ownProcesses are the keeper, the spare and the init of a command.
const ownProcesses = 3

// A session is a keeper and what the daemon holds of it.
type session struct {
	key     sessionKey // where the manager has it
	m       *Manager
	caller  Caller
	project string
	root    unix.Stat_t // of the project when the session was made
	links   gitLinks
	site    roots
	paths   *pathSet
	survey  *survey
	base    *base
	env     []string
	held    string // what holds the number of processes
	cgroup  *sessionCgroup

	channel *net.UnixConn

	// held for reading while descriptors are used, so that none is closed,
	// and its number given to another file, meanwhile
	open      sync.RWMutex
	pidfd     int   // of the keeper; -1 when it was waited for
	fds       []int // one per place of base, O_PATH; nil at the end
	projectFD int   // one of fds

	ns     [C.NS_COUNT]C.uint64_t // the keeper's namespaces
	mounts []string               // in the project, when the session was made
	ends   projectEnds
	maps   [2][]string // uid and gid map of its user namespace, as the kernel has them
	slots  []byte      // how runs ended, shared with the keeper
	spares chan *spare

	mu     sync.Mutex
	runs   map[*command]bool // those that are under way
	failed error             // why no more runs can be started
	dead   chan struct{}     // closed when the keeper and all beneath it are gone

	active int       // runs; guarded by the manager
	used   time.Time // when the last run started or ended; guarded by the manager
}

// newSession starts a keeper and waits for its root.
func newSession(m *Manager, c Caller, project string, root unix.Stat_t, links gitLinks, site roots, paths *pathSet, name string) (*session, error) {
	cache, err := m.cacheDir(c, cacheName(project, name))
	if err != nil {
		return nil, err
	}
	b, err := newBase(c, project, cache, links, site, m.shell)
	if err != nil {
		return nil, err
	}
	s := &session{m: m, caller: c, project: project, root: root, links: links, site: site, paths: paths, base: b, env: environment(c, b.view),
		held: heldByRlimit, pidfd: -1, projectFD: -1, spares: make(chan *spare, C.RUNS_MAX), dead: make(chan struct{})}
	if s.mounts, err = mountsBeneath(project); err != nil {
		return nil, &Unavailable{Layer: "mount view", Err: err}
	}
	surveyed := make(chan error, 1)
	go func() { // beside the keeper's start, which is mostly waiting
		var err error
		s.survey, err = openSurvey(c, project, Identity{root.Dev, root.Ino}, paths.protected, paths.hidden)
		surveyed <- err
	}()
	err = s.start()
	if err := cmp.Or(err, <-surveyed); err != nil {
		s.abort()
		return nil, err
	}
	s.survey.watch(s.replaced)
	go s.listen()
	return s, nil
}

// mountsBeneath lists what is mounted beneath a directory, as paths relative to it.
func mountsBeneath(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := mountEscapes.Replace(fields[4])
		if name, ok := strings.CutPrefix(at, dir+"/"); ok && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}

// mountEscapes are how mountinfo writes bytes that would end a field (proc(5)).
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// start goes through the steps drawn in keeper.h.
func (s *session) start() error {
	pid, err := s.spawn()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	// the first process ends when the keeper is made, or on an error
	defer func() {
		if err != nil {
			s.channel.Close()
		}
		// it ends by itself; but it runs as the caller, who may have stopped it
		unix.Kill(pid, unix.SIGKILL)
		unix.Wait4(pid, nil, 0, nil)
	}()
	if s.caller.UID == 0 || s.m.cgroups.v2 {
		s.cgroup, err = s.m.cgroups.add(pid, s.m.bounds.Load().Limits.Processes+ownProcesses)
		if err != nil {
			err = &Unavailable{Layer: "process limit", Err: fmt.Errorf("root's processes can only be counted by a pids cgroup: %w", err),
				Fix: "mount the pids cgroup controller, or run as a user that is not root"}
			return err
		}
		if !s.cgroup.v2 {
			s.held = heldByV1
		}
	}
	s.channel.SetDeadline(time.Now().Add(startDeadline))
	if err = s.sendInit(); err != nil {
		return err
	}
	for {
		var e event
		var fds []int
		e, fds, err = s.receive(true)
		if err != nil {
			return err
		}
		switch e.kind {
		case C.MSG_USERNS:
			closeAll(fds)
			err = s.mapIDs(pid)
		case C.MSG_KEEPER:
			if err = s.keepPidfd(fds); err == nil {
				err = s.readMaps(pid)
			}
		case C.MSG_READY:
			s.ns = e.ns
			err = s.keepPlaces(fds)
		case C.MSG_SPARE: // the keeper is at work before the first process has told of it
			err = s.addSpare(e, fds)
		case C.MSG_FAIL:
			closeAll(fds)
			err = s.explain(e.fail)
		default:
			closeAll(fds)
			err = &Unavailable{Layer: "keeper", Err: errProtocol}
		}
		if err != nil {
			return err
		}
		// two processes say these two, in either order
		if s.pidfd >= 0 && s.fds != nil {
			s.channel.SetDeadline(time.Time{})
			err = s.compareProject()
			return err
		}
	}
}

// explain adds to a failed step of the session's plan what it was about.
func (s *session) explain(f failure) error {
	err := f.err()
	var u *Unavailable
	if errors.As(err, &u) && (f.step == C.STEP_SOURCE || f.step == C.STEP_PLAN) && int(f.index) < len(s.base.ops) {
		u.Err = fmt.Errorf("%s: %w", s.base.ops[f.index].a, u.Err)
	}
	return err
}

// spawn starts this binary as the keeper, see keeper.c. It runs on the
// manager's own thread: the keeper dies with its parent thread.
func (s *session) spawn() (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	ours := os.NewFile(uintptr(pair[0]), "keeper")
	theirs := os.NewFile(uintptr(pair[1]), "channel")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return 0, err
	}
	s.channel = conn.(*net.UnixConn)
	var pid int
	s.m.onThread(func() {
		null := s.m.null.Fd()
		errors := null
		if s.m.keeper != ownProgram { // a test's build says there what it found
			errors = 2
		}
		pid, err = syscall.ForkExec(s.m.keeper, []string{"pinfold-keeper"}, &syscall.ProcAttr{
			Dir: "/", Env: []string{}, Files: []uintptr{null, null, errors, theirs.Fd()},
		})
	})
	return pid, err
}

// sendInit sends the session's plan, in a memfd since it holds whole files.
func (s *session) sendInit() error {
	plan, err := sealed("plan", s.encodeInit())
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	defer plan.Close()
	slots, err := s.share()
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	defer slots.Close()
	f := s.m.filters
	return s.send(begin(0), C.MSG_INIT, 0, int(f[filterPinned].Fd()), int(f[filterAny].Fd()), int(f[filterDoor].Fd()), int(plan.Fd()), int(slots.Fd()))
}

// share makes the memory for the slots. Its size is sealed: the caller, who can
// reach the keeper's memory from root outside only, could else make reading it
// a fault.
func (s *session) share() (*os.File, error) {
	fd, err := unix.MemfdCreate("slots", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "slots")
	if err = f.Truncate(slotBytes); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		s.slots, err = unix.Mmap(fd, 0, slotBytes, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *session) encodeInit() []byte {
	var m message
	setting := uint32(C.SETTING_USER)
	if s.m.system {
		setting = C.SETTING_SYSTEM
	}
	m.u32(setting)
	m.u32(s.m.breaks)
	m.u32(s.caller.UID)
	m.u32(s.caller.GID)
	m.u32(uint32(len(s.caller.Groups)))
	m.u32(uint32(len(s.base.ops)))
	m.u32(uint32(len(s.base.places)))
	for _, g := range s.caller.Groups {
		m.u32(g)
	}
	m.str(s.project)
	m.str(s.base.view.Home)
	for _, o := range s.base.ops {
		m.op(o)
	}
	for _, p := range s.base.places {
		m.str(p.path)
	}
	return m
}

// sealed returns a memfd that holds the content and cannot be changed.
func sealed(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(content); err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func seal(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return err
}

func (s *session) send(m message, kind uint32, id uint64, fds ...int) error {
	b, err := m.end(kind, id)
	if err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := s.channel.WriteMsgUnix(b, oob, nil); err != nil {
		return &Unavailable{Layer: "keeper", Err: err}
	}
	return nil
}

// receive reads one message, with descriptors where they are expected.
func (s *session) receive(withFDs bool) (event, []int, error) {
	var buf [256]byte
	var oob []byte
	if withFDs {
		oob = make([]byte, unix.CmsgSpace(4*C.FDS_MAX))
	}
	n, oobn, _, _, err := s.channel.ReadMsgUnix(buf[:], oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return event{}, nil, &Unavailable{Layer: "keeper", Err: err}
	}
	fds, err := parseRights(oob[:oobn])
	e, parseErr := parseEvent(buf[:n])
	if err = errors.Join(err, parseErr); err != nil {
		closeAll(fds)
		return event{}, nil, &Unavailable{Layer: "keeper", Err: err}
	}
	return e, fds, nil
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// mapIDs maps the caller's uid, gid and groups, each to itself: only root of
// the parent namespace may map more than one (user_namespaces(7)).
func (s *session) mapIDs(pid int) error {
	seen := map[uint32]bool{}
	var gids strings.Builder
	for _, g := range append([]uint32{s.caller.GID}, s.caller.Groups...) {
		if !seen[g] {
			seen[g] = true
			fmt.Fprintf(&gids, "%d %d 1\n", g, g)
		}
	}
	dir := "/proc/" + strconv.Itoa(pid)
	err := os.WriteFile(dir+"/uid_map", fmt.Appendf(nil, "%d %d 1\n", s.caller.UID, s.caller.UID), 0)
	if err == nil {
		err = os.WriteFile(dir+"/gid_map", []byte(gids.String()), 0)
	}
	if err != nil {
		return &Unavailable{Layer: "user namespace", Err: err}
	}
	return s.send(begin(0), C.MSG_MAPPED, 0)
}

func (s *session) keepPidfd(fds []int) error {
	if len(fds) != 1 || s.pidfd >= 0 {
		closeAll(fds)
		return &Unavailable{Layer: "keeper", Err: errProtocol}
	}
	s.pidfd = fds[0]
	return nil
}

// readMaps reads what the kernel maps in the user namespace of a process of the
// session: written once, it stays.
func (s *session) readMaps(pid int) error {
	id := func(n uint32) string { return fmt.Sprintf("%d %d 1", n, n) }
	want := [2][]string{{id(s.caller.UID)}, {id(s.caller.GID)}}
	if s.m.system {
		for _, g := range s.caller.Groups {
			want[1] = append(want[1], id(g))
		}
	}
	for i, name := range []string{"uid_map", "gid_map"} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err != nil {
			return &Unavailable{Layer: "user namespace", Err: err}
		}
		for line := range strings.Lines(string(text)) {
			s.maps[i] = append(s.maps[i], strings.Join(strings.Fields(line), " "))
		}
		slices.Sort(s.maps[i])
		slices.Sort(want[i])
		if !slices.Equal(s.maps[i], slices.Compact(want[i])) {
			return &Unavailable{Layer: "user namespace", Err: fmt.Errorf("%s has %q, not %q", name, s.maps[i], want[i])}
		}
	}
	return nil
}

// keepPlaces takes the places' descriptors.
func (s *session) keepPlaces(fds []int) error {
	if len(fds) != len(s.base.places) || s.fds != nil {
		closeAll(fds)
		return &Unavailable{Layer: "keeper", Err: errProtocol}
	}
	s.fds = fds
	for i, p := range s.base.places {
		if p.kind == placeProject {
			s.projectFD = fds[i]
		}
	}
	return nil
}

// compareProject checks that the project that was mounted is the one that was
// looked at.
func (s *session) compareProject() error {
	var st unix.Stat_t
	if err := unix.Fstat(s.projectFD, &st); err != nil || st.Dev != s.root.Dev || st.Ino != s.root.Ino {
		return &ProjectError{Path: s.project, Err: errors.New("replaced while the sandbox was made; try again")}
	}
	return nil
}

// A spare is an init that waits for its run.
type spare struct {
	slot   uint64
	socket *os.File   // the run goes in, the receipt comes out
	pidfd  *os.File   // readable when the init and all beneath it are gone
	cgroup *runCgroup // nil when there is none
}

// send writes one message with descriptors. The socket holds it at once: it is
// the first.
func (s *spare) send(message []byte, fds []int) error {
	return withFD(s.socket, func(fd int) error {
		return unix.Sendmsg(fd, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	})
}

// receive reads the next message, with its descriptors. What comes out of order
// or form is errProtocol.
func (s *spare) receive() (event, []int, error) {
	raw, err := s.socket.SyscallConn()
	if err != nil {
		return event{}, nil, err
	}
	var buf [256]byte
	oob := make([]byte, unix.CmsgSpace(4*4))
	var n, oobn, flags int
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, inner = unix.Recvmsg(int(fd), buf[:], oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		return inner != unix.EAGAIN && inner != unix.EINTR
	})
	if err = cmp.Or(err, inner); err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return event{}, nil, err
	}
	fds, err := parseRights(oob[:oobn])
	e, parseErr := parseEvent(buf[:n])
	if err != nil || parseErr != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		return event{}, nil, errProtocol
	}
	return e, fds, nil
}

// signal sends a signal to the init. It asks nobody: the keeper may be stopped.
func (s *spare) signal(sig unix.Signal) error {
	return withFD(s.pidfd, func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
}

// withFD runs f on the file's descriptor, which stays non-blocking, unlike after
// File.Fd.
func withFD(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return cmp.Or(err, inner)
}

func (s *spare) close() {
	s.socket.Close()
	s.pidfd.Close()
}

// listen takes the spares in, until the keeper is gone.
func (s *session) listen() {
	err := s.takeSpares()
	s.mu.Lock()
	if s.failed == nil {
		s.failed = err
	}
	s.mu.Unlock()
	s.end()
	s.survey.close()
	close(s.dead)
	s.dropSpares()
}

// dropSpares closes those that nobody has taken.
func (s *session) dropSpares() {
	for {
		select {
		case spare := <-s.spares:
			if spare != nil {
				spare.close()
			}
		default:
			return
		}
	}
}

func (s *session) takeSpares() error {
	for {
		e, fds, err := s.receive(true)
		if err != nil {
			return err
		}
		if err := s.addSpare(e, fds); err != nil {
			return err
		}
	}
}

// addSpare takes in the spare that the keeper tells of.
func (s *session) addSpare(e event, fds []int) error {
	if e.kind != C.MSG_SPARE || len(fds) != 2 || e.id >= C.RUNS_MAX {
		closeAll(fds)
		return &Unavailable{Layer: "keeper", Err: errProtocol}
	}
	for _, fd := range fds {
		unix.SetNonblock(fd, true)
	}
	sp := &spare{e.id, os.NewFile(uintptr(fds[0]), "spare"), os.NewFile(uintptr(fds[1]), "init"), s.cgroup.adopt(e.id, fds[1])}
	select {
	case s.spares <- sp:
		return nil
	default:
		sp.close()
		return &Unavailable{Layer: "keeper", Err: errProtocol}
	}
}

// takeSpare returns an init for one run. There may be none for a while when other
// commands have used the session's processes up.
func (s *session) takeSpare() (*spare, error) {
	late := time.NewTimer(spareDeadline)
	defer late.Stop()
	select {
	case sp := <-s.spares:
		return sp, nil
	case <-s.dead:
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, &Unavailable{Layer: "keeper", Err: s.failed}
	case <-late.C:
		if s.m.retireIfAlone(s) {
			return nil, errRetired
		}
		return nil, &Unavailable{Layer: "keeper", Err: fmt.Errorf("no process to start with: %w", os.ErrDeadlineExceeded),
			Fix: "wait until the other commands of the project have ended"}
	}
}

// end kills the keeper and waits: it is pid 1 of the session, so that the kernel
// ends everything beneath it before it can be waited for.
func (s *session) end() {
	s.kill()
	s.open.Lock()
	if s.pidfd >= 0 {
		for {
			if err := unix.Waitid(unix.P_PIDFD, s.pidfd, nil, unix.WEXITED|unix.WALL, nil); err != unix.EINTR {
				break
			}
		}
		unix.Close(s.pidfd)
		s.pidfd = -1
	}
	closeAll(s.fds)
	s.fds, s.projectFD = nil, -1
	if s.slots != nil {
		unix.Munmap(s.slots)
		s.slots = nil
	}
	s.open.Unlock()
	s.channel.Close()
	s.cgroup.remove()
}

// kill makes the keeper end now.
func (s *session) kill() {
	s.open.RLock()
	defer s.open.RUnlock()
	if s.pidfd >= 0 {
		unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
	}
}

// abort is end for a session that never became ready.
func (s *session) abort() {
	if s.survey != nil {
		s.survey.close()
	}
	if s.channel != nil {
		s.end()
	}
	s.dropSpares()
}

// close ends the session and every run in it.
func (s *session) close() {
	s.mu.Lock()
	if s.failed == nil {
		s.failed = errClosed
	}
	s.mu.Unlock()
	s.kill()
	<-s.dead // listen does the rest
}

var (
	errClosed  = errors.New("the session was closed")
	errRetired = errors.New("the session did not answer and was ended")
)

// usable reports whether runs can still be started.
func (s *session) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed == nil
}

// cacheDir makes the directories of the caches of a caller and project.
func (m *Manager) cacheDir(c Caller, name string) (string, error) {
	top := filepath.Join(m.stateDir, "cache", strconv.Itoa(int(c.UID)))
	dir := filepath.Join(top, name)
	// the parents belong to the daemon, so that nobody can put a link there
	if err := os.MkdirAll(top, 0o711); err != nil {
		return "", &Unavailable{Layer: "mount view", Err: err}
	}
	if err := os.Mkdir(dir, 0o700); err == nil {
		if m.system {
			err = os.Chown(dir, int(c.UID), int(c.GID))
		}
		if err != nil {
			return "", &Unavailable{Layer: "mount view", Err: err}
		}
	} else if !errors.Is(err, os.ErrExist) {
		return "", &Unavailable{Layer: "mount view", Err: err}
	}
	err := c.Do(func() error {
		for _, name := range homeCaches {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", &Unavailable{Layer: "mount view", Err: err}
	}
	return dir, nil
}

func statInode(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Ino, err
}

// procFD is a path that opens what the descriptor is open on.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// under notes that a run is under way, or no more.
func (s *session) under(c *command, way bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[*command]bool{}
	}
	if way {
		s.runs[c] = true
	} else {
		delete(s.runs, c)
	}
}

// replaced tells the runs that are under way of names that somebody replaced.
func (s *session) replaced(rels []string) {
	s.mu.Lock()
	runs := slices.Collect(maps.Keys(s.runs))
	s.mu.Unlock()
	for _, c := range runs {
		c.exposed(rels)
	}
}
