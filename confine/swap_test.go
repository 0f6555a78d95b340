package confine

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// TestProjectSwapped: while the way to a project is exchanged all the time for a
// link to another place, a command sees the project or none.
func TestProjectSwapped(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		other := newProject(t, b.caller, b.caller.Home)
		writeFile(t, b.caller, b.project+"/way/p/name", "inside\n", 0o644)
		writeFile(t, b.caller, other+"/p/name", "OUTSIDE\n", 0o644)
		if err := os.Symlink(other, b.project+"/link"); err != nil {
			t.Fatal(err)
		}
		inner := box{b.m, b.caller, b.project + "/way/p"}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					unix.Renameat2(unix.AT_FDCWD, b.project+"/way", unix.AT_FDCWD, b.project+"/link", unix.RENAME_EXCHANGE)
				}
			}
		})
		for range 40 {
			r, out, _ := inner.request(widest, "cat name; echo written > name")
			inner.m.Run(context.Background(), r)
			if strings.Contains(out.String(), "OUTSIDE") {
				t.Error("a place beside the project was read")
			}
			b.m.mu.Lock()
			key := sessionKey{b.caller.UID, inner.project, ""}
			s := b.m.sessions[key]
			delete(b.m.sessions, key)
			b.m.mu.Unlock()
			if s != nil {
				s.close()
			}
		}
		close(stop)
		wg.Wait()
		if text, _ := os.ReadFile(other + "/p/name"); string(text) != "OUTSIDE\n" {
			t.Errorf("a place beside the project was written: %q", text)
		}
	})
}

// TestProjectIsTheOneThatWasJudged: another directory in its place is refused.
func TestProjectIsTheOneThatWasJudged(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r, _, _ := b.request(policy.Grant{}, "true")
		r.Root = Identity{Dev: 1, Ino: 1}
		var p *ProjectError
		if _, err := b.m.Run(context.Background(), r); !errors.As(err, &p) {
			t.Errorf("got %v", err)
		}
		var st unix.Stat_t
		if err := unix.Stat(b.project, &st); err != nil {
			t.Fatal(err)
		}
		r.Root = Identity{st.Dev, st.Ino}
		if _, err := b.m.Run(context.Background(), r); err != nil {
			t.Error(err)
		}
	})
}

// TestPinnedSocketpair: no kind of socket of a pinned command reaches a path.
func TestPinnedSocketpair(t *testing.T) {
	needs(t, "gcc")
	src := `
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
int main(void) {
	int p[2];
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "s" };
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0 && sendto(p[0], "x", 1, 0, (void *)&a, sizeof a) == 1)
		puts("ESCAPE");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0)
		puts("end");
}`
	each(t, func(t *testing.T, b box) {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.project + "/s", Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		own(t, b.caller, b.project+"/s")
		writeFile(t, b.caller, b.project+"/calls.c", src, 0o644)
		b.run(t, widest, "gcc -o calls calls.c")
		if r := b.run(t, policy.Grant{Exec: []string{b.project + "/calls"}}, "./calls"); r.out != "end\n" {
			t.Errorf("%+v", r)
		}
	})
}

// TestScratchIsMended: a command that spoils /tmp spoils it for itself alone.
func TestScratchIsMended(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		b.run(t, widest, "chmod 0 /tmp /var/tmp")
		if r := b.run(t, policy.Grant{}, "echo x > /tmp/y && echo x > /var/tmp/y && echo fine"); r.out != "fine\n" {
			t.Errorf("%+v", r)
		}
	})
}

// TestGitFileIsProtected: a .git that is a file cannot be made to point
// elsewhere, and one that is a link stops what could change it, with a reason.
func TestGitFileIsProtected(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/.git", "gitdir: ../x\n", 0o644)
		if r := b.run(t, widest, "echo gitdir: ./evil > .git || mv .git x || rm .git"); r.ExitCode == 0 {
			t.Error("the file was changed")
		}
		os.Remove(b.project + "/.git")
		os.Symlink("elsewhere", b.project+"/.git")
		r, _, _ := b.request(widest, "true")
		var p *ProjectError
		if _, err := b.m.Run(context.Background(), r); !errors.As(err, &p) || !strings.Contains(err.Error(), ".git") {
			t.Errorf("a link: %v", err)
		}
		if r := b.run(t, policy.Grant{}, "echo fine"); r.out != "fine\n" {
			t.Errorf("what only reads: %+v", r)
		}
	})
}

// TestCountsAreBounded: a session has a share of what the kernel counts for the
// daemon's user as well.
func TestCountsAreBounded(t *testing.T) {
	needs(t, "python3")
	each(t, func(t *testing.T, b box) {
		r := b.python(t, widest, `
n = 0
while n < 1000 and libc.inotify_init() >= 0: n += 1
print(n)
signal.pthread_sigmask(signal.SIG_BLOCK, [34])
libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
m = 0
while m < 20000 and libc.sigqueue(os.getpid(), 34, None) >= 0: m += 1
print(m)
`)
		var instances, signals int
		lines := strings.Fields(r.out)
		if len(lines) != 2 {
			t.Fatalf("%s%s", r.out, r.err)
		}
		scan(lines[0], &instances)
		scan(lines[1], &signals)
		if instances == 0 || instances > 16 || signals == 0 || signals > 4096 {
			t.Errorf("%d inotify instances, %d queued signals", instances, signals)
		}
	})
}

// TestFirstProcessStopped: a caller that stops what starts its session gets an
// error, and nobody waits for ever.
func TestFirstProcessStopped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("stops every process of the test's user")
	}
	m := newManager(t)
	c := callerNamed(t, testUser)
	b := box{m, c, newProject(t, c, c.Home)}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for _, pid := range children() {
					if uidOf(pid) == c.UID {
						syscall.Kill(pid, syscall.SIGSTOP)
					}
				}
			}
		}
	})
	r, _, _ := b.request(policy.Grant{}, "true")
	begin := time.Now()
	_, err := m.Run(context.Background(), r)
	close(stop)
	wg.Wait()
	if took := time.Since(begin); took > startDeadline+25*time.Second {
		t.Errorf("took %v: %v", took, err)
	}
	closed := make(chan struct{})
	go func() { m.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("Close waits for ever")
	}
	if n := descendants(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}
