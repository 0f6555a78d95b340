package policy_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

// sound checks what every decision must be.
func sound(t testing.TB, text string, d policy.Decision) {
	t.Helper()
	g := d.Grant
	switch {
	case len(d.Reasons) == 0 || len(d.Rules) == 0:
		t.Errorf("%q: no reasons", text)
	case d.Verdict == policy.Deny && !reflect.DeepEqual(g, policy.Grant{}):
		t.Errorf("%q: denied with a grant: %+v", text, g)
	case g.ExecAny && g.Exec != nil:
		t.Errorf("%q: any program, and a list: %+v", text, g)
	case d.Verdict == policy.Allow && len(g.Protected) > 0:
		t.Errorf("%q: allowed to write protected paths: %+v", text, g)
	case !slices.IsSorted(g.Write) || !slices.IsSorted(g.Exec) || !slices.IsSorted(d.Rules):
		t.Errorf("%q: not sorted: %+v", text, d)
	case d.Verdict == policy.Allow && d.Risk == policy.Low && !g.ReadOnly():
		t.Errorf("%q: writes at low risk: %+v", text, d)
	case len(g.Net.Hosts) > 0:
		t.Errorf("%q: hosts: %+v", text, g)
	}
	for _, p := range g.Write {
		if strings.HasPrefix(p, "/") || p == ".." || strings.HasPrefix(p, "../") || p == "" {
			t.Errorf("%q: writes outside the project: %+v", text, g)
		}
	}
	for _, p := range g.Exec {
		if !strings.HasPrefix(p, "/usr/") || p == "/usr/bin/bash" {
			t.Errorf("%q: executes %q", text, p)
		}
	}
	for _, r := range d.Reasons {
		if r.Verdict < d.Verdict || r.Span.Line < 1 || r.Span.Column < 1 || len(r.Span.Text) > 80 {
			t.Errorf("%q: reason %+v of %v", text, r, d.Verdict)
		}
	}
}

// FuzzDecide looks for text on which a decision fails, or is not sound.
func FuzzDecide(f *testing.F) {
	for _, row := range readCorpus(f, "../testdata/corpus/policy.jsonl") {
		f.Add(row.Command)
	}
	p := builtin(f)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := shparse.Parse(text)
		if err != nil {
			return
		}
		d := p.Decide(s, memoryEnv)
		sound(t, text, d)
		again, err := shparse.Parse(d.Text)
		if err != nil {
			t.Fatalf("%q: canonical text %q: %v", text, d.Text, err)
		}
		if len(s.Doubts) > 0 {
			return // the canonical text is what may run, not what was meant
		}
		if e := p.Decide(again, memoryEnv); e.Verdict > d.Verdict || e.Verdict == d.Verdict && !reflect.DeepEqual(e.Grant, d.Grant) {
			t.Errorf("%q: %v %+v, but its canonical text %q: %v %+v", text, d.Verdict, d.Grant, d.Text, e.Verdict, e.Grant)
		}
	})
}

// Decisions on the commands of agents and of the corpus are sound.
func TestDecisionsAreSound(t *testing.T) {
	p := builtin(t)
	texts := agentCommands(t, "/home/u/project")
	for _, row := range readCorpus(t, "../testdata/corpus/policy.jsonl") {
		texts = append(texts, row.Command)
	}
	for _, text := range texts {
		if s, err := shparse.Parse(text); err == nil {
			sound(t, text, p.Decide(s, memoryEnv))
		}
	}
}
