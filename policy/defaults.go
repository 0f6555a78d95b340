package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// defaults are the verdicts on commands that no rule names: the command's, else
// its group's, else the policy's. A group is the file of facts in which the
// command is described.
type defaults struct {
	commands map[string]*rule // "touch", "git push"
	groups   map[string]*rule // "packages"
	policy   *rule            // nil when no layer chooses one
}

// of returns the default for the command, nil when none was chosen.
func (d *defaults) of(x *execution) *rule {
	if d.commands != nil {
		path := append([]string{x.base}, x.call.path[1:]...)
		for n := len(path); n > 0; n-- {
			if r := d.commands[strings.Join(path[:n], " ")]; r != nil {
				return r
			}
		}
	}
	if r := d.groups[x.group()]; r != nil {
		return r
	}
	return d.policy
}

// group returns the group of the command, "" when nothing is known of it.
func (x *execution) group() string {
	if f := x.judge.policy.facts[x.base]; f != nil && x.known {
		return f.group
	}
	return ""
}

// defaultRule returns the rule for commands that no rule names.
func defaultRule(v Verdict, whose string) *rule {
	f := ruleFile{ID: ruleDefault, Verdict: v, Risk: Medium}
	switch v {
	case Allow:
		f.Risk, f.Reason = Low, "runs unasked by "+whose
	case RequireApproval:
		f.Reason, f.Suggest = "is asked about by "+whose, "use a command that runs unasked, or wait for approval"
	default:
		f.Reason, f.Suggest = "is denied by "+whose, "use another command"
	}
	return &rule{ruleFile: f}
}

// Groups returns the names of the groups of commands.
func (p *Policy) Groups() []string {
	groups := map[string]bool{}
	for _, f := range p.facts {
		groups[f.group] = true
	}
	return slices.Sorted(maps.Keys(groups))
}

// choose takes the defaults of a file into the policy. With tighten, one that
// is looser than what holds already is an error.
func (p *Policy) choose(source Source, file policyFile, tighten bool) error {
	d := defaults{commands: maps.Clone(p.defaults.commands), groups: maps.Clone(p.defaults.groups), policy: p.defaults.policy}
	looser := func(key, what string, v, held Verdict) error {
		if !tighten || v <= held {
			return nil
		}
		return loosens(source.keyAt("", key), fmt.Sprintf("%s is %s, and the site's is %s", what, v, held))
	}
	if file.Default != nil {
		v := Verdict(*file.Default)
		if err := looser("default", "the default", v, p.held()); err != nil {
			return err
		}
		d.policy = defaultRule(v, "the policy's default")
	}
	for _, group := range slices.Sorted(maps.Keys(file.Groups)) {
		v := Verdict(file.Groups[group])
		if !slices.Contains(p.Groups(), group) {
			return fmt.Errorf("%s: groups: unknown group %q: want one of %s", source.keyAt("groups", group), group, strings.Join(p.Groups(), ", "))
		}
		held := p.held()
		if r := p.defaults.groups[group]; r != nil {
			held = r.Verdict
		}
		if err := looser(group, "the default of the group "+group, v, held); err != nil {
			return err
		}
		if d.groups == nil {
			d.groups = map[string]*rule{}
		}
		d.groups[group] = defaultRule(v, "the default of "+group)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Commands)) {
		v := Verdict(file.Commands[name])
		if err := p.checkCommand(source, name, v); err != nil {
			return err
		}
		if err := looser(name, "the default of "+name, v, p.heldFor(name)); err != nil {
			return err
		}
		if d.commands == nil {
			d.commands = map[string]*rule{}
		}
		d.commands[name] = defaultRule(v, "its own default")
	}
	p.defaults = d
	return nil
}

// held returns the verdict that a command gets of which no rule and no default
// of its own speaks.
func (p *Policy) held() Verdict {
	switch {
	case p.defaults.policy != nil:
		return p.defaults.policy.Verdict
	case p.fallback != nil:
		return p.fallback.Verdict
	}
	return Allow
}

// heldFor returns the default of one command.
func (p *Policy) heldFor(name string) Verdict {
	words := strings.Fields(name)
	for n := len(words); n > 0; n-- {
		if r := p.defaults.commands[strings.Join(words[:n], " ")]; r != nil {
			return r.Verdict
		}
	}
	if f := p.facts[words[0]]; f != nil && p.defaults.groups[f.group] != nil {
		return p.defaults.groups[f.group].Verdict
	}
	return p.held()
}

// checkCommand checks the name of a command with a default of its own.
func (p *Policy) checkCommand(source Source, name string, v Verdict) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s: commands: %s", source.keyAt("commands", name), fmt.Sprintf(format, args...))
	}
	words := strings.Fields(name)
	if len(words) == 0 || strings.Join(words, " ") != name || strings.Contains(words[0], "/") {
		return fail("%q: want the name of a command, and of its subcommand", name)
	}
	f := p.facts[words[0]]
	if f == nil && v == Allow {
		return fail("nothing is known of %q, so that it is always asked about", name)
	}
	for _, word := range words[1:] {
		if f == nil || f.Sub[word] == nil {
			return fail("%q: nothing is known of the subcommand %q", name, word)
		}
		f = f.Sub[word]
	}
	return nil
}
