package confine

import (
	"os"
	"slices"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

// TestDenied: what was refused is named by what it was, and what only sounds like
// it is not.
func TestDenied(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		gitRepository(t, b)
		writeFile(t, b.caller, b.project+"/file", "", 0o644)
		writeFile(t, b.caller, b.project+"/sub/file", "", 0o644)
		secret := newProject(t, b.caller, b.caller.Home)
		in := func(name string) string { return b.project + "/" + name }
		read := pinned(t, "ls", "cat", "touch", "mkdir", "cp")
		for _, row := range []struct {
			grant policy.Grant
			text  string
			want  []Denied
		}{
			{read, "echo x > file", []Denied{{"write", in("file")}}},
			{read, "cd sub && echo x > file", []Denied{{"write", in("sub/file")}}},
			{read, "touch new; mkdir sub/d; cp file 'a b'", []Denied{{"write", in("a b")}, {"write", in("new")}, {"write", in("sub/d")}}},
			{widest, "echo x >> .git/config || true", []Denied{{"write", in(".git/config")}}},
			{widest, "echo x > /etc/new; touch /usr/new", []Denied{{"write", "/etc/new"}, {"write", "/usr/new"}}},
			{read, "/usr/bin/id", []Denied{{"execute", "/usr/bin/id"}}},
			{read, "ls " + secret, []Denied{{"read", secret}}},
			{read, "ls /no/such/place; cat nothing", nil},
			{widest, "echo fine", nil},
			{widest, "echo 'x: file: Permission denied' >&2", nil},
			{widest, "echo 'x: /tmp/file: Permission denied' >&2", nil},
			{read, "echo 'x: /tmp/file: Read-only file system' >&2; echo x > file", []Denied{{"write", in("file")}}},
			{widest, "cp file no/such/dir/x", nil},
		} {
			if r := b.run(t, row.grant, row.text); !slices.Equal(r.Denied, row.want) {
				t.Errorf("%s: %v, want %v: %s", row.text, r.Denied, row.want, r.err)
			}
		}
		if _, err := os.Stat("/usr/bin/python3"); err == nil {
			r := b.python(t, widest, `
for f in (lambda: open("/usr/x", "w"), lambda: open(".git/hooks/x", "w"), lambda: socket.create_connection(("192.0.2.1", 80))):
    try: f()
    except OSError as e: print(e, file=sys.stderr)
`)
			if want := []Denied{{"network", ""}, {"write", in(".git/hooks/x")}, {"write", "/usr/x"}}; !slices.Equal(r.Denied, want) {
				t.Errorf("%v, want %v: %s", r.Denied, want, r.err)
			}
		}
	})
}
