package confine

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// abiFloor is the oldest ABI that is served: with it a rename across
// directories can be told from a new file (Linux 5.19).
const abiFloor = 2

// abiScopes is the first ABI that keeps signals and abstract sockets inside
// (Linux 6.12).
const abiScopes = 6

var abiConfigs = []landlock.Config{2: landlock.V2, 3: landlock.V3, 4: landlock.V4, 5: landlock.V5, 6: landlock.V6,
	7: landlock.V7, 8: landlock.V8, 9: landlock.V9, 10: landlock.V10, 11: landlock.V11}

// Rights on what a rule names, cut to what the ABI in force handles.
const (
	rightRead  = ll.AccessFSReadFile | ll.AccessFSReadDir
	rightExec  = ll.AccessFSExecute | ll.AccessFSReadFile // execve opens the file for reading too
	rightWrite = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeSym |
		ll.AccessFSRefer
	rightDevice = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSReadDir
	rightFile   = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSExecute | ll.AccessFSIoctlDev
)

// A rule gives rights on the place that a descriptor is open on, and on all
// beneath it.
type rule struct {
	fd     int
	rights landlock.AccessFSSet
}

// landlockABI returns the ABI version of this kernel, or an Unavailable error.
func landlockABI() (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	return usableABI(abi, err)
}

func usableABI(abi int, err error) (int, error) {
	if err == nil && abi < abiFloor {
		err = fmt.Errorf("landlock ABI %d (Linux 5.19) is needed, this kernel has %d", abiFloor, abi)
	}
	if err != nil {
		return 0, &Unavailable{Layer: "landlock", Err: err, Fix: fixes["landlock"]}
	}
	return min(abi, len(abiConfigs)-1), nil
}

// handled is what a command's ruleset restricts: all that the ABI knows, but
// for TCP and UDP ports where any program may run. Those reach no further than
// the loopback of the network namespace, whose servers may listen on any port.
func handled(abi int, pinned bool) landlock.Config {
	c := abiConfigs[abi]
	if !pinned {
		c.HandledAccessNet = 0
	}
	return c
}

// newRuleset makes the ruleset and the flags to restrict with. Where ports are
// restricted, TCP connections are to those that are listed.
func newRuleset(c landlock.Config, rules []rule, ports ...uint16) (*os.File, uint32, error) {
	list := make([]landlock.Rule, 0, len(rules)+len(ports))
	for _, port := range ports {
		if c.HandledAccessNet&ll.AccessNetConnectTCP != 0 {
			list = append(list, landlock.ConnectTCP(port))
		}
	}
	for _, r := range rules {
		if rights := r.rights & c.HandledAccessFS; rights != 0 {
			list = append(list, landlock.PathAccess(rights, procFD(r.fd)))
		}
	}
	fd, flags, err := c.NewRulesetFD(list...)
	if err == nil && fd < 0 {
		err = errors.New("there is nothing to restrict")
	}
	if err != nil {
		return nil, 0, &Unavailable{Layer: "landlock", Err: err}
	}
	return os.NewFile(uintptr(fd), "landlock"), flags, nil
}
