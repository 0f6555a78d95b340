package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/policy/hosts"
	"github.com/pinfold/pinfold/shparse"
)

// words is a list of words, which a policy file may write as one word when it
// is one.
type words []string

// UnmarshalTOML implements [toml.Unmarshaler].
func (w *words) UnmarshalTOML(value any) error {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	*w = words{}
	for _, item := range list {
		word, ok := item.(string)
		if !ok {
			return fmt.Errorf("%v: want a string, or a list of strings", item)
		}
		*w = append(*w, word)
	}
	return nil
}

// A ruleFile is a rule as it is written.
type ruleFile struct {
	ID         string  `toml:"id"`
	Verdict    Verdict `toml:"verdict"`
	Command    words   `toml:"command"`    // names of commands; "*" is any that is known, "?" any that is not; none means whatever the command
	Subcommand words   `toml:"subcommand"` // "stash list": one of these, or below one of them
	Options    words   `toml:"options"`    // all of these, by their long names, however they are spelled
	Operands   words   `toml:"operands"`   // one operand is one of these; in a rule that allows, each is
	Effects    words   `toml:"effects"`    // one of these
	Places     words   `toml:"places"`     // at one of these, for effects on paths
	Paths      words   `toml:"paths"`      // at one of these paths of the project, as [Paths] has them
	Replaces   words   `toml:"replaces"`   // asking that does not apply where the rule does; a site's alone
	Risk       Risk    `toml:"risk"`
	Reason     string  `toml:"reason"`
	Suggest    string  `toml:"suggest"`
	Narrow     *bounds `toml:"narrow"`    // what is left of the grant
	Widen      *bounds `toml:"widen"`     // what is added to the grant; a site's alone
	Match      words   `toml:"match"`     // commands to which the rule must apply
	NotMatch   words   `toml:"not_match"` // commands to which it must not
}

// A rule applies to a command, to an effect, or to an effect of a command.
type rule struct {
	ruleFile
	effects, places uint32 // bit sets; 0 means any
	paths           Paths
	opens           hosts.List // what widen has of hosts
	perhaps         *rule      // applies when it is not known whether this one does; nil when that allows
}

// A match says whether something unknown is what a rule is about.
type match uint8

const (
	no match = iota
	perhaps
	yes
)

// A ruleSet finds the rules that may speak of a command or an effect.
type ruleSet struct {
	all       []*rule
	byCommand map[string][]*rule
	byEffect  [effectCount][]*rule // rules that name no command
	changing  map[string][]*rule   // rules that change the grant, by command
	guarded   map[string][]*rule   // rules that allow a command when it does nothing else, by command
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
			if r.changesGrant() {
				set.changing = with(set.changing, name, r)
			}
			if r.Verdict == Allow && r.effects != 0 {
				set.guarded = with(set.guarded, name, r)
			}
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

func with(m map[string][]*rule, name string, r *rule) map[string][]*rule {
	if m == nil {
		m = map[string][]*rule{}
	}
	m[name] = append(m[name], r)
	return m
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

// ruleChecks are made of each rule; the message of the first that fails is the
// error.
var ruleChecks = []struct {
	fails   func(f *ruleFile) bool
	message string
}{
	{func(f *ruleFile) bool { return f.ID == "" }, "no id"},
	{func(f *ruleFile) bool { return f.Reason == "" }, "no reason"},
	{func(f *ruleFile) bool { return len(f.Match) == 0 }, "no examples in match"},
	{func(f *ruleFile) bool { return len(f.Subcommand)+len(f.Options) > 0 && len(f.Command) == 0 }, "subcommand and options need a command"},
	{func(f *ruleFile) bool { return len(f.Operands) > 0 && len(f.Command) == 0 }, "operands need a command"},
	{func(f *ruleFile) bool { return len(f.Places) > 0 && len(f.Effects) == 0 }, "places need effects"},
	{func(f *ruleFile) bool { return len(f.Paths) > 0 && len(f.Effects) == 0 }, "paths need effects"},
	{func(f *ruleFile) bool { return f.Verdict == Allow && len(f.Command) == 0 && f.ID != ruleDefault }, "a rule that allows needs a command"},
	{func(f *ruleFile) bool {
		return len(f.Command)+len(f.Effects) == 0 && f.ID != ruleDefault && f.ID != ruleUnread
	}, "a rule needs a command or effects"},
	{func(f *ruleFile) bool {
		return f.changesGrant() && (len(f.Command) == 0 || len(f.Effects) > 0)
	}, "narrow, widen and replaces need a command, and go with no effects"},
	{func(f *ruleFile) bool {
		return f.Narrow != nil && (f.Narrow.ExecAny || f.Narrow.Net != nil)
	}, "narrow takes write and exec alone"},
}

func (f *ruleFile) changesGrant() bool {
	return f.Narrow != nil || f.Widen != nil || len(f.Replaces) > 0
}

func compileRule(f *ruleFile) (*rule, error) {
	r := &rule{ruleFile: *f}
	fail := func(format string, args ...any) (*rule, error) {
		return nil, fmt.Errorf("rule %q: %s", f.ID, fmt.Sprintf(format, args...))
	}
	for _, check := range ruleChecks {
		if check.fails(f) {
			return fail("%s", check.message)
		}
	}
	for _, name := range f.Effects {
		k, ok := effectByName(name)
		if !ok {
			return fail("unknown effect %q: want one of %s", name, strings.Join(effectNames[:], ", "))
		}
		r.effects |= 1 << k
	}
	for _, name := range f.Places {
		k, ok := placeByName(name)
		if !ok {
			return fail("unknown place %q: want one of %s", name, strings.Join(placeNames[:], ", "))
		}
		r.places |= 1 << k
	}
	var err error
	if r.paths, err = parsePaths(f.Paths); err != nil {
		return fail("paths: %v", err)
	}
	for _, text := range f.Operands {
		if _, err := path.Match(text, ""); err != nil {
			return fail("operands: %q: %v", text, err)
		}
	}
	for _, b := range []*bounds{f.Narrow, f.Widen} {
		if err := b.check(); err != nil {
			return fail("%v", err)
		}
	}
	r.opens, _ = hosts.ParseList(f.Widen.hosts()) // checked
	if f.Verdict != Allow && (len(f.Operands) > 0 || len(f.Paths) > 0) {
		unsure := *r
		unsure.Verdict, unsure.perhaps = max(f.Verdict, RequireApproval), nil
		unsure.Reason = "something unknown, of which it cannot be told whether it " + f.Reason
		r.perhaps = &unsure
	}
	return r, nil
}

// speaksOf reports whether the rule is about the command, whatever its effects.
func (r *rule) speaksOf(c *call) match {
	if len(r.Subcommand) > 0 {
		sub := strings.Join(c.path[1:], " ") + " "
		if !slices.ContainsFunc(r.Subcommand, func(s string) bool { return strings.HasPrefix(sub, s+" ") }) {
			return no
		}
	}
	for _, name := range r.Options {
		if !c.has(name) {
			return no
		}
	}
	if len(r.Operands) == 0 {
		return yes
	}
	if r.Verdict == Allow {
		return r.allOperands(c)
	}
	return r.anyOperand(c)
}

// allOperands reports whether every operand is surely one of the rule's, and
// there is one.
func (r *rule) allOperands(c *call) match {
	for _, f := range c.operands {
		if r.operand(f) != yes {
			return no
		}
	}
	if len(c.operands) == 0 {
		return no
	}
	return yes
}

// anyOperand reports whether one of the operands is one of the rule's.
func (r *rule) anyOperand(c *call) (m match) {
	for _, f := range c.operands {
		m = max(m, r.operand(f))
	}
	return m
}

// operand compares one operand with those of the rule: it is the whole text, in
// which "*" stands for any text but "/".
func (r *rule) operand(f shparse.Field) match {
	text, known := f.Known()
	for _, pattern := range r.Operands {
		if !known {
			head := pattern[:wildcard(pattern)]
			if prefix := f.Prefix(); strings.HasPrefix(head, prefix) || strings.HasPrefix(prefix, head) {
				return perhaps
			}
		} else if ok, err := path.Match(pattern, text); err == nil && ok {
			return yes
		}
	}
	return no
}

// covers reports whether the rule is about the effect.
func (r *rule) covers(e *effect) match {
	if r.effects&(1<<e.kind) == 0 || r.places != 0 && r.places&(1<<e.place) == 0 {
		return no
	}
	switch {
	case len(r.paths.patterns) == 0:
		return yes
	case e.path == "":
		if e.place == placeProject { // somewhere in it
			return perhaps
		}
		return no
	case r.paths.Covers(e.path):
		return yes
	case e.vague && e.place <= placeGit:
		return perhaps
	case e.kind == effectDeletes && r.paths.holds(e.path):
		return perhaps
	}
	return no
}

// allows reports whether all that a command does is what the rule allows: of
// the kinds of effects that it lists, what it covers; of others, reading alone.
func (r *rule) allows(done []effect) bool {
	for i := range done {
		e := &done[i]
		switch harmless := e.kind == effectReads || e.kind == effectEnters; {
		case r.effects&(1<<e.kind) == 0 && harmless:
		case r.covers(e) != yes:
			return false
		}
	}
	return true
}
