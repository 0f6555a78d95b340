package confine

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Two filters are in force in every command: the base, an allow list of system
// calls, and one that refuses arguments of allowed calls (there are two of
// these, for pinned grants and for the others). The kernel takes the stricter
// answer of the two. They are apart because libseccomp cannot express "allow,
// but not with these arguments" for one call in one filter, and because what
// misses a condition of an allow rule would get the answer for unknown calls.
//
// Unknown calls get ENOSYS, as from a kernel that lacks them, so that programs
// fall back. Known calls that are refused, or known arguments, get EPERM.

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

// allowedToo is what the container default gives only with a capability, and
// what is harmless here.
var allowedToo = []string{"mknod", "mknodat"}

// A refusal is an argument that an allowed call may not have: it matches when
// every condition does.
type refusal struct {
	call  string
	conds []condition
}

// condition: argument arg, of which only the bits of mask count, has the value.
// A mask of 0 compares "greater than value" instead.
type condition struct {
	arg         uint
	mask, value uint64
}

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID
	low32     = 1<<32 - 1 // a C int in a 64-bit register: the upper half is not looked at by the kernel
)

// modeCalls are the calls that take a file mode, and which argument it is.
var modeCalls = []struct {
	call string
	mode uint
}{
	{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"fchmodat2", 2}, {"mkdir", 1}, {"mkdirat", 2},
	{"mknod", 1}, {"mknodat", 2}, {"creat", 1},
}

// openCalls take a mode only with these flags; else the argument is garbage.
var openCalls = []struct {
	call        string
	flags, mode uint
}{{"open", 1, 2}, {"openat", 2, 3}, {"mq_open", 1, 2}}

// refusals lists what every command is refused, and with pinned what a closed
// list of programs needs no part of.
func refusals(pinned bool) []refusal {
	var r []refusal
	add := func(call string, conds ...condition) { r = append(r, refusal{call, conds}) }
	// any one of the set-uid and set-gid bits
	for _, c := range modeCalls {
		for _, bit := range []uint64{unix.S_ISUID, unix.S_ISGID} {
			add(c.call, condition{c.mode, bit, bit})
		}
	}
	for _, c := range openCalls {
		for _, flag := range []uint64{unix.O_CREAT, unix.O_TMPFILE &^ unix.O_DIRECTORY} {
			for _, bit := range []uint64{unix.S_ISUID, unix.S_ISGID} {
				add(c.call, condition{c.flags, flag, flag}, condition{c.mode, bit, bit})
			}
		}
	}
	// device nodes: FIFOs, sockets and regular files only
	for _, c := range modeCalls {
		if c.call == "mknod" || c.call == "mknodat" {
			for _, kind := range []uint64{unix.S_IFCHR, unix.S_IFBLK} {
				add(c.call, condition{c.mode, unix.S_IFMT, kind})
			}
		}
	}
	// a namespace of its own would be a new attack surface
	for _, flag := range []uint64{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC,
		unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET} {
		add("clone", condition{0, flag, flag})
	}
	// typing into a terminal that is shared with others
	for _, request := range []uint64{unix.TIOCSTI, 0x541C /* TIOCLINUX, ioctl_console(2) */} {
		add("ioctl", condition{1, low32, request})
	}
	r = append(r, personalities()...)
	if pinned {
		add("socket")
		add("memfd_create")
		add("memfd_secret")
		add("ptrace")
		return r
	}
	return append(r, sockets()...)
}

// sockets leaves Unix, IPv4, IPv6 and route netlink.
func sockets() []refusal {
	var r []refusal
	add := func(conds ...condition) { r = append(r, refusal{"socket", conds}) }
	for domain := uint64(0); domain < unix.AF_NETLINK; domain++ {
		switch domain {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6:
		default:
			add(condition{0, low32, domain})
		}
	}
	add(condition{0, 0, unix.AF_NETLINK}) // every later one: packet, ALG, vsock, XDP, …
	for _, domain := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, kind := range []uint64{unix.SOCK_RAW, unix.SOCK_PACKET} {
			add(condition{0, low32, domain}, condition{1, 0xf, kind})
		}
	}
	// netlink but NETLINK_ROUTE, which is 0
	for bit := range 32 {
		add(condition{0, low32, unix.AF_NETLINK}, condition{2, 1 << bit, 1 << bit})
	}
	return r
}

// personalities leaves the flags that the container default does, and no
// address randomisation (debuggers): a bit that is set is refused, but for the
// query, which has all of them. Bit 31 tells the query from the rest.
func personalities() []refusal {
	const (
		query   = 1 << 31
		allowed = 0x0008 /* PER_LINUX32 */ | 0x0020000 /* UNAME26 */ | 0x0040000 /* ADDR_NO_RANDOMIZE, personality(2) */
	)
	var r []refusal
	for bit := range 31 {
		b := uint64(1) << bit
		if allowed&b == 0 {
			r = append(r, refusal{"personality", []condition{{0, query | b, b}}})
		}
		r = append(r, refusal{"personality", []condition{{0, query | b, query}}})
	}
	return r
}

// filters are the compiled programs, each in a sealed memfd of struct
// sock_filter, in the order of FILTER_* of internal.h.
type filters [3]*os.File

func (f filters) close() {
	for _, file := range f {
		if file != nil {
			file.Close()
		}
	}
}

func newFilters() (filters, error) {
	var f filters
	build := []func() (*libseccomp.ScmpFilter, error){
		baseFilter,
		func() (*libseccomp.ScmpFilter, error) { return refusingFilter(refusals(true)) },
		func() (*libseccomp.ScmpFilter, error) { return refusingFilter(refusals(false)) },
	}
	for i, b := range build {
		filter, err := b()
		if err == nil {
			f[i], err = export(filter)
			filter.Release()
		}
		if err != nil {
			f.close()
			return filters{}, &Unavailable{Layer: "seccomp", Err: fmt.Errorf("build filter %d: %w", i, err), Fix: "install libseccomp 2.5 or later"}
		}
	}
	return f, nil
}

// containerDefault is the allowed calls of the container default for a
// container without capabilities, without its conditions: those are refusals
// here.
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
	names = append(names, "ptrace") // given from Linux 4.8 on, whichever profile
	slices.Sort(names)
	names = slices.Compact(names)
	names = slices.DeleteFunc(names, func(n string) bool {
		return slices.Contains(neverAllowed, n) || slices.Contains(notThere, n)
	})
	return append(names, allowedToo...), nil
}

// baseFilter is the allow list.
func baseFilter() (*libseccomp.ScmpFilter, error) {
	names, err := containerDefault()
	if err != nil {
		return nil, err
	}
	f, err := newFilter(libseccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS)))
	if err != nil {
		return nil, err
	}
	allowed := map[libseccomp.ScmpSyscall]bool{}
	for _, name := range names {
		nr, err := libseccomp.GetSyscallFromName(name)
		if err != nil || nr < 0 {
			continue // of another architecture, or newer than this libseccomp
		}
		if allowed[nr] {
			continue
		}
		allowed[nr] = true
		if err := f.AddRule(nr, libseccomp.ActAllow); err != nil {
			return nil, fmt.Errorf("allow %s: %w", name, err)
		}
	}
	hidden := map[libseccomp.ScmpSyscall]bool{}
	for _, name := range notThere {
		if nr, err := libseccomp.GetSyscallFromName(name); err == nil {
			hidden[nr] = true
		}
	}
	// known and refused, told from unknown
	for nr := libseccomp.ScmpSyscall(0); nr < 1024; nr++ {
		if _, err := nr.GetName(); err != nil || allowed[nr] || hidden[nr] {
			continue
		}
		if err := f.AddRule(nr, libseccomp.ActErrno.SetReturnCode(int16(syscall.EPERM))); err != nil {
			return nil, fmt.Errorf("refuse %d: %w", nr, err)
		}
	}
	return f, nil
}

// refusingFilter allows everything but the refusals.
func refusingFilter(list []refusal) (*libseccomp.ScmpFilter, error) {
	f, err := newFilter(libseccomp.ActAllow)
	if err != nil {
		return nil, err
	}
	eperm := libseccomp.ActErrno.SetReturnCode(int16(syscall.EPERM))
	for _, r := range list {
		nr, err := libseccomp.GetSyscallFromName(r.call)
		if err != nil || nr < 0 {
			continue // this architecture has no such call, and the base no rule for it
		}
		var conds []libseccomp.ScmpCondition
		for _, c := range r.conds {
			cond, err := c.compile()
			if err != nil {
				return nil, err
			}
			conds = append(conds, cond)
		}
		if len(conds) == 0 {
			err = f.AddRule(nr, eperm)
		} else {
			err = f.AddRuleConditionalExact(nr, eperm, conds)
		}
		if err != nil {
			return nil, fmt.Errorf("refuse %s %v: %w", r.call, r.conds, err)
		}
	}
	return f, nil
}

func (c condition) compile() (libseccomp.ScmpCondition, error) {
	if c.mask == 0 {
		return libseccomp.MakeCondition(c.arg, libseccomp.CompareGreater, c.value)
	}
	return libseccomp.MakeCondition(c.arg, libseccomp.CompareMaskedEqual, c.mask, c.value)
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

// export writes the program into a sealed memfd.
func export(f *libseccomp.ScmpFilter) (*os.File, error) {
	fd, err := unix.MemfdCreate("pinfold-seccomp", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	err = f.ExportBPF(file)
	if err == nil {
		err = seal(file)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
