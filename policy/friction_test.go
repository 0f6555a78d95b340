package policy_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
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

// mostAsked is the percentage of commands that the profile "workspace" may ask
// about for other reasons than those of askedAnyway.
const mostAsked = 5

// askedAnyway are what is meant to be asked about: the network, publishing,
// deleting, and places outside the project.
var askedAnyway = []string{"network", "fetch", "publish", "delet", "remov", "outside", "changes what it keeps of packages"}

func isAskedAnyway(d policy.Decision) bool {
	return slices.ContainsFunc(d.Reasons, func(r policy.Reason) bool {
		return r.Verdict == policy.RequireApproval &&
			slices.ContainsFunc(askedAnyway, func(word string) bool { return strings.Contains(r.Message, word) })
	})
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
		verdicts, reasons, needless := map[policy.Verdict]int{}, map[string]int{}, 0
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
			if d.Verdict == policy.RequireApproval && !isAskedAnyway(d) {
				needless++
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
		t.Logf("%s: %.1f%% asked about, not counting the network, deletion and places outside the project", profile, 100*float64(needless)/float64(n))
		if profile == "workspace" && 100*needless > mostAsked*n {
			t.Errorf("that is more than %d%%", mostAsked)
		}
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
