package confine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

// TestGroupsAreKept: a project that a group shares works inside as it does
// outside: root's daemon maps and keeps the caller's groups, and none besides.
func TestGroupsAreKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's daemon can keep them: an unprivileged process gives setgroups up")
	}
	const shared, foreign = 54321, 54322
	c := callerNamed(t, testUser)
	c.Groups = append(slices.Clone(c.Groups), shared)
	b := box{newManager(t), c, newProject(t, c, c.Home)}
	for name, gid := range map[string]int{"shared": shared, "foreign": foreign} {
		dir := filepath.Join(b.project, name)
		if err := os.Mkdir(dir, 0o770); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/file", []byte(name+"\n"), 0o660); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir + "/file", dir} {
			if err := os.Chown(path, 0, gid); err != nil {
				t.Fatal(err)
			}
			os.Chmod(path, 0o770)
		}
	}
	for _, g := range []policy.Grant{pinned(t, "cat", "id"), widest} {
		r := b.run(t, g, "cat shared/file; id -G; cat foreign/file")
		lines := strings.Split(r.out, "\n")
		if lines[0] != "shared" || !slices.Contains(strings.Fields(lines[1]), "54321") || strings.Contains(r.out, "foreign") {
			t.Errorf("%+v", r)
		}
		if !slices.Contains(r.Receipt.GIDMap, "54321 54321 1") || slices.Contains(r.Receipt.GIDMap, "54322 54322 1") {
			t.Errorf("mapped: %q", r.Receipt.GIDMap)
		}
	}
	r := b.run(t, widest, "echo new > shared/file && echo made > shared/made && stat -c %u:%g shared/made; chgrp 54321 shared/made && stat -c %g shared/made; chgrp 54322 shared/made || echo refused")
	if want := "54321\nrefused\n"; !strings.HasSuffix(r.out, want) {
		t.Errorf("%+v", r)
	}
	// a caller who left the group is served by another session, without it
	c.Groups = slices.DeleteFunc(slices.Clone(c.Groups), func(g uint32) bool { return g == shared })
	b.caller = c
	if r := b.run(t, widest, "cat shared/file"); r.ExitCode == 0 {
		t.Errorf("a group that was left is still there: %+v", r)
	}
}
