package confine

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
)

// TestReceipt: what a receipt says of a command is what can be seen of it from
// outside while it runs.
func TestReceipt(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		for name, g := range map[string]policy.Grant{"pinned": pinned(t, "sleep"), "widest": widest} {
			r := b.run(t, g, "readlink /proc/self/ns/* 2>/dev/null; echo $UID").Receipt
			if r.UID != b.caller.UID || r.GID != b.caller.GID || r.Seccomp != 1 || !r.NoNewPrivs || r.Capabilities != 0 || r.LandlockABI != b.m.abi {
				t.Errorf("%s: %+v", name, r)
			}
			own := fmt.Sprintf("%d %d 1", b.caller.UID, b.caller.UID)
			if !slices.Equal(r.UIDMap, []string{own}) || len(r.GIDMap) == 0 {
				t.Errorf("%s: maps %v %v", name, r.UIDMap, r.GIDMap)
			}
			for _, space := range namespaceNames {
				link, err := os.Readlink("/proc/self/ns/" + space)
				if err != nil || r.Namespaces[space] == 0 || link == space+":["+strconv.FormatUint(r.Namespaces[space], 10)+"]" {
					t.Errorf("%s: %s namespace %d, the host has %s", name, space, r.Namespaces[space], link)
				}
			}
			want := []string{"landlock-read", "landlock-write", "landlock-execute", "seccomp", "seccomp-filters", "mounts",
				"proc-read-only", "root-read-only", "no-capabilities", "no-new-privs", "limits", "ids", "uid-map", "pid-namespace"}
			if b.m.abi >= abiScopes {
				want = append(want, "landlock-signals")
			}
			if name == "pinned" {
				want = append(want, "no-socket", "noexec", "project-read-only")
			} else if want = append(want, "no-route"); b.m.abi >= abiScopes {
				want = append(want, "landlock-abstract-sockets")
			}
			for _, layer := range want {
				if !slices.Contains(r.Layers, layer) {
					t.Errorf("%s lacks %s: %v", name, layer, r.Layers)
				}
			}
		}
		// two commands share what is the session's, and nothing else
		first, second := b.run(t, widest, "true").Receipt, b.run(t, widest, "true").Receipt
		for i, space := range namespaceNames {
			if shared := first.Namespaces[space] == second.Namespaces[space]; shared == perCommand[i] && space != "pid" {
				t.Errorf("%s namespace: shared %v", space, shared)
			}
		}
	})
}

// probeTime is the most that probing may take in the middle of many commands,
// and busy what other tests on the machine may make of it.
const (
	probeTime = 100 * time.Microsecond
	busy      = 4
)

// TestProbesAreQuick: with a plan that mounts a lot.
func TestProbesAreQuick(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		gitRepository(t, b)
		writeFile(t, b.caller, b.project+"/.pinfold.toml", "", 0o644)
		b.run(t, widest, "true")
		for name, g := range map[string]policy.Grant{"pinned": pinned(t, "sleep", "ls", "cat"), "widest": widest} {
			var took []time.Duration
			var mounts int
			for range 50 {
				r := b.run(t, g, ":").Receipt
				took, mounts = append(took, r.Took), r.Mounts
			}
			slices.Sort(took)
			t.Logf("%s: %d mounts, min %v, p50 %v, max %v", name, mounts, took[0], took[25], took[49])
			if took[25] > probeTime*busy {
				t.Errorf("%s: p50 %v", name, took[25])
			}
			if mounts == 0 && !g.Pinned() {
				t.Errorf("%s: no mount was looked at", name)
			}
		}
	})
}

// TestReceiptIsHostile: what a command's process may say of itself is believed
// only as far as it has to be.
func TestReceiptIsHostile(t *testing.T) {
	own, err := ownNamespaces()
	if err != nil {
		t.Fatal(err)
	}
	keeper, good := (&session{}).ns, event{}.receipt
	good.probes = probesAlways
	at := map[string]int{}
	for i, name := range namespaceNames {
		at[name] = i
		keeper[i], good.ns[i] = 1, 1
		if perCommand[i] {
			good.ns[i] = 2
		}
	}
	net, mnt, pid := at["net"], at["mnt"], at["pid"]
	r, host := good, own
	if _, err := newReceipt(r, probesAlways, own, keeper, false); err != nil {
		t.Fatalf("the control: %v", err)
	}
	for name, spoil := range map[string]func(){
		"a probe is missing":         func() { r.probes &^= 1 },
		"no probe":                   func() { r.probes = 0 },
		"the host's network":         func() { host[net] = uint64(r.ns[net]) },
		"no namespace":               func() { r.ns[net] = 0 },
		"another session's network":  func() { r.ns[net] = 7 },
		"the session's mounts":       func() { r.ns[mnt] = keeper[mnt] },
		"the session's process tree": func() { r.ns[pid] = keeper[pid] },
	} {
		r, host = good, own
		spoil()
		if _, err := newReceipt(r, probesAlways, host, keeper, false); err == nil {
			t.Errorf("%s: believed", name)
		}
	}
}

// TestLandlockLevels: each ABI is used in full, the scopes from 6, and one that is
// too old is refused with what is needed.
func TestLandlockLevels(t *testing.T) {
	if _, err := usableABI(1, nil); err == nil || !strings.Contains(err.Error(), "landlock ABI 2 (Linux 5.19) is needed, this kernel has 1") {
		t.Errorf("ABI 1: %v", err)
	}
	if _, err := usableABI(0, os.ErrNotExist); err == nil {
		t.Error("no Landlock at all")
	}
	bits := func(n int) uint64 { return 1<<n - 1 }
	for abi, want := range map[int]struct{ fs, net, scoped int }{
		2: {14, 0, 0}, 3: {15, 0, 0}, 4: {15, 2, 0}, 5: {16, 2, 0}, 6: {16, 2, 2}, 7: {16, 2, 2}, 8: {16, 2, 2},
		9: {17, 2, 2}, 10: {17, 4, 2}, 11: {17, 4, 2},
	} {
		if got, err := usableABI(abi, nil); got != abi || err != nil {
			t.Errorf("ABI %d: %d %v", abi, got, err)
		}
		for _, pinned := range []bool{true, false} {
			c := handled(abi, pinned)
			net := bits(want.net)
			if !pinned {
				net = 0
			}
			if uint64(c.HandledAccessFS) != bits(want.fs) || uint64(c.HandledAccessNet) != net || uint64(c.Scoped) != bits(want.scoped) {
				t.Errorf("ABI %d, pinned %v: %v", abi, pinned, c)
			}
		}
	}
	if got, _ := usableABI(99, nil); got != len(abiConfigs)-1 {
		t.Errorf("a newer ABI than is known: %d", got)
	}
}

// TestLayersOfOlderKernels: what an older Landlock does not hold is no missing
// layer as long as the namespace holds it.
func TestLayersOfOlderKernels(t *testing.T) {
	for _, row := range []struct {
		abi  int
		gone []string // probes that did not hold
		want []string // layers that are missing
	}{
		{2, []string{"landlock-signals", "landlock-abstract-sockets"}, nil},
		{2, []string{"landlock-signals", "pid-namespace"}, []string{"landlock-signals", "pid-namespace"}},
		{5, []string{"landlock-abstract-sockets", "no-route"}, []string{"landlock-abstract-sockets", "no-route"}},
		{6, []string{"landlock-signals"}, []string{"landlock-signals"}},
		{11, nil, nil},
	} {
		held := map[string]bool{}
		for _, p := range probes {
			held[p.name] = !slices.Contains(row.gone, p.name)
		}
		var missing []string
		for _, l := range probedLayers(held, row.abi) {
			if !l.OK {
				missing = append(missing, l.Name)
			}
		}
		slices.Sort(missing)
		slices.Sort(row.want)
		if !slices.Equal(missing, row.want) {
			t.Errorf("ABI %d without %q: missing %q, want %q", row.abi, row.gone, missing, row.want)
		}
	}
}
