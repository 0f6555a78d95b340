package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
)

// registries answers with a host named after the manager.
type registries struct{}

func (registries) Hosts(manager string) []string { return []string{manager + ".example"} }

// What a fact says that a command needs is for the approver to give; what a rule of
// the site opens needs nobody.
func TestHosts(t *testing.T) {
	site, err := policy.Load(policy.Source{Name: "site.toml", Text: `
[builtin]
disable = ["deny-network-clients"]

[[rule]]
id = "go-get"
command = "go"
subcommand = "get"
verdict = "allow"
replaces = "fact:go get"
reason = "our own proxy"
match = "go get x"
[rule.widen]
net = "go.corp.example:8443 private"

[[rule]]
id = "files"
command = "curl"
verdict = "allow"
replaces = "fact:curl"
reason = "our own files"
match = "curl https://files.example/x"
[rule.widen]
net = ["files.example", "*.cdn.example"]
`})
	if err != nil {
		t.Fatal(err)
	}
	builtin, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	env := policytest.Env(project(t))
	env.Registries = registries{}
	for _, row := range []struct {
		policy  *policy.Policy
		text    string
		verdict policy.Verdict
		hosts   string
	}{
		{builtin, "npm install", policy.RequireApproval, "npm.example"},
		{builtin, "npm install && pip install x; go get h/x && cargo fetch", policy.RequireApproval, "cargo.example go.example npm.example pip.example"},
		{builtin, "sh -c 'npm ci'", policy.RequireApproval, "npm.example"},
		{builtin, "npm publish", policy.RequireApproval, ""},
		{builtin, "npm test", policy.RequireApproval, ""},
		{builtin, "ls", policy.Allow, ""},
		{builtin, "curl https://files.example/x", policy.Deny, ""},
		{builtin, "npm install; curl https://files.example/x", policy.Deny, ""},
		{site, "curl https://files.example/x", policy.Allow, "*.cdn.example files.example"},
		{site, "curl http://a.cdn.example/x?y", policy.Allow, "*.cdn.example files.example"},
		{site, "curl https://files.example/x https://evil.example/", policy.Deny, ""},
		{site, "curl https://files.example@evil.example/", policy.Deny, ""},
		{site, "curl https://files.example.evil.example/", policy.Deny, ""},
		{site, "curl https://files.example:8443/", policy.Deny, ""},
		{site, "curl ftp://files.example/", policy.Deny, ""},
		{site, "curl https://127.0.0.1/", policy.Deny, ""},
		{site, `curl https://files.example\@evil.example/`, policy.Deny, ""},
		{site, `curl "https://$HOST/"`, policy.Deny, ""},
		{site, "wget https://files.example/x", policy.Deny, ""},
		{site, "ls; npm test", policy.RequireApproval, ""},
	} {
		d := decide(t, row.policy, env, row.text)
		if d.Verdict != row.verdict || strings.Join(d.Grant.Net.Hosts, " ") != row.hosts {
			t.Errorf("%s: %v %q, want %v %q: %+v", row.text, d.Verdict, d.Grant.Net.Hosts, row.verdict, row.hosts, d.Reasons)
		}
	}
	if d := decide(t, site, env, "go get x"); d.Verdict != policy.Allow || !slices.Equal(d.Grant.Net.Hosts, []string{"go.corp.example:8443 private"}) {
		t.Errorf("%v: an allowed command gets the rule's hosts alone: %q", d.Verdict, d.Grant.Net.Hosts)
	}
	env.Registries = nil
	if d := decide(t, builtin, env, "npm install"); len(d.Grant.Net.Hosts) > 0 || d.Verdict != policy.RequireApproval {
		t.Errorf("nobody can tell: %+v", d.Grant)
	}
}

// A list of hosts is read when the policy is, and a project opens none.
func TestHostsOfRules(t *testing.T) {
	rule := func(widen string) string {
		return "[[rule]]\nid = \"r\"\ncommand = \"ls\"\nverdict = \"allow\"\nreason = \"x\"\nmatch = \"ls\"\n" + widen
	}
	for text, want := range map[string]string{
		rule("[rule.widen]\nnet = \"a b\""):          "net",
		rule("[rule.widen]\nnet = \"*.org\""):        "two labels",
		rule("[rule.widen]\nnet = \"127.1\""):        "four decimal parts",
		rule("[rule.widen]\nnet = [\"ok.example\"]"): "",
		rule("[rule.narrow]\nnet = \"ok.example\""):  "narrow takes",
	} {
		_, err := policy.Load(policy.Source{Name: "site.toml", Text: text})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
