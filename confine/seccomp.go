package confine

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// #include "keeper.h"
import "C"

// Every command has an allow list of system calls, one for pinned grants and one
// for the others. libseccomp compiles it; a short prologue in front says the two
// things that it cannot express beside an allow list.
//
// Calls that are unknown get ENOSYS, as from a kernel that lacks them, so that
// programs fall back. Known calls that are refused, or known arguments, get
// EPERM.

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

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID
	low32     = 1<<32 - 1 // a C int in a 64-bit register: the kernel does not look at the upper half
	newSpaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// tightened replaces the container default for the calls that it names.
func tightened(pinned bool) []allowance {
	var list []allowance
	add := func(call string, conds ...condition) { list = append(list, allowance{call, conds}) }
	// no set-uid and no set-gid bit, by any call that takes a mode
	for call, mode := range map[string]uint{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mkdir": 1, "mkdirat": 2, "creat": 1} {
		add(call, condition{mode, setIDBits, 0})
	}
	// these look at the mode only with certain flags; without them it is garbage
	for call, flags := range map[string]uint{"open": 1, "openat": 2, "mq_open": 1} {
		add(call, condition{flags, unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, 0})
		add(call, condition{flags + 1, setIDBits, 0})
	}
	// no device nodes: FIFOs, sockets and regular files
	for call, mode := range map[string]uint{"mknod": 1, "mknodat": 2} {
		for _, kind := range []uint64{unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFREG, 0} {
			add(call, condition{mode, unix.S_IFMT | setIDBits, kind})
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
	if pinned {
		return append(list, none("socket"), none("memfd_create"), none("memfd_secret"), none("ptrace"))
	}
	add("ptrace")
	return append(list, sockets()...)
}

// none is an allowance for nothing: the call is refused.
func none(call string) allowance { return allowance{call, []condition{}} }

// sockets are Unix, IPv4 and IPv6 without raw ones, and route netlink.
func sockets() []allowance {
	list := []allowance{
		{"socket", []condition{{0, low32, unix.AF_UNIX}}},
		{"socket", []condition{{0, low32, unix.AF_NETLINK}, {2, low32, unix.NETLINK_ROUTE}}},
	}
	for _, domain := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, kind := range []uint64{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
			list = append(list, allowance{"socket", []condition{{0, low32, domain}, {1, 0xf, kind}}})
		}
	}
	return list
}

// tioclinux and TIOCSTI type into a terminal that is shared with others
// (ioctl_console(2), ioctl_tty(2)); the first has no name in package unix.
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
		program, err := compile(i == filterPinned)
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

// compile returns the whole program.
func compile(pinned bool) ([]byte, error) {
	f, err := allowFilter(pinned)
	if err != nil {
		return nil, err
	}
	defer f.Release()
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
	return append(prologue(), program.b...), program.err
}

// prologue answers ENOSYS to every number that is higher than all that this
// libseccomp knows, and EPERM to the refused ioctls: the request is 32 bits in a
// 64-bit register, and no allow rule can say "but not this lower half". What it
// lets through goes on to the first instruction after it, which loads what it
// needs itself. It looks before the architecture is checked: all that it can do
// is refuse.
func prologue() []byte {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		greater = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
		number  = 0      // offset of seccomp_data.nr
		request = 16 + 8 // the lower half of args[1], little-endian
	)
	var last libseccomp.ScmpSyscall
	for nr := range libseccomp.ScmpSyscall(1024) {
		if _, err := nr.GetName(); err == nil {
			last = nr
		}
	}
	program := []unix.SockFilter{
		{Code: load, K: number},
		{Code: greater, Jt: 0, Jf: 1, K: uint32(last)},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.ENOSYS)},
		{Code: equal, Jt: 0, Jf: 4, K: unix.SYS_IOCTL},
		{Code: load, K: request},
		{Code: equal, Jt: 1, Jf: 0, K: unix.TIOCSTI},
		{Code: equal, Jt: 0, Jf: 1, K: tioclinux},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(syscall.EPERM)},
	}
	var b []byte
	for _, i := range program {
		b = binary.NativeEndian.AppendUint16(b, i.Code)
		b = append(b, i.Jt, i.Jf)
		b = binary.NativeEndian.AppendUint32(b, i.K)
	}
	return b
}

// containerDefault is the calls that the container default allows to a container
// without capabilities, without its conditions: those are tightened here.
func containerDefault() ([]string, error) {
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range profile.Syscalls {
		if s.Action == specs.ActAllow {
			names = append(names, s.Names...)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return slices.Contains(neverAllowed, n) }), nil
}

// allowFilter is the allow list. What is on none of its rules gets EPERM.
func allowFilter(pinned bool) (*libseccomp.ScmpFilter, error) {
	names, err := containerDefault()
	if err != nil {
		return nil, err
	}
	list := tightened(pinned)
	special := map[string]bool{}
	for _, a := range list {
		special[a.call] = true
	}
	for _, n := range notThere {
		special[n] = true
	}
	for _, n := range names {
		if !special[n] {
			list = append(list, allowance{call: n})
		}
	}
	f, err := newFilter(libseccomp.ActErrno.SetReturnCode(int16(syscall.EPERM)))
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if err := a.addTo(f); err != nil {
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

func (a allowance) addTo(f *libseccomp.ScmpFilter) error {
	nr, err := libseccomp.GetSyscallFromName(a.call)
	if err != nil || nr < 0 {
		return nil // of another architecture, or newer than this libseccomp
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

// newFilter makes an empty filter for the native ABI alone; i386 and x32 calls
// get ENOSYS. It is compiled as a tree, for 350 rules cost no more than nine
// comparisons then.
func newFilter(fallback libseccomp.ScmpAction) (*libseccomp.ScmpFilter, error) {
	f, err := libseccomp.NewFilter(fallback)
	if err != nil {
		return nil, err
	}
	if err := f.SetBadArchAction(libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))); err != nil {
		return nil, err
	}
	return f, f.SetOptimize(2)
}
