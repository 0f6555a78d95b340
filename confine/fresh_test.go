package confine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

// TestFresh proves that sessions with names share no /tmp and no network, that
// they last until they are ended, and that a fresh command sees nothing of any in
// /tmp and caches, and leaves nothing.
func TestFresh(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		any := policy.Grant{ExecAny: true, Write: []string{"."}}
		run := func(change func(*Request), text string) string {
			t.Helper()
			r, out, problems := b.request(any, text)
			change(&r)
			o, err := b.m.Run(context.Background(), r)
			if err != nil || o.ExitCode != 0 {
				t.Fatalf("%s: %+v, %v\n%s", text, o, err, problems)
			}
			return out.String()
		}
		named := func(name string) func(*Request) { return func(r *Request) { r.Session = name } }
		fresh := func(r *Request) { r.Fresh = true; r.Env = []string{"MORE=x y", "PAGER=less"} }
		const leave, look = `echo mine >"$TMPDIR/left"; echo mine >~/.cache/left`, `ls "$TMPDIR" ~/.cache; readlink /proc/self/ns/net; echo "$MORE $PAGER"`
		run(named(""), leave)
		run(named("a"), leave)
		a, other, own := run(named("a"), look), run(named("b"), look), run(fresh, look)
		if strings.Count(a, "left") != 2 || strings.Count(other, "left") != 1 || strings.Contains(own, "left") || !strings.Contains(own, "x y less") {
			t.Errorf("in the session:\n%sin another:\n%sfresh:\n%s", a, other, own)
		}
		net := func(out string) string { _, after, _ := strings.Cut(out, "net:"); return strings.Fields(after)[0] }
		if net(a) == net(other) || net(a) == net(own) || net(other) == net(own) {
			t.Errorf("they share a network: %s %s %s", net(a), net(other), net(own))
		}
		run(fresh, `mkdir -p ~/.cache/deep/er; echo x >~/.cache/deep/er/f; chmod 500 ~/.cache/deep/er ~/.cache/deep`)
		left, err := filepath.Glob(filepath.Join(b.m.stateDir, "cache", "*", freshPrefix+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left is %q, %v", left, err)
		}
		b.m.End(b.caller.UID, "a")
		if a := run(named("a"), look); strings.Count(a, "left") != 1 {
			t.Errorf("after its end:\n%s", a)
		}
		b.m.End(b.caller.UID, "a")
		b.m.End(b.caller.UID, "b")
		b.m.mu.Lock()
		defer b.m.mu.Unlock()
		for key := range b.m.sessions {
			if key.name != "" {
				t.Errorf("the session %q is left", key.name)
			}
		}
	})
}

// TestCachesAreRemovedAsTheirOwner: the daemon's own rights are not used on what
// commands have left.
func TestCachesAreRemovedAsTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an unprivileged daemon has no other rights")
	}
	m := newManager(t)
	c := callers(t)["user"]
	dir := filepath.Join(newProject(t, c, c.Home), freshPrefix+"x")
	writeFile(t, c, dir+"/own/file", "", 0o600)
	own(t, c, dir)
	if err := os.MkdirAll(dir+"/root/file", 0o700); err != nil { // root's
		t.Fatal(err)
	}
	m.removeCache(c, dir)
	if _, err := os.Stat(dir + "/root/file"); err != nil {
		t.Errorf("what only root may remove: %v", err)
	}
	if _, err := os.Stat(dir + "/own"); err == nil {
		t.Error("the owner's own is left")
	}
}
