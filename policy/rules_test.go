package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// site returns the built-in policy changed by a site's file.
func site(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(policy.Source{Name: "site.toml", Text: text})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// rowOf is a command and its verdict.
type rowOf struct {
	text string
	want policy.Verdict
}

// expect decides the commands in the project.
func expect(t *testing.T, p *policy.Policy, dir string, rows ...rowOf) {
	t.Helper()
	for _, row := range rows {
		if d := decide(t, p, policytest.Env(dir), row.text); d.Verdict != row.want {
			t.Errorf("%s: %v, want %v: %+v", row.text, d.Verdict, row.want, d.Reasons)
		}
	}
}

const (
	allow = policy.Allow
	ask   = policy.RequireApproval
	deny  = policy.Deny
)

// A list of one may be written as the word alone, as in the examples of rules.
func TestOneWordForAList(t *testing.T) {
	p := site(t, `
[[rule]]
id        = "no-force"
verdict   = "deny"
command   = "git"
subcommand = "branch"
options   = "force"
reason    = "moves a branch"
match     = "git branch -f x"
not_match = "git branch"
`)
	expect(t, p, project(t), rowOf{"git branch --force x", deny}, rowOf{"git branch", allow})
}

// A rule about operands applies to every spelling of them. What is unknown is
// asked about by a rule that denies, and not allowed by one that allows.
func TestOperands(t *testing.T) {
	p := site(t, `
[[rule]]
id       = "no-deploy"
verdict  = "deny"
command  = ["make", "gmake"]
operands = ["deploy", "deploy-*"]
reason   = "deploys"
match    = ["make deploy", "make -j4 all deploy-eu"]
not_match = ["make all", "make deploys"]
[[rule]]
id       = "touch-stamps"
verdict  = "allow"
command  = "touch"
operands = "*.stamp"
reason   = "makes stamps"
match    = ["touch a.stamp b.stamp"]
not_match = ["touch a.stamp b", "touch", "touch $x", "touch sub/a.stamp"]
`)
	expect(t, p, project(t), rowOf{"make dep\\loy", deny}, rowOf{"x=deploy; make $x", deny}, rowOf{"timeout 5 make 'deploy-x'", deny},
		rowOf{"sh -c 'make deploy'", deny}, rowOf{"make \"$(cat a.go)\"", ask}, rowOf{"make \"depl$x\"", ask}, rowOf{"make \"test$x\"", allow},
		rowOf{"make -j4 test", allow}, rowOf{"touch a.stamp", allow}, rowOf{"touch \"$x.stamp\"", ask}, rowOf{"touch a.go", ask})
}

// A rule about paths applies to what a command does there, wherever the
// spelling leads, and to what may be there.
func TestRulePaths(t *testing.T) {
	dir := project(t)
	for _, name := range []string{"secrets", "out", "sub/secrets"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("secrets", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	p := site(t, `
[[rule]]
id      = "no-secrets"
verdict = "deny"
effects = ["reads", "writes", "deletes", "enters"]
paths   = "/secrets"
reason  = "touches secrets"
match   = ["cat secrets/x", "echo x > secrets/y", "cd secrets"]
not_match = ["cat sub/secrets/x", "cat secretsx"]
[[rule]]
id      = "no-lock-edits"
verdict = "require_approval"
command = ["sed", "tee"]
effects = "writes"
paths   = "*.lock"
reason  = "edits a lock file"
match   = ["sed -i s/a/b/ x.lock", "ls | tee sub/y.lock"]
not_match = ["cat x.lock", "sed s/a/b/ x.lock"]
[[rule]]
id      = "remove-outputs"
verdict = "allow"
command = "cp"
effects = ["writes"]
paths   = "/out"
reason  = "copies to the outputs"
match   = ["cp file out/x"]
not_match = ["cp file sub/x", "cp out/x file"]
`)
	expect(t, p, dir,
		rowOf{"cat sub/../secrets/x", deny}, rowOf{"cat link/x", deny}, rowOf{"cd sub && cat ../secrets/x", deny}, rowOf{"cat s[e]crets/x", deny},
		rowOf{"cat \"secrets/$x\"", deny}, rowOf{"cat \"$x\"", ask}, rowOf{"cat *.go", allow}, rowOf{"cat a.go", allow}, rowOf{"cat /etc/os-release", allow},
		rowOf{"sed -i s/a/b/ sub/x.lock", ask}, rowOf{"sed -i s/a/b/ a.go", allow}, rowOf{"echo x > x.lock", allow},
		rowOf{"cp a.go out/b.go", allow}, rowOf{"cp a.go sub/b.go", ask}, rowOf{"cp a.go \"out/$x\"", ask}, rowOf{"cp a.go ../x", deny}, rowOf{"cp secrets/x out/x", deny})
}

// The default of what no rule names is the command's, else its group's, else
// the policy's. It never allows what nothing is known of.
func TestDefaults(t *testing.T) {
	dir := project(t)
	p := site(t, `
default = "always_ask"
[groups]
packages = "deny"
files    = "always_allow"
[commands]
touch      = "require_approval"
npm        = "always_ask"
"git push" = "deny"
no-such-command = "deny"
`)
	expect(t, p, dir, rowOf{"touch x", ask}, rowOf{"cp a.go b.go", allow}, rowOf{"npm test", ask}, rowOf{"pip install x", deny}, rowOf{"node x.js", ask},
		rowOf{"git push", deny}, rowOf{"git commit -m x", ask}, rowOf{"no-such-command", deny}, rowOf{"no-such-other", ask}, rowOf{"ls", allow}, rowOf{"rm -rf sub", deny})
	workspace := site(t, "profile = 'workspace'\n[commands]\nnpm = 'deny'\n[groups]\nruntimes = 'require_approval'")
	expect(t, workspace, dir, rowOf{"npm test", deny}, rowOf{"cmake .", ask}, rowOf{"touch x", allow}, rowOf{"make", allow}, rowOf{"./sub/x", allow})
	expect(t, site(t, "profile = 'workspace'\ndefault = 'deny'"), dir, rowOf{"npm test", deny}, rowOf{"ls", allow}, rowOf{"no-such-command", deny})
	expect(t, site(t, "profile = 'workspace'\ndefault = 'always_allow'"), dir, rowOf{"npm test", allow}, rowOf{"no-such-command", ask})
	expect(t, site(t, "default = 'allow'"), dir, rowOf{"touch x", allow}, rowOf{"./sub/x", ask}, rowOf{"./ls", ask}, rowOf{"no-such-command", ask})
	for text, want := range map[string]string{
		"default = 'auto'":                           `site.toml:1:12: unknown verdict "auto": want deny, require_approval or allow, always_allow or always_ask`,
		"[groups]\nfiles = 'auto'":                   `site.toml:2:`,
		"[groups]\nfolks = 'deny'":                   `site.toml:2:1: groups: unknown group "folks": want one of archives,`,
		"[commands]\nls = 'deny'\nwhat-is = 'allow'": `site.toml:3:1: commands: nothing is known of "what-is"`,
		"[commands]\n'git frob' = 'deny'":            `site.toml:2:1: commands: "git frob": nothing is known of the subcommand "frob"`,
		"[commands]\n'/bin/ls' = 'deny'":             `site.toml:2:1: commands: "/bin/ls": want the name`,
		"[[rule]]\nid='a'\nverdict='always_allow'":   `site.toml:3:10: unknown verdict "always_allow": want deny, require_approval or allow`,
		"[[rule]]\nid='a'\nreason='r'\ncommand=[1]":  `site.toml:4`,
		"readable = 5":                               `site.toml`,
		"[[rule]]\nid='a'\nreason='r'\ncommand='ls'\nmatch='ls'\n[rule.narrow]\nwrites=['x']": `unknown key "rule.narrow.writes": want one of write, exec, exec_any`,
	} {
		if _, err := policy.Load(policy.Source{Name: "site.toml", Text: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// A rule of the site stands in the place of what facts and built-in rules ask
// about a command as a whole, where it names that, and nowhere else.
func TestReplaces(t *testing.T) {
	dir := project(t)
	p := site(t, `
profile = "workspace"
[[rule]]
id         = "rebase"
verdict    = "allow"
command    = "git"
subcommand = "rebase"
replaces   = "fact:git rebase"
reason     = "undoes work"
match      = ["git rebase main"]
[[rule]]
id       = "clean-build"
verdict  = "allow"
command  = "rm"
options  = "recursive"
operands = "build"
replaces = "workspace-removes-directories"
reason   = "removes what can be built again"
match    = ["rm -r build"]
not_match = ["rm -r sub", "rm -r build sub"]
`)
	expect(t, p, dir, rowOf{"git rebase main", allow}, rowOf{"git clean -fd", ask}, rowOf{"git -c core.pager=x rebase main", ask}, rowOf{"git rebase -x 'rm -r sub' main", ask},
		rowOf{"rm -r build", allow}, rowOf{"rm -r build sub", ask}, rowOf{"rm -r $x", ask}, rowOf{"rm -rf build", deny}, rowOf{"rm -r ../build", deny},
		rowOf{"rm -r build && rm -r sub", ask})
	if d := decide(t, p, policytest.Env(dir), "git rebase main"); len(d.Grant.Write) == 0 {
		t.Errorf("git rebase writes nothing: %+v", d.Grant)
	}
	rule := func(replaces string) string {
		return "[[rule]]\nid = 'a'\nverdict = 'allow'\ncommand = 'git'\nsubcommand = 'rebase'\nreason = 'r'\nmatch = 'git rebase main'\nreplaces = " + replaces
	}
	for text, want := range map[string]string{
		rule("'fact:git status'"): `"fact:git status": is not asked about as a whole`,
		rule("'fact:git frob'"):   `nothing is known of this subcommand`,
		rule("'fact:frob'"):       `nothing is known of this command`,
		rule("'deny-rm-rf'"):      `is no rule that asks about commands: switch it off`,
		rule("'ask-protected'"):   `is no rule that asks about commands: switch it off`,
		rule("'frob'"):            `is no built-in rule`,
		rule("[]"):                `site.toml:7:10: rule "a": never decides, since stricter ones do: "git rebase main" needs approval`,
	} {
		if _, err := policy.Load(policy.Source{Name: "site.toml", Text: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// A rule narrows the grant of a command; a site's may widen it.
func TestNarrowAndWiden(t *testing.T) {
	dir := project(t)
	for _, name := range []string{"out", "web"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	rules := `
[[rule]]
id      = "make-writes-outputs"
verdict = "allow"
command = "make"
reason  = "builds"
match   = "make"
[rule.narrow]
write = ["out", "etc", "missing", ".envrc"]
[[rule]]
id      = "python-reads"
verdict = "allow"
command = "python3"
reason  = "reads"
match   = "python3 x.py"
[rule.narrow]
write = []
exec  = ["python3"]
[[rule]]
id      = "tee-in-outputs"
verdict = "require_approval"
command = "tee"
options = "append"
reason  = "appends"
match   = "ls | tee -a sub/x"
narrow  = { write = ["out"] }
`
	p := site(t, rules+`
[[rule]]
id      = "seq-writes"
verdict = "allow"
command = "seq"
reason  = "for this test"
match   = "seq 3"
widen   = { write = ["web", "etc"], exec = ["cat"] }
`)
	for text, want := range map[string]policy.Grant{
		"make":                 {Write: []string{"out"}, ExecAny: true},
		"make && python3 x.py": {Write: []string{"out"}, ExecAny: true},
		"make > a.go":          {Write: []string{"a.go", "out"}, ExecAny: true},
		"timeout 9 make":       {Write: []string{"out"}, ExecAny: true},
		"seq 3":                {Write: []string{"web"}, Exec: []string{"/usr/bin/cat", "/usr/bin/seq"}},
		"tee -a out/x":         {Write: []string{"out"}, Exec: []string{"/usr/bin/tee"}},
		"tee -a \"$x\"":        {Write: []string{"out"}, Exec: []string{"/usr/bin/tee"}},
		"tee a.go":             {Write: []string{"a.go"}, Exec: []string{"/usr/bin/tee"}},
		"go build; make":       {Write: []string{"."}, ExecAny: true},
	} {
		g := decide(t, p, policytest.Env(dir), text).Grant
		if !slices.Equal(g.Write, want.Write) || !slices.Equal(g.Exec, want.Exec) || g.ExecAny != want.ExecAny {
			t.Errorf("%s: %+v, want %+v", text, g, want)
		}
	}
	if g := decide(t, p, policytest.Env(dir), "python3 x.py").Grant; g.ExecAny || len(g.Write) > 0 || len(g.Exec) == 0 {
		t.Errorf("python3 x.py: %+v", g)
	}
	expect(t, p, dir, rowOf{"tee -a sub/x", deny}, rowOf{"tee -a out/x", ask}, rowOf{"tee -a .envrc", deny})
	if _, err := builtin(t).Tighten(policy.Source{Name: ".pinfold.toml", Text: strings.ReplaceAll(rules, `"allow"`, `"require_approval"`)}); err != nil {
		t.Errorf("a project cannot narrow: %v", err)
	}
}

// The word of the client that a command only reads narrows and never widens.
func TestReadsOnly(t *testing.T) {
	dir := project(t)
	env := policytest.Env(dir)
	env.ReadsOnly = true
	for _, profile := range []string{"default", "workspace"} {
		p := site(t, "profile = '"+profile+"'")
		for text, want := range map[string]policy.Verdict{
			"cat a.go": allow, "python3 x.py": allow, "make 2>&1 | tail -5": allow, "go build ./...": allow, "echo x > /dev/null": allow, "echo x > /tmp/x": allow,
			"echo x > a.go": deny, "echo x > \"$x\"": deny, "sort -o a.go a.go": deny, "sed -i s/a/b/ a.go": deny, "mkdir x": deny, "sh -c 'echo x > y'": deny,
			"echo x > .envrc": deny, "rm a.go": deny, "git commit -m x": deny, "curl http://x": deny, "no-such-command": ask, "cat ../x": deny,
		} {
			d := decide(t, p, env, text)
			if d.Verdict != want {
				t.Errorf("%s: %s: %v, want %v: %+v", profile, text, d.Verdict, want, d.Reasons)
			}
			if !d.Grant.ReadOnly() {
				t.Errorf("%s: %s: may write: %+v", profile, text, d.Grant)
			}
		}
		// whatever it is said of, no decision becomes looser and no grant wider
		for _, text := range agentCommands(t, dir) {
			with := env
			with.ReadsOnly = false
			free, bound := decide(t, p, with, text), decide(t, p, env, text)
			switch {
			case bound.Verdict > free.Verdict:
				t.Errorf("%s: %s: said to read only: %v, else %v", profile, text, bound.Verdict, free.Verdict)
			case !bound.Grant.ReadOnly(), bound.Grant.ExecAny && !free.Grant.ExecAny,
				slices.ContainsFunc(bound.Grant.Exec, func(s string) bool { return !free.Grant.ExecAny && !slices.Contains(free.Grant.Exec, s) }):
				t.Errorf("%s: %s: said to read only: %+v, else %+v", profile, text, bound.Grant, free.Grant)
			}
		}
	}
}

// A looser line of a project is an error that says which.
func TestLooserLines(t *testing.T) {
	p := site(t, "default = 'deny'\n[groups]\nfiles = 'require_approval'\n[commands]\nnpm = 'deny'")
	rule := "[[rule]]\nid = 'b'\nverdict = 'deny'\ncommand = 'ls'\nreason = 'r'\nmatch = 'ls'\n\n[[rule]]\nid = 'a'\nreason = 'r'\nverdict = 'require_approval'\ncommand = 'touch'\nmatch = 'touch x'\n"
	for text, want := range map[string]string{
		"# default\ndefault = 'require_approval'":                 ".pinfold.toml:2:1",
		"[groups]\nfiles = 'allow'":                               ".pinfold.toml:2:1",
		"[groups]\nfiles = 'deny'\nbuild = 'require_approval'":    ".pinfold.toml:3:1",
		"[commands]\nnpm = 'require_approval'":                    ".pinfold.toml:2:1",
		"[commands]\ntouch = 'always_allow'":                      ".pinfold.toml:2:1",
		"\n readable = ['/x']":                                    ".pinfold.toml:2:2",
		"writable = ['/x']":                                       ".pinfold.toml:1:1",
		"[builtin]\n\ndisable = ['deny-rm-rf']":                   ".pinfold.toml:3:1",
		"[places]\nnull = ['/x']":                                 ".pinfold.toml:1:1",
		"profile = 'workspace'":                                   ".pinfold.toml:1:1",
		strings.ReplaceAll(rule, "'require_approval'", "'allow'"): ".pinfold.toml:11:1",
		rule + "widen = { write = ['.'] }\n":                      ".pinfold.toml:14:1",
		rule + "[rule.widen]\nwrite = ['.']\n":                    ".pinfold.toml:14:7",
		rule + "replaces = 'fact:git push'\n":                     ".pinfold.toml:14:1",
	} {
		_, err := p.Tighten(policy.Source{Name: ".pinfold.toml", Text: text})
		if err == nil || !strings.HasPrefix(err.Error(), want+": a project's policy can only tighten: ") {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"", rule, "default = 'deny'", "[groups]\nfiles = 'deny'", "[commands]\ntouch = 'deny'\nno-such = 'deny'"} {
		if _, err := p.Tighten(policy.Source{Name: ".pinfold.toml", Text: text}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	q, err := site(t, "profile = 'workspace'").Tighten(policy.Source{Name: ".pinfold.toml", Text: "default = 'deny'"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, q, project(t), rowOf{"npm test", deny}, rowOf{"./sub/x", deny}, rowOf{"ls", allow})
}
