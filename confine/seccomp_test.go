package confine

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// AUDIT_ARCH_* of linux/audit.h, as seccomp_data has them.
var auditArch = map[string]uint32{"amd64": 0xc000003e, "arm64": 0xc00000b7, "386": 0x40000003, "arm": 0x40000028}

// filterNames are the filters by name, in golden files and failures.
var filterNames = map[string]int{"pinned": filterPinned, "any": filterAny, "door": filterDoor}

func callsOf(t *testing.T, goarch string) []string {
	t.Helper()
	calls, err := containerDefault(goarch)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// TestSeccompGolden: the lists are as they are written out, so that what a newer
// container default or an edit changes is seen.
func TestSeccompGolden(t *testing.T) {
	for goarch := range archs {
		for name, filter := range filterNames {
			var lines []string
			for _, a := range allowList(callsOf(t, goarch), filter) {
				lines = append(lines, a.String())
			}
			for _, n := range notThere {
				lines = append(lines, n+": ENOSYS")
			}
			slices.Sort(lines)
			got := strings.Join(slices.Compact(lines), "\n") + "\n"
			path := filepath.Join("testdata", "seccomp", goarch+"-"+name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is not what the code says any more; look at the change, then run the test with -update", path)
			}
		}
	}
}

func (a allowance) String() string {
	if a.conds != nil && len(a.conds) == 0 {
		return a.call + ": EPERM"
	}
	text := a.call
	for i, c := range a.conds {
		text += fmt.Sprintf("%s arg%d & %#x == %#x", []string{":", " and"}[min(i, 1)], c.arg, c.mask, c.value)
	}
	return text
}

// seccompData is struct seccomp_data of linux/seccomp.h.
type seccompData struct {
	nr, arch uint32
	ip       uint64
	args     [6]uint64
}

// runBPF interprets a seccomp program as the kernel does (networking/filter.rst):
// the loads are aligned 32-bit words of the data in native byte order.
func runBPF(program []byte, data seccompData) (uint32, error) {
	var words [16]uint32
	words[0], words[1] = data.nr, data.arch
	for i, v := range append([]uint64{data.ip}, data.args[:]...) {
		words[2+2*i], words[3+2*i] = uint32(v), uint32(v>>32)
	}
	var a uint32
	for pc, steps := 0, 0; steps < 4096; steps++ {
		if pc < 0 || pc*8+8 > len(program) {
			return 0, fmt.Errorf("jump to %d, out of the program", pc)
		}
		i := program[pc*8:]
		code, jt, jf, k := binary.NativeEndian.Uint16(i), int(i[2]), int(i[3]), binary.NativeEndian.Uint32(i[4:])
		pc++
		jump := func(yes bool) {
			if yes {
				pc += jt
			} else {
				pc += jf
			}
		}
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if k%4 != 0 || k >= 64 {
				return 0, fmt.Errorf("load from %d", k)
			}
			a = words[k/4]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= k
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == k)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(a > k)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= k)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&k != 0)
		case unix.BPF_RET | unix.BPF_K:
			return k, nil
		default:
			return 0, fmt.Errorf("instruction %d: code %#x", pc-1, code)
		}
	}
	return 0, fmt.Errorf("no end")
}

const (
	allows = unix.SECCOMP_RET_ALLOW
	eperm  = unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)
	done   = unix.SECCOMP_RET_ERRNO // succeeds, and nothing happens
	enosys = unix.SECCOMP_RET_ERRNO | uint32(syscall.ENOSYS)
)

// A filterModel is what a program has to say, from the list alone.
type filterModel struct {
	arch   libseccomp.ScmpArch
	last   uint32
	byCall map[string][]allowance
}

func (m filterModel) verdict(nr uint32, args [6]uint64) uint32 {
	name, err := libseccomp.ScmpSyscall(nr).GetNameByArch(m.arch)
	switch {
	case nr > m.last:
		return enosys
	case err != nil:
		return eperm // a gap in the numbers
	case slices.Contains(notThere, name):
		return enosys
	case name == "ioctl" && slices.Contains(refusedRequests, uint32(args[1])):
		return eperm
	case name == "prlimit64" && uint32(args[1]) == unix.RLIMIT_CORE && args[2] != 0, name == "setrlimit" && uint32(args[0]) == unix.RLIMIT_CORE:
		return done
	}
	for _, a := range m.byCall[name] {
		refused := a.conds != nil && len(a.conds) == 0
		if !refused && !slices.ContainsFunc(a.conds, func(c condition) bool { return args[c.arg]&c.mask != c.value }) {
			return allows
		}
	}
	return eperm
}

// tries are arguments at the edges of the conditions: each value, each bit of the
// mask turned over, each with and without the upper half of the register set.
func (m filterModel) tries(name string, r *rand.Rand) [][6]uint64 {
	list := [][6]uint64{{}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
	for _, a := range m.byCall[name] {
		var base [6]uint64
		for _, c := range a.conds {
			base[c.arg] |= c.value
		}
		list = append(list, base)
		for _, c := range a.conds {
			for bit := range 64 {
				one := base
				one[c.arg] ^= 1 << bit
				list = append(list, one)
			}
			for range 20 {
				one := base
				one[c.arg] = c.value | r.Uint64()&^c.mask
				list = append(list, one)
				one[c.arg] = r.Uint64()
				list = append(list, one)
			}
		}
	}
	switch name {
	case "ioctl":
		for _, request := range []uint64{unix.TIOCSTI, tioclinux, unix.TIOCSETD, unix.TCGETS, 1<<32 | unix.TIOCSTI, 0xffffffff<<32 | tioclinux} {
			list = append(list, [6]uint64{0, request})
		}
	case "setrlimit", "prlimit64":
		for what := range uint64(16) {
			list = append(list, [6]uint64{what, 1}, [6]uint64{1<<32 | what, 1}, [6]uint64{0, what}, [6]uint64{0, what, 1 << 40},
				[6]uint64{0, what, 1}, [6]uint64{0, 1<<32 | what, 0}, [6]uint64{0, 1<<63 | what, 1 << 31})
		}
	}
	return list
}

// TestSeccompPrograms runs the compiled programs of both architectures and compares
// each verdict with the list: every number up to 1100, every condition at its
// edges, the foreign ABIs, and numbers that do not exist yet.
func TestSeccompPrograms(t *testing.T) {
	for goarch, arch := range archs {
		for name, filter := range filterNames {
			program, err := compile(goarch, filter)
			if err != nil {
				t.Fatal(err)
			}
			m := filterModel{arch, uint32(lastCall(arch)), map[string][]allowance{}}
			for _, a := range allowList(callsOf(t, goarch), filter) {
				m.byCall[a.call] = append(m.byCall[a.call], a)
			}
			r := rand.New(rand.NewPCG(1, 2))
			check := func(what string, data seccompData, want uint32) {
				got, err := runBPF(program, data)
				if err != nil || got != want {
					t.Errorf("%s %s: %s %d %#x: got %#x %v, want %#x", goarch, name, what, data.nr, data.args, got, err, want)
				}
			}
			if n := len(program) / 8; n > 4096 {
				t.Errorf("%d instructions", n) // BPF_MAXINSNS
			}
			allowed := 0
			for nr := range uint32(1100) {
				call, _ := libseccomp.ScmpSyscall(nr).GetNameByArch(arch)
				for _, args := range m.tries(call, r) {
					want := m.verdict(nr, args)
					check(call, seccompData{nr: nr, arch: auditArch[goarch], args: args}, want)
					if want == allows {
						allowed++
					}
				}
			}
			if allowed < 300 {
				t.Errorf("%s %s: only %d calls were let through", goarch, name, allowed)
			}
			for _, nr := range []uint32{600, 4096, 1 << 29, 1<<30 | 39, 1<<30 | 41, 1<<30 | 59, 1<<30 | 512, 1<<30 | 520, 1<<30 | 547, 1 << 31, ^uint32(0)} {
				check("a number of x32 or of the future", seccompData{nr: nr, arch: auditArch[goarch]}, enosys)
			}
			for other, number := range auditArch {
				for nr := range uint32(1100) {
					// setrlimit's number is looked at before the architecture
					if other != goarch {
						check("a call of "+other, seccompData{nr: nr, arch: number, args: [6]uint64{1 << 20}}, enosys)
					}
				}
			}
		}
	}
}

// A tightenedRow is an attack by one call that the container default would let
// through, or that a program would expect to be there: really made, with these
// arguments. Those from text are pointers to it.
type tightenedRow struct {
	call   string
	args   []any
	pinned syscall.Errno // what the call gets under a pinned grant
	widest syscall.Errno // and under one for any program
}

const atCWD = -100

func tightenedRows() []tightenedRow {
	const P, N = syscall.EPERM, syscall.ENOSYS
	var rows []tightenedRow
	row := func(call string, e syscall.Errno, args ...any) {
		rows = append(rows, tightenedRow{call: call, args: args, pinned: e, widest: e})
	}
	onlyPinned := func(call string, args ...any) {
		rows = append(rows, tightenedRow{call: call, args: args, pinned: P})
	}
	for _, mode := range []int{0o4755, 0o2755, 0o6777} {
		row("chmod", P, "file", mode)
		row("fchmod", P, 0, mode)
		row("fchmodat", P, atCWD, "file", mode)
		row("mkdir", P, "new", mode)
		row("mkdirat", P, atCWD, "new", mode)
		row("creat", P, "new", mode)
		row("open", P, "new", os.O_CREATE|os.O_WRONLY, mode)
		row("open", P, ".", unix.O_TMPFILE|os.O_WRONLY, mode)
		row("openat", P, atCWD, "new", os.O_CREATE|os.O_WRONLY, mode)
		row("openat", P, atCWD, ".", unix.O_TMPFILE|os.O_WRONLY, mode)
		row("openat", P, atCWD, "new", 1<<40|os.O_CREATE|os.O_WRONLY, 1<<40|mode)
		row("mknod", P, "new", unix.S_IFREG|mode, 0)
		row("mknodat", P, atCWD, "new", unix.S_IFIFO|mode, 0)
		row("mq_open", P, "new", os.O_CREATE|os.O_RDWR, mode, 0)
		row("fchmodat2", N, atCWD, "file", mode, 0)
	}
	for _, kind := range []int{unix.S_IFCHR, unix.S_IFBLK, unix.S_IFDIR, unix.S_IFLNK} {
		row("mknod", P, "new", kind|0o666, 0x103)
		row("mknodat", P, atCWD, "new", kind|0o666, 0x103)
	}
	for _, space := range []int{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER,
		unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWUSER | unix.CLONE_VM | unix.CLONE_VFORK} {
		row("clone", P, space|int(unix.SIGCHLD), 0, 0, 0, 0)
		row("clone", P, 1<<50|space|int(unix.SIGCHLD), 0, 0, 0, 0)
	}
	for _, personality := range []int{0x400000, 0x100000, 0x4000000, 0x200000, 0x1, 0x10, 1<<33 | 0x400000} {
		row("personality", P, personality)
	}
	for _, request := range []int{unix.TIOCSTI, tioclinux, unix.TIOCSETD, 1<<32 | unix.TIOCSTI, -1<<32 | tioclinux} {
		row("ioctl", P, 0, request, "x")
	}
	for _, socket := range [][]any{
		{unix.AF_PACKET, unix.SOCK_RAW, 0}, {unix.AF_PACKET, unix.SOCK_DGRAM, 0}, {unix.AF_INET, unix.SOCK_RAW, 1},
		{unix.AF_INET6, unix.SOCK_RAW, 58}, {unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 255}, {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, {unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_GENERIC},
		{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT}, {unix.AF_CAN, unix.SOCK_RAW, 1}, {unix.AF_XDP, unix.SOCK_RAW, 0},
		{unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, {unix.AF_TIPC, unix.SOCK_RDM, 0}, {unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		{unix.AF_KEY, unix.SOCK_RAW, 2}, {unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0}, {43 /* AF_SMC */, unix.SOCK_STREAM, 0},
		{1<<32 | unix.AF_PACKET, unix.SOCK_DGRAM, 0}, {unix.AF_INET, 1<<32 | unix.SOCK_RAW, 1}, {unix.AF_INET, 10 /* SOCK_PACKET */, 0},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, {unix.AF_INET6, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}, {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		{unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP}, {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_L2TP},
		{unix.AF_INET6, unix.SOCK_STREAM, 256 /* IPPROTO_SMC */}, {unix.AF_INET, unix.SOCK_STREAM, 1<<32 | unix.IPPROTO_SCTP},
	} {
		row("socket", P, socket...)
	}
	for _, domain := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		onlyPinned("socket", domain, unix.SOCK_STREAM, 0)
		onlyPinned("socket", domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}
	onlyPinned("socket", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	onlyPinned("socketpair", unix.AF_UNIX, unix.SOCK_DGRAM, 0, "12345678")
	row("socketpair", P, unix.AF_INET, unix.SOCK_STREAM, 0, "12345678")
	row("socketpair", P, unix.AF_TIPC, unix.SOCK_STREAM, 0, "12345678")
	onlyPinned("memfd_create", "x", 0)
	onlyPinned("ptrace", 0, 0, 0, 0)
	rows = append(rows, tightenedRow{call: "memfd_secret", args: []any{0}, pinned: P, widest: noError})
	row("setrlimit", 0, unix.RLIMIT_CORE, "0123456789012345")
	row("prlimit64", 0, 0, unix.RLIMIT_CORE, "0123456789012345", 0)
	row("prlimit64", 0, 0, 1<<32|unix.RLIMIT_CORE, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 0)
	row("clone3", N, "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567", 88)
	row("openat2", N, atCWD, "file", "012345678901234567890123", 24)
	for _, call := range neverAllowed {
		if call != "mknod" && call != "mknodat" {
			row(call, P, 0, 0, 0, 0, 0, 0)
		}
	}
	return rows
}

// noError is for a row whose result depends on the kernel's configuration.
const noError = syscall.Errno(^uint32(0) >> 1)

// TestTightenedCalls makes each tightened call inside, under both kinds of grant,
// and sees its error; under a wider grant that lets it through, that it gets
// through.
func TestTightenedCalls(t *testing.T) {
	arch, ok := archs[runtime.GOARCH]
	if !ok {
		t.Skip("no list of system calls for this architecture")
	}
	rows := tightenedRows()
	for _, a := range slices.Concat(tightened(filterPinned), tightened(filterAny), tightened(filterDoor)) {
		if !slices.ContainsFunc(rows, func(r tightenedRow) bool { return r.call == a.call }) {
			t.Errorf("no attack tries %s", a.call)
		}
	}
	needs(t, "gcc")
	var code strings.Builder
	var made []tightenedRow
	for _, r := range rows {
		nr, err := libseccomp.GetSyscallFromNameByArch(r.call, arch)
		switch unknown := err != nil; {
		case r.call == "fchmodat2" && unknown:
			nr = 452 // newer than this libseccomp; the same everywhere
		case r.call == "fchmodat2":
			r.pinned, r.widest = syscall.EPERM, syscall.EPERM
		case unknown || nr < 0:
			continue // of another architecture
		}
		fmt.Fprintf(&code, "try(%d, %d", len(made), nr)
		for _, a := range append(slices.Clone(r.args), 0, 0, 0, 0, 0, 0)[:6] {
			if text, ok := a.(string); ok {
				fmt.Fprintf(&code, `, (long)(char[]){%q}`, text)
			} else {
				fmt.Fprintf(&code, ", %dL", a)
			}
		}
		code.WriteString(");\n")
		made = append(made, r)
	}
	each(t, func(t *testing.T, b box) {
		writeFile(t, b.caller, b.project+"/file", "", 0o644)
		writeFile(t, b.caller, b.project+"/try.c", strings.Replace(tryCalls, "ROWS", code.String(), 1), 0o644)
		if r := b.run(t, widest, "gcc -o try try.c"); r.ExitCode != 0 {
			t.Fatalf("%+v", r)
		}
		for kind, g := range []policy.Grant{{Exec: []string{b.project + "/try"}}, widest} {
			g.Write = []string{"."}
			r := b.run(t, g, "./try")
			seen := 0
			for line := range strings.Lines(r.out) {
				var i int
				var e syscall.Errno
				if _, err := fmt.Sscan(line, &i, &e); err != nil || i >= len(made) {
					t.Fatalf("%q %v", line, err)
				}
				seen++
				want := []syscall.Errno{made[i].pinned, made[i].widest}[kind]
				passed := want == 0 && e != syscall.EPERM && e != syscall.ENOSYS // what the kernel itself says is its own
				if e != want && want != noError && !passed {
					t.Errorf("%s%v: got %v, want %v", made[i].call, made[i].args, e, want)
				}
			}
			if seen != len(made) {
				t.Errorf("%d of %d attacks were tried: %s", seen, len(made), r.err)
			}
		}
		for _, name := range []string{"file", "new"} {
			if st, err := os.Lstat(filepath.Join(b.project, name)); err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeDevice) != 0 {
				t.Errorf("%s has mode %v", name, st.Mode())
			}
		}
	})
}

// tryCalls makes each call in a process of its own and prints its number and
// errno.
const tryCalls = `
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void try(int row, long nr, long a, long b, long c, long d, long e, long f)
{
	pid_t pid = fork();
	if (pid) {
		waitpid(pid, NULL, 0);
		return;
	}
	pid_t me = getpid();
	errno = 0;
	long r = syscall(nr, a, b, c, d, e, f);
	int err = r < 0 ? errno : 0;
	if (getpid() != me)
		_exit(0);
	dprintf(1, "%d %d\n", row, err);
	_exit(0);
}
int main(void)
{
	ROWS
}
`
