package confine

import (
	"errors"
	"fmt"
	"time"
)

// #include "keeper.h"
import "C"

// probes names what the probe checks, and the layer that each check belongs to.
var probes = []struct {
	bit         uint32
	layer, name string
}{
	{C.PROBE_LANDLOCK_READ, "landlock", "landlock-read"},
	{C.PROBE_LANDLOCK_WRITE, "landlock", "landlock-write"},
	{C.PROBE_LANDLOCK_EXEC, "landlock", "landlock-execute"},
	{C.PROBE_SCOPE_SIGNAL, "landlock", "landlock-signals"},
	{C.PROBE_SCOPE_ABSTRACT, "landlock", "landlock-abstract-sockets"},
	{C.PROBE_SECCOMP, "seccomp", "seccomp"},
	{C.PROBE_SECCOMP_MODE, "seccomp", "seccomp-filters"},
	{C.PROBE_NO_SOCKET, "seccomp", "no-socket"},
	{C.PROBE_NO_ROUTE, "network namespace", "no-route"},
	{C.PROBE_PROJECT_READONLY, "mount view", "project-read-only"},
	{C.PROBE_ROOT_READONLY, "mount view", "root-read-only"},
	{C.PROBE_MOUNTS, "mount view", "mounts"},
	{C.PROBE_PROC_READONLY, "proc", "proc-read-only"},
	{C.PROBE_NOEXEC, "exec pinning", "noexec"},
	{C.PROBE_NO_CAPS, "capabilities", "no-capabilities"},
	{C.PROBE_NNP, "no_new_privs", "no-new-privs"},
	{C.PROBE_LIMITS, "limits", "limits"},
	{C.PROBE_IDS, "user namespace", "ids"},
	{C.PROBE_MAPS, "user namespace", "uid-map"},
	{C.PROBE_PIDNS, "pid namespace", "pid-namespace"},
}

// probesAlways is what every grant needs.
const probesAlways = C.PROBE_LANDLOCK_READ | C.PROBE_LANDLOCK_WRITE | C.PROBE_LANDLOCK_EXEC | C.PROBE_SECCOMP |
	C.PROBE_SECCOMP_MODE | C.PROBE_ROOT_READONLY | C.PROBE_NO_CAPS | C.PROBE_NNP | C.PROBE_IDS | C.PROBE_PIDNS |
	C.PROBE_LIMITS | C.PROBE_PROC_READONLY | C.PROBE_MOUNTS | C.PROBE_MAPS

func probeNames(set uint32) []string {
	var names []string
	for _, p := range probes {
		if set&p.bit != 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// stands is what holds what Landlock does not before abiScopes: a probe of a
// namespace, by the probe of the scope.
var stands = map[uint32]uint32{C.PROBE_SCOPE_SIGNAL: C.PROBE_PIDNS, C.PROBE_SCOPE_ABSTRACT: C.PROBE_NO_ROUTE}

// probedLayers says of each probe whether it held, by the names of those that did.
// What this kernel's Landlock cannot hold is there when what stands for it is.
func probedLayers(held map[string]bool, abi int) (layers []Layer) {
	for _, p := range probes {
		l := Layer{Name: p.name, OK: held[p.name], Detail: p.layer}
		if other, ok := stands[p.bit]; ok && abi < abiScopes {
			l.OK = held[probeNames(other)[0]]
			l.Detail = fmt.Sprintf("%s, for want of landlock ABI %d", probeLayer(other), abiScopes)
		}
		layers = append(layers, l)
	}
	return layers
}

// probeLayer names the layer of the first probe in the set.
func probeLayer(set uint32) string {
	for _, p := range probes {
		if set&p.bit != 0 {
			return p.layer
		}
	}
	return "probe"
}

var namespaceNames = [C.NS_COUNT]string{
	C.NS_USER: "user", C.NS_MNT: "mnt", C.NS_PID: "pid", C.NS_NET: "net", C.NS_IPC: "ipc", C.NS_UTS: "uts", C.NS_CGROUP: "cgroup",
}

// perCommand are the namespaces that no two commands share; the others are their
// session's, but for the network of a command that has a door.
var perCommand = [C.NS_COUNT]bool{C.NS_MNT: true, C.NS_PID: true, C.NS_IPC: true}

// newReceipt checks what the command's own process reported: that every probe
// held that the grant needs, that no namespace is the daemon's, and that each is
// the command's own or its session's, as it has to be.
func newReceipt(r C.struct_receipt, want uint32, own [C.NS_COUNT]uint64, session [C.NS_COUNT]C.uint64_t, door bool) (Receipt, error) {
	if missing := want &^ uint32(r.probes); missing != 0 {
		return Receipt{}, failure{step: C.STEP_PROBE, index: missing}.err()
	}
	rec := Receipt{
		UID: uint32(r.uid), GID: uint32(r.gid), Seccomp: int(r.filters), NoNewPrivs: true, Capabilities: uint64(r.caps),
		Mounts: int(r.mounts), Took: time.Duration(min(r.took_ns, 1<<50)),
		Namespaces: make(map[string]uint64, C.NS_COUNT),
		Layers:     probeNames(uint32(r.probes)),
	}
	for i, name := range namespaceNames {
		inode := uint64(r.ns[i])
		if inode == 0 || inode == own[i] {
			return Receipt{}, &Unavailable{Layer: name + " namespace", Err: errors.New("the command would share the daemon's")}
		}
		if (r.ns[i] == session[i]) == (perCommand[i] || door && i == C.NS_NET) {
			return Receipt{}, &Unavailable{Layer: name + " namespace", Err: errors.New("it is not the one that was made for the command")}
		}
		rec.Namespaces[name] = inode
	}
	return rec, nil
}

func micros(n C.uint64_t) time.Duration {
	return time.Duration(min(uint64(n), 1<<50)) * time.Microsecond
}

// ownNamespaces are the daemon's, to compare with.
func ownNamespaces() ([C.NS_COUNT]uint64, error) {
	var own [C.NS_COUNT]uint64
	for i, name := range namespaceNames {
		st, err := statInode(fmt.Sprintf("/proc/self/ns/%s", name))
		if err != nil {
			return own, &Unavailable{Layer: "proc", Err: err}
		}
		own[i] = st
	}
	return own, nil
}
