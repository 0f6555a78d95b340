package confine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
)

// The flags that the keeper is built with, see proto.go, and what finds errors.
var (
	keeperFlags = []string{"-std=gnu17", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-g", "-O1"}
	sanitizers  = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"}
)

// build compiles C sources of the tree.
func build(t *testing.T, compiler string, flags []string, sources ...string) string {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("%s is not installed", compiler)
	}
	if _, err := os.Stat("keeper.c"); err != nil {
		t.Skip("the sources are not here")
	}
	out := filepath.Join(t.TempDir(), "built")
	args := slices.Concat(keeperFlags, flags, []string{"-o", out}, sources)
	if text, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, strings.Join(args, " "), err, text)
	}
	for dir := filepath.Dir(out); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o711)
	}
	return out
}

// messages writes real messages for the parsers into files: the first byte says
// which one, and how many descriptors come with it.
func messages(t *testing.T) []string {
	t.Helper()
	var files []string
	add := func(parser byte, m []byte) {
		name := filepath.Join(t.TempDir(), strconv.Itoa(len(files)))
		if err := os.WriteFile(name, append([]byte{parser}, m...), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	each(t, func(t *testing.T, b box) {
		gitRepository(t, b)
		b.run(t, widest, "true")
		b.m.mu.Lock()
		s := b.m.sessions[sessionKey{b.caller.UID, b.project, ""}]
		b.m.mu.Unlock()
		add(8, s.encodeInit())
		for _, g := range []policy.Grant{{}, widest, {Write: []string{".git"}}} {
			p, err := s.newPlan(g)
			if err != nil {
				t.Fatal(err)
			}
			r, _, _ := b.request(g, "echo hello")
			c := &command{s: s, r: r, bounds: b.m.bounds.Load()}
			m, err := c.encode(p, 0, 0)
			p.free()
			if err != nil {
				t.Fatal(err)
			}
			add(3, m[headSize:])
		}
	})
	return files
}

// TestKeeperParsers: what the keeper and a spare read, cut and changed in many
// ways, under the sanitizers for addresses and undefined behaviour.
func TestKeeperParsers(t *testing.T) {
	program := build(t, "gcc", sanitizers, "testdata/keeper/parse.c")
	out, err := exec.Command(program, append([]string{"500"}, messages(t)...)...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestKeeperParsersValgrind is the same under valgrind, which also sees what is
// read before it was written.
func TestKeeperParsersValgrind(t *testing.T) {
	needs(t, "valgrind")
	program := build(t, "gcc", nil, "testdata/keeper/parse.c")
	args := append([]string{"-q", "--error-exitcode=9", "--leak-check=full", program, "50"}, messages(t)...)
	out, err := exec.Command("valgrind", args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestKeeperFuzz runs libFuzzer on the parsers for as long as PINFOLD_FUZZ says.
func TestKeeperFuzz(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("PINFOLD_FUZZ"))
	if err != nil {
		t.Skip("PINFOLD_FUZZ=1m says for how long")
	}
	program := build(t, "clang", []string{"-fsanitize=fuzzer,address,undefined", "-DFUZZER", "-Wno-unused-function"}, "testdata/keeper/parse.c")
	corpus := t.TempDir()
	for i, name := range messages(t) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(corpus, strconv.Itoa(i)), content, 0o644)
	}
	out, err := exec.Command(program, fmt.Sprintf("-max_total_time=%d", int(long.Seconds())), "-max_len=131072", "-print_final_stats=1", corpus).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Logf("%s", strings.Join(lines[max(0, len(lines)-12):], "\n"))
	if err != nil {
		t.Error(err)
	}
}

// TestKeeperSanitized runs commands with a keeper that is built with the
// sanitizers: sessions, commands that fail, end and are ended.
func TestKeeperSanitized(t *testing.T) {
	program := build(t, "gcc", sanitizers, "keeper.c", "command.c", "plan.c", "testdata/keeper/main.c")
	m := newManager(t)
	m.keeper = program
	for name, c := range callers(t) {
		t.Run(name, func(t *testing.T) {
			b := box{m, c, newProject(t, c, c.Home)}
			gitRepository(t, b)
			for _, g := range []policy.Grant{{}, widest, pinned(t, "ls")} {
				for i := range 10 {
					if r := b.run(t, g, "echo out; echo err >&2; exit "+strconv.Itoa(i)); r.ExitCode != i || r.out != "out\n" || r.err != "err\n" {
						t.Fatalf("%+v", r)
					}
				}
			}
			if r := b.run(t, widest, strings.Repeat(": "+strings.Repeat("x", 1000)+"\n", 100)+"kill -9 $$"); r.Signal != "SIGKILL" {
				t.Errorf("%+v", r)
			}
			r, _, _ := b.request(widest, "sleep 100 & sleep 100")
			r.Timeout = 200 * time.Millisecond
			if o, err := m.Run(t.Context(), r); err != nil || o.Ended != EndedTimeout {
				t.Errorf("%+v %v", o, err)
			}
			r, _, _ = b.request(widest, "true")
			r.Dir = "no/such"
			if _, err := m.Run(t.Context(), r); err == nil {
				t.Error("ran in a directory that is not there")
			}
			if r := b.run(t, policy.Grant{}, "echo next"); r.out != "next\n" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestKeeperHoldsNothing: the keeper and a spare init have no descriptor of the
// daemon's or the host's, cannot be traced by the caller, and have no privilege.
func TestKeeperHoldsNothing(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		b.run(t, widest, "true")
		b.run(t, policy.Grant{}, "true")
		keeper := keeperOf(t, b)
		pids := []int{keeper}
		for deadline := time.Now().Add(60 * time.Second); len(pids) < 2 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			for pid, up := range parents() {
				if up == keeper {
					pids = append(pids, pid)
				}
			}
		}
		if len(pids) < 2 {
			t.Fatal("no spare")
		}
		for _, pid := range pids {
			proc := "/proc/" + strconv.Itoa(pid)
			status, err := os.ReadFile(proc + "/status")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"\nCapBnd:\t0000000000000000", "\nCapAmb:\t0000000000000000", "\nNoNewPrivs:\t1"} {
				if !strings.Contains(string(status), want) {
					t.Errorf("process %d lacks %q", pid, want)
				}
			}
			if os.Geteuid() != 0 {
				// it belongs to this user, who can look into all but what is not dumpable
				if _, err := os.ReadDir(proc + "/fd"); err == nil {
					t.Errorf("process %d can be looked into", pid)
				}
				continue
			}
			if st, err := os.Stat(proc + "/mem"); err != nil {
				t.Error(err)
			} else if uid, _ := owner(st); uid != 0 {
				t.Errorf("process %d is dumpable: its files belong to %d", pid, uid)
			}
			fds, err := os.ReadDir(proc + "/fd")
			if err != nil {
				t.Fatal(err)
			}
			sockets := 0
			for _, fd := range fds {
				to, err := os.Readlink(proc + "/fd/" + fd.Name())
				if err != nil {
					continue
				}
				switch {
				case to == "/dev/null", to == "anon_inode:[signalfd]":
				case strings.HasPrefix(to, "socket:["):
					sockets++ // the channel, the abstract canary, a spare's own
				default:
					t.Errorf("process %d holds %s as %s", pid, to, fd.Name())
				}
			}
			if sockets > 3 {
				t.Errorf("process %d holds %d sockets", pid, sockets)
			}
			if root, err := os.Readlink(proc + "/root"); err != nil || root != "/" {
				t.Errorf("root %q %v", root, err)
			}
			if _, err := os.Stat(proc + "/root/etc/shadow"); err == nil {
				t.Errorf("process %d sees the host", pid)
			}
		}
	})
}

// FuzzEvent: the daemon's parser of what the keeper says.
func FuzzEvent(f *testing.F) {
	for size := 0; size < 300; size += 7 {
		for kind := range byte(30) {
			m := make([]byte, size)
			if size > 8 {
				m[0], m[4], m[5] = kind, byte(size), byte(size>>8)
			}
			if kind == 16 || size%16 == 0 {
				f.Add(m)
			}
		}
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		e, err := parseEvent(m)
		if err == nil && (len(m) < headSize || e.kind == 0) {
			t.Errorf("%d bytes were taken for %+v", len(m), e)
		}
		parseRights(m)
	})
}
