package policy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

func TestZZFriction(t *testing.T) {
	p := builtin(t)
	p, _ = p.AllowAlso(p.AllNames())
	dir := project(t)
	env := policytest.Env(dir)
	f, _ := os.Open("/work/shared/corpus/agent-commands.jsonl")
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	n, counts := 0, map[string]int{}
	for sc.Scan() {
		var row struct{ ID, Command string }
		json.Unmarshal(sc.Bytes(), &row)
		n++
		s, err := shparse.Parse(strings.ReplaceAll(row.Command, "/home/user/project", dir))
		if err != nil {
			counts["parse error"]++
			continue
		}
		d := p.Decide(s, env)
		counts[d.Verdict.String()]++
		if d.Verdict == policy.Allow {
			continue
		}
		seen := map[string]bool{}
		for _, r := range d.Reasons {
			if r.Verdict != policy.Allow && !seen[r.Message] && r.Rule != "deny-outside" {
				seen[r.Message] = true
				counts[r.Message]++
			}
		}
	}
	var keys []string
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return counts[keys[i]] > counts[keys[j]] })
	for _, k := range keys {
		fmt.Printf("%4d %.200s\n", counts[k], k)
	}
	fmt.Println(n)
}
