package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A ruleFile is a rule as it is written.
type ruleFile struct {
	ID         string   `toml:"id"`
	Verdict    Verdict  `toml:"verdict"`
	Command    []string `toml:"command"`    // names of commands; "*" is any that is known, "?" any that is not; none means whatever the command
	Subcommand []string `toml:"subcommand"` // "stash list": one of these, or below one of them
	Options    []string `toml:"options"`    // all of these, by their long names, however they are spelled
	Effect     []string `toml:"effect"`     // one of these
	Place      []string `toml:"place"`      // at one of these, for effects on paths
	Risk       Risk     `toml:"risk"`
	Reason     string   `toml:"reason"`
	Suggest    string   `toml:"suggest"`
	Match      []string `toml:"match"`     // commands to which the rule must apply
	NotMatch   []string `toml:"not_match"` // commands to which it must not
}

// A rule applies to a command, to an effect, or to an effect of a command.
type rule struct {
	ruleFile
	effects, places uint32 // bit sets; 0 means any
}

// A ruleSet finds the rules that may speak of a command or an effect.
type ruleSet struct {
	all       []*rule
	byCommand map[string][]*rule
	byEffect  [effectCount][]*rule // rules that name no command
}

func compileRules(files []*ruleFile) (set ruleSet, err error) {
	set.byCommand = map[string][]*rule{}
	seen := map[string]bool{}
	for _, f := range files {
		r, err := compileRule(f)
		if err != nil {
			return set, err
		}
		if seen[f.ID] {
			return set, fmt.Errorf("rule %s: defined twice", f.ID)
		}
		seen[f.ID] = true
		set.all = append(set.all, r)
		for _, name := range f.Command {
			set.byCommand[name] = append(set.byCommand[name], r)
		}
		if len(f.Command) > 0 {
			continue
		}
		for k := range effectCount {
			if r.effects&(1<<k) != 0 {
				set.byEffect[k] = append(set.byEffect[k], r)
			}
		}
	}
	if !seen[ruleUnread] {
		return set, fmt.Errorf("rule %s is missing", ruleUnread)
	}
	return set, nil
}

// files returns the rules as they were written.
func (s *ruleSet) files() []*ruleFile {
	out := make([]*ruleFile, 0, len(s.all))
	for _, r := range s.all {
		out = append(out, &r.ruleFile)
	}
	return out
}

// byID returns the rule of that name, or nil.
func (s *ruleSet) byID(id string) *rule {
	for _, r := range s.all {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func compileRule(f *ruleFile) (*rule, error) {
	r := &rule{ruleFile: *f}
	fail := func(format string, args ...any) (*rule, error) {
		return nil, fmt.Errorf("rule %q: %s", f.ID, fmt.Sprintf(format, args...))
	}
	switch {
	case f.ID == "":
		return fail("no id")
	case f.Reason == "":
		return fail("no reason")
	case len(f.Match) == 0 && f.ID != ruleUnread:
		return fail("no examples in match")
	case len(f.Subcommand)+len(f.Options) > 0 && len(f.Command) == 0:
		return fail("subcommand and options need a command")
	case len(f.Place) > 0 && len(f.Effect) == 0:
		return fail("place needs an effect")
	}
	for _, name := range f.Effect {
		k, ok := effectByName(name)
		if !ok {
			return fail("unknown effect %q: want one of %s", name, strings.Join(effectNames[:], ", "))
		}
		r.effects |= 1 << k
	}
	for _, name := range f.Place {
		k, ok := placeByName(name)
		if !ok {
			return fail("unknown place %q: want one of %s", name, strings.Join(placeNames[:], ", "))
		}
		r.places |= 1 << k
	}
	return r, nil
}

// speaksOf reports whether the rule is about the command, whatever its effects.
func (r *rule) speaksOf(c *call) bool {
	if c == nil {
		return len(r.Command) == 0
	}
	if len(r.Subcommand) > 0 {
		sub := strings.Join(c.path[1:], " ") + " "
		if !slices.ContainsFunc(r.Subcommand, func(s string) bool { return strings.HasPrefix(sub, s+" ") }) {
			return false
		}
	}
	for _, name := range r.Options {
		if !c.has(name) {
			return false
		}
	}
	return true
}

// covers reports whether the rule is about the effect.
func (r *rule) covers(e *effect) bool {
	return r.effects&(1<<e.kind) != 0 && (r.places == 0 || r.places&(1<<e.place) != 0)
}
