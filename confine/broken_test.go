//go:build pinfold_break

package confine

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

// TestLayerLeftOut has the keeper, the init or the command's own process leave one
// step out, and sees the command refused with the layer's name. The build that
// can do so is this test's alone: go test -tags pinfold_break.
func TestLayerLeftOut(t *testing.T) {
	for _, row := range []struct {
		name   string
		breaks uint32
		grant  policy.Grant
		layers []string // either names what is missing
	}{
		{"no user namespace", breakUserns, widest, []string{"user namespace"}},
		{"the host's network", breakNetns, widest, []string{"net namespace", "network namespace", "namespaces"}},
		{"the session's network, with a door", breakDoor, toHosts(widest, "files.example"), []string{"net namespace"}},
		{"the session's IPC", breakIPCns, widest, []string{"ipc namespace"}},
		{"the host's name", breakUTSns, widest, []string{"uts namespace", "namespaces"}},
		{"the host's cgroups", breakCgroupns, widest, []string{"cgroup namespace"}},
		// another init's /proc may come over its own there, with nothing of it to see:
		// whatever the probe reads in /proc may be what it misses
		{"the session's mounts", breakMntns, widest, []string{"mnt namespace", "seccomp", "proc", "user namespace"}},
		{"the session's processes", breakPidns, widest, []string{"pid namespace"}},
		{"another uid", breakIDs, widest, []string{"user namespace"}},
		{"the bounding set stays", breakBounding, widest, []string{"capabilities"}},
		{"the capabilities stay", breakCaps, widest, []string{"capabilities"}},
		{"no_new_privs is not set", breakNNP, widest, []string{"no_new_privs"}},
		{"a limit is not set", breakLimits, widest, []string{"limits"}},
		{"no Landlock", breakLandlock, widest, []string{"landlock"}},
		{"no Landlock, pinned", breakLandlock, policy.Grant{}, []string{"landlock"}},
		{"no filter", breakSeccomp, widest, []string{"seccomp"}},
		{"no filter, pinned", breakSeccomp, policy.Grant{}, []string{"seccomp"}},
		{"sysctls may be written", breakProc, widest, []string{"proc"}},
		{"a mount of the plan is missing", breakMount, policy.Grant{Write: []string{"sub"}}, []string{"mount view"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newManager(t)
			m.breaks = row.breaks
			for who, c := range callers(t) {
				t.Run(who, func(t *testing.T) {
					if row.breaks == breakIDs && (c.UID == 0 || !m.system) {
						t.Skip("has no other uid to stay")
					}
					b := box{m, c, newProject(t, c, c.Home)}
					writeFile(t, c, b.project+"/sub/file", "", 0o644)
					r, _, _ := b.request(row.grant, "echo ran > ran || echo ran > sub/ran")
					_, err := m.Run(context.Background(), r)
					var u *Unavailable
					if !errors.As(err, &u) || !slices.Contains(row.layers, u.Layer) {
						t.Errorf("got %v, want one of %q missing", err, row.layers)
					} else {
						t.Log(err)
					}
					for _, name := range []string{"/ran", "/sub/ran"} {
						// the daemon compares namespaces while the shell starts, and
						// ends it at once: it may have begun
						compared := u != nil && strings.HasSuffix(u.Layer, "namespace")
						if _, err := os.Stat(b.project + name); err == nil && !compared {
							t.Error("the command ran")
						}
					}
				})
			}
		})
	}
	m := newManager(t)
	for _, c := range callers(t) {
		b := box{m, c, newProject(t, c, c.Home)}
		if r := b.run(t, widest, "echo ran"); r.out != "ran\n" {
			t.Errorf("the control, with every layer: %+v", r)
		}
	}
}

// TestKeeperBeforeItIsTold: the keeper is at work, and offers a spare, before the
// process that made it has said so.
func TestKeeperBeforeItIsTold(t *testing.T) {
	m := newManager(t)
	m.breaks = breakLate
	for _, c := range callers(t) {
		b := box{m, c, newProject(t, c, c.Home)}
		if r := b.run(t, widest, "echo ran"); r.out != "ran\n" {
			t.Errorf("%+v", r)
		}
	}
}
