package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// exampleFiles is the world of the examples in policies: every program of the
// system exists, the project holds one file and one directory.
type exampleFiles struct{}

func (exampleFiles) Follow(full string) (string, Kind, error) {
	clean := path.Clean(full)
	switch {
	case clean == "/project", clean == "/project/sub", clean == "/", clean == "/tmp", clean == "/usr/bin", clean == "/usr":
		return clean, Directory, nil
	case path.Dir(clean) == "/usr/bin", path.Dir(clean) == "/usr/lib/git-core", clean == "/project/file", clean == "/project/.env":
		return clean, Regular, nil
	}
	return clean, Missing, nil
}

func (exampleFiles) List(dir string, limit int) ([]string, error) {
	if dir == "/project" {
		return []string{"file", "sub"}, nil
	}
	return nil, errors.New("no such directory")
}

func (exampleFiles) Program(string) (string, error) { return "", nil }

// exampleEnv is where the examples of rules and facts are decided.
var exampleEnv = Env{Project: "/project", Dir: ".", Home: "/home/user", Path: []string{"/usr/bin"},
	Readable: []string{"/usr"}, Writable: []string{"/tmp"}, Files: exampleFiles{}}

// checkRuleExamples decides the examples of rules.
func (p *Policy) checkRuleExamples(rules []*ruleFile) error {
	var wrong []error
	for _, r := range rules {
		for _, text := range r.Match {
			if fired, err := p.fires(r.ID, text); err != nil || !fired {
				wrong = append(wrong, fmt.Errorf("rule %s: match: %q: the rule does not apply (%v)", r.ID, text, err))
			}
		}
		for _, text := range r.NotMatch {
			if fired, err := p.fires(r.ID, text); err != nil || fired {
				wrong = append(wrong, fmt.Errorf("rule %s: not_match: %q: the rule applies (%v)", r.ID, text, err))
			}
		}
	}
	return errors.Join(wrong...)
}

func (p *Policy) fires(id, text string) (bool, error) {
	s, err := shparse.Parse(text)
	if err != nil {
		return false, fmt.Errorf("rule %s: example %q: %w", id, text, err)
	}
	return p.judgeExample(s).fired[id], nil
}

func (p *Policy) judgeExample(s *shparse.Script) findings {
	j := p.newJudge(s, exampleEnv)
	j.script(s, shparse.Start{Dirs: []string{exampleEnv.Project}}, scope{})
	return j.findings
}

// checkFactExamples decides the examples of facts as if their commands were
// allowed: then nothing but what they do is left to object to.
func (p *Policy) checkFactExamples() (wrong []error) {
	for name, f := range p.facts {
		if name != f.Names[0] {
			continue
		}
		for _, text := range f.Allow {
			if ids, err := p.objections(f.Names, text); err != nil || len(ids) > 0 {
				wrong = append(wrong, fmt.Errorf("fact %s: allow: %q: objected to by %v (%v)", name, text, ids, err))
			}
		}
		for _, text := range f.Refuse {
			if ids, err := p.objections(f.Names, text); err != nil || len(ids) == 0 {
				wrong = append(wrong, fmt.Errorf("fact %s: refuse: %q: nothing objects (%v)", name, text, err))
			}
		}
	}
	return wrong
}

// objections returns the rules about effects that object to the text, and
// the default rule when it is about a command that has none of the names.
func (p *Policy) objections(names []string, text string) ([]string, error) {
	s, err := shparse.Parse(text)
	if err != nil {
		return nil, err
	}
	found := p.judgeExample(s)
	var ids []string
	for _, r := range p.rules.all {
		if found.fired[r.ID] && r.Verdict != Allow && (r.effects != 0 || r.ID == ruleUnread) {
			ids = append(ids, r.ID)
		}
	}
	for _, reason := range found.reasons {
		name, _, _ := strings.Cut(reason.Message, " ")
		if reason.Rule == ruleDefault && !slices.Contains(names, path.Base(name)) {
			ids = append(ids, ruleDefault)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
