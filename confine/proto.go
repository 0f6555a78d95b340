package confine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unsafe"
)

/*
#cgo CFLAGS: -std=gnu17 -O2 -Wall -Wextra -Werror -Wshadow -Wformat=2 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
#cgo LDFLAGS: -Wl,-z,relro -Wl,-z,now
#include <string.h>
#include "keeper.h"
*/
import "C"

// The wire format is drawn in keeper.h. Both ends are one binary on one
// machine, so that native byte order and the structs' own layout are the
// format.

// An operation of the mount plan, see enum op in keeper.h.
type op struct {
	kind, flags uint32
	set, clear  uint64
	arg         uint64
	a, b        string
}

const (
	opDir    = C.OP_DIR
	opLink   = C.OP_LINK
	opFile   = C.OP_FILE
	opBind   = C.OP_BIND
	opTmpfs  = C.OP_TMPFS
	opDev    = C.OP_DEV
	opDevpts = C.OP_DEVPTS
	opAttr   = C.OP_ATTR
	opMode   = C.OP_MODE
	opRebind = C.OP_REBIND

	opfOptional = C.OPF_OPTIONAL
	opfProject  = C.OPF_PROJECT
	opfTree     = C.OPF_TREE
)

const (
	filterPinned = C.FILTER_PINNED
	filterAny    = C.FILTER_ANY
	filterDoor   = C.FILTER_DOOR

	runScript = C.RUN_SCRIPT
	runStdin  = C.RUN_STDIN
	runTTY    = C.RUN_TTY
	runDoor   = C.RUN_DOOR
)

const headSize = C.sizeof_struct_head

// A message is built by appending; begin leaves room for the head.
type message []byte

func begin(room int) message {
	return make(message, C.sizeof_struct_head, C.sizeof_struct_head+room)
}

func (m *message) u32(v uint32) { *m = binary.NativeEndian.AppendUint32(*m, v) }
func (m *message) u64(v uint64) { *m = binary.NativeEndian.AppendUint64(*m, v) }

func (m *message) str(s string) {
	m.u32(uint32(len(s)))
	*m = append(append(*m, s...), 0)
}

func (m *message) op(o op) {
	m.u32(o.kind)
	m.u32(o.flags)
	m.u64(o.set)
	m.u64(o.clear)
	m.u64(o.arg)
	m.str(o.a)
	m.str(o.b)
}

var errTooLarge = errors.New("the plan does not fit into one message")

// end fills in the head.
func (m message) end(kind uint32, id uint64) ([]byte, error) {
	if len(m) > C.MSG_MAX {
		return nil, errTooLarge
	}
	*(*C.struct_head)(unsafe.Pointer(unsafe.SliceData(m))) = C.struct_head{
		_type: C.uint32_t(kind), size: C.uint32_t(len(m)), id: C.uint64_t(id),
	}
	return m, nil
}

// An event is what the keeper, or a command's init, said; which fields count
// depends on kind.
type event struct {
	kind    uint32
	id      uint64
	fail    failure
	receipt C.struct_receipt
	ns      [C.NS_COUNT]C.uint64_t // READY: the keeper's namespaces
}

var errProtocol = errors.New("the keeper broke the protocol")

// parseEvent reads a message. Its sender runs as the caller, who may stop or
// kill it but is not trusted with more: every length is checked.
func parseEvent(b []byte) (event, error) {
	// the structs want their alignment
	var space [max(C.sizeof_struct_started, C.sizeof_struct_failed, C.sizeof_struct_ready) / 8]uint64
	if len(b) < C.sizeof_struct_head || len(b) > len(space)*8 {
		return event{}, errProtocol
	}
	p := unsafe.Pointer(&space)
	copy(unsafe.Slice((*byte)(p), len(space)*8), b)
	head := (*C.struct_head)(p)
	if int(head.size) != len(b) {
		return event{}, errProtocol
	}
	e := event{kind: uint32(head._type), id: uint64(head.id)}
	want := C.sizeof_struct_head
	switch e.kind {
	case C.MSG_READY:
		want = C.sizeof_struct_ready
		e.ns = (*C.struct_ready)(p).ns
	case C.MSG_USERNS, C.MSG_KEEPER, C.MSG_SPARE, C.MSG_PROC, C.MSG_TTY, C.MSG_DOOR:
	case C.MSG_STARTED:
		want = C.sizeof_struct_started
		e.receipt = (*C.struct_started)(p).receipt
	case C.MSG_FAIL:
		want = C.sizeof_struct_failed
		e.fail = newFailure((*C.struct_failed)(p).fail)
	default:
		return event{}, errProtocol
	}
	if len(b) != int(want) {
		return event{}, errProtocol
	}
	return e, nil
}

// An ending is how a run ended, copied out of its slot.
type ending struct {
	fail     failure
	finished bool // the shell ended by itself
	status   syscall.WaitStatus
	usage    Usage
	outlived int    // processes that were killed because the shell had ended
	dir      string // where the shell was at its end, absolute; "" when it is not known
}

const slotBytes = C.sizeof_struct_ending * C.RUNS_MAX

// readEnding copies the slot out of the memory that is shared with the keeper.
func readEnding(slots []byte, slot uint64) ending {
	var space [C.sizeof_struct_ending / 8]uint64
	p := unsafe.Pointer(&space)
	copy(unsafe.Slice((*byte)(p), len(space)*8), slots[slot*C.sizeof_struct_ending:])
	e := (*C.struct_ending)(p)
	return ending{
		fail: newFailure(e.fail), finished: e.finished != 0, status: syscall.WaitStatus(e.status),
		usage:    Usage{User: micros(e.user_us), System: micros(e.system_us), MaxRSSKiB: int64(min(e.max_rss_kib, 1<<50))},
		outlived: int(min(e.outlived, 1<<22)),
		dir:      C.GoStringN(&e.dir[0], C.int(C.strnlen(&e.dir[0], C.DIR_SPACE))),
	}
}

// A failure is the place of a child's error: a step of keeper.h, its errno,
// and which item of a list it was at.
type failure struct {
	step  uint32
	errno syscall.Errno
	index uint32
}

func newFailure(f C.struct_fail) failure {
	return failure{uint32(f.step), syscall.Errno(f.err), uint32(f.index)}
}

// steps names the steps, and the layer that is missing when one fails.
var steps = map[uint32]struct{ layer, what string }{
	C.STEP_MESSAGE:       {"keeper", "read the message"},
	C.STEP_GROUPS:        {"user namespace", "set the caller's groups"},
	C.STEP_DEVICES:       {"mount view", "make /dev"},
	C.STEP_USERNS:        {"user namespace", "unshare the user namespace"},
	C.STEP_IDMAP:         {"user namespace", "map the caller's ids"},
	C.STEP_IDS:           {"user namespace", "become the caller"},
	C.STEP_NAMESPACES:    {"namespaces", "unshare the namespaces"},
	C.STEP_FORK:          {"namespaces", "fork"},
	C.STEP_PRIVILEGES:    {"capabilities", "give privileges up"},
	C.STEP_LOOPBACK:      {"network namespace", "bring the loopback up"},
	C.STEP_SOURCE:        {"mount view", "open a source"},
	C.STEP_ROOT:          {"mount view", "make the new root"},
	C.STEP_PLAN:          {"mount view", "mount"},
	C.STEP_PIVOT:         {"mount view", "pivot into the new root"},
	C.STEP_REPORT:        {"mount view", "open a place of the new root"},
	C.STEP_PROC:          {"proc", "mount a fresh /proc"},
	C.STEP_PROC_READONLY: {"proc", "make a part of /proc read-only"},
	C.STEP_STDIO:         {"keeper", "set stdio up"},
	C.STEP_SESSION:       {"keeper", "start a process session"},
	C.STEP_DIR:           {"mount view", "enter the directory"},
	C.STEP_LIMITS:        {"limits", "set a resource limit"},
	C.STEP_CAPS:          {"capabilities", "drop the capabilities"},
	C.STEP_NNP:           {"no_new_privs", "set no_new_privs"},
	C.STEP_LANDLOCK_RULE: {"landlock", "add a rule"},
	C.STEP_LANDLOCK:      {"landlock", "restrict itself"},
	C.STEP_CLOSE:         {"keeper", "close the other descriptors"},
	C.STEP_SECCOMP:       {"seccomp", "install the filter"},
	C.STEP_PROBE:         {"probe", "probe the layers"},
	C.STEP_EXEC:          {"shell", "execute bash"},
	C.STEP_TTY:           {"terminal", "make a terminal"},
	C.STEP_DOOR:          {"network namespace", "make the run's own network"},
}

// err turns the failure into an Unavailable that names the layer.
func (f failure) err() error {
	s, ok := steps[f.step]
	if !ok {
		return &Unavailable{Layer: "keeper", Err: errProtocol}
	}
	if f.step == C.STEP_PROBE {
		return &Unavailable{Layer: probeLayer(f.index), Err: fmt.Errorf("applied, but does not hold: %s", strings.Join(probeNames(f.index), ", "))}
	}
	return &Unavailable{Layer: s.layer, Err: fmt.Errorf("%s (item %d): %w", s.what, f.index, f.errno), Fix: fixes[s.layer]}
}

// fixes says what an administrator can do about a missing layer.
var fixes = map[string]string{
	"user namespace": "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for pinfoldd), or run the system daemon",
	"proc":           "run pinfoldd where nothing is mounted over parts of /proc (not under ProtectKernelTunables, ProtectProc or in a container that masks /proc)",
	"memory limit":   "delegate a cgroup v2 with the memory and pids controllers to pinfoldd (Delegate=yes in its unit)",
	"landlock":       "use Linux 5.19 or later with landlock in the lsm= list",
}
