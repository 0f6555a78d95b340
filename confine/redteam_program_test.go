package confine

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// redPrelude adds to prelude what these attacks share.
const redPrelude = `
import struct, stat, select, threading, fcntl, mmap, resource, array
AT = -100
home = os.environ["HOME"]
def refused(r, what, *errnos):
    value, e = r
    if value >= 0 or errnos and e not in errnos: escape(f"{what}: {value} errno {e}")
    else: print("blocked", what, e)
def put(p, text):
    fd = os.open(p, os.O_WRONLY)
    try: os.write(fd, text)
    finally: os.close(fd)
def init_lives(what):
    # its files can be listed as long as it is not a zombie
    state = open("/proc/1/stat").read().split(")")[1].split()[0]
    if state in "ZTtX": escape(f"init is in state {state} after {what}")
`

// programAttacks are tried by a program with the widest grant.
var programAttacks = map[string]string{
	// no signal that another process can make the kernel send ends init
	"signals for init": `
for s in [1, 2, 3, 9, 11, 15, 19, 20, 24, 25]:
    blocked(lambda: os.kill(1, s), f"kill {s}")
fd = os.pidfd_open(1)
for s in [9, 15, 19]:
    blocked(lambda: signal.pidfd_send_signal(fd, s), f"pidfd signal {s}")
refused(syscall(438, fd, 0, 0), "pidfd_getfd", errno.EPERM)
refused(syscall(308, fd, 0x20000), "setns by pidfd", errno.EPERM)
refused(syscall(440, fd, 0, 0, 0, 0), "process_madvise", errno.EPERM, errno.ENOSYS)
refused(syscall(448, fd, 0), "process_mrelease")
init_lives("signals")`,

	// a child of init that dies with another signal than SIGCHLD
	"exit signals for init": `
for s in [9, 15, 17, 19, 11, 34]:
    r, e = syscall(56, 0x8000 | s, 0, 0, 0, 0) # CLONE_PARENT: a child of init
    if r == 0: os._exit(0)
    pid = os.fork()
    if pid == 0: # an orphan, which init adopts
        r, e = syscall(56, s, 0, 0, 0, 0)
        if r == 0: time.sleep(0.1)
        os._exit(0)
    os.waitpid(pid, 0)
time.sleep(0.4)
init_lives("exit signals")`,

	// the kernel sends SIGIO, or any other signal, to whom a descriptor belongs
	"descriptors that signal init": `
for s in [9, 15, 19, 29]:
    r, w = os.pipe()
    try:
        fcntl.fcntl(r, fcntl.F_SETOWN, 1); fcntl.fcntl(r, 10, s)
        fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | os.O_ASYNC)
        os.write(w, b"x")
    except OSError as e: print("blocked", e)
time.sleep(0.1)
init_lives("SIGIO")
sev = struct.pack("<qiii", 0, 9, 4, 1) + bytes(44)
t = ctypes.c_int()
refused(syscall(222, 1, sev, ctypes.byref(t)), "a timer that signals init")`,

	// what shows or steers another process's memory
	"memory of init": `
for f in ["mem", "maps", "environ", "auxv", "pagemap", "stack", "syscall", "io", "smaps", "numa_maps"]:
    blocked(lambda: open("/proc/1/" + f, "rb").read(1), f)
for f in ["root", "cwd", "exe", "ns/mnt", "ns/user", "ns/net"]:
    blocked(lambda: os.readlink("/proc/1/" + f), f)
blocked(lambda: os.listdir("/proc/1/map_files"), "map_files")
try: fds = os.listdir("/proc/1/fd")
except OSError: fds = []
if fds: escape(f"init holds {fds}")
a = (ctypes.c_void_p * 1)(0)
refused(syscall(279, 1, 1, a, None, (ctypes.c_int * 1)(), 0), "move_pages")
refused(syscall(256, 1, 64, (ctypes.c_ulong * 1)(1), (ctypes.c_ulong * 1)(1)), "migrate_pages")
refused(syscall(274, 1, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())), "get_robust_list")
refused(syscall(312, os.getpid(), 1, 0, 0, 0), "kcmp")
blocked(lambda: put("/proc/1/oom_score_adj", b"-1000"), "the score of init")
blocked(lambda: put("/proc/1/uid_map", b"0 0 1"), "the uid map of init")
blocked(lambda: put("/proc/1/comm", b"x"), "the name of init")`,

	// ids, capabilities and bits of security do not come back
	"privileges regained": `
class Head(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
head = Head(0x20080522, 0)
refused(syscall(126, ctypes.byref(head), (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)), "capset", errno.EPERM)
refused(call("prctl", 38, 0, 0, 0, 0), "no_new_privs off")
refused(call("prctl", 28, 0, 0, 0, 0), "securebits")
refused(call("prctl", 47, 2, 21, 0, 0), "an ambient capability")
for f in ["uid_map", "gid_map"]:
    blocked(lambda: put("/proc/self/" + f, b"0 0 1"), f)
try:
    put("/proc/self/setgroups", b"allow"); os.setgroups([12345]); escape("setgroups")
except OSError as e: print("blocked", e)
for i in [12345, 65534]:
    for f in [os.setuid, os.setgid, os.seteuid, os.setegid]: blocked(lambda: f(i), f"{f.__name__} {i}")
    libc.setfsuid(i)
    if libc.setfsuid(-1) == i: escape("setfsuid")
for what in [resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC]:
    soft, hard = resource.getrlimit(what)
    try: resource.setrlimit(what, (soft, hard + 1))
    except (OSError, ValueError) as e: print("blocked", e)
    if resource.getrlimit(what)[1] != hard: escape(f"limit {what}")
`,

	// nothing of the machine can be set
	"the machine": `
ts = struct.pack("<qq", 1, 0)
refused(syscall(227, 0, ts), "clock_settime"); refused(syscall(164, ts, 0), "settimeofday")
refused(syscall(159, struct.pack("<I", 1) + bytes(220)), "adjtimex")
refused(syscall(305, 0, struct.pack("<I", 1) + bytes(220)), "clock_adjtime")
refused(syscall(170, b"x", 1), "sethostname"); refused(syscall(171, b"x", 1), "setdomainname")
refused(syscall(172, 3), "iopl"); refused(syscall(173, 0, 1, 1), "ioperm")
refused(syscall(175, b"x", 1, b""), "init_module"); refused(syscall(313, 0, b"", 0), "finit_module"); refused(syscall(176, b"x", 0), "delete_module")
refused(syscall(144, 0, 1, struct.pack("<i", 10)), "SCHED_FIFO")
refused(syscall(314, 0, struct.pack("<IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7), 0), "SCHED_DEADLINE")
blocked(lambda: os.nice(-5), "nice")
refused(syscall(251, 1, 0, 1 << 13), "real-time input and output")
blocked(lambda: put("/proc/self/oom_score_adj", b"-500"), "a better score")
for p in ["/dev/mem", "/dev/kmsg", "/dev/port", "/dev/fuse", "/dev/kvm", "/dev/vda", "/dev/console", "/dev/tty0", "/dev/net/tun", "/dev/vhost-vsock", "/dev/userfaultfd", "/dev/loop-control", "/dev/cuse"]:
    blocked(lambda: os.close(os.open(p, os.O_RDWR)), p)
for p in os.listdir("/dev"):
    if p in ("fd", "stdin", "stdout", "stderr", "pts", "shm", "ptmx"): continue
    blocked(lambda: os.chmod("/dev/" + p, 0), "chmod " + p)
    blocked(lambda: os.unlink("/dev/" + p), "unlink " + p)
    blocked(lambda: os.rename("/dev/" + p, "/dev/x"), "rename " + p)
if os.path.exists("/sys/kernel"): escape("sysfs")`,

	// a file that may only be read is not written through the memory of a process
	"read-only pages": `
def original(p): return open(p, "rb").read(16)
for p in ["/usr/bin/true", ".git/config"]:
    before = original(p)
    fd = os.open(p, os.O_RDONLY)
    blocked(lambda: mmap.mmap(fd, 16, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE), "a shared writable mapping of " + p)
    m = mmap.mmap(fd, 16, mmap.MAP_SHARED, mmap.PROT_READ)
    libc.mmap.restype = ctypes.c_void_p
    a = libc.mmap(None, 4096, 1, 1, fd, 0)
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as mem: mem.seek(a); mem.write(b"ESCAPE")
    except OSError as e: print("blocked", e)
    if libc.mprotect(ctypes.c_void_p(a), 4096, 3) == 0: escape("mprotect of a shared mapping")
    # pages in a pipe belong to the file still
    r, w = os.pipe()
    for _ in range(16): os.write(w, bytes(4096))
    for _ in range(16): os.read(r, 4096)
    off = ctypes.c_longlong(4)
    libc.splice(fd, ctypes.byref(off), w, None, 1, 0)
    os.write(w, b"ESCAPE")
    blocked(lambda: os.copy_file_range(os.open("attack.py", os.O_RDONLY), fd, 4), "copy_file_range")
    blocked(lambda: os.ftruncate(fd, 0), "ftruncate"); blocked(lambda: os.utime(fd, (1, 1)), "futimens")
    blocked(lambda: os.fchmod(fd, 0o777), "fchmod"); blocked(lambda: os.setxattr(fd, "user.x", b"1"), "fsetxattr")
    blocked(lambda: os.open("/proc/self/fd/%d" % fd, os.O_WRONLY), "reopened for writing")
    blocked(lambda: os.posix_fallocate(fd, 0, 1), "fallocate")
    if original(p) != before: escape(p + " was changed")`,

	// files of elsewhere do not become the project's by a link
	"links": `
fd = os.open("/usr/bin/su", os.O_RDONLY)
blocked(lambda: os.link("/usr/bin/su", "su"), "link across mounts")
blocked(lambda: os.link("/proc/self/fd/%d" % fd, "su", follow_symlinks=True), "link of a descriptor")
refused(syscall(265, fd, b"", AT, b"su", 0x1000), "linkat of nothing")
blocked(lambda: os.link(".git/config", "config"), "link of a protected file")
blocked(lambda: os.link(".git/config", ".git/config2"), "link beside it")
blocked(lambda: os.rename(".git/config", "/tmp/config"), "rename out")
t = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
blocked(lambda: os.link("/proc/self/fd/%d" % t, "t", follow_symlinks=True), "a nameless file of another mount")
for p in ["../../../../../../etc/shadow", "/proc/self/root/etc/shadow", "/proc/self/cwd/../../../../etc/shadow", "/proc/thread-self/root/etc/shadow"]:
    blocked(lambda: open(p).read(), p)
os.symlink("/etc/shadow", "link"); blocked(lambda: open("link").read(), "a link out")`,

	// a protected path does not go away by any kind of rename
	"renames": `
open("mine", "w").write("[core]\n\tfsmonitor = evil\n"); os.makedirs("d/hooks", exist_ok=True); open("d/config", "w").write("evil")
for a, b in [(b"mine", b".git/config"), (b"d", b".git"), (b"d/hooks", b".git/hooks"), (b"d/config", b".git/config")]:
    for flags in [0, 1, 2, 4]:
        refused(syscall(316, AT, a, AT, b, flags), f"rename {a} {b} {flags}")
        refused(syscall(316, AT, b, AT, a + b"x", flags & ~2), f"rename {b} away {flags}")
git = os.open(".git", os.O_RDONLY | os.O_DIRECTORY)
refused(syscall(316, AT, b"mine", git, b"config", 0), "rename by descriptor")
refused(syscall(316, git, b"hooks", git, b"x", 0), "rename of hooks by descriptor")
blocked(lambda: os.rmdir(".git/hooks"), "rmdir"); blocked(lambda: os.unlink(".git/config"), "unlink")
blocked(lambda: os.unlink("config", dir_fd=git), "unlink by descriptor")
blocked(lambda: open(".git/hooks/pre-commit", "w"), "a new hook")
blocked(lambda: os.symlink("x", ".git/hooks/pre-push"), "a link as hook")
blocked(lambda: os.mkfifo(".git/hooks/post-checkout"), "a FIFO as hook")
here = os.getcwd()
blocked(lambda: os.rename(here, here + ".x"), "the project itself"); blocked(lambda: os.rmdir(here), "rmdir of the project")
p = os.path.dirname(here)
while p != "/":
    blocked(lambda: os.rename(p, p + ".x"), "rename " + p)
    blocked(lambda: os.chmod(p, 0o777), "chmod " + p)
    blocked(lambda: os.mkdir(p + "/new"), "mkdir in " + p)
    p = os.path.dirname(p)`,

	// extended attributes give nothing and change nothing that is read-only
	"attributes": `
open("own", "w").close()
cap = struct.pack("<IIIII", 0x02000001, 0xffffffff, 0, 0, 0)
blocked(lambda: os.setxattr("own", "security.capability", cap), "file capabilities")
blocked(lambda: os.setxattr("own", "security.capability", struct.pack("<IIIIII", 0x03000001, 0xffffffff, 0, 0, 0, os.getuid())), "file capabilities of a namespace")
for n in ["trusted.overlay.opaque", "security.ima", "security.evm"]:
    blocked(lambda: os.setxattr("own", n, b"x"), n)
for p in ["/usr/bin/bash", ".git/config", "/", "/dev/null", "/etc/passwd", home, "/.pinfold/exec", "/proc/self"]:
    blocked(lambda: os.setxattr(p, "user.x", b"1"), "xattr " + p)
    blocked(lambda: os.removexattr(p, "user.x"), "removexattr " + p)
    blocked(lambda: os.utime(p, (1, 1)), "utime " + p)
    blocked(lambda: os.chmod(p, 0o777), "chmod " + p)
    blocked(lambda: os.chown(p, os.getuid(), os.getgid()), "chown " + p)
for name, request in dict(SETFLAGS=0x40086602, FREEZE=0xc0045877, TRIM=0xc0185879, SHUTDOWN=0x8004587d, SWAPBOOT=0x6611, RESIZE=0x40086610).items():
    for p in ["own", "/usr"]:
        fd = os.open(p, os.O_RDONLY)
        refused(syscall(16, fd, request, struct.pack("<QQQ", 0x10, 0, 0)), f"{name} {p}")`,

	// the session's network is its loopback, as it is
	"network settings": `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
req = lambda name, rest: struct.pack("16s", name) + rest + bytes(24)
for n, r in dict(SIFADDR=0x8916, SIFFLAGS=0x8914, SIFHWADDR=0x8924, SIFMTU=0x8922, SIFNAME=0x8923, ADDRT=0x890b).items():
    refused(syscall(16, s.fileno(), r, req(b"lo", struct.pack("<HH4s", 2, 0, bytes([10, 0, 0, 1])))), n)
nl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); nl.bind((0, 0))
def ask(kind, body):
    nl.send(struct.pack("<IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    answer = nl.recv(4096)
    kind, = struct.unpack_from("<H", answer, 4)
    return struct.unpack_from("<i", answer, 16)[0] if kind == 2 else 0
for n, kind, body in [("address", 20, struct.pack("<BBBBI", 2, 8, 0, 0, 1) + struct.pack("<HH4s", 8, 2, bytes([10, 0, 0, 1]))), ("link", 16, struct.pack("<BxHiII", 0, 0, 0, 0, 0) + struct.pack("<HH", 12, 18) + struct.pack("<HH", 9, 1) + b"dummy\0\0\0"), ("route", 24, struct.pack("<BBBBBBBBI", 2, 0, 0, 0, 254, 3, 253, 1, 0) + struct.pack("<HHI", 8, 4, 1))]:
    if ask(kind, body) >= 0: escape("netlink: a new " + n)
for level, option in [(1, 36), (0, 19), (1, 32)]:
    try: s.setsockopt(level, option, 1); escape(f"socket option {level} {option}")
    except OSError as e: print("blocked", e)
for high in [0, 1 << 32, 0xffffffff << 32]:
    for domain, kind, proto in [(17, 3, 0), (38, 5, 0), (40, 1, 0), (16, 3, 12), (16, 3, 9), (16, 3, 15), (16, 2, 16), (2, 3, 1), (2, 3, 255), (10, 3, 58), (29, 3, 1), (30, 5, 0), (21, 5, 0), (44, 3, 0), (31, 1, 3), (9, 5, 0), (5, 2, 0), (2, 10, 0)]:
        refused(syscall(41, domain | high, kind | high, proto | high), f"socket {domain} {kind} {proto} {high:#x}", errno.EPERM)
refused(syscall(41, 2, 3 | 0o2004000, 1), "a raw socket with flags", errno.EPERM)
for f in ["unix", "tcp", "udp", "netlink", "packet"]:
    try: text = open("/proc/net/" + f).read()
    except OSError: continue
    if "/run/" in text or "pinfold.sock" in text: escape("sockets of the host: " + f)`,

	// the other command's files and this one's stay apart in /proc
	"other instances": `
import pty
m, s = pty.openpty()
if os.ttyname(s) != "/dev/pts/0": escape("terminals of another instance: " + os.ttyname(s))
for n in range(1, 20):
    if os.path.exists(f"/dev/pts/{n}"): escape("another's terminal")
if os.listdir("/dev/shm"): escape("another's shared memory")
for f in ["msg", "sem", "shm"]:
    if len(open("/proc/sysvipc/" + f).readlines()) > 1: escape("another's " + f)
pids = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
if pids[:2] != [1, 2] or len(pids) > 4: escape(f"processes {pids}")
for p in range(3, 400000, 997):
    try: os.kill(p, 0); escape(f"process {p}")
    except OSError: pass`,

	// a crash leaves nothing in the project
	"core": `
before = set(os.listdir("."))
for _ in range(3):
    if os.fork() == 0: os.kill(os.getpid(), 11)
    os.wait()
if set(os.listdir(".")) - before: escape(str(set(os.listdir(".")) - before))`,

	// a second Landlock domain or filter only takes away
	"more of the same": `
fs = struct.pack("<QQQ", 1, 0, 0)
r, e = syscall(444, fs, 8, 0)
if r >= 0:
    root = os.open("/", os.O_PATH)
    syscall(445, r, 1, struct.pack("<Qi", 1, root), 0)
    syscall(446, r, 0)
blocked(lambda: open("/.pinfold/read").read(), "the canary")
blocked(lambda: os.execv("/.pinfold/exec", ["x"]), "the other canary")
blocked(lambda: open("/etc/new", "w"), "the root")
allow = struct.pack("<HBBI", 6, 0, 0, 0x7fff0000)
buf = ctypes.create_string_buffer(allow); prog = struct.pack("<HxxxxxxQ", 1, ctypes.addressof(buf))
syscall(317, 1, 0, prog)
refused(syscall(310, os.getpid(), 0, 0, 0, 0, 0), "process_vm_readv", errno.EPERM)
refused(syscall(272, 0x10000000), "unshare", errno.EPERM)`,

	// calls that are newer than the filter's library, and those by which one
	// looks at mounts
	"new calls": `
for nr in list(range(451, 480)) + [428, 429, 430, 431, 432, 433, 442, 467]:
    r, e = syscall(nr, 0, 0, 0, 0, 0)
    if r >= 0 or e not in (errno.ENOSYS, errno.EPERM, errno.EFAULT, errno.EINVAL, errno.EBADF): escape(f"call {nr}: {r} {e}")
for nr in [457, 458, 463, 464, 465, 466]:
    refused(syscall(nr, 0, 0, 0, 0, 0), f"call {nr}", errno.ENOSYS)
refused(syscall(435, struct.pack("<11Q", 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88), "clone3", errno.ENOSYS)
for flag in [0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]:
    for high in [0, 1 << 32]:
        r, e = syscall(56, flag | high | 17, 0, 0, 0, 0)
        if r == 0: os._exit(0)
        if r > 0 or e != errno.EPERM: escape(f"clone {flag:#x} {high:#x}: {r} {e}")`,

	// a name that git takes for .git on some file systems, and the file itself
	"metadata of git": `
for p in [".git/config", ".git/hooks"]:
    blocked(lambda: os.utime(p, (1, 1)), "utime"); blocked(lambda: os.chmod(p, 0o777), "chmod"); blocked(lambda: os.setxattr(p, "user.x", b"1"), "xattr")
r = subprocess.run(["/usr/bin/git", "config", "core.fsmonitor", "evil"], capture_output=True)
if r.returncode == 0: escape("git config")
r = subprocess.run(["/usr/bin/git", "config", "--worktree", "core.hooksPath", "x"], capture_output=True)
if r.returncode == 0: escape("git config --worktree")`,
}

// TestProgramAttacks tries each in a git repository of its own.
func TestProgramAttacks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("system call numbers of amd64")
	}
	each(t, func(t *testing.T, b box) {
		for name, code := range programAttacks {
			t.Run(name, func(t *testing.T) {
				b := box{b.m, b.caller, newProject(t, b.caller, b.caller.Home)}
				gitRepository(t, b)
				r := b.python(t, widest, redPrelude+code+"\nprint('end')\n")
				if strings.Contains(r.out, "ESCAPE") || !strings.HasSuffix(r.out, "end\n") {
					t.Errorf("exit %d %s\n%s%s", r.ExitCode, r.Signal, escapesOf(r.out), r.err)
				}
				if left, _ := filepath.Glob(b.project + "/core*"); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
				if _, err := os.Stat(b.project + "/.git/hooks/pre-commit"); err == nil {
					t.Error("a hook was made")
				}
			})
		}
	})
}

// escapesOf are the lines of an attack's output that matter.
func escapesOf(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "blocked") {
			b.WriteString(line)
		}
	}
	return b.String()
}
