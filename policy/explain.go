package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Explain returns a decision in words, for people: each part of the source
// that has a reason, underlined, with the verdict, the rule and what to do
// instead; then what the grant allows. It is plain text without colour.
func Explain(source string, d Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s risk\n", words(d.Verdict), d.Risk)
	lines := strings.Split(source, "\n")
	for _, r := range d.Reasons {
		b.WriteString("\n")
		if n := r.Span.Line - 1; n >= 0 && n < len(lines) {
			b.WriteString(underlined(lines[n], r.Span))
		}
		fmt.Fprintf(&b, "  %s: %s [%s]\n", words(r.Verdict), r.Message, r.Rule)
		if r.Suggest != "" && r.Verdict != Allow {
			fmt.Fprintf(&b, "  instead: %s\n", r.Suggest)
		}
	}
	if d.Verdict != Deny {
		fmt.Fprintf(&b, "\n%s", d.Grant.Words())
	}
	return b.String()
}

func words(v Verdict) string {
	switch v {
	case Allow:
		return "allowed"
	case RequireApproval:
		return "needs approval"
	default:
		return "denied"
	}
}

// underlined returns the line with the span marked below it. Long lines are
// cut around the span.
func underlined(line string, at Span) string {
	const most = 100
	start := min(max(at.Column-1, 0), len(line))
	text := line[start:]
	if at.Text != "" && strings.HasPrefix(text, at.Text) {
		text = at.Text
	}
	before, after := line[:start], line[start+len(text):]
	if len(before) > most/2 {
		before = "…" + strings.ToValidUTF8(before[len(before)-most/2:], "")
	}
	if len(after) > most/2 {
		after = strings.ToValidUTF8(after[:most/2], "") + "…"
	}
	pad := strings.Map(func(c rune) rune {
		if c == '\t' {
			return c
		}
		return ' '
	}, before)
	return fmt.Sprintf("  %s%s%s\n  %s%s\n", before, text, after, pad, strings.Repeat("^", max(1, len([]rune(text)))))
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
	b.WriteString("Commands run in a sandbox rooted at the project. Anything else of the machine is invisible, and there is no network.\n")
	for _, v := range []Verdict{Allow, RequireApproval, Deny} {
		if names := p.namesOf(v); len(names) > 0 {
			fmt.Fprintf(&b, "%s: %s.\n", map[Verdict]string{Allow: "Run unasked", RequireApproval: "Need approval", Deny: "Denied"}[v], strings.Join(names, ", "))
		}
	}
	switch {
	case p.fallback == nil:
		b.WriteString("Other known commands run unasked; unknown ones need approval.\n")
	default:
		fmt.Fprintf(&b, "Other commands: %s.\n", words(p.fallback.Verdict))
	}
	for _, r := range p.rules.all {
		if len(r.Command) == 0 && r.Verdict != Allow && r.ID != ruleDefault && r.ID != ruleUnread {
			fmt.Fprintf(&b, "%s: %s.\n", words(r.Verdict), r.Reason)
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
