package policy_test

import (
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
)

const projectTables = `
[[project]]
roots = ["/srv/web/*", "/srv/all/"]
profile = "workspace"
commands = { "touch" = "deny" }
[[project.rule]]
id = "deny-make"
verdict = "deny"
command = "make"
reason = "this project is built elsewhere"
match = ["make test"]
not_match = ["ls"]

[[project]]
roots = ["/srv/web/shop"]
default = "deny"
`

// TestProjectTables: what a site says of some projects holds there and nowhere
// else, and the first table that names a project counts.
func TestProjectTables(t *testing.T) {
	p, err := policy.Load(policy.Source{Name: "site.toml", Text: projectTables})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ project, command, want string }{
		{"/srv/web/shop", "make test", "deny"}, {"/srv/web/shop", "cp x y", "allow"}, {"/srv/web/shop", "touch x", "deny"},
		{"/srv/web/shop/sub", "touch x", "require_approval"}, {"/srv/web", "touch x", "require_approval"},
		{"/srv/all/a", "cp x y", "allow"}, {"/srv/all/a/b/c", "make test", "deny"}, {"/srv/all", "make test", "allow"},
		{"/home/u/project", "make test", "allow"}, {"/srv/allx/a", "make test", "allow"},
	} {
		q := p.For(row.project)
		env := memoryEnv
		env.Project = row.project
		if got := parseAndDecideIn(t, q, row.command, env).Verdict.String(); got != row.want {
			t.Errorf("%s in %s: %s, want %s", row.command, row.project, got, row.want)
		}
		if (q == p) != (q.Hash() == p.Hash()) {
			t.Errorf("%s: the hash does not tell the policies apart", row.project)
		}
	}
}

// TestProjectTablesThatAreWrong: each is refused with its place.
func TestProjectTablesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"[[project]]\nprofile = 'workspace'":                                              "site.toml:1:",
		"[[project]]\nroots = ['srv']":                                                    "site.toml:2:11: project: roots",
		"[[project]]\nroots = ['/srv/../x']":                                              "absolute path",
		"[[project]]\nroots = ['/srv/[']":                                                 "absolute path",
		"[[project]]\nroots = ['/srv/x']\nprofile = 'loose'":                              "unknown profile",
		"[[project]]\nroots = ['/srv/x']\nwritable = ['/y']":                              "unknown key",
		"[[project]]\nroots = ['/srv/x']\n[project.builtin]\ndisable=['no-such-rule']":    "no rule",
		strings.Replace(projectTables, `not_match = ["ls"]`, `not_match = ["make x"]`, 1): "deny-make",
	} {
		if _, err := policy.Load(policy.Source{Name: "site.toml", Text: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot %v, want %q", text, err, want)
		}
	}
	p, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Tighten(policy.Source{Name: ".pinfold.toml", Text: "[[project]]\nroots = ['/']"}); err == nil || !strings.Contains(err.Error(), "can only tighten") {
		t.Errorf("a project's own file: %v", err)
	}
}
