package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// The grant is what the parts of a line need, and no more.
func TestGrants(t *testing.T) {
	p, dir := builtin(t), project(t)
	env := policytest.Env(dir)
	if err := os.Symlink("sub", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	dash, err := filepath.EvalSymlinks("/usr/bin/dash")
	if err != nil {
		t.Skip(err)
	}
	for _, row := range []struct {
		text  string
		write []string
		exec  []string
		any   bool
	}{
		{"true", nil, nil, false},
		{"ls | wc -l", nil, []string{"/usr/bin/ls", "/usr/bin/wc"}, false},
		{"git status", nil, []string{"/usr/bin/git", "/usr/lib/git-core/git"}, false},
		{"egrep x a.go", nil, []string{dash, "/usr/bin/egrep", "/usr/bin/grep"}, false},
		{"sh -c 'cat a.go'", nil, []string{"/usr/bin/cat", dash}, false},
		{"bash -c 'cat a.go'", nil, []string{"/usr/bin/cat"}, false},
		{"echo hi", nil, nil, false},
		{"env echo hi", nil, []string{"/usr/bin/echo", "/usr/bin/env"}, false},
		{"echo x > a.go", []string{"a.go"}, nil, false},
		{"echo x >> a.go", []string{"a.go"}, nil, false},
		{"echo x > new", []string{"."}, nil, false},
		{"echo x > sub/new", []string{"sub"}, nil, false},
		{"echo x > link/new", []string{"sub"}, nil, false},
		{"echo x > sub/deep/new", []string{"sub"}, nil, false},
		{"echo x > a.go; echo y > sub/new", []string{"a.go", "sub"}, nil, false},
		{"echo x > sub/x; echo y > sub/new", []string{"sub"}, nil, false},
		{"echo x > sub/x; echo y > new", []string{"."}, nil, false},
		{"cd sub && echo x > new", []string{"sub"}, nil, false},
		{"cd sub && echo x > ../a.go", []string{"a.go"}, nil, false},
		{"sed -i s/a/b/ sub/x", []string{"sub"}, []string{"/usr/bin/sed"}, false},
		{"sort -o sub/x a.go", []string{"sub/x"}, []string{"/usr/bin/sort"}, false},
		{"for f in a b; do echo x > sub/$f; done", []string{"sub"}, nil, false},
		{"echo x > \"sub/$y\"", []string{"sub"}, nil, false},
		{"echo x > \"$y\"", []string{"."}, nil, false},
		{"echo x > /dev/null 2>&1", nil, nil, false},
		{"cat < a.go > /dev/stderr", nil, []string{"/usr/bin/cat"}, false},
		{"python3 x.py", []string{"."}, nil, true},
		{"ls && go vet ./...", []string{"."}, nil, true},
		{"cat <<E > sub/new\nx\nE", []string{"sub"}, []string{"/usr/bin/cat"}, false},
		{"ls | tee sub/new", []string{"sub"}, []string{"/usr/bin/ls", "/usr/bin/tee"}, false},
		{"mkdir -p sub/a/b", []string{"sub"}, []string{"/usr/bin/mkdir"}, false},
	} {
		d := decide(t, p, env, row.text)
		if d.Verdict != policy.Allow {
			t.Errorf("%s: %v: %+v", row.text, d.Verdict, d.Reasons)
			continue
		}
		slices.Sort(row.exec)
		g := d.Grant
		if !slices.Equal(g.Write, row.write) || !slices.Equal(g.Exec, row.exec) || g.ExecAny != row.any || len(g.Protected) > 0 {
			t.Errorf("%s: grant %+v, want to write %q and to run %q (any %v)", row.text, g, row.write, row.exec, row.any)
		}
	}
}

// A yes to what was asked opens exactly what it needs.
func TestApprovedGrants(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	for text, want := range map[string]policy.Grant{
		"echo x > .envrc":        {Protected: []string{".envrc"}},
		"echo x > sub/.vscode/x": {Protected: []string{"sub/.vscode/x"}},
		"rm sub/x":               {Write: []string{"sub"}, Exec: []string{"/usr/bin/rm"}},
		"git branch x":           {Write: []string{".git"}, Exec: []string{"/usr/bin/git", "/usr/lib/git-core/git"}},
		"no-such-command":        {Write: []string{"."}, ExecAny: true},
		"eval \"$x\"":            {Write: []string{"."}, ExecAny: true},
		"bash sub/x":             {Write: []string{"."}, ExecAny: true},
	} {
		d := decide(t, p, env, text)
		g := d.Grant
		if d.Verdict != policy.RequireApproval || !slices.Equal(g.Write, want.Write) || !slices.Equal(g.Exec, want.Exec) ||
			!slices.Equal(g.Protected, want.Protected) || g.ExecAny != want.ExecAny {
			t.Errorf("%s: %v %+v, want %+v", text, d.Verdict, g, want)
		}
	}
}

// Builds and tests get the long time limit.
func TestTimeouts(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	for text, want := range map[string]time.Duration{
		"ls": policy.DefaultTimeout, "python3 x.py": policy.DefaultTimeout, "sleep 99": policy.DefaultTimeout,
		"go test ./...": policy.BuildTimeout, "make": policy.BuildTimeout, "pytest": policy.BuildTimeout,
		"python3 -m pytest": policy.BuildTimeout, "ls | go vet ./...": policy.BuildTimeout, "sh -c 'make'": policy.BuildTimeout,
		"npm test": policy.BuildTimeout,
	} {
		if d := decide(t, p, env, text); d.Timeout != want {
			t.Errorf("%s: %v, want %v", text, d.Timeout, want)
		}
	}
}

// Reasons point at the part of the source that they are about, also when it
// stands in text within text.
func TestSpans(t *testing.T) {
	p, env := builtin(t), policytest.Env(project(t))
	for text, want := range map[string]policy.Span{
		"cat /etc/passwd":                  {Line: 1, Column: 5, Text: "/etc/passwd"},
		"ls\n  cat\t'/etc/passwd' x":       {Line: 2, Column: 7, Text: "'/etc/passwd'"},
		"ls;ls;ls;curl x":                  {Line: 1, Column: 10, Text: "curl"},
		"sh -c 'cat /etc/passwd'":          {Line: 1, Column: 7, Text: "'cat /etc/passwd'"},
		"echo \"$(cat /etc/passwd)\"":      {Line: 1, Column: 13, Text: "/etc/passwd"},
		"x=/etc/passwd; ls; cat $x":        {Line: 1, Column: 24, Text: "$x"},
		"echo x   >   /etc/x":              {Line: 1, Column: 10, Text: ">   /etc/x"},
		"find . -exec cat /etc/passwd \\;": {Line: 1, Column: 18, Text: "/etc/passwd"},
		"echo é; cat /etc/passwd":          {Line: 1, Column: 14, Text: "/etc/passwd"},
		"eval 'cat /etc/passwd'":           {Line: 1, Column: 1, Text: "eval 'cat /etc/passwd'"},
	} {
		d := decide(t, p, env, text)
		i := slices.IndexFunc(d.Reasons, func(r policy.Reason) bool { return r.Verdict == policy.Deny })
		if i < 0 {
			t.Errorf("%q: not denied", text)
			continue
		}
		if got := d.Reasons[i].Span; got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// The directory in which a command runs is followed, and paths are judged
// from there through symlinks.
func TestDirectories(t *testing.T) {
	p, dir := builtin(t), project(t)
	env := policytest.Env(dir)
	for _, link := range [][2]string{{"..", "up"}, {"sub", "in"}, {"/etc/passwd", "pw"}, {"loop", "loop"}} {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]policy.Verdict{
		"cd sub && cat ../a.go":              policy.Allow,
		"cd sub; cat ../a.go":                policy.Allow,
		"cd sub && cat ../../x":              policy.Deny,
		"cd sub && cd .. && cat a.go":        policy.Allow,
		"cd sub && cd .. && cat ../x":        policy.Deny,
		"(cd sub); cat ../x":                 policy.Deny,
		"(cd sub && cat ../a.go)":            policy.Allow,
		"cd nowhere; cat ../x":               policy.Deny,
		"cd nowhere && cat ../a.go":          policy.Allow,
		"mkdir -p n/m && cd n/m && ls ../..": policy.Allow,
		"pushd sub && cat ../a.go":           policy.Allow,
		"pushd sub; popd; cat ../x":          policy.RequireApproval,
		"cat up/x":                           policy.Deny,
		"cat in/x":                           policy.Allow,
		"cat in/../a.go":                     policy.Allow,
		"cat pw":                             policy.Deny,
		"cat up/project-x/../../x":           policy.Deny,
		"cd up":                              policy.Deny,
		"cd in && cat ../a.go":               policy.Allow,
		"echo x > pw":                        policy.Deny,
		"echo x > up/x":                      policy.Deny,
		"git -C sub log -- ../a.go":          policy.Allow,
		"git -C sub log -- ../../x":          policy.Deny,
		"make -C sub":                        policy.Allow,
		"env -C sub cat ../a.go":             policy.Allow,
		"env -C sub cat ../../x":             policy.Deny,
		"cat " + dir + "/a.go":               policy.Allow,
		"cat " + dir + "/../x":               policy.Deny,
		"cat ${PWD%/*}/x":                    policy.Deny,
		"cat \"$(dirname \"$PWD\")/x\"":      policy.Deny,
		"for d in sub in; do cd $d; cat ../a.go; cd ..; done": policy.Allow,
	} {
		if d := decide(t, p, env, text); d.Verdict != want {
			t.Errorf("%s: %v, want %v: %+v", text, d.Verdict, want, d.Reasons)
		}
	}
}
