package confine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/pinfold/pinfold/policy"
)

// TestBrokenLayers breaks one layer at a time and sees the command refused, with
// the layer's name, before it started.
func TestBrokenLayers(t *testing.T) {
	const ran = "echo ran > ran"
	root := func(p *plan) int { return p.rules[0].fd } // places[0] is the root
	for _, row := range []struct {
		name, layer string
		grant       policy.Grant
		tamper      func(*plan)
	}{
		{"landlock allows all reading", "landlock", widest, func(p *plan) { p.rules = append(p.rules, rule{root(p), rightRead}) }},
		{"landlock allows all writing", "landlock", widest, func(p *plan) { p.rules = append(p.rules, rule{root(p), rightWrite}) }},
		{"landlock allows all programs", "landlock", widest, func(p *plan) { p.rules = append(p.rules, rule{root(p), ll.AccessFSExecute}) }},
		{"landlock does not handle execution", "landlock", policy.Grant{}, func(p *plan) {
			p.config.HandledAccessFS &^= ll.AccessFSExecute
		}},
		{"the filter of the wider grants", "seccomp", policy.Grant{}, func(p *plan) { p.filter = filterAny }},
		{"the project stays writable", "mount view", policy.Grant{}, func(p *plan) {
			p.ops = append(p.ops, op{kind: opRebind, flags: opfProject, a: ".", clear: attrRO})
		}},
		{"/tmp stays executable", "exec pinning", policy.Grant{}, func(p *plan) {
			p.ops = append(p.ops, op{kind: opAttr, a: "/tmp", clear: attrNoexec})
		}},
		{"/usr stays executable", "exec pinning", policy.Grant{}, func(p *plan) {
			p.ops = append(p.ops, op{kind: opAttr, a: "/usr", clear: attrNoexec})
		}},
		{"the root is writable", "mount view", widest, func(p *plan) {
			p.ops = append(p.ops, op{kind: opAttr, a: "/", clear: attrRO})
		}},
		{"a mount that fails", "mount view", widest, func(p *plan) {
			p.ops = append(p.ops, op{kind: opAttr, a: "/no/such/place", set: attrRO})
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			each(t, func(t *testing.T, b box) {
				b.m.tamper = row.tamper
				r, _, _ := b.request(row.grant, ran)
				_, err := b.m.Run(context.Background(), r)
				var u *Unavailable
				if !errors.As(err, &u) || u.Layer != row.layer {
					t.Errorf("got %v, want the layer %q missing", err, row.layer)
				}
				if _, err := os.Stat(b.project + "/ran"); err == nil {
					t.Error("the command ran")
				}
			})
		})
	}
}

// TestNoFilter: without a filter there is no command.
func TestNoFilter(t *testing.T) {
	m := newManager(t)
	for name, c := range callers(t) {
		t.Run(name, func(t *testing.T) {
			own := m.filters
			defer func() { m.filters = own }()
			// a program that allows everything
			allow, err := sealed("allow", []byte{6, 0, 0, 0, 0, 0, 0xff, 0x7f})
			if err != nil {
				t.Fatal(err)
			}
			m.filters = filters{allow, allow, allow}
			b := box{m, c, newProject(t, c, c.Home)}
			r, _, _ := b.request(widest, "true")
			_, err = m.Run(context.Background(), r)
			var u *Unavailable
			if !errors.As(err, &u) || u.Layer != "seccomp" {
				t.Errorf("got %v, want seccomp missing", err)
			}
		})
	}
}

// keeperOf finds the keeper's pid.
func keeperOf(t *testing.T, b box) int {
	t.Helper()
	b.m.mu.Lock()
	s := b.m.sessions[sessionKey{b.caller.UID, b.project, ""}]
	b.m.mu.Unlock()
	s.open.RLock()
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(s.pidfd))
	s.open.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "Pid:\t"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(n))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no pid")
	return 0
}

// TestKeeperKilled: everything beneath it is gone when the result is there, and
// the next command works.
func TestKeeperKilled(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		r, _, _ := b.request(widest, `setsid sh -c 'while :; do date > alive; sleep 0.05; done' & sleep 1000`)
		r.Started = func(Receipt) {
			go func() {
				for _, err := os.Stat(b.project + "/alive"); err != nil; _, err = os.Stat(b.project + "/alive") {
					time.Sleep(10 * time.Millisecond)
				}
				syscall.Kill(keeperOf(t, b), syscall.SIGKILL)
			}()
		}
		o, err := b.m.Run(context.Background(), r)
		if err != nil || o.Ended != EndedKeeper {
			t.Errorf("%+v %v", o, err)
		}
		os.Remove(b.project + "/alive")
		time.Sleep(300 * time.Millisecond)
		if _, err := os.Stat(b.project + "/alive"); err == nil {
			t.Error("still running after the result")
		}
		if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
			t.Errorf("next: %+v", r)
		}
	})
}

// TestKeeperStopped: a keeper that does not answer does not hold the daemon up.
func TestKeeperStopped(t *testing.T) {
	eachLong(t, func(t *testing.T, b box) {
		r, _, _ := b.request(widest, `trap '' TERM; while :; do sleep 0.1; done`)
		r.Timeout = 200 * time.Millisecond
		r.Started = func(Receipt) { syscall.Kill(keeperOf(t, b), syscall.SIGSTOP) }
		o, err := b.m.Run(context.Background(), r)
		if err != nil || o.Ended != EndedTimeout || o.Signal != "SIGKILL" {
			t.Errorf("%+v %v", o, err)
		}
		for range 2 { // the first may find a spare that was made before
			if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
				t.Errorf("next: %+v", r)
			}
		}
	})
}

// TestSpareKilled: an init that somebody killed while it waited is replaced.
func TestSpareKilled(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		b.run(t, policy.Grant{}, "true")
		b.m.mu.Lock()
		s := b.m.sessions[sessionKey{b.caller.UID, b.project, ""}]
		b.m.mu.Unlock()
		for range 3 {
			sp := <-s.spares
			sp.signal(syscall.SIGKILL)
			time.Sleep(50 * time.Millisecond)
			s.spares <- sp
			if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
				t.Errorf("next: %+v", r)
			}
		}
	})
}

// TestNextWhileProcessesAreUsedUp: a command that takes every process of its
// session delays the next one, and ends nobody else's.
func TestNextWhileProcessesAreUsedUp(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		var wg sync.WaitGroup
		wg.Go(func() {
			r, _, _ := b.request(widest, `bomb() { bomb | bomb & }; bomb; sleep 1000`)
			r.Timeout = 2 * time.Second
			if o, err := b.m.Run(context.Background(), r); err != nil || o.Ended != EndedTimeout {
				t.Errorf("bomb: %+v %v", o, err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		for range 3 {
			r, _, _ := b.request(policy.Grant{}, "true")
			o, err := b.m.Run(context.Background(), r)
			var u *Unavailable
			if err != nil && !errors.As(err, &u) || err == nil && o.Ended != EndedItself {
				t.Errorf("beside it: %+v %v", o, err)
			}
		}
		wg.Wait()
		if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
			t.Errorf("next: %+v", r)
		}
	})
}

// TestManyAtOnce: 8 clients, 200 commands: every answer belongs to its question
// and nothing grows.
func TestManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		b.run(t, policy.Grant{}, "true")
		b.run(t, widest, "true")
		before := census(t)
		var wg sync.WaitGroup
		for client := range 8 {
			wg.Go(func() {
				for i := range 25 {
					want := strconv.Itoa(client*1000 + i)
					g := policy.Grant{}
					if i%3 == 0 {
						g = widest
					}
					r := b.run(t, g, "echo "+want+"; echo e"+want+" >&2; exit "+strconv.Itoa(i%7))
					if r.out != want+"\n" || r.err != "e"+want+"\n" || r.ExitCode != i%7 {
						t.Errorf("asked for %s: %+v", want, r)
					}
				}
			})
		}
		wg.Wait()
		for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			after := census(t)
			if after == before {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("before %+v, after %+v", before, after)
				break
			}
		}
	})
}

type counts struct{ fds, children, mounts, cgroups int }

// census counts what could leak: descriptors of the daemon, processes beneath
// it, mounts, cgroups of its own.
func census(t *testing.T) counts {
	t.Helper()
	c := counts{children: descendants()}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	c.fds = len(fds)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	c.mounts = strings.Count(string(mounts), "\n")
	if r := findCgroups(); r.dir != "" {
		own, _ := filepath.Glob(filepath.Join(r.dir, fmt.Sprintf("%s%d-*", cgroupPrefix, os.Getpid())))
		c.cgroups = len(own)
	}
	return c
}

// parents maps every process to its parent.
func parents() map[int]int {
	parent := map[int]int{}
	procs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range procs {
		line, _ := os.ReadFile(p)
		var pid, ppid int
		var state string
		// the name, in parentheses, may hold anything
		_, rest, _ := strings.Cut(string(line), ") ")
		if _, err := fmt.Sscan(rest, &state, &ppid); err == nil {
			fmt.Sscan(string(line), &pid)
			parent[pid] = ppid
		}
	}
	return parent
}

// descendants counts the processes beneath this one.
func descendants() int {
	parent := parents()
	n := 0
	for pid := range parent {
		for up := parent[pid]; up != 0; up = parent[up] {
			if up == os.Getpid() {
				n++
				break
			}
		}
	}
	return n
}

// TestCloseLeavesNothing: after Close there is no process, mount, cgroup or
// descriptor of the manager's.
func TestCloseLeavesNothing(t *testing.T) {
	before := census(t)
	m, err := New(Config{StateDir: stateDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range callers(t) {
		b := box{m, c, newProject(t, c, c.Home)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, _, _ := b.request(widest, "sleep 1000")
			o, err := m.Run(context.Background(), r)
			if err != nil || o.Ended != EndedKeeper {
				t.Errorf("a run under way: %+v %v", o, err)
			}
		}()
		for m.Sessions() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		defer func() { <-done }()
	}
	m.Close()
	time.Sleep(100 * time.Millisecond)
	if after := census(t); after.children != before.children || after.mounts != before.mounts || after.cgroups != before.cgroups || after.fds > before.fds+2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestIdleSessionEnds: a session that nobody uses goes away by itself.
func TestIdleSessionEnds(t *testing.T) {
	m, err := New(Config{StateDir: stateDir(t), Idle: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range callers(t) {
		b := box{m, c, newProject(t, c, c.Home)}
		b.run(t, policy.Grant{}, "true")
	}
	for deadline := time.Now().Add(60 * time.Second); m.Sessions() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions are left", m.Sessions())
		}
	}
}

// TestSessionsAreBounded: the least recently used session makes room.
func TestSessionsAreBounded(t *testing.T) {
	m, err := New(Config{StateDir: stateDir(t), MaxSessions: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, c := range callers(t) {
		for range 4 {
			b := box{m, c, newProject(t, c, c.Home)}
			b.run(t, policy.Grant{}, "true")
		}
	}
	if n, most := m.Sessions(), 2*len(callers(t)); n > most {
		t.Errorf("%d sessions, want at most %d", n, most)
	}
}

// TestRootWithoutPidsCgroup: root's processes that nothing can count are not
// started.
func TestRootWithoutPidsCgroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("is about root")
	}
	m := newManager(t)
	m.cgroups = cgroups{why: errors.New("no cgroup here")}
	c := callerNamed(t, "root")
	b := box{m, c, newProject(t, c, c.Home)}
	r, _, _ := b.request(policy.Grant{}, "true")
	_, err := m.Run(context.Background(), r)
	var u *Unavailable
	if !errors.As(err, &u) || u.Layer != "process limit" || !strings.Contains(u.Error(), "no cgroup here") {
		t.Errorf("got %v", err)
	}
	c = callerNamed(t, testUser)
	b = box{m, c, newProject(t, c, c.Home)}
	if r := b.run(t, policy.Grant{}, "echo served"); r.out != "served\n" || r.Receipt.Limits.ProcessesHeld != "rlimit" {
		t.Errorf("an ordinary user: %+v", r)
	}
}

// children are the processes right beneath this one.
func children() []int {
	var pids []int
	for pid, up := range parents() {
		if up == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func uidOf(pid int) uint32 {
	st, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return ^uint32(0)
	}
	uid, _ := owner(st)
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if _, rest, ok := strings.Cut(string(status), "\nUid:\t"); ok {
		fmt.Sscan(rest, &uid)
	}
	return uid
}
