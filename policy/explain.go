package policy

import (
	"fmt"
	"slices"
	"strings"
)

func verdictWords(v Verdict) string {
	switch v {
	case Allow:
		return "allowed"
	case RequireApproval:
		return "needs approval"
	default:
		return "denied"
	}
}

// Words says what the grant allows, a sentence a line.
func (g Grant) Words() string {
	var b strings.Builder
	switch {
	case g.ReadOnly():
		b.WriteString("writes nothing in the project\n")
	case slices.Equal(g.Write, []string{"."}):
		b.WriteString("may write anywhere in the project but protected paths\n")
	case len(g.Write) > 0:
		fmt.Fprintf(&b, "may write %s\n", strings.Join(g.Write, ", "))
	}
	if len(g.Protected) > 0 {
		fmt.Fprintf(&b, "may write the protected %s\n", strings.Join(g.Protected, ", "))
	}
	switch {
	case g.ExecAny:
		b.WriteString("may run any program that the sandbox shows: what bounds it is this grant, not the reading of its code\n")
	case len(g.Exec) == 0:
		b.WriteString("may run no program but the shell\n")
	default:
		fmt.Fprintf(&b, "may run %s\n", strings.Join(g.Exec, ", "))
	}
	if len(g.Net.Hosts) > 0 {
		fmt.Fprintf(&b, "may reach %s\n", strings.Join(g.Net.Hosts, ", "))
	} else {
		b.WriteString("reaches no network but its own loopback\n")
	}
	return b.String()
}

// Summary returns a short text for agents: which commands run unasked, which
// are denied, and what holds for all.
func (p *Policy) Summary() string {
	var b strings.Builder
	b.WriteString("Commands run in a sandbox rooted at the project. Anything else of the machine is invisible, and there is no network but the hosts that a grant names: programs reach those through a proxy that their environment has.\n")
	for _, v := range []Verdict{Allow, RequireApproval, Deny} {
		if names := p.namesOf(v); len(names) > 0 {
			fmt.Fprintf(&b, "%s: %s.\n", map[Verdict]string{Allow: "Run unasked", RequireApproval: "Need approval", Deny: "Denied"}[v], strings.Join(names, ", "))
		}
	}
	switch {
	case p.held() == Allow:
		b.WriteString("Other known commands run unasked; unknown ones need approval.\n")
	default:
		fmt.Fprintf(&b, "Other commands: %s.\n", verdictWords(p.held()))
	}
	for _, r := range p.rules.all {
		if len(r.Command) == 0 && r.Verdict != Allow && r.ID != ruleDefault && r.ID != ruleUnread {
			fmt.Fprintf(&b, "%s: %s.\n", verdictWords(r.Verdict), r.Reason)
		}
	}
	return b.String()
}

// namesOf returns the commands that the rules of a verdict name, whatever
// their options and effects.
func (p *Policy) namesOf(v Verdict) (names []string) {
	for _, r := range p.rules.all {
		if r.Verdict != v || r.effects != 0 || len(r.Options) > 0 || slices.Contains(r.Command, "*") || slices.Contains(r.Command, "?") {
			continue
		}
		for _, name := range r.Command {
			if len(r.Subcommand) == 0 && (v != Allow || p.facts[name] != nil) {
				names = append(names, name)
			}
			for _, sub := range r.Subcommand {
				if sub != "bare" {
					names = append(names, name+" "+sub)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
