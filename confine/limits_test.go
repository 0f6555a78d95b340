package confine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMemoryIsBounded: every way to hold memory that need not be one process's
// own, each past the limit, and each beneath it.
func TestMemoryIsBounded(t *testing.T) {
	needs(t, "python3")
	const head = "import os,sys,mmap,time,threading\nM=1<<20\n"
	eachLong(t, func(t *testing.T, b box) {
		for name, code := range map[string]string{
			"one process":    "x=bytearray(N*M); time.sleep(1)",
			"many":           "for i in range(8):\n if os.fork()==0: x=bytearray(N*M//8); time.sleep(1); os._exit(0)\nfor i in range(8): os.wait()",
			"shared":         "x=mmap.mmap(-1,N*M)\nfor i in range(N): x.write(b'x'*M)\ntime.sleep(1)",
			"memory file":    "fd=os.memfd_create('x')\nfor i in range(N): os.write(fd,b'x'*M)\ntime.sleep(1)",
			"/dev/shm":       "f=open('/dev/shm/x','wb')\nfor i in range(N): f.write(b'x'*M)\nf.close(); time.sleep(1)",
			"/tmp":           "time.sleep(.3); f=open('/tmp/big','wb')\nfor i in range(N): f.write(b'x'*M)\nf.close(); time.sleep(1); os.remove('/tmp/big')",
			"ended leader":   "def f(): x=bytearray(N*M); time.sleep(1)\nthreading.Thread(target=f).start()\nimport ctypes; ctypes.CDLL(None).syscall(60 if os.uname().machine=='x86_64' else 93,0)",
			"forked, shared": "x=bytearray(N*M*2//5)\nfor i in range(5):\n if os.fork()==0: time.sleep(1); os._exit(0)\nfor i in range(5): os.wait()\nif N>200: x=bytearray(N*M)\ntime.sleep(1)",
		} {
			writeFile(t, b.caller, b.project+"/m.py", head+"N=int(sys.argv[1])\n"+code+"\nprint('done')\n", 0o644)
			run := func(size string) result {
				return b.do(t, widest, "python3 m.py "+size, func(r *Request) { r.Limits.MemoryBytes = 256 << 20 })
			}
			if got := run("600"); got.Ended != EndedMemory || strings.Contains(got.out, "done") {
				t.Errorf("%s, too much: %+v", name, got)
			}
			b.run(t, widest, "rm -f /tmp/big")
			if got := run("150"); got.Ended != EndedItself {
				t.Errorf("%s, not too much: %+v", name, got)
			}
		}
	})
}

func TestCPUIsBounded(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		for _, text := range []string{"while :; do :; done", "for i in 1 2 3 4 5 6; do (j=0; while ((j<400000)); do ((j++)); done); done"} {
			begin := time.Now()
			got := b.do(t, widest, text, func(r *Request) { r.Limits.CPU = time.Second })
			if got.Ended != EndedCPU || time.Since(begin) > 20*time.Second {
				t.Errorf("%s: %+v after %v", text, got, time.Since(begin))
			}
		}
	})
}

func TestProcessesAreLowered(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		got := b.do(t, widest, "for i in $(seq 30); do sleep 5 & done; wait", func(r *Request) { r.Limits.Processes = 20 })
		if got.Ended != EndedProcesses && got.Receipt.Limits.ProcessesHeld != heldByV2 {
			t.Errorf("%+v", got)
		}
		got = b.do(t, widest, "for i in $(seq 10); do sleep 0.5 & done; wait", func(r *Request) { r.Limits.Processes = 20 })
		if got.Ended != EndedItself || got.Receipt.Limits.Processes != 20 {
			t.Errorf("%+v", got)
		}
	})
}

// TestFilesAreBounded: a command that fills the project with files is ended, and
// so is one that fills it with bytes.
func TestFilesAreBounded(t *testing.T) {
	needs(t, "python3")
	eachLong(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/f.py", "import os\nos.mkdir('i')\nfor n in range(200000): open('i/%d'%n,'w').close()\nprint('done')\n", 0o644)
		got := b.do(t, widest, "python3 f.py", func(r *Request) { r.Limits.Files = 20_000 })
		made, _ := os.ReadDir(b.project + "/i")
		if got.Ended != EndedFiles || len(made) > 150_000 {
			t.Errorf("%+v, %d files", got, len(made))
		}
		got = b.do(t, widest, "for i in 1 2 3 4 5 6 7 8; do head -c 100M /dev/zero > b$i; done; echo done", func(r *Request) { r.Limits.DiskBytes = 100 << 20 })
		if got.Ended != EndedDisk || got.out != "" {
			t.Errorf("%+v", got)
		}
		os.RemoveAll(b.project + "/i")
	})
}

// TestReserve: what falls below the reserve is ended; what only runs on a full
// disk is not.
func TestReserve(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		b.m.SetBounds(Bounds{Reserve: Reserve{Percent: 100}}) // a quarter of it, at most
		defer b.m.SetBounds(Bounds{})
		var st = diskOf(t, b.project)
		if st.free > st.size/4 {
			b.m.SetBounds(Bounds{})
			d := disk{before: st.raw}
			d.before.Bfree += 64 << 20 / uint64(st.raw.Bsize)
			d.fd = st.fd
			if why := d.look(DefaultLimits, Reserve{Percent: 5, Bytes: 1 << 60}); (why == EndedReserve) != (st.free < st.size/4) {
				t.Errorf("much is free: %s", why)
			}
		}
		got := b.run(t, widest, "sleep 0.5")
		if got.Ended != EndedItself {
			t.Errorf("%+v", got)
		}
	})
}

func TestRequestOnlyLowers(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		got := b.do(t, widest, "ulimit -f", func(r *Request) {
			r.Limits = Limits{FileBytes: 1 << 40, MemoryBytes: 1 << 50, Processes: 1 << 20, OpenFiles: 100}
		})
		l := got.Receipt.Limits
		if l.FileBytes != DefaultLimits.FileBytes || l.MemoryBytes > DefaultLimits.MemoryBytes || l.Processes != DefaultLimits.Processes || l.OpenFiles != 100 {
			t.Errorf("%+v", l)
		}
		if got.out != "2097152\n" {
			t.Errorf("ulimit: %q", got.out)
		}
		// never: they break what reserves addresses that it does not use
		if got := b.run(t, widest, "ulimit -v; ulimit -d"); got.out != "unlimited\nunlimited\n" {
			t.Errorf("%q", got.out)
		}
	})
}

// TestRequiredCgroup: where a cgroup is required and there is none, nothing runs,
// and the layer says so.
func TestRequiredCgroup(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		if b.m.cgroups.memory && b.m.cgroups.pids {
			t.Skip("this machine has delegated a cgroup")
		}
		if got := b.run(t, widest, "true"); got.Receipt.Limits.MemoryHeld != heldBySampling {
			t.Errorf("%+v", got.Receipt.Limits)
		}
		b.m.SetBounds(Bounds{RequireCgroup: true})
		defer b.m.SetBounds(Bounds{})
		for range 5 { // each gives its init back
			r, _, _ := b.request(widest, "echo x > ran")
			_, err := b.m.Run(context.Background(), r)
			var u *Unavailable
			if !errors.As(err, &u) || u.Layer != "memory limit" || u.Fix == "" {
				t.Errorf("%v", err)
			}
		}
		if _, err := os.Stat(b.project + "/ran"); err == nil {
			t.Error("it ran all the same")
		}
		for _, l := range b.m.Layers(context.Background(), b.caller, b.project) {
			if l.Name == "memory limit" && l.OK {
				t.Errorf("%+v", l)
			}
		}
	})
}

// fakeV2 is a directory like a delegated cgroup v2.
func fakeV2(t *testing.T) string {
	dir := t.TempDir()
	for name, content := range map[string]string{"cgroup.controllers": "cpu memory pids\n", "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCgroupV2Files(t *testing.T) {
	dir := fakeV2(t)
	r, err := cgroupsV2(dir)
	if err != nil || !r.memory || !r.pids || !r.v2 {
		t.Fatalf("%+v %v", r, err)
	}
	if text, _ := os.ReadFile(dir + "/cgroup.subtree_control"); string(text) != "+memory +pids" {
		t.Errorf("handed on: %q", text)
	}
	run := &runCgroup{cgroups: r, dir: dir}
	for _, name := range []string{"memory.max", "memory.oom.group", "pids.max", "memory.swap.max"} {
		os.WriteFile(dir+"/"+name, nil, 0o644)
	}
	os.WriteFile(dir+"/memory.events", []byte("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 1\n"), 0o644)
	if memory, pids := run.limit(Limits{MemoryBytes: 1 << 30, Processes: 10}); !memory || !pids {
		t.Error("not held")
	}
	for name, want := range map[string]string{"memory.max": "1073741824", "memory.oom.group": "1", "pids.max": "11"} {
		if text, _ := os.ReadFile(dir + "/" + name); string(text) != want {
			t.Errorf("%s: %q", name, text)
		}
	}
	if run.oomKills() != 2 || !run.ranOut() {
		t.Errorf("kills: %d", run.oomKills())
	}
	run.kills = 2
	if run.ranOut() {
		t.Error("what was killed before counts")
	}
	os.WriteFile(dir+"/cgroup.controllers", []byte("hugetlb\n"), 0o644)
	if _, err := cgroupsV2(dir); err == nil {
		t.Error("a hierarchy without the controllers was taken")
	}
}

type diskNow struct {
	fd         int
	raw        unix.Statfs_t
	free, size uint64
}

func diskOf(t *testing.T, dir string) diskNow {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d := diskNow{fd: int(f.Fd())}
	if err := unix.Fstatfs(d.fd, &d.raw); err != nil {
		t.Fatal(err)
	}
	d.free, d.size = d.raw.Bavail*uint64(d.raw.Bsize), d.raw.Blocks*uint64(d.raw.Bsize)
	return d
}
