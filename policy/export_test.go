package policy

import "strings"

// AllowAlso returns the policy with a rule that allows commands, each a name or
// a name and its subcommand or option, as a site's policy would.
func (p *Policy) AllowAlso(names []string) (*Policy, error) {
	if len(names) == 0 {
		return p, nil
	}
	var rules []*ruleFile
	for _, r := range p.rules.all {
		rules = append(rules, &r.ruleFile)
	}
	for _, name := range names {
		command, rest, _ := strings.Cut(name, " ")
		r := &ruleFile{ID: "extra " + name, Verdict: Allow, Command: []string{command}, Reason: "allowed by the test", Match: []string{name}}
		if rest != "" && !strings.HasPrefix(rest, "-") {
			r.Subcommand = []string{rest}
		}
		rules = append(rules, r)
	}
	q := *p
	var err error
	q.rules, err = compileRules(rules)
	return &q, err
}
