package confine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// #include "keeper.h"
import "C"

// Every command has an allow list of system calls: one for pinned grants, one for
// those that name hosts besides, and one for the others. It is data for each architecture: the container default's
// names, less neverAllowed, with the conditions of tightened. libseccomp compiles
// it; a short prologue in front says the two things that it cannot express beside
// an allow list. testdata/seccomp has the lists written out.
//
// Calls that are unknown get ENOSYS, as from a kernel that lacks them, so that
// programs fall back. Known calls that are refused, or known arguments, get
// EPERM.

// archs are the architectures that filters are made for, by GOARCH.
var archs = map[string]libseccomp.ScmpArch{"amd64": libseccomp.ArchAMD64, "arm64": libseccomp.ArchARM64}

// neverAllowed is taken out of the container default, whatever it says.
var neverAllowed = []string{
	"add_key", "bpf", "fanotify_init", "fanotify_mark", "io_uring_enter", "io_uring_register", "io_uring_setup",
	"kcmp", "keyctl", "mount", "mount_setattr", "move_mount", "name_to_handle_at", "open_by_handle_at", "open_tree",
	"perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev",
	"quotactl", "quotactl_fd", "request_key", "setns", "syslog", "umount", "umount2", "unshare", "userfaultfd",
	"chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mknod", "mknodat", "kexec_load", "kexec_file_load",
	"swapon", "swapoff", "reboot", "vhangup", "acct", "lookup_dcookie", "modify_ldt",
}

// notThere get ENOSYS: clone3 passes its flags by pointer and openat2 its mode,
// where no filter can look; every program falls back to clone and openat.
var notThere = []string{"clone3", "openat2"}

// An allowance lets a call through when every condition holds. Several for one
// call are alternatives.
type allowance struct {
	call  string
	conds []condition
}

// A condition holds when the bits of mask in argument arg have the value.
type condition struct {
	arg         uint
	mask, value uint64
}

// An argument of a call, counted from 0.
type argument struct {
	call string
	arg  uint
}

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID
	low32     = 1<<32 - 1 // a C int in a 64-bit register: the kernel does not look at the upper half
	newSpaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// tightened replaces the container default for the calls that it names.
func tightened(filter int) []allowance {
	pinned := filter != filterAny
	var list []allowance
	add := func(call string, conds ...condition) { list = append(list, allowance{call, conds}) }
	// no set-uid and no set-gid bit, by any call that takes a mode
	for _, c := range []argument{{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"fchmodat2", 2}, {"mkdir", 1}, {"mkdirat", 2}, {"creat", 1}} {
		add(c.call, condition{c.arg, setIDBits, 0})
	}
	// these look at the mode, which comes next, only with certain flags; without
	// them it is garbage
	for _, c := range []argument{{"open", 1}, {"openat", 2}, {"mq_open", 1}} {
		add(c.call, condition{c.arg, unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, 0})
		add(c.call, condition{c.arg + 1, setIDBits, 0})
	}
	// no device nodes: FIFOs, sockets and regular files
	for _, c := range []argument{{"mknod", 1}, {"mknodat", 2}} {
		for _, kind := range []uint64{unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFREG, 0} {
			add(c.call, condition{c.arg, unix.S_IFMT | setIDBits, kind})
		}
	}
	// no namespace of its own: a new attack surface
	add("clone", condition{0, newSpaces, 0})
	// the container default's personalities, and no address randomisation for
	// debuggers; all ones asks for the current one (personality(2))
	for _, p := range []uint64{0, 0x8, 0x20000, 0x20008, 0x40000, low32} {
		add("personality", condition{0, low32, p})
	}
	// a pair of datagram sockets can be connected again, to a path of the host
	kinds := []uint64{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}
	if !pinned {
		kinds = append(kinds, unix.SOCK_DGRAM)
	}
	for _, kind := range kinds {
		add("socketpair", condition{0, low32, unix.AF_UNIX}, condition{1, 0xf, kind})
	}
	switch filter {
	case filterAny:
		add("ptrace")
		return append(list, sockets()...)
	case filterDoor:
		list = append(list, streams()...)
	default:
		list = append(list, none("socket"))
	}
	return append(list, none("memfd_create"), none("memfd_secret"), none("ptrace"))
}

// none is an allowance for nothing: the call is refused.
func none(call string) allowance { return allowance{call, []condition{}} }

// streams are TCP (multipath too, which Go asks for).
func streams() []allowance {
	return internet(transport{unix.SOCK_STREAM, 0}, transport{unix.SOCK_STREAM, unix.IPPROTO_TCP}, transport{unix.SOCK_STREAM, unix.IPPROTO_MPTCP})
}

// sockets are Unix, TCP and UDP, and route netlink. Other transports are code that
// the kernel loads when it is asked.
func sockets() []allowance {
	list := []allowance{
		{"socket", []condition{{0, low32, unix.AF_UNIX}}},
		{"socket", []condition{{0, low32, unix.AF_NETLINK}, {2, low32, unix.NETLINK_ROUTE}}},
	}
	return slices.Concat(list, streams(), internet(transport{unix.SOCK_DGRAM, 0}, transport{unix.SOCK_DGRAM, unix.IPPROTO_UDP}))
}

// A transport is a kind of socket with a protocol.
type transport struct{ kind, protocol uint64 }

// internet allows the kinds over IPv4 and IPv6.
func internet(kinds ...transport) (list []allowance) {
	for _, domain := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, s := range kinds {
			list = append(list, allowance{"socket", []condition{{0, low32, domain}, {1, 0xf, s.kind}, {2, low32, s.protocol}}})
		}
	}
	return list
}

// refusedRequests are ioctls that type into a terminal, which may be shared with
// others (ioctl_console(2), ioctl_tty(2)), and the one that puts another line
// discipline, code that the kernel loads, over a terminal. TIOCLINUX has no name
// in package unix.
var refusedRequests = []uint32{unix.TIOCSTI, tioclinux, unix.TIOCSETD}

const tioclinux = 0x541C

// filters are the compiled programs, each in a sealed memfd of struct
// sock_filter, in the order of enum filter of keeper.h.
type filters [C.FILTERS]*os.File

func (f filters) close() {
	for _, file := range f {
		if file != nil {
			file.Close()
		}
	}
}

func newFilters() (filters, error) {
	var f filters
	for i := range f {
		program, err := compile(runtime.GOARCH, i)
		if err == nil {
			f[i], err = sealed("seccomp", program)
		}
		if err != nil {
			f.close()
			return filters{}, &Unavailable{Layer: "seccomp", Err: fmt.Errorf("build filter %d: %w", i, err), Fix: "install libseccomp 2.5 or later"}
		}
	}
	return f, nil
}

// compile returns the whole program for an architecture of archs.
func compile(goarch string, filter int) ([]byte, error) {
	arch, ok := archs[goarch]
	if !ok {
		return nil, fmt.Errorf("no list of system calls for %s", goarch)
	}
	calls, err := containerDefault(goarch)
	if err != nil {
		return nil, err
	}
	f, err := newFilter(arch, allowList(calls, filter))
	if err != nil {
		return nil, err
	}
	defer f.Release()
	head, err := prologue(arch)
	if err != nil {
		return nil, err
	}
	body, err := export(f)
	return append(head, body...), err
}

// export reads the compiled filter, which libseccomp writes to a descriptor.
func export(f *libseccomp.ScmpFilter) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	type result struct {
		b   []byte
		err error
	}
	read := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(r)
		read <- result{b, err}
	}()
	if err := f.ExportBPF(w); err != nil {
		return nil, err
	}
	w.Close()
	program := <-read
	return program.b, program.err
}

// A step of the prologue: where a comparison goes on to is named, "" is the next
// step.
type step struct {
	label   string
	code    uint16
	k       uint32
	yes, no string
}

// Offsets of struct seccomp_data (linux/seccomp.h) on a little-endian machine.
const (
	dataNumber = 0
	dataArgs   = 16
)

// prologue says what no allow rule can, because it is about the lower 32 bits of
// a register. It looks before the architecture is
// checked: all that it can do is refuse, and what it lets through goes on to the
// first instruction after it, which loads what it needs itself.
//
//   - Numbers higher than all that this libseccomp knows get ENOSYS.
//   - The refused ioctls get EPERM.
//   - Setting RLIMIT_CORE succeeds and changes nothing: a limit of 1 alone keeps
//     the kernel from starting the host's handler for a crash, in the host's
//     namespaces as root (core(5)), and no file can be so small. Programs that
//     switch dumps off, as those built with sanitizers do, give up on an error.
func prologue(arch libseccomp.ScmpArch) ([]byte, error) {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		greater = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
		refuse  = unix.SECCOMP_RET_ERRNO
	)
	nr := map[string]uint32{}
	for _, name := range []string{"ioctl", "prlimit64", "setrlimit"} {
		n, err := libseccomp.GetSyscallFromNameByArch(name, arch)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("there is no %s", name)
		}
		nr[name] = uint32(n)
	}
	steps := []step{
		{code: load, k: dataNumber},
		{code: greater, k: uint32(lastCall(arch)), yes: "unknown"},
		{code: equal, k: nr["ioctl"], yes: "ioctl"},
		{code: equal, k: nr["prlimit64"], yes: "prlimit"},
		{code: equal, k: nr["setrlimit"], yes: "setrlimit", no: "end"},
		{label: "unknown", code: ret, k: refuse | uint32(syscall.ENOSYS)},
		{label: "ioctl", code: load, k: dataArgs + 8},
	}
	for i, r := range refusedRequests {
		next := ""
		if i == len(refusedRequests)-1 {
			next = "end"
		}
		steps = append(steps, step{code: equal, k: r, yes: "refused", no: next})
	}
	steps = append(steps,
		step{label: "refused", code: ret, k: refuse | uint32(syscall.EPERM)},
		step{label: "prlimit", code: load, k: dataArgs + 8},
		step{code: equal, k: unix.RLIMIT_CORE, no: "end"},
		step{code: load, k: dataArgs + 2*8},
		step{code: equal, k: 0, no: "done"},
		step{code: load, k: dataArgs + 2*8 + 4},
		step{code: equal, k: 0, yes: "end", no: "done"}, // it only asks
		step{label: "setrlimit", code: load, k: dataArgs},
		step{code: equal, k: unix.RLIMIT_CORE, no: "end"},
		step{label: "done", code: ret, k: refuse},
	)
	return assemble(steps), nil
}

// assemble resolves the labels; "end" is what comes after the last step.
func assemble(steps []step) []byte {
	at := map[string]int{"end": len(steps)}
	for i, s := range steps {
		if s.label != "" {
			at[s.label] = i
		}
	}
	offset := func(from int, label string) byte {
		if label == "" {
			return 0
		}
		return byte(at[label] - from - 1)
	}
	var b []byte
	for i, s := range steps {
		b = binary.NativeEndian.AppendUint16(b, s.code)
		b = append(b, offset(i, s.yes), offset(i, s.no))
		b = binary.NativeEndian.AppendUint32(b, s.k)
	}
	return b
}

// lastCall is the highest number that this libseccomp knows.
func lastCall(arch libseccomp.ScmpArch) libseccomp.ScmpSyscall {
	var last libseccomp.ScmpSyscall
	for nr := range libseccomp.ScmpSyscall(1024) {
		if _, err := nr.GetNameByArch(arch); err == nil {
			last = nr
		}
	}
	return last
}

// containerDefault is the calls that the container default allows on an
// architecture to a container without capabilities, without its conditions:
// those are tightened here.
func containerDefault(goarch string) ([]string, error) {
	profile := seccomp.DefaultProfile()
	if profile == nil {
		return nil, errors.New("there is no container default")
	}
	var names []string
	for _, s := range profile.Syscalls {
		if s.Action == specs.ActAllow && fits(s.Includes, goarch, true) && fits(s.Excludes, goarch, false) {
			names = append(names, s.Names...)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return slices.Contains(neverAllowed, n) }), nil
}

// fits reports whether a condition of the container default includes, or does not
// exclude, the architecture and no capability. The one on the kernel's version is
// older than the oldest kernel that has Landlock.
func fits(f *seccomp.Filter, goarch string, include bool) bool {
	switch {
	case f == nil:
		return true
	case include:
		return len(f.Caps) == 0 && (len(f.Arches) == 0 || slices.Contains(f.Arches, goarch))
	default:
		return !slices.Contains(f.Arches, goarch)
	}
}

// allowList is what a filter lets through: the calls, and those with conditions
// on their arguments. What it has no allowance for gets EPERM.
func allowList(calls []string, filter int) []allowance {
	list := tightened(filter)
	special := map[string]bool{}
	for _, a := range list {
		special[a.call] = true
	}
	for _, n := range notThere {
		special[n] = true
	}
	for _, n := range calls {
		if !special[n] {
			list = append(list, allowance{call: n})
		}
	}
	return list
}

// newFilter makes a filter for one architecture alone; i386 and x32 calls get
// ENOSYS. It is compiled as a tree, for 350 rules cost no more than nine
// comparisons then.
func newFilter(arch libseccomp.ScmpArch, list []allowance) (*libseccomp.ScmpFilter, error) {
	f, err := libseccomp.NewFilter(libseccomp.ActErrno.SetReturnCode(int16(syscall.EPERM)))
	if err != nil {
		return nil, err
	}
	if err := only(f, arch); err != nil {
		return nil, err
	}
	for _, a := range list {
		if err := a.addTo(f, arch); err != nil {
			return nil, fmt.Errorf("allow %s %v: %w", a.call, a.conds, err)
		}
	}
	for _, n := range notThere {
		nr, err := libseccomp.GetSyscallFromName(n)
		if err != nil {
			continue // newer than this libseccomp: unknown anyway
		}
		if err := f.AddRule(nr, libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))); err != nil {
			return nil, fmt.Errorf("hide %s: %w", n, err)
		}
	}
	return f, nil
}

// only makes the filter one for the architecture.
func only(f *libseccomp.ScmpFilter, arch libseccomp.ScmpArch) error {
	if err := f.SetBadArchAction(libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))); err != nil {
		return err
	}
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return err
	}
	if arch != native { // as tests want it
		if err := errors.Join(f.AddArch(arch), f.RemoveArch(native)); err != nil {
			return err
		}
	}
	return f.SetOptimize(2)
}

func (a allowance) addTo(f *libseccomp.ScmpFilter, arch libseccomp.ScmpArch) error {
	if there, err := libseccomp.GetSyscallFromNameByArch(a.call, arch); err != nil || there < 0 {
		return nil // of another architecture, or newer than this libseccomp
	}
	// libseccomp takes the native number, or one that it makes up, and
	// translates it
	nr, err := libseccomp.GetSyscallFromName(a.call)
	if err != nil {
		return err
	}
	if a.conds == nil {
		return f.AddRule(nr, libseccomp.ActAllow)
	}
	if len(a.conds) == 0 {
		return nil // none
	}
	conds, err := conditions(a.conds)
	if err != nil {
		return err
	}
	return f.AddRuleConditionalExact(nr, libseccomp.ActAllow, conds)
}

func conditions(list []condition) ([]libseccomp.ScmpCondition, error) {
	var conds []libseccomp.ScmpCondition
	for _, c := range list {
		cond, err := libseccomp.MakeCondition(c.arg, libseccomp.CompareMaskedEqual, c.mask, c.value)
		if err != nil {
			return nil, err
		}
		conds = append(conds, cond)
	}
	return conds, nil
}
