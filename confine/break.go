//go:build pinfold_break

package confine

// With this tag the keeper can be told to leave a step out, so that a test sees
// each layer missing. A release is built without it, and knows none of this.

// #cgo CFLAGS: -DPINFOLD_BREAK
// #include "keeper.h"
import "C"

const (
	breakUserns   = C.BREAK_USERNS
	breakNetns    = C.BREAK_NETNS
	breakIPCns    = C.BREAK_IPCNS
	breakUTSns    = C.BREAK_UTSNS
	breakCgroupns = C.BREAK_CGROUPNS
	breakMntns    = C.BREAK_MNTNS
	breakPidns    = C.BREAK_PIDNS
	breakIDs      = C.BREAK_IDS
	breakLate     = C.BREAK_LATE
	breakBounding = C.BREAK_BOUNDING
	breakCaps     = C.BREAK_CAPS
	breakNNP      = C.BREAK_NNP
	breakLimits   = C.BREAK_LIMITS
	breakLandlock = C.BREAK_LANDLOCK
	breakSeccomp  = C.BREAK_SECCOMP
	breakProc     = C.BREAK_PROC
	breakMount    = C.BREAK_MOUNT
	breakDoor     = C.BREAK_DOOR
)
