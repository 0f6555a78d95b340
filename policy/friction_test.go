package policy_test

import (
	"bufio"
	"encoding/json"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// agentCommands returns commands as coding agents issued them, for a project.
func agentCommands(t testing.TB, project string) (out []string) {
	t.Helper()
	f, err := os.Open("../testdata/corpus/agent-commands.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row struct {
			Command string `json:"command"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.ReplaceAll(row.Command, "/home/user/project", project))
	}
	return out
}

// How often agents would be asked or refused, under each profile. -v lists
// what for.
func TestFriction(t *testing.T) {
	dir := project(t)
	commands := agentCommands(t, dir)
	for _, profile := range []string{"default", "workspace"} {
		p, err := policy.Load(policy.Source{Name: "site", Text: "profile = \"" + profile + "\""})
		if err != nil {
			t.Fatal(err)
		}
		env := policytest.Env(dir)
		verdicts, reasons := map[policy.Verdict]int{}, map[string]int{}
		for _, text := range commands {
			s, err := shparse.Parse(text)
			if err != nil {
				reasons["deny: does not parse"]++
				verdicts[policy.Deny]++
				continue
			}
			d := p.Decide(s, env)
			verdicts[d.Verdict]++
			if d.Verdict == policy.Allow {
				continue
			}
			for _, r := range d.Reasons {
				if r.Verdict == d.Verdict {
					reasons[d.Verdict.String()+": "+r.Rule+": "+strings.Fields(r.Span.Text + " -")[0]]++
					break
				}
			}
		}
		n := len(commands)
		t.Logf("%s: %d commands: %d%% allowed, %d%% asked, %d%% denied", profile, n,
			100*verdicts[policy.Allow]/n, 100*verdicts[policy.RequireApproval]/n, 100*verdicts[policy.Deny]/n)
		var keys []string
		for k := range reasons {
			keys = append(keys, k)
		}
		sort.Slice(keys, func(a, b int) bool { return reasons[keys[a]] > reasons[keys[b]] })
		for _, k := range keys {
			t.Logf("%s: %4d %s", profile, reasons[k], k)
		}
	}
}
