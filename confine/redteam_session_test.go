package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// TestNothingPersistsButTheScratch: shared memory, queues, terminals and names
// of a command are not there for the next.
func TestNothingPersistsButTheScratch(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r := b.python(t, widest, `
from multiprocessing import shared_memory
shared_memory.SharedMemory("left", True, 100)
open("/dev/shm/file", "w").write("x")
if syscall(29, 4711, 100, 0o1666)[0] < 0: print("shmget")
if syscall(64, 4711, 1, 0o1666)[0] < 0: print("semget")
if syscall(68, 4711, 0o1666)[0] < 0: print("msgget")
for f in ["/", "/etc", "/usr", "/dev", "/run", "/home", "/.pinfold", os.environ["HOME"]]:
    try: open(f + "/left", "w").write("x")
    except OSError: pass
os._exit(0)
`)
		if r.out != "" {
			t.Errorf("setup: %+v", r)
		}
		r = b.python(t, widest, `
if os.listdir("/dev/shm"): escape(str(os.listdir("/dev/shm")))
for nr in [29, 64, 68]:
    if syscall(nr, 4711, 0, 0)[0] >= 0: escape(f"call {nr}")
for f in ["/", "/etc", "/usr", "/dev", "/run", "/home", "/.pinfold", os.environ["HOME"]]:
    if os.path.exists(f + "/left"): escape(f)
`)
		if strings.Contains(r.out, "ESCAPE") || r.ExitCode != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestFullScratch: what one command filled up fails the next typed, and a pinned
// command that needs no scratch runs.
func TestFullScratch(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r := b.python(t, widest, `
n = 0
try:
    while True: os.close(os.open("/var/tmp/f%d" % n, os.O_CREAT | os.O_WRONLY)); n += 1
except OSError as e: print(e.errno == errno.ENOSPC, n < 300000)
`)
		if r.out != "True True\n" {
			t.Errorf("%+v", r)
		}
		if r := b.run(t, policy.Grant{}, "echo next; echo x > /var/tmp/more"); !strings.HasPrefix(r.out, "next\n") {
			t.Errorf("%+v", r)
		}
	})
}

// TestCachesStay: a program cannot take a cache's mount away, nor put a link or
// another directory in its place, and one that made its cache unreadable hurts
// no later session's start.
func TestCachesStay(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r := b.python(t, widest, `
home = os.environ["HOME"]
for c in [".cache", ".npm", ".m2", ".gradle", ".yarn"]:
    p = home + "/" + c
    blocked(lambda: os.rename(p, p + ".x"), "rename"); blocked(lambda: os.rmdir(p), "rmdir"); blocked(lambda: os.symlink("/", p), "symlink")
    blocked(lambda: os.rename("/tmp", p), "replace"); blocked(lambda: os.link(p + "/../.bashrc", p + "/x"), "link")
    blocked(lambda: open(p + "/../../escape", "w"), "above")
    os.symlink("/etc", p + "/link"); os.symlink("../..", p + "/up")
    os.chmod(p, 0)
`)
		if strings.Contains(r.out, "ESCAPE") || r.ExitCode != 0 {
			t.Errorf("%+v", r)
		}
		b.m.mu.Lock()
		s := b.m.sessions[sessionKey{b.caller.UID, b.project, ""}]
		delete(b.m.sessions, sessionKey{b.caller.UID, b.project, ""})
		b.m.mu.Unlock()
		s.close()
		if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
			t.Errorf("next: %+v", r)
		}
		if r := b.run(t, widest, `cd && chmod 755 .cache .npm .m2 .gradle .yarn && ls .cache/link/ | grep -c shadow`); r.out != "0\n" {
			t.Errorf("the link leads out: %+v", r)
		}
	})
}

// TestInitLimits: a program that takes its init's limits away ends itself, and
// no other run.
func TestInitLimits(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		other := make(chan result)
		go func() { other <- b.run(t, widest, "sleep 2; echo other") }()
		r, _, _ := b.request(widest, "")
		writeFile(t, b.caller, b.project+"/limits.py", `
import resource, os, time
for what in range(16):
    try: resource.prlimit(1, what, (0, 0))
    except (OSError, ValueError) as e: print(what, e)
time.sleep(1)
`, 0o644)
		r.Text, r.Timeout = "/usr/bin/python3 limits.py", 5*time.Second
		if _, err := b.m.Run(context.Background(), r); err != nil {
			t.Errorf("%v", err)
		}
		if r := <-other; r.out != "other\n" {
			t.Errorf("the other run: %+v", r)
		}
		if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
			t.Errorf("next: %+v", r)
		}
	})
}

// TestOutputHandedOn: a command that leaves its stdout with another command of
// the session ends at once, and what the other writes is nobody's output.
func TestOutputHandedOn(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		holder := make(chan result, 1)
		writeFile(t, b.caller, b.project+"/holder.py", `
import socket, array, os, time
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/handing"); s.listen()
open("/tmp/ready", "w").close()
c, _ = s.accept()
_, anc, _, _ = c.recvmsg(1, socket.CMSG_SPACE(8))
fds = array.array("i"); fds.frombytes(anc[0][2][:8])
c.send(b"x"); time.sleep(1)
try: os.write(fds[0], b"ESCAPE")
except OSError as e: print("blocked", e)
`, 0o644)
		go func() { holder <- b.run(t, widest, "/usr/bin/python3 holder.py") }()
		for r := b.run(t, widest, "test -e /tmp/ready"); r.ExitCode != 0; r = b.run(t, widest, "test -e /tmp/ready") {
			time.Sleep(50 * time.Millisecond)
		}
		begin := time.Now()
		r := b.python(t, widest, `
s = socket.socket(socket.AF_UNIX); s.connect("/tmp/handing")
import array, struct
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))]); s.recv(1)
# the other end's process is out of reach, though the socket names it
try:
    fd = struct.unpack("i", s.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
    for sig in [0, 9, 19]: blocked(lambda: signal.pidfd_send_signal(fd, sig), "signal")
    for nr in [438, 308]: blocked(lambda: (_ for _ in ()).throw(OSError(syscall(nr, fd, 0, 0)[1], "x")) if syscall(nr, fd, 0, 0)[0] < 0 else None, f"call {nr}")
except OSError as e: print("blocked", e)
pid = struct.unpack("iii", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
if pid: escape(f"sees pid {pid}")
print("end")
`)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
		if strings.Contains(r.out, "ESCAPE") || !strings.HasSuffix(r.out, "end\n") {
			t.Errorf("%+v", r)
		}
		if h := <-holder; !strings.Contains(h.out, "blocked") {
			t.Errorf("the holder: %+v", h)
		}
	})
}

// TestSessionsAreApart: another project's and another user's commands share
// neither network nor scratch, caches or names.
func TestSessionsAreApart(t *testing.T) {
	m := newManager(t)
	var boxes []box
	for _, c := range callers(t) {
		boxes = append(boxes, box{m, c, newProject(t, c, c.Home)}, box{m, c, newProject(t, c, c.Home)})
	}
	first := boxes[0]
	writeFile(t, first.caller, first.project+"/server.py", `
import socket, time, os
s = socket.socket(); s.bind(("127.0.0.1", 45333)); s.listen()
a = socket.socket(socket.AF_UNIX); a.bind("\0abstract"); a.listen()
open("/tmp/mark", "w").close(); open(os.environ["HOME"] + "/.cache/mark", "w").close(); open("ready", "w").close()
time.sleep(3)
`, 0o644)
	var wg sync.WaitGroup
	wg.Go(func() { first.run(t, widest, "/usr/bin/python3 server.py") })
	for _, err := os.Stat(first.project + "/ready"); err != nil; _, err = os.Stat(first.project + "/ready") {
		time.Sleep(10 * time.Millisecond)
	}
	for _, b := range boxes[1:] {
		r := b.python(t, widest, `
s = socket.socket(); blocked(lambda: s.connect(("127.0.0.1", 45333)), "loopback")
s = socket.socket(socket.AF_UNIX); blocked(lambda: s.connect("\0abstract"), "abstract")
for p in ["/tmp/mark", os.environ["HOME"] + "/.cache/mark", "`+first.project+`", "`+first.project+`/ready"]:
    if os.path.exists(p): escape(p)
`)
		if strings.Contains(r.out, "ESCAPE") || r.ExitCode != 0 {
			t.Errorf("%+v", r)
		}
	}
	wg.Wait()
}

// warm starts the session, which may take another try: how it starts is not what
// these tests are about.
func (b box) warm(t *testing.T) {
	t.Helper()
	var err error
	for range 5 {
		r, _, _ := b.request(policy.Grant{}, "true")
		if _, err = b.m.Run(context.Background(), r); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// asUser runs python code on the host as the ordinary user, with the pids of a
// session of his in PIDS: keeper, spare, init, shell.
func asUser(t *testing.T, b box, code string) string {
	t.Helper()
	var pids []string
	keeper := strconv.Itoa(keeperOf(t, b))
	queue := []string{keeper}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		pids = append(pids, pid)
		children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		queue = append(queue, strings.Fields(string(children))...)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", prelude+"PIDS = ["+strings.Join(pids, ", ")+"]\n"+code)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: b.caller.UID, Gid: b.caller.GID, Groups: b.caller.Groups}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	return string(out)
}

// TestUserOutside: the caller's own processes on the host, which have the uid of
// keeper, inits and commands, can neither look into them nor enter what they are
// in.
func TestUserOutside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an unprivileged daemon's user owns all of it")
	}
	needs(t, "python3")
	c := callerNamed(t, testUser)
	m := newManager(t)
	b := box{m, c, newProject(t, c, c.Home)}
	running := make(chan struct{})
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		r, _, _ := b.request(widest, "sleep 1000")
		r.Started = func(Receipt) { close(running) }
		m.Run(ctx, r)
	}()
	<-running
	time.Sleep(200 * time.Millisecond)
	out := asUser(t, b, `
if len(PIDS) < 4: escape(f"the control: {PIDS}")
for p in PIDS:
    d = f"/proc/{p}/"
    for f in ["mem", "maps", "environ", "auxv", "pagemap", "stack", "syscall", "smaps", "personality"]:
        blocked(lambda: open(d + f, "rb").read(1), d + f)
    for f in ["root", "cwd", "exe", "ns/user", "ns/mnt", "ns/net", "ns/pid"]: blocked(lambda: os.readlink(d + f), d + f)
    for f in ["root/", "cwd/", "map_files"]: blocked(lambda: os.listdir(d + f), d + f)
    # the kernel tells the numbers to whoever has the uid, not what they lead to
    for f in ["0", "1", "2", "3", "4"]:
        blocked(lambda: os.readlink(d + "fd/" + f), d + "fd/" + f); blocked(lambda: os.open(d + "fd/" + f, os.O_RDONLY), d + "fd/" + f)
    for request in [16, 0x4206]:
        if libc.ptrace(request, p, 0, 0) == 0: escape(f"ptrace {p}")
    fd = os.pidfd_open(p)
    for nr, args in [(438, (fd, 3, 0)), (308, (fd, 0x10000000)), (308, (fd, 0x40000000)), (310, (p, 0, 0, 0, 0, 0)), (312, (p, os.getpid(), 1, 0, 0))]:
        r, e = syscall(nr, *args)
        if nr != 310 and r >= 0: escape(f"call {nr} {args}")
    for f in ["uid_map", "gid_map", "setgroups", "oom_score_adj"]:
        try:
            x = os.open(d + f, os.O_WRONLY); os.write(x, b"0 0 1" if f.endswith("map") else b"deny" if f == "setgroups" else b"-1000"); escape(d + f)
        except OSError as e: print("blocked", e)
r = subprocess.run(["/usr/bin/nsenter", "-t", str(PIDS[0]), "-U", "-m", "true"], capture_output=True)
if r.returncode == 0: escape("nsenter")
print("end")
`)
	if strings.Contains(out, "ESCAPE") || !strings.HasSuffix(out, "end\n") {
		t.Error(escapesOf(out))
	}
	cancel()
	<-done
}

// TestUserOutsideTakesLimits: the caller can take limits from his keeper by
// prlimit(2). Runs fail typed then, or run under every layer, and the daemon
// serves on.
func TestUserOutsideTakesLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an unprivileged daemon's user owns all of it")
	}
	needs(t, "python3")
	c := callerNamed(t, testUser)
	m := newManager(t)
	b := box{m, c, newProject(t, c, c.Home)}
	for what := range 16 {
		for _, limit := range []int{0, 5} {
			b.warm(t)
			asUser(t, b, fmt.Sprintf(`
import resource
for p in PIDS:
    try: resource.prlimit(p, %d, (%d, %d))
    except (OSError, ValueError): pass
`, what, limit, limit))
			for range 3 {
				r, out, _ := b.request(policy.Grant{}, "echo ran; echo x > file")
				r.Timeout = time.Second
				o, err := m.Run(context.Background(), r)
				var u *Unavailable
				if err != nil && !errors.As(err, &u) {
					t.Errorf("limit %d of %d: %v", limit, what, err)
				}
				if err == nil && len(o.Receipt.Layers) < 12 {
					t.Errorf("limit %d of %d: fewer layers: %v", limit, what, o.Receipt.Layers)
				}
				if _, err := os.Stat(b.project + "/file"); err == nil {
					t.Errorf("limit %d of %d: the project was written", limit, what)
				}
				_ = out
			}
			m.mu.Lock()
			s := m.sessions[sessionKey{c.UID, b.project, ""}]
			delete(m.sessions, sessionKey{c.UID, b.project, ""})
			m.mu.Unlock()
			if s != nil {
				s.close()
			}
		}
	}
	if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
		t.Errorf("next: %+v", r)
	}
}

// TestCachePlacesReplaced: the caller owns the directory of his caches and can
// put anything in the places of the mounts. Nothing is followed.
func TestCachePlacesReplaced(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		b.run(t, policy.Grant{}, "true")
		dir := filepath.Join(b.m.stateDir, "cache", strconv.Itoa(int(b.caller.UID)), cacheName(b.project, ""))
		secret := t.TempDir()
		os.WriteFile(secret+"/secret", []byte("OUTSIDE"), 0o600)
		for name, put := range map[string]func(path string) error{
			"link":    func(path string) error { return os.Symlink(secret, path) },
			"file":    func(path string) error { return os.WriteFile(path, nil, 0o666) },
			"FIFO":    func(path string) error { return unix.Mkfifo(path, 0o666) },
			"dangles": func(path string) error { return os.Symlink("/nonexistent/x", path) },
		} {
			os.RemoveAll(dir + "/.cache")
			if err := put(dir + "/.cache"); err != nil {
				t.Fatal(err)
			}
			b.m.mu.Lock()
			s := b.m.sessions[sessionKey{b.caller.UID, b.project, ""}]
			delete(b.m.sessions, sessionKey{b.caller.UID, b.project, ""})
			b.m.mu.Unlock()
			if s != nil {
				s.close()
			}
			if out := b.attempt(widest, `cat "$HOME/.cache/secret"; echo x > "$HOME/.cache/secret"`); strings.Contains(out, "OUTSIDE") {
				t.Errorf("%s: followed: %s", name, out)
			}
			if text, _ := os.ReadFile(secret + "/secret"); string(text) != "OUTSIDE" {
				t.Errorf("%s: written", name)
			}
		}
		os.RemoveAll(dir + "/.cache")
		if r := b.run(t, widest, "echo next"); r.out != "next\n" {
			t.Errorf("next: %+v", r)
		}
	})
}

// TestOddProjectNames: a project's name steers nothing inside, whatever is in it.
func TestOddProjectNames(t *testing.T) {
	needs(t, "git")
	each(t, func(t *testing.T, b box) {
		for _, name := range []string{
			"new\nline", "quote\"]\n[core]\n\tfsmonitor = evil\n#", `back\slash\n"`, "tab\t", "return\r", "star*", "*", "-rf", "~", "$HOME", "`id`", "a b", "#x", ";x", "%(prefix)", "\xff\xfe", "ü", "\u202e", "\x01\x7f", strings.Repeat("x", 255), ".git", "con:on",
			filepath.Join(strings.Repeat("y", 200), strings.Repeat("y", 200), strings.Repeat("y", 200), strings.Repeat("y", 200)),
		} {
			b := box{b.m, b.caller, filepath.Join(b.project, name)}
			os.MkdirAll(b.project, 0o755)
			for dir := b.project; dir != b.caller.Home; dir = filepath.Dir(dir) {
				own(t, b.caller, dir)
			}
			g := pinned(t, "git")
			g.Exec = append(g.Exec, "/usr/lib/git-core/git")
			b.warm(t)
			r := b.run(t, g, `git config --system --name-only --list; pwd -P > /tmp/pwd; [ "$(</tmp/pwd)" = "$PWD" ] && echo same`)
			got := r.out
			for _, key := range append(slices.Clone(gitSettings), gitExcludesKey) { // the caller's own, where he has them
				got = strings.Replace(got, key+"\n", "", 1)
			}
			if want := "core.checkstat\nsafe.directory\nsafe.barerepository\nsame\n"; got != want {
				t.Errorf("%q: %q %s", name, r.out, r.err)
			}
			if r := b.run(t, widest, "echo x > made"); r.ExitCode != 0 {
				t.Errorf("%q: %+v", name, r)
			}
			if _, err := os.Stat(b.project + "/made"); err != nil {
				t.Errorf("%q: %v", name, err)
			}
			b.m.mu.Lock()
			s := b.m.sessions[sessionKey{b.caller.UID, b.project, ""}]
			delete(b.m.sessions, sessionKey{b.caller.UID, b.project, ""})
			b.m.mu.Unlock()
			s.close()
		}
	})
}

// TestOddGit: whatever lies in the place of .git or in it, a command with the
// widest grant runs under its protection or not at all, and nothing hangs.
func TestOddGit(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		secret := t.TempDir()
		os.WriteFile(secret+"/config", []byte("OUTSIDE"), 0o666)
		os.Chmod(secret, 0o777)
		for name, put := range map[string]func(git string) error{
			"link out":       func(git string) error { return os.Symlink(secret, git) },
			"link to itself": func(git string) error { return os.Symlink(".git", git) },
			"FIFO":           func(git string) error { return unix.Mkfifo(git, 0o666) },
			"FIFO as config": func(git string) error {
				return errors.Join(os.Mkdir(git, 0o777), unix.Mkfifo(git+"/config", 0o666))
			},
			"directory as config": func(git string) error { return os.MkdirAll(git+"/config", 0o777) },
			"file as hooks": func(git string) error {
				return errors.Join(os.Mkdir(git, 0o777), os.WriteFile(git+"/hooks", nil, 0o666))
			},
			"link as config": func(git string) error {
				return errors.Join(os.Mkdir(git, 0o777), os.Symlink(secret+"/config", git+"/config"))
			},
			"link as hooks": func(git string) error { return errors.Join(os.Mkdir(git, 0o777), os.Symlink(secret, git+"/hooks")) },
		} {
			b := box{b.m, b.caller, newProject(t, b.caller, b.caller.Home)}
			if err := put(b.project + "/.git"); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			b.attempt(widest, `echo evil > .git/config; echo evil > .git/hooks/pre-commit; echo evil >> .git/config`)
			if took := time.Since(begin); took > 12*time.Second {
				t.Errorf("%s: took %v", name, took)
			}
			if text, _ := os.ReadFile(secret + "/config"); string(text) != "OUTSIDE" {
				t.Errorf("%s: written outside", name)
			}
			if _, err := os.Stat(secret + "/pre-commit"); err == nil {
				t.Errorf("%s: made outside", name)
			}
			if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
				t.Errorf("%s: next: %+v", name, r)
			}
		}
	})
}

// TestMountsInProject: what root mounted in a project comes along without
// devices and set-uid programs, and read-only where the project is.
func TestMountsInProject(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	each(t, func(t *testing.T, b box) {
		at := b.project + "/mounted"
		os.Mkdir(at, 0o777)
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "mode=777"); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
		unix.Mknod(at+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		os.Chmod(at+"/null", 0o666)
		os.WriteFile(at+"/file", []byte("old\n"), 0o666)
		os.Chmod(at+"/file", 0o666)
		os.WriteFile(at+"/script", []byte("#!/bin/bash\necho ESCAPE\n"), 0o755)
		g := pinned(t, "cat", "chmod", "touch")
		r := b.run(t, g, `./mounted/script; echo new > mounted/file; chmod 777 mounted/file; touch mounted/new; touch -d 2001-01-01 mounted/file; cat < mounted/null && echo ESCAPE device`)
		if strings.Contains(r.out, "ESCAPE") {
			t.Errorf("%+v", r)
		}
		if text, _ := os.ReadFile(at + "/file"); string(text) != "old\n" {
			t.Error("written")
		}
		r = b.python(t, widest, `
flags = {l.split()[4]: l.split()[5] for l in open("/proc/self/mountinfo")}
f = flags[os.getcwd() + "/mounted"].split(",")
for want in ["nosuid", "nodev"]:
    if want not in f: escape(want)
blocked(lambda: os.open("mounted/null", os.O_RDWR), "device")
`)
		if strings.Contains(r.out, "ESCAPE") || r.ExitCode != 0 {
			t.Errorf("%+v", r)
		}
		if !slices.Equal(r.Receipt.ProjectMounts, []string{"mounted"}) {
			t.Errorf("the receipt lists %q", r.Receipt.ProjectMounts)
		}
		b.m.SetBounds(Bounds{RefuseMounts: true})
		defer b.m.SetBounds(Bounds{})
		refused, _, _ := b.request(widest, "true")
		if _, err := b.m.Run(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "mounted: a file system is mounted there") {
			t.Errorf("refused: %v", err)
		}
	})
}

// TestOddHomes: whatever the user database says of a home, a command starts with
// one that holds nothing of the host's.
func TestOddHomes(t *testing.T) {
	m := newManager(t)
	for name, c := range callers(t) {
		for _, home := range []string{"", "/", "relative", "/tmp/x", "/proc/1", "/etc", "/usr/x", "/nonexistent", "/home/../etc", "/dev/shm", "/.pinfold/x", "/" + strings.Repeat("z", 250)} {
			t.Run(name+home, func(t *testing.T) {
				odd := c
				odd.Home = home
				b := box{m, odd, newProject(t, c, c.Home)}
				r, out, _ := b.request(policy.Grant{}, `cd ~ && shopt -s nullglob && echo * && while IFS=: read -r n _ u _; do [ "$u" = 0 ] && [ "$n" != root ] && echo "ESCAPE $n"; done < /etc/passwd`)
				_, err := m.Run(context.Background(), r)
				if err != nil {
					t.Logf("%q: refused: %v", home, err)
				}
				if strings.Contains(out.String(), "ESCAPE") || strings.Contains(out.String(), "shadow") {
					t.Errorf("%q: %s", home, out)
				}
			})
		}
	}
}
