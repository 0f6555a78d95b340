package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/shparse"
)

// workspaceWords are what an operand or the value of an option may be.
var workspaceWords = []string{"file", "sub/x", "'a b'", "../x", "/etc/x", "/usr/bin/x", "/dev/sda", ".envrc", "sub/.vscode/x", ".git/config", ".git/hooks/x", ".",
	"https://host.example/x", "host.example:x", "user@host.example:x", "777", "$x", "\"sub/$x\"", "NAME=value", "PATH=.", "LD_PRELOAD=./x.so"}

// The argument of the profile "workspace", over all facts: whatever is allowed
// by it, of any command with any of its options and operands, needs no more than
// what python3 is granted unasked, and reaches no host, no protected path, no
// git directory and nothing outside.
func TestWorkspaceNeedsNoMoreThanPython(t *testing.T) {
	p, err := Load(Source{"site.toml", `profile = "workspace"`})
	if err != nil {
		t.Fatal(err)
	}
	most := decideExample(t, p, "python3 x.py")
	if most.Verdict != Allow || !most.Grant.ExecAny || !slices.Equal(most.Grant.Write, []string{"."}) || len(most.Grant.Protected)+len(most.Grant.Net.Hosts) > 0 {
		t.Fatalf("python3: %+v", most)
	}
	decided, allowed := 0, 0
	check := func(text string) {
		s, err := shparse.Parse(text)
		if err != nil {
			return
		}
		e := p.Examine(s, exampleEnv)
		if decided++; e.Decision.Verdict != Allow {
			return
		}
		allowed++
		if g := e.Decision.Grant; len(g.Protected)+len(g.Net.Hosts) > 0 || slices.ContainsFunc(g.Write, func(w string) bool { return strings.HasPrefix(w, "/") || climbs(w) }) {
			t.Errorf("%s: the grant is wider than that of python3: %+v", text, g)
		}
		for _, part := range e.Parts {
			for _, effect := range part.Effects {
				writes := effect.Name == "writes" || effect.Name == "deletes"
				if effect.Name == "network" || effect.Place == "outside" || effect.Place == "device" || effect.Place == "climbs" ||
					writes && (effect.Place == "protected" || effect.Place == "git" || effect.Place == "readable") {
					t.Errorf("%s: allowed, and %+v", text, effect)
				}
			}
		}
	}
	for name, f := range p.facts {
		if name == f.Names[0] {
			f.eachCall(func(text string) { check(text) })
			for _, text := range slices.Concat(f.Allow, f.Refuse) {
				check(text)
			}
		}
	}
	t.Logf("%d commands decided, %d allowed", decided, allowed)
	if allowed < 10_000 || allowed == decided {
		t.Errorf("%d of %d allowed: the test does not see what it is about", allowed, decided)
	}
}

// eachCall calls do with the command: with each word as an operand, and each of
// its options with some of the words, others for the next.
func (f *fact) eachCall(do func(text string)) {
	do(f.path)
	var spellings []string
	for spelling := range f.options {
		spellings = append(spellings, spelling)
	}
	slices.Sort(spellings)
	for _, word := range workspaceWords {
		do(f.path + " " + word)
		do(f.path + " file " + word)
	}
	for i, spelling := range spellings {
		do(f.path + " " + spelling)
		for k := range 4 {
			word := workspaceWords[(i*4+k)%len(workspaceWords)]
			do(f.path + " " + spelling + " " + word)
			if strings.HasPrefix(spelling, "--") {
				do(f.path + " " + spelling + "=" + word + " file")
			}
		}
	}
	for _, sub := range f.Sub {
		if !strings.HasSuffix(sub.path, " *") && !strings.HasSuffix(sub.path, " bare") {
			sub.eachCall(do)
		}
	}
}

func decideExample(t *testing.T, p *Policy, text string) Decision {
	t.Helper()
	s, err := shparse.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(s, exampleEnv)
}

// A built-in rule or a fact without examples, and a policy whose examples decide
// otherwise, does not load: no build that passes its tests has one.
func TestNoExamplesNoPolicy(t *testing.T) {
	lines := strings.Split(defaultText, "\n")
	removed := 0
	for i, line := range lines {
		if !strings.HasPrefix(line, "match = ") {
			continue
		}
		end := i
		for strings.HasSuffix(strings.TrimSpace(lines[end]), "[") || strings.HasSuffix(lines[end], ",") {
			end++
		}
		text := strings.Join(slices.Concat(lines[:i], lines[end+1:]), "\n")
		if _, err := load(factFiles, Source{"default.toml", text}, nil); err == nil || !strings.Contains(err.Error(), "no examples in match") {
			t.Errorf("line %d: a rule without examples: error %v", i+1, err)
		}
		removed++
	}
	if files := strings.Count(defaultText, "[[rule]]"); removed != files {
		t.Errorf("%d rules, and %d with examples", files, removed)
	}
	for _, text := range []string{workspaceText, defaultText} {
		file, err := readPolicyFile(Source{"built-in", text})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range file.Rule {
			if len(r.Match) == 0 {
				t.Errorf("the rule %s has no examples", r.ID)
			}
		}
	}
	none := &fact{Names: []string{"x"}}
	if err := none.index(map[string]*fact{}); err == nil || !strings.Contains(err.Error(), "no examples") {
		t.Errorf("a fact without examples: error %v", err)
	}
	wrong := strings.Replace(defaultText, `match = ["rm -rf build"`, `match = ["rm build"`, 1)
	if _, err := load(factFiles, Source{"default.toml", wrong}, nil); err == nil || !strings.Contains(err.Error(), "the rule does not apply") {
		t.Errorf("an example that decides otherwise: error %v", err)
	}
}
