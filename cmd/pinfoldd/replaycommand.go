package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
	"github.com/pinfold/pinfold/trace"
)

// replayCommand is pinfoldd replay, which pinfold replay executes: every recorded
// decision again under another policy, without running anything.
func replayCommand(args []string) int {
	flags := flag.NewFlagSet("pinfold replay", flag.ContinueOnError)
	site := flags.String("policy", "", "the new policy, a `file` (default the built-in one)")
	old := flags.String("old", "", "the policy that decided, a `file` (default the built-in one)")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || flags.NArg() == 0:
		fmt.Fprintln(os.Stderr, "usage: pinfold replay --policy NEW [--old OLD] TRACE.ndjson …")
		return 2
	}
	r, err := newReplay(*old, *site)
	for _, name := range flags.Args() {
		if err == nil {
			err = r.file(name)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pinfold replay: %v\n", err)
		return 2
	}
	fmt.Print(r.summary())
	return 0
}

// A replay decides again. What the old policy decides otherwise than the trace
// says (the files are others now, or a session said more) is not replayed truly.
type replay struct {
	old, new *policy.Policy

	decisions, redacted, untrue int
	changes                     map[string]int // by what changed and the rules
	approvals                   int            // more of them, or fewer
}

func newReplay(old, new string) (r *replay, err error) {
	r = &replay{changes: map[string]int{}}
	if r.old, err = loadRules(old); err != nil {
		return nil, err
	}
	r.new, err = loadRules(new)
	return r, err
}

func (r *replay) file(name string) error {
	f, err := trace.OpenSegment(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.read(f)
}

func (r *replay) read(in io.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), 16<<20)
	for s.Scan() {
		var rec trace.Record
		if json.Unmarshal(s.Bytes(), &rec) == nil && rec.Event == trace.EventDecided {
			r.decision(&rec)
		}
	}
	return s.Err()
}

// decision decides a record again. A redacted text is not what was judged, and
// is never parsed.
func (r *replay) decision(rec *trace.Record) {
	r.decisions++
	if rec.Redacted || strings.HasPrefix(rec.Project, "[") {
		r.redacted++
		return
	}
	script, err := shparse.Parse(rec.Args.Command)
	if err != nil {
		if rec.PolicyDecision != policy.Deny.String() {
			r.untrue++
		}
		return
	}
	env := policytest.Env(rec.Project)
	env.Dir = rec.Cwd
	before := r.old.Decide(script, env)
	if before.Verdict.String() != rec.PolicyDecision {
		r.untrue++
		return
	}
	after := r.new.Decide(script, env)
	if after.Verdict == before.Verdict {
		return
	}
	if before.Verdict == policy.RequireApproval {
		r.approvals--
	}
	if after.Verdict == policy.RequireApproval {
		r.approvals++
	}
	r.changes[fmt.Sprintf("%v by %s, now %v by %s", before.Verdict, strings.Join(before.Rules, " "), after.Verdict, strings.Join(after.Rules, " "))]++
}

func (r *replay) summary() string {
	var b strings.Builder
	for _, change := range slices.Sorted(maps.Keys(r.changes)) {
		fmt.Fprintf(&b, "%6d  %s\n", r.changes[change], change)
	}
	fmt.Fprintf(&b, "%d decisions, %+d approvals; not replayed: %d redacted, %d that the old policy decides otherwise here\n",
		r.decisions, r.approvals, r.redacted, r.untrue)
	return b.String()
}
