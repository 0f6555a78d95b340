package confine

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caller is the user that commands run as: who the kernel says is at the other
// end of the connection.
type Caller struct {
	UID, GID uint32
	Groups   []uint32 // supplementary groups
	Name     string   // login name
	Home     string   // home directory, absolute
}

// Do runs f on a thread that has the file system ids and groups of the caller
// (setfsuid(2)), so that f opens no file that the caller could not open. f must
// not start goroutines that depend on it. Where the daemon is not root, or the
// caller is root, it just runs f.
//
// It fails without running f when the kernel refuses the ids. It may be nested
// for the same caller.
func (c Caller) Do(f func() error) error {
	if os.Geteuid() != 0 || c.UID == 0 {
		return f()
	}
	runtime.LockOSThread()
	if fsuid() == c.UID { // nested: the outer one gives the ids back
		defer runtime.UnlockOSThread()
		return f()
	}
	own, err := unix.Getgroups()
	var caps capabilities
	if err == nil {
		caps, err = getCapabilities()
	}
	if err == nil {
		err = setFileIDs(c.UID, c.GID, c.Groups)
	}
	if err == nil {
		// the ids take only the rights over files away: another, to look
		// into processes, would follow links in /proc
		err = capabilities{{Permitted: caps[0].Permitted}, {Permitted: caps[1].Permitted}}.set()
	}
	if err != nil {
		// the thread may be half changed: it is not given back
		return fmt.Errorf("take the caller's file system ids: %w", err)
	}
	groups := make([]uint32, len(own))
	for i, g := range own {
		groups[i] = uint32(g)
	}
	defer func() {
		if caps.set() == nil && setFileIDs(0, uint32(os.Getegid()), groups) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// setFileIDs changes the calling thread alone, which is why it makes the system
// calls itself: those of package syscall change every thread. Dropping the uid
// last keeps the right to change the rest; root first, to regain it.
func setFileIDs(uid, gid uint32, groups []uint32) error {
	if uid == 0 {
		if err := setFSID(unix.SYS_SETFSUID, 0); err != nil {
			return err
		}
	}
	if err := setGroups(groups); err != nil {
		return err
	}
	if err := setFSID(unix.SYS_SETFSGID, gid); err != nil {
		return err
	}
	if uid == 0 {
		return nil
	}
	return setFSID(unix.SYS_SETFSUID, uid)
}

// setFSID sets and reads back: the call reports no errors (setfsuid(2)).
func setFSID(call uintptr, id uint32) error {
	unix.RawSyscall(call, uintptr(id), 0, 0)
	if got, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); uint32(got) != id {
		return unix.EPERM
	}
	return nil
}

// fsuid reads the calling thread's file system uid: -1 is no valid id to set.
func fsuid() uint32 {
	id, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
	return uint32(id)
}

// setGroups sets the supplementary groups of the calling thread.
func setGroups(groups []uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// capabilities are the calling thread's (capget(2), version 3: two halves).
type capabilities [2]unix.CapUserData

func getCapabilities() (capabilities, error) {
	var c capabilities
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&c)), 0)
	if errno != 0 {
		return c, errno
	}
	return c, nil
}

func (c capabilities) set() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&c)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
