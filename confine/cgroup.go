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

// RLIMIT_NPROC does not bind a process whose uid is really 0 (kernel/fork.c),
// so that the commands of root are counted by a pids cgroup, one per session.
// The cgroups of a daemon that was killed are removed by the next one.

// pidsRoot is where session cgroups are made.
type pidsRoot struct {
	dir  string // "" when there is none
	held string // "pids-cgroup-v1" or "pids-cgroup-v2"
	why  error  // why there is none
}

const cgroupPrefix = "pinfold-"

// cgroupName is a new name, which tells whose the cgroup is.
func cgroupName() string {
	return fmt.Sprintf("%s%d-%s", cgroupPrefix, os.Getpid(), rand.Text())
}

// findPidsRoot finds a hierarchy with the pids controller in which this process
// may make cgroups: v1, or v2 where the daemon's own cgroup was delegated.
func findPidsRoot() pidsRoot {
	own, err := ownCgroups()
	if err != nil {
		return pidsRoot{why: err}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return pidsRoot{why: err}
	}
	var why = errors.New("no pids cgroup controller is mounted")
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseCgroupMount(line)
		if !ok {
			continue
		}
		var r pidsRoot
		switch {
		case m.v2:
			r, err = pidsV2(filepath.Join(m.dir, own[""]))
		case m.pids:
			r, err = pidsV1(filepath.Join(m.dir, own["pids"]))
		default:
			continue
		}
		if err == nil {
			r.sweep()
			return r
		}
		why = err
	}
	return pidsRoot{why: why}
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

func pidsV1(dir string) (pidsRoot, error) {
	probe := filepath.Join(dir, cgroupName())
	if err := os.Mkdir(probe, 0o755); err != nil {
		return pidsRoot{}, err
	}
	return pidsRoot{dir: dir, held: "pids-cgroup-v1"}, os.Remove(probe)
}

// pidsV2 moves the daemon into a leaf of its own, since a cgroup with processes
// of its own cannot hand controllers on (cgroups(7), "no internal processes").
func pidsV2(dir string) (pidsRoot, error) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return pidsRoot{}, err
	}
	if !strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " pids ") {
		return pidsRoot{}, fmt.Errorf("cgroup v2 %s has no pids controller", dir)
	}
	enable := func() error {
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids"), 0)
	}
	if enable() != nil {
		leaf := filepath.Join(dir, "daemon")
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return pidsRoot{}, err
		}
		if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
			return pidsRoot{}, err
		}
		if err := enable(); err != nil {
			return pidsRoot{}, err
		}
	}
	return pidsRoot{dir: dir, held: "pids-cgroup-v2"}, nil
}

// sweep removes the cgroups of daemons that are no more.
func (r pidsRoot) sweep() {
	left, _ := filepath.Glob(filepath.Join(r.dir, cgroupPrefix+"*"))
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
		if _, err := os.Stat(filepath.Join("/proc", pid)); errors.Is(err, os.ErrNotExist) {
			os.Remove(dir)
		}
	}
}

// A pidsCgroup holds the processes of one session.
type pidsCgroup struct{ dir string }

// add makes a cgroup for at most max tasks and moves the process into it.
func (r pidsRoot) add(pid, max int) (*pidsCgroup, error) {
	if r.dir == "" {
		return nil, r.why
	}
	g := &pidsCgroup{filepath.Join(r.dir, cgroupName())}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	err := os.WriteFile(filepath.Join(g.dir, "pids.max"), []byte(strconv.Itoa(max)), 0)
	if err == nil {
		err = os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// remove deletes the cgroup. The kernel may take a moment to let go of the last
// process.
func (g *pidsCgroup) remove() {
	if g == nil {
		return
	}
	for range 50 {
		if err := os.Remove(g.dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
