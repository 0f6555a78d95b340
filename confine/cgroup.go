package confine

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Where a cgroup v2 hierarchy was delegated to the daemon, each session is a
// cgroup in it, with one beneath for its keeper and one for each of its runs, in
// which the kernel bounds memory and processes. Where there is none, memory is
// sampled (watch.go), and processes are bounded by RLIMIT_NPROC. That does not
// bind a process whose uid is really 0 (kernel/fork.c), so that the commands of
// root need v2, or a pids cgroup of v1, one per session.
//
// The cgroups of a daemon that was killed are removed by the next one.

// What can hold a limit.
const (
	heldByV1       = "pids-cgroup-v1"
	heldByV2       = "cgroup-v2"
	heldByRlimit   = "rlimit"
	heldBySampling = "sampled"
)

// cgroups is where the cgroups of sessions are made.
type cgroups struct {
	dir          string // "" when there is none
	v2           bool
	memory, pids bool  // controllers that are there; v1 is used for pids only
	why          error // why there is none
}

const cgroupPrefix = "pinfold-"

// cgroupName is a new name, which tells whose the cgroup is.
func cgroupName() string {
	return fmt.Sprintf("%s%d-%s", cgroupPrefix, os.Getpid(), rand.Text())
}

// findCgroups finds a hierarchy in which this process may make cgroups: v2 where
// the daemon's own cgroup was delegated with memory or pids, else v1 with pids.
func findCgroups() cgroups {
	own, err := ownCgroups()
	if err != nil {
		return cgroups{why: err}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups{why: err}
	}
	best := cgroups{why: errors.New("no pids cgroup controller is mounted")}
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseCgroupMount(line)
		if !ok || best.v2 || best.dir != "" && !m.v2 {
			continue
		}
		var r cgroups
		if m.v2 {
			r, err = cgroupsV2(filepath.Join(m.dir, own[""]))
		} else {
			r, err = cgroupsV1(filepath.Join(m.dir, own["pids"]))
		}
		switch {
		case err == nil:
			best = r
		case best.dir == "":
			best.why = err
		}
	}
	best.sweep()
	return best
}

// ownCgroups maps a v1 controller, or "" for v2, to this process's cgroup.
func ownCgroups() (map[string]string, error) {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	own := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		parts := strings.SplitN(sc.Text(), ":", 3) // "8:pids:/", "0::/"
		if len(parts) == 3 {
			for _, controller := range strings.Split(parts[1], ",") {
				own[controller] = parts[2]
			}
		}
	}
	return own, nil
}

type cgroupMount struct {
	dir      string
	v2, pids bool
}

// parseCgroupMount reads a line of mountinfo (proc_pid_mountinfo(5)).
func parseCgroupMount(line string) (cgroupMount, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	fields, types := strings.Fields(head), strings.Fields(tail)
	if !ok || len(fields) < 5 || len(types) < 3 {
		return cgroupMount{}, false
	}
	m := cgroupMount{dir: fields[4], v2: types[0] == "cgroup2"}
	if types[0] == "cgroup" {
		for _, option := range strings.Split(types[2], ",") {
			m.pids = m.pids || option == "pids"
		}
	}
	return m, m.v2 || m.pids
}

func cgroupsV1(dir string) (cgroups, error) {
	probe := filepath.Join(dir, cgroupName())
	if err := os.Mkdir(probe, 0o755); err != nil {
		return cgroups{}, err
	}
	return cgroups{dir: dir, pids: true}, os.Remove(probe)
}

// cgroupsV2 hands the controllers on to the cgroups beneath. For that the daemon
// moves into a leaf of its own, since a cgroup with processes of its own cannot
// (cgroups(7), "no internal processes").
func cgroupsV2(dir string) (cgroups, error) {
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return cgroups{}, err
	}
	r := cgroups{dir: dir, v2: true}
	for _, name := range strings.Fields(string(list)) {
		r.memory = r.memory || name == "memory"
		r.pids = r.pids || name == "pids"
	}
	if !r.memory && !r.pids {
		return cgroups{}, fmt.Errorf("cgroup v2 %s has neither memory nor pids controller", dir)
	}
	if r.hand(dir) == nil {
		return r, nil
	}
	leaf := filepath.Join(dir, "daemon")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return cgroups{}, err
	}
	if err := writeCgroup(leaf, "cgroup.procs", "0"); err != nil {
		return cgroups{}, err
	}
	return r, r.hand(dir)
}

// hand makes the controllers available beneath a cgroup.
func (r cgroups) hand(dir string) error {
	var list []string
	if r.memory {
		list = append(list, "+memory")
	}
	if r.pids {
		list = append(list, "+pids")
	}
	return writeCgroup(dir, "cgroup.subtree_control", strings.Join(list, " "))
}

func writeCgroup(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
}

// sweep removes the cgroups of daemons that are no more.
func (r cgroups) sweep() {
	if r.dir == "" {
		return
	}
	left, _ := filepath.Glob(filepath.Join(r.dir, cgroupPrefix+"*"))
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
		if _, err := os.Stat(filepath.Join("/proc", pid)); errors.Is(err, os.ErrNotExist) {
			removeCgroup(dir)
		}
	}
}

// removeCgroup removes a cgroup and those beneath it.
func removeCgroup(dir string) error {
	below, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
	for _, file := range below {
		os.Remove(filepath.Dir(file))
	}
	return os.Remove(dir)
}

// A sessionCgroup holds the processes of one session.
type sessionCgroup struct {
	cgroups
	dir string
}

// add makes a cgroup for a session and moves its first process into it. most is
// how many tasks it may have, where the cgroup is all that bounds them.
func (r cgroups) add(pid, most int) (*sessionCgroup, error) {
	if r.dir == "" {
		return nil, r.why
	}
	g := &sessionCgroup{r, filepath.Join(r.dir, cgroupName())}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	dir := g.dir
	var err error
	if r.v2 {
		dir = filepath.Join(g.dir, "keeper")
		if err = r.hand(g.dir); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	} else {
		err = writeCgroup(dir, "pids.max", strconv.Itoa(most))
	}
	if err == nil {
		err = writeCgroup(dir, "cgroup.procs", strconv.Itoa(pid))
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// remove deletes the cgroup. The kernel may take a moment to let go of the last
// process.
func (g *sessionCgroup) remove() {
	if g == nil {
		return
	}
	if g.v2 {
		writeCgroup(g.dir, "cgroup.kill", "1")
	}
	for range 50 {
		if err := removeCgroup(g.dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A runCgroup holds the processes of one run after another, which have the same
// slot.
type runCgroup struct {
	cgroups
	dir   string
	kills int64 // by the kernel, for want of memory, up to now
}

// adopt moves an init into the cgroup of its slot, ahead of its run. It returns
// nil when there is none, or the init is gone.
func (g *sessionCgroup) adopt(slot uint64, pidfd int) *runCgroup {
	if g == nil || !g.v2 {
		return nil
	}
	r := &runCgroup{cgroups: g.cgroups, dir: filepath.Join(g.dir, "run-"+strconv.FormatUint(slot, 10))}
	if err := os.Mkdir(r.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil
	}
	pid := pidOf(pidfd)
	if pid <= 0 || writeCgroup(r.dir, "cgroup.procs", strconv.Itoa(pid)) != nil {
		return nil
	}
	// the number was the init's all the while if it still is
	if pidOf(pidfd) != pid {
		return nil
	}
	r.kills = r.oomKills()
	return r
}

// pidOf is the process of a pidfd, -1 when it is gone.
func pidOf(pidfd int) int {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return -1
	}
	return int(field(append([]byte("\n"), info...), "\nPid:"))
}

// limit bounds the run that is about to start: all of it is killed when it uses
// more memory. It reports what is held so.
func (r *runCgroup) limit(l Limits) (memory, pids bool) {
	if r == nil {
		return false, false
	}
	memory, pids = r.memory, r.pids
	if memory {
		memory = writeCgroup(r.dir, "memory.max", strconv.FormatInt(l.MemoryBytes, 10)) == nil &&
			writeCgroup(r.dir, "memory.oom.group", "1") == nil
		writeCgroup(r.dir, "memory.swap.max", "0") // not there without swap
	}
	if pids {
		// its init counts too
		pids = writeCgroup(r.dir, "pids.max", strconv.Itoa(l.Processes+1)) == nil
	}
	return memory, pids
}

// ranOut reports whether the kernel has ended the run for want of memory.
func (r *runCgroup) ranOut() bool { return r != nil && r.memory && r.oomKills() > r.kills }

func (r *runCgroup) oomKills() int64 {
	events, _ := os.ReadFile(filepath.Join(r.dir, "memory.events"))
	return field(append([]byte("\n"), events...), "\noom_kill ")
}
