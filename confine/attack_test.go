package confine

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
)

// The attacks of this file are tried by a program that was allowed as python3,
// with the widest grant that there is. Each prints ESCAPE when it got through,
// and has a control where one is needed to show that it could.

const prelude = `
import os, sys, ctypes, errno, socket, subprocess, time, signal
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    r = getattr(libc, name)(*args)
    return r, ctypes.get_errno()
def syscall(nr, *args):
    r = libc.syscall(nr, *[ctypes.c_ulong(a & (2**64-1)) if isinstance(a, int) else a for a in args])
    return r, ctypes.get_errno()
def escape(what): print("ESCAPE", what)
def blocked(f, what):
    try: f()
    except (OSError, PermissionError, subprocess.SubprocessError) as e: print("blocked", what, e)
    else: escape(what)
`

func (b box) python(t *testing.T, g policy.Grant, code string) result {
	t.Helper()
	needs(t, "python3")
	writeFile(t, b.caller, b.project+"/attack.py", prelude+code, 0o644)
	return b.run(t, g, "/usr/bin/python3 attack.py")
}

func TestAttacksFromPython(t *testing.T) {
	attacks := map[string]string{
		"shadow": `blocked(lambda: open("/etc/shadow").read(), "read /etc/shadow")`,
		"other user's file": `
blocked(lambda: open("/home/pinfold-secret/file").read(), "read another's file")
blocked(lambda: os.listdir("/root/.ssh"), "list root's keys")`,
		"write outside": `
for p in ["/etc/x", "/usr/x", "/usr/bin/x", "/x", "/opt/x", os.path.dirname(os.getcwd()) + "/x", os.environ["HOME"] + "/x", "/dev/x", "/var/x", "/run/x", "/.pinfold/x", "/proc/sys/kernel/core_pattern"]:
    blocked(lambda: open(p, "w"), "write " + p)
for p in ["/etc/passwd", "/usr/bin/bash", "/.pinfold/write"]:
    blocked(lambda: open(p, "r+"), "open for writing " + p)
    blocked(lambda: os.chmod(p, 0o777), "chmod " + p)
    blocked(lambda: os.utime(p), "utime " + p)
    blocked(lambda: os.truncate(p, 0), "truncate " + p)
    blocked(lambda: os.unlink(p), "unlink " + p)`,
		"network": `
for a in ["1.1.1.1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "8.8.8.8"]:
    for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
        s = socket.socket(socket.AF_INET, kind); s.settimeout(2)
        blocked(lambda: (s.connect((a, 53))), "connect " + a)
s = socket.socket(socket.AF_INET6); blocked(lambda: s.connect(("2606:4700:4700::1111", 53)), "IPv6")
for domain, kind, proto in [(socket.AF_PACKET, socket.SOCK_RAW, 0), (40, 1, 0), (38, 5, 0), (socket.AF_INET, socket.SOCK_RAW, 1), (16, 3, 9), (44, 3, 0)]:
    blocked(lambda: socket.socket(domain, kind, proto), f"socket {domain}")`,
		"host processes": `
pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
if len(pids) > 4 or max(pids) > 100: escape(f"sees {pids}")
for p in pids:
    try: line = open(f"/proc/{p}/cmdline").read()
    except OSError: continue
    if "pinfoldd" in line or "/tmp" in line or "confine" in line: escape("command line " + line)
for f in ["root", "cwd", "environ", "mem", "maps", "fd/0", "fd/3"]:
    blocked(lambda: open("/proc/1/" + f).read() if f[0] not in "rc" else os.listdir("/proc/1/" + f), "init's " + f)`,
		"mount and namespaces": `
CLONE = dict(NEWNS=0x20000, NEWUSER=0x10000000, NEWPID=0x20000000, NEWNET=0x40000000, NEWUTS=0x04000000, NEWIPC=0x08000000, NEWCGROUP=0x02000000)
for n, f in CLONE.items():
    r, e = call("unshare", f)
    if r == 0: escape("unshare " + n)
    r, e = syscall(56, f | signal.SIGCHLD, 0, 0, 0, 0)
    if r == 0: os._exit(0)
    if r > 0: escape("clone " + n)
    elif e != errno.EPERM: print("ESCAPE wrong errno", n, e)
r, e = syscall(435, ctypes.create_string_buffer(88), 88)
if not (r < 0 and e == errno.ENOSYS): escape("clone3 %d %d" % (r, e))
if call("mount", b"none", b"/tmp", b"tmpfs", 0, None)[0] == 0: escape("mount")
if call("umount2", b"/proc", 2)[0] == 0: escape("umount")
for nr in [428, 429, 430, 431, 432, 433, 442, 155, 161, 165, 166]:
    r, e = syscall(nr, 0, 0, 0, 0, 0)
    if r >= 0 or e not in (errno.EPERM, errno.ENOSYS): escape(f"syscall {nr}: {r} {e}")
for ns in os.listdir("/proc/self/ns"):
    fd = os.open("/proc/self/ns/" + ns, os.O_RDONLY)
    if call("setns", fd, 0)[0] == 0: escape("setns " + ns)
if call("pivot_root", b".", b".")[0] == 0: escape("pivot_root")
if call("chroot", b".")[0] == 0: escape("chroot")`,
		"dangerous calls": `
for name, nr in dict(io_uring_setup=425, bpf=321, perf_event_open=298, keyctl=250, add_key=248, userfaultfd=323, process_vm_readv=310, process_vm_writev=311, kcmp=312, open_by_handle_at=304, syslog=103, kexec_load=246, pidfd_getfd=438, acct=163, swapon=167, reboot=169, quotactl=179, lookup_dcookie=212, fanotify_init=300).items():
    r, e = syscall(nr, 0, 0, 0, 0, 0)
    if r >= 0 or e not in (errno.EPERM, errno.ENOSYS): escape(f"{name}: {r} {e}")
r, e = syscall(437, -100, b"x", ctypes.create_string_buffer(24), 24)
if not (r < 0 and e == errno.ENOSYS): escape("openat2")
for nr in [600, 1000, 0x3fffffff]:
    r, e = syscall(nr)
    if not (r < 0 and e == errno.ENOSYS): escape(f"future number {nr}: {r} {e}")
r, e = syscall(0x40000000 + 39)
if r >= 0 or e != errno.ENOSYS: escape(f"x32 getpid: {r} {e}")
r, e = syscall(135, 0x0400000)
if r >= 0: escape("personality READ_IMPLIES_EXEC")
r, e = syscall(135, 0xffffffff)
if r != 0: escape("the personality cannot be asked for")
import fcntl, pty
m, s = pty.openpty()
for request in [0x5412, 0x541C, 0x100005412, 0xffffffff0000541C]:
    r, e = syscall(16, s, request, ctypes.c_char_p(b"x"))
    if r == 0 or e != errno.EPERM: escape(f"ioctl {request:#x} {e}")`,
		"set-uid": `
import shutil, stat
shutil.copy("/usr/bin/id", "copy")
AT = -100
tries = {
  "chmod": lambda: call("chmod", b"copy", 0o4755), "fchmod": lambda: call("fchmod", os.open("copy", os.O_RDONLY), 0o4755),
  "fchmodat": lambda: call("fchmodat", AT, b"copy", 0o2755, 0), "fchmodat2": lambda: syscall(452, AT, b"copy", 0o4755, 0),
  "open": lambda: syscall(2, b"new1", os.O_CREAT | os.O_WRONLY, 0o4755), "openat": lambda: syscall(257, AT, b"new2", os.O_CREAT | os.O_WRONLY, 0o6755),
  "creat": lambda: syscall(85, b"new3", 0o4755), "mknod": lambda: syscall(133, b"new4", 0o104755, 0), "mknodat": lambda: syscall(259, AT, b"new5", 0o102755, 0),
  "tmpfile": lambda: syscall(257, AT, b".", 0o20200000 | os.O_WRONLY, 0o4755), "mkdir": lambda: syscall(83, b"newd", 0o2755), "mkdirat": lambda: syscall(258, AT, b"newe", 0o2755),
}
for name, f in tries.items():
    r, e = f()
    if r >= 0: escape(name)
for dir, _, files in os.walk("."):
    for f in files:
        if os.lstat(os.path.join(dir, f)).st_mode & 0o6000: escape("set-id bit on " + f)
os.chmod("copy", 0o755)
for kind in [stat.S_IFCHR, stat.S_IFBLK]:
    blocked(lambda: os.mknod("dev", kind | 0o666, os.makedev(1, 3)), "mknod of a device")
os.mkfifo("fifo")`,
		"ptrace": `
for p in [1]:
    for request in [16, 0x4206]:
        if libc.ptrace(request, p, 0, 0) == 0: escape("ptrace init")
blocked(lambda: os.kill(1, 9) or os.kill(1, 0) if False else os.kill(1, signal.SIGTERM), "signal init") if ABI >= 6 else None
child = subprocess.Popen(["/usr/bin/sleep", "100"])
if libc.ptrace(16, child.pid, 0, 0) != 0: escape("a program cannot trace its own child")
child.kill()`,
		"protected": `
for p in [".git/config", ".git/hooks/pre-commit", ".pinfold.toml"]:
    blocked(lambda: open(p, "a"), "write " + p)
blocked(lambda: os.rename(".git", "gone"), "rename .git")
blocked(lambda: os.rename(".git/hooks", ".git/x"), "rename hooks")
blocked(lambda: os.unlink(".pinfold.toml"), "unlink .pinfold.toml")
blocked(lambda: os.rename(".git/config", ".git/x"), "rename config")
blocked(lambda: os.chmod(".git/config", 0o666), "chmod config")
open(".git/HEAD2", "w")`,
		"privileges": `
status = open("/proc/self/status").read()
for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]:
    if name + ":\t0000000000000000" not in status: escape("capabilities: " + name)
if "NoNewPrivs:\t1" not in status: escape("new privileges")
r = subprocess.run(["/usr/bin/su", "-c", "id"], capture_output=True, stdin=subprocess.DEVNULL)
if b"uid=0" in r.stdout and os.getuid() != 0: escape("su")
blocked(lambda: os.setuid(12345), "setuid")
blocked(lambda: os.setgroups([0]), "setgroups")`,
		"descriptors": `
for fd in os.listdir("/proc/self/fd"):
    if int(fd) > 2:
        try: where = os.readlink("/proc/self/fd/" + fd)
        except OSError: continue
        if not where.startswith("/proc/") and "attack.py" not in where: escape(f"descriptor {fd} {where}")
for fd in range(3):
    where = os.readlink(f"/proc/self/fd/{fd}")
    if "socket" in where: escape("stdio is a socket")`,
		"environment": `
allowed = set("HOME USER LOGNAME SHELL PATH TMPDIR LANG TERM PAGER GIT_PAGER GIT_TERMINAL_PROMPT DEBIAN_FRONTEND GIT_OPTIONAL_LOCKS GOPROXY GOTOOLCHAIN GOFLAGS CARGO_NET_OFFLINE npm_config_offline npm_config_update_notifier PIP_NO_INDEX PIP_DISABLE_PIP_VERSION_CHECK GOMODCACHE PWD SHLVL _ OLDPWD LC_CTYPE".split())
for name in os.environ:
    if name not in allowed: escape("variable " + name)`,
		"host sockets": `
for dir, _, files in os.walk("/", followlinks=False):
    if dir.startswith("/proc"): continue
    for f in files:
        import stat as st
        try: mode = os.lstat(os.path.join(dir, f)).st_mode
        except OSError: continue
        if st.S_ISSOCK(mode): escape("socket " + os.path.join(dir, f))
s = socket.socket(socket.AF_UNIX)
blocked(lambda: s.connect("\0pinfold-test-abstract"), "abstract socket of the host")`,
		"sysctls": `
n = 0; names = []
for dir, _, files in os.walk("/proc/sys"):
    for f in files:
        try: open(os.path.join(dir, f), "r+").close(); n += 1; names.append(f)
        except OSError: pass
for f in ["/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/bus/pci"]:
    try: open(f, "r+").close(); n += 1
    except OSError: pass
if n: escape(f"{n} sysctls are open for writing {names}")`,
	}
	listener, err := net.Listen("unix", "@pinfold-test-abstract")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	each(t, func(t *testing.T, b box) {
		if runtime.GOARCH != "amd64" {
			t.Skip("system call numbers of amd64")
		}
		for name, code := range attacks {
			t.Run(name, func(t *testing.T) {
				b := box{b.m, b.caller, newProject(t, b.caller, b.caller.Home)}
				gitRepository(t, b)
				writeFile(t, b.caller, b.project+"/.pinfold.toml", "", 0o644)
				head := "ABI = 6\n"
				if b.m.abi < 6 {
					head = "ABI = 0\n"
				}
				r := b.python(t, widest, head+code+"\nprint('end')\n")
				if strings.Contains(r.out, "ESCAPE") || !strings.HasSuffix(r.out, "end\n") {
					t.Errorf("exit %d\n%s%s", r.ExitCode, r.out, r.err)
				}
			})
		}
	})
}

func gitRepository(t *testing.T, b box) {
	t.Helper()
	needs(t, "git")
	cmd := exec.Command("git", "init", "-q", b.project)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git init: %v %s", err, out)
	}
	filepath.WalkDir(b.project, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			os.Lchown(path, int(b.caller.UID), int(b.caller.GID))
		}
		return nil
	})
}

// TestNothingOutlivesTheCommand: a daemonised, stopped, orphaned process is gone
// when the result is there.
func TestNothingOutlivesTheCommand(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		begin := time.Now()
		r := b.python(t, widest, `
for kind in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open("alive%d" % kind, "w").close()
            if kind == 1: os.kill(os.getpid(), signal.SIGSTOP)
            if kind == 2:
                for fd in range(3): os.close(fd)
            t = time.time()
            while time.time() < t + 60:
                open("late%d" % kind, "w").close() if time.time() > t + 1 else time.sleep(0.05)
        os._exit(0)
while not all(os.path.exists("alive%d" % k) for k in range(4)): time.sleep(0.01)
print("started")
`)
		if r.out != "started\n" || r.ExitCode != 0 {
			t.Fatalf("%+v", r)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		time.Sleep(1500 * time.Millisecond)
		if late, _ := filepath.Glob(b.project + "/late*"); len(late) != 0 {
			t.Errorf("still running after the result: %v", late)
		}
	})
}

// TestForkBomb: the machine goes on, the bomb ends with its command, and the
// next command runs at once.
func TestForkBomb(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		r, _, _ := b.request(widest, `bomb() { bomb | bomb & }; bomb; sleep 1000`)
		r.Timeout = time.Second
		o, err := b.m.Run(context.Background(), r)
		if err != nil || o.Ended != EndedTimeout {
			t.Errorf("%+v %v", o, err)
		}
		counted := b.python(t, widest, `
n = 0
try:
    while n < 2000:
        if os.fork() == 0: time.sleep(60)
        n += 1
except OSError as e: print(n, e.errno == errno.EAGAIN)
`)
		var n int
		if _, err := scan(counted.out, &n); err != nil || n > DefaultLimits.Processes || n < 100 {
			t.Errorf("%q %s", counted.out, counted.err)
		}
		begin := time.Now()
		if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" || time.Since(begin) > 20*time.Second {
			t.Errorf("next: %+v after %v", r, time.Since(begin))
		}
	})
}

// TestBigFile: a file stops growing at the limit.
func TestBigFile(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r := b.python(t, widest, `
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
f = open("big", "wb")
try: f.seek(10 << 30); f.write(b"x"); f.flush(); escape("10 GB")
except OSError as e: print("blocked", e)
try: os.posix_fallocate(f.fileno(), 0, 10 << 30); escape("fallocate")
except OSError as e: print("blocked", e)
t = open("/tmp/big", "wb")
try:
    for i in range(3000): t.write(b"x" * (1 << 20))
    escape("3 GB in /tmp")
except OSError as e: print("blocked", e)
`)
		if strings.Contains(r.out, "ESCAPE") || strings.Count(r.out, "blocked") != 3 {
			t.Errorf("%s%s", r.out, r.err)
		}
	})
}

// TestForeignABI: an i386 system call does not reach the kernel's 32-bit entry.
func TestForeignABI(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("i386 calls are amd64's")
	}
	needs(t, "gcc")
	// mkdir is 39 in the i386 table, which is getpid in the native one
	src := `
#include <stdio.h>
#include <sys/mman.h>
#include <string.h>
int main(void) {
	char *low = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	long r;
	strcpy(low, "made");
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(39), "b"(low), "c"(0755) : "memory");
	printf("%ld\n", (long)(int)r);
}`
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/i386.c", src, 0o644)
		r := b.run(t, widest, "gcc -o i386 i386.c && ./i386")
		// a kernel without the 32-bit entry kills it instead
		if _, err := os.Stat(b.project + "/made"); err == nil || !strings.HasPrefix(r.out, "-38") && r.Signal != "SIGSEGV" {
			t.Errorf("%+v", r)
		}
	})
}

// TestReadOnlyGrant: what was judged to only read cannot change anything in the
// project, not even what Landlock does not cover.
func TestReadOnlyGrant(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/file", "old\n", 0o666)
		g := pinned(t, "touch", "chmod", "mkdir", "rm", "ln", "mv", "cp", "truncate", "dd")
		for _, text := range []string{
			"echo new > file", "echo new >> file", "echo new > fresh", ": >| file", "touch file", "touch -d 2001-01-01 file", "touch fresh",
			"chmod 777 file", "chmod 700 .", "mkdir d", "rm file", "ln -s x link", "ln file hard", "mv file moved", "cp file copy", "truncate -s 0 file", "dd if=/dev/zero of=file count=1",
		} {
			r := b.run(t, g, text)
			if r.ExitCode == 0 {
				t.Errorf("%s: succeeded", text)
			}
			if !strings.Contains(r.err, "Permission denied") && !strings.Contains(r.err, "Read-only file system") {
				t.Errorf("%s: neither EACCES nor EROFS: %s", text, r.err)
			}
		}
		if r := b.run(t, g, `echo x > /tmp/scratch && read y < /tmp/scratch && echo $y`); r.out != "x\n" {
			t.Errorf("the session's /tmp: %+v", r)
		}
	})
}

// TestExecPinning: under a pinned grant no other program starts, whichever way
// it is tried, and no other code is mapped.
func TestExecPinning(t *testing.T) {
	needs(t, "gcc")
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/native.c", `#include <unistd.h>
int main(void) { return write(1, "ESCAPE\n", 7) != 7; }`, 0o644)
		writeFile(t, b.caller, b.project+"/lib.c", `#include <unistd.h>
__attribute__((constructor)) static void f(void) { (void)!write(1, "ESCAPE\n", 7); }
struct builtin { char *name; int (*f)(void *); int flags; char **doc; char *s; char *h; };
static int e(void *l) { (void)l; return 0; }
struct builtin evil_struct = { "evil", e, 1, 0, "evil", 0 };`, 0o644)
		built := b.run(t, widest, "gcc -o native native.c && gcc -static -o static native.c; gcc -shared -fPIC -o lib.so lib.c && ./native && cp native /tmp/native && cp lib.so /tmp/lib.so && cp native \"$HOME/.cache/native\" && LD_PRELOAD=./lib.so /usr/bin/true")
		if strings.Count(built.out, "ESCAPE") < 2 {
			t.Fatalf("the controls do not run under the widest grant: %+v", built)
		}
		g := pinned(t, "ls", "cat", "cp", "grep", "find")
		for _, text := range []string{
			"./native", "/tmp/native", `"$HOME/.cache/native"`, "./static", "exec ./native", "command ./native",
			"/usr/bin/id", "/usr/bin/python3 -c 'print(\"ESCAPE\")'", "/bin/sh -c 'echo ESCAPE'", "find . -maxdepth 0 -exec ./native \\;",
			"/lib64/ld-linux-x86-64.so.2 ./native", "/lib64/ld-linux-x86-64.so.2 /tmp/native", "/lib64/ld-linux-x86-64.so.2 /usr/bin/python3 -c 'print(\"ESCAPE\")'",
			"LD_PRELOAD=./lib.so ls", "LD_PRELOAD=/tmp/lib.so ls", "LD_LIBRARY_PATH=. LD_PRELOAD=lib.so ls", "LD_AUDIT=./lib.so ls",
			"enable -f ./lib.so evil", "enable -f /tmp/lib.so evil", "cp native /tmp/other; /tmp/other", "cat native > /dev/shm/x; /dev/shm/x",
			"/proc/self/fd/9 9< native", "/dev/fd/9 9< native", "hash -p ./native ls; ls", "PATH=.:$PATH; native",
		} {
			r := b.run(t, g, text)
			if strings.Contains(r.out, "ESCAPE") {
				t.Errorf("%s: %s%s", text, r.out, r.err)
			}
		}
		if r := b.run(t, g, "ls | grep native.c"); r.out != "native.c\n" {
			t.Errorf("the listed programs do not run: %+v", r)
		}
	})
}

// TestCallsUnderPinnedGrant: what the filter of a pinned grant says to a hostile
// program that is on its list.
func TestCallsUnderPinnedGrant(t *testing.T) {
	needs(t, "gcc")
	src := `
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static void refused(const char *what, long r) {
	if (r >= 0 || errno != EPERM)
		printf("ESCAPE %s: %ld %d\n", what, r, errno);
}
int main(int argc, char **argv) {
	(void)argc;
	refused("memfd_create", syscall(SYS_memfd_create, "x", 0));
	refused("memfd_secret", syscall(447, 0));
	refused("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
	refused("unix socket", socket(AF_UNIX, SOCK_STREAM, 0));
	refused("inet socket", socket(AF_INET, SOCK_STREAM, 0));
	refused("netlink socket", socket(AF_NETLINK, SOCK_RAW, 0));
	int fd = open("calls.c", O_RDONLY);
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED)
		puts("ESCAPE a file of the project was mapped executable");
	fd = open(argv[0], O_RDONLY);
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		puts("ESCAPE the control: the listed program is executable");
	puts("end");
}`
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/calls.c", src, 0o644)
		if r := b.run(t, widest, "gcc -o calls calls.c"); r.ExitCode != 0 {
			t.Fatalf("%+v", r)
		}
		r := b.run(t, policy.Grant{Exec: []string{b.project + "/calls"}}, "./calls")
		if r.out != "end\n" {
			t.Errorf("%+v", r)
		}
	})
}
