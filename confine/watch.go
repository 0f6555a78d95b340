package confine

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Where no cgroup bounds a command, it is sampled: often enough that what it can
// use up between two looks is little, and never for more than about a twentieth
// of a processor. Short commands end before the first look.
const (
	firstLook = 80 * time.Millisecond
	lookEvery = 50 * time.Millisecond
	restAfter = 20 // times as long as the look took
)

// diskSlack is what a file system may lose while a command runs without its being
// taken for the command's doing.
const diskSlack = 16 << 20

// A watch samples one command.
type watch struct {
	c    *command
	gone <-chan struct{}
	proc *os.File // its own /proc

	memory bool   // no cgroup counts it
	disks  []disk // what it may write
	shared []int  // descriptors on memory file systems that it may write
	before int64  // bytes in those when it began
	shm    bool   // /dev/shm is among them
	over   int    // looks in a row that found too much memory
}

// A disk is a file system as it was when the watch began.
type disk struct {
	fd     int
	before unix.Statfs_t
}

// watch starts looking in a while. The timer is to be stopped at the command's
// end; a watch that has begun ends by itself, since a file system that hangs is
// not to be waited for.
func (c *command) watch(gone <-chan struct{}) *time.Timer {
	wait := firstLook
	if c.r.Limits != (Limits{}) {
		wait /= 8 // tighter than usual
	}
	return time.AfterFunc(wait, func() {
		w := &watch{c: c, gone: gone, proc: c.takeProc(), memory: c.limits.MemoryHeld == heldBySampling}
		if w.proc == nil {
			return
		}
		defer w.close()
		w.open()
		w.run()
	})
}

// takeProc returns the command's /proc, nil when it has not come or was taken.
func (c *command) takeProc() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.proc
	c.proc = nil
	return f
}

// open takes descriptors of its own of what is looked at.
func (w *watch) open() {
	s := w.c.s
	s.open.RLock()
	defer s.open.RUnlock()
	if s.fds == nil {
		return
	}
	g := w.c.r.Grant
	for i, p := range s.base.places {
		disk := p.kind == placeProject && len(g.Write) > 0 || p.kind == placeShared || p.kind == placeCache && g.ExecAny && !g.ReadOnly()
		if !disk && p.kind != placeScratch {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(s.fds[i]), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			continue
		}
		if disk {
			w.addDisk(fd)
		} else {
			w.shared = append(w.shared, fd)
		}
	}
	w.before = w.sharedBytes()
}

// addDisk takes a descriptor of a file system that the command writes, once for
// each.
func (w *watch) addDisk(fd int) {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	for _, d := range w.disks {
		if d.before.Fsid == st.Fsid && d.before.Type == st.Type {
			err = unix.EEXIST
		}
	}
	if err != nil {
		unix.Close(fd)
		return
	}
	w.disks = append(w.disks, disk{fd, st})
}

func (w *watch) close() {
	w.proc.Close()
	closeAll(w.shared)
	for _, d := range w.disks {
		unix.Close(d.fd)
	}
}

// run looks until the command is gone or has too much of something.
func (w *watch) run() {
	for {
		begin := time.Now()
		if why := w.look(); why != EndedItself {
			w.c.end(why)
			return
		}
		pause := max(lookEvery, restAfter*time.Since(begin))
		if w.over > 0 {
			pause = lookEvery / 2
		}
		select {
		case <-w.gone:
			return
		case <-time.After(pause):
		}
	}
}

// look says what the command has too much of.
func (w *watch) look() Ended {
	l := w.c.limits
	if w.memory || l.CPU > 0 || w.c.r.Limits.Processes > 0 {
		t := w.tree()
		w.openShm(t.pids)
		shared := max(0, w.sharedBytes()-w.before)
		switch {
		case w.memory && w.tooMuch(t, shared):
			return EndedMemory
		case w.c.r.Limits.Processes > 0 && t.tasks > l.Processes:
			return EndedProcesses
		case l.CPU > 0 && t.cpu >= l.CPU:
			return EndedCPU
		}
	}
	for _, d := range w.disks {
		if why := d.look(l, w.c.bounds.Reserve); why != EndedItself {
			return why
		}
	}
	return EndedItself
}

// tooMuch reports whether the tree uses more memory than it may, twice in a row:
// a process that is about to execute another shares its memory for a moment and
// is counted twice. What is counted first may count shared pages several times;
// only when that is too much are they told apart, which takes long.
func (w *watch) tooMuch(t tree, shared int64) bool {
	limit := w.c.limits.MemoryBytes
	if t.private+max(t.shmem, shared+t.hidden) <= limit {
		w.over = 0
		return false
	}
	if p := w.proportional(t.pids); p.private+max(p.shmem, shared+t.hidden) <= limit {
		w.over = 0
		return false
	}
	w.over++
	return w.over > 1
}

// openShm takes a descriptor of the command's own /dev/shm, through a process that
// sees it.
func (w *watch) openShm(pids []string) {
	if w.shm || !w.c.r.Grant.ExecAny || len(pids) == 0 {
		return
	}
	fd, err := unix.Openat(int(w.proc.Fd()), pids[0]+"/root/dev/shm", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		w.shm, w.shared = true, append(w.shared, fd)
	}
}

func (w *watch) sharedBytes() (sum int64) {
	for _, fd := range w.shared {
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil {
			sum += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return sum
}

// look says whether the file system grew by too much, or too little is left of it.
// A run that has not made it smaller is not ended for that.
func (d disk) look(l Limits, r Reserve) Ended {
	var now unix.Statfs_t
	if unix.Fstatfs(d.fd, &now) != nil {
		return EndedItself
	}
	bytes := func(blocks uint64) int64 { return int64(blocks) * now.Bsize }
	grown := bytes(d.before.Bfree) - bytes(now.Bfree)
	reserve := min(max(bytes(now.Blocks)/100*int64(r.Percent), r.Bytes), bytes(now.Blocks)/4)
	switch {
	case grown > l.DiskBytes:
		return EndedDisk
	case int64(d.before.Ffree)-int64(now.Ffree) > l.Files:
		return EndedFiles
	case bytes(now.Bavail) < reserve && grown > diskSlack:
		return EndedReserve
	}
	return EndedItself
}

// A tree is what all processes of a command use.
type tree struct {
	pids    []string
	tasks   int
	private int64 // bytes that are no file's, swapped out ones too
	shmem   int64 // bytes of mapped memory files
	hidden  int64 // bytes of memory files that are open, mapped or not
	cpu     time.Duration
}

// tree adds up the processes, but for the init. What is gone between two steps
// counts for nothing.
func (w *watch) tree() tree {
	var t tree
	if _, err := w.proc.Seek(0, 0); err != nil {
		return t
	}
	names, _ := w.proc.Readdirnames(-1)
	seen := map[uint64]bool{}
	for _, pid := range names {
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		if w.c.limits.CPU > 0 {
			t.cpu += cpuOf(w.read(pid + "/stat"))
		}
		if pid == "1" {
			continue
		}
		status := w.read(pid + "/status")
		if status == nil {
			continue
		}
		t.pids = append(t.pids, pid)
		t.tasks += int(max(1, field(status, "\nThreads:")))
		if !bytes.Contains(status, []byte("\nRssAnon:")) {
			status = w.sibling(pid)
		}
		t.private += (field(status, "\nRssAnon:") + field(status, "\nVmSwap:")) << 10
		t.shmem += field(status, "\nRssShmem:") << 10
		t.hidden += w.memoryFiles(pid, seen)
	}
	return t
}

// sibling returns the status of a thread that still has its memory, when the first
// one has ended and left the others.
func (w *watch) sibling(pid string) []byte {
	for _, tid := range w.list(pid + "/task") {
		if status := w.read(pid + "/task/" + tid + "/status"); bytes.Contains(status, []byte("\nRssAnon:")) {
			return status
		}
	}
	return nil
}

// memoryFiles adds up the memory files that a process has open, such as those of
// memfd_create(2): what is written there need not be mapped.
func (w *watch) memoryFiles(pid string, seen map[uint64]bool) (sum int64) {
	device := memoryDevice()
	for _, fd := range w.list(pid + "/fd") {
		var st unix.Statx_t
		err := unix.Statx(int(w.proc.Fd()), pid+"/fd/"+fd, unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_BLOCKS, &st)
		if err != nil || unix.Mkdev(st.Dev_major, st.Dev_minor) != device || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		sum += int64(st.Blocks) * 512
	}
	return sum
}

// memoryDevice is the device of every memory file that has no name.
var memoryDevice = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Dev
})

// proportional adds up the same, with each page that several processes share
// counted once.
func (w *watch) proportional(pids []string) (t tree) {
	for _, pid := range pids {
		rollup := w.read(pid + "/smaps_rollup")
		if rollup == nil {
			for _, tid := range w.list(pid + "/task") {
				if rollup = w.read(pid + "/task/" + tid + "/smaps_rollup"); rollup != nil {
					break
				}
			}
		}
		t.private += (field(rollup, "\nPss_Anon:") + field(rollup, "\nSwapPss:")) << 10
		t.shmem += field(rollup, "\nPss_Shmem:") << 10
	}
	return t
}

// read returns a small file of the command's /proc, nil when it cannot be read.
func (w *watch) read(name string) []byte {
	fd, err := unix.Openat(int(w.proc.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil || n <= 0 {
		return nil
	}
	return buf[:n]
}

func (w *watch) list(name string) []string {
	fd, err := unix.Openat(int(w.proc.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	return names
}

// field is the number after a name, 0 when it is not there.
func field(text []byte, name string) int64 {
	_, after, ok := bytes.Cut(text, []byte(name))
	if !ok {
		return 0
	}
	number := bytes.TrimLeft(after, " \t")
	end := 0
	for end < len(number) && '0' <= number[end] && number[end] <= '9' {
		end++
	}
	n, _ := strconv.ParseInt(string(number[:end]), 10, 64)
	return n
}

// clockTick is the unit of times in /proc (proc_pid_stat(5)), the same on every
// architecture of today.
const clockTick = 10 * time.Millisecond

// cpuOf is what a process and the children that it waited for have used, by its
// stat: utime, stime, cutime and cstime, the 14th field and those after.
func cpuOf(stat []byte) time.Duration {
	i := bytes.LastIndexByte(stat, ')') // after the second
	if i < 0 {
		return 0
	}
	fields := bytes.Fields(stat[i+1:])
	var ticks int64
	for k := 11; k < 15 && k < len(fields); k++ {
		n, _ := strconv.ParseInt(string(fields[k]), 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
