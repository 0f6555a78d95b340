package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pinfold/pinfold/shparse"
)

// maxParts bounds the parts that an explanation lists.
const maxParts = 200

// An Explanation is a decision with all that was seen on the way to it.
type Explanation struct {
	Decision Decision
	Parts    []Part   // in source order, at most 200
	Opaque   bool     // it runs code that the reading cannot see: the boundary is the grant
	Remedies []string // what would make it allowed; none when it is
}

// A Part is a place in the source, what is done there, and what the rules say of
// it.
type Part struct {
	Span    Span
	Verdict Verdict  // the strictest of the reasons; Allow when no rule objects
	Effects []Effect // none for a command that only runs
	Reasons []Reason // of every rule that applies there
}

// An Effect is one thing that a part of a command does.
type Effect struct {
	Name   string // as in the effect of a rule: "reads", "writes", …
	Place  string // as in the place of a rule, for effects on paths; else ""
	Detail string // the path, the host, or what is the matter; may be empty
}

// Examine decides as Decide does, and says how.
func (p *Policy) Examine(s *shparse.Script, env Env) Explanation {
	j, start := p.newJudge(s, env), env.Project
	if env.Dir != "" && env.Dir != "." {
		start += "/" + env.Dir
	}
	j.parts = &parts{at: map[Span]int{}}
	j.whole(s, start)
	e := Explanation{Decision: j.decision(s.Text), Opaque: j.execAny}
	e.Parts = j.parts.sorted()
	e.Remedies = p.remedies(s, env, &e.Decision)
	return e
}

// parts collect what is seen in a command.
type parts struct {
	list []Part
	at   map[Span]int
}

// part returns the part at the span, or nil when there are too many.
func (p *parts) part(at Span) *Part {
	i, ok := p.at[at]
	if !ok {
		if len(p.list) >= maxParts {
			return nil
		}
		i = len(p.list)
		p.at[at] = i
		p.list = append(p.list, Part{Span: at, Verdict: Allow})
	}
	return &p.list[i]
}

// rule notes that a rule applied.
func (p *parts) rule(r *rule, message string, at Span) {
	part := p.part(at)
	if part == nil {
		return
	}
	reason := Reason{Rule: r.ID, Verdict: r.Verdict, Risk: r.Risk, Message: message, Suggest: r.Suggest, Span: at}
	if len(part.Reasons) < maxReasons && !slices.Contains(part.Reasons, reason) {
		part.Reasons = append(part.Reasons, reason)
	}
	part.Verdict = min(part.Verdict, r.Verdict)
}

// effect notes that something is done.
func (p *parts) effect(e *effect, at Span) {
	part := p.part(at)
	if part == nil {
		return
	}
	seen := Effect{Name: effectNames[e.kind], Detail: e.detail}
	switch e.kind {
	case effectReads, effectWrites, effectDeletes, effectEnters:
		seen.Place = placeNames[e.place]
	}
	if len(part.Effects) < maxReasons && !slices.Contains(part.Effects, seen) {
		part.Effects = append(part.Effects, seen)
	}
}

func (p *parts) sorted() []Part {
	for i := range p.list {
		slices.SortStableFunc(p.list[i].Reasons, func(a, b Reason) int { return cmp.Compare(a.Verdict, b.Verdict) })
	}
	slices.SortStableFunc(p.list, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Span.Line, b.Span.Line), cmp.Compare(a.Span.Column, b.Span.Column))
	})
	return p.list
}

// workspace is the policy of the profile "workspace" alone.
var workspace = sync.OnceValue(func() *Policy {
	p, err := Load(Source{"profile", `profile = "workspace"`})
	if err != nil { // the built-in files are tested
		return nil
	}
	return p
})

// beyond says of rules why it would not help a command to switch them off.
var beyond = map[string]string{
	"deny-outside":         "the site's policy can show the directory to commands: readable = [...], or writable = [...]",
	"deny-readable-write":  "the site's policy can let commands write a directory of the site's own: writable = [...]",
	"deny-network":         "the site's policy can open hosts for a command: a rule with widen = { net = [...] }",
	"deny-network-clients": "the site's policy can open hosts for a command: a rule with widen = { net = [...] }, and this one switched off",
	"deny-privilege":       "no policy helps: commands can gain no privileges",
	"deny-device-write":    "no policy helps: commands see no devices but /dev/null and its kind",
	"deny-device-read":     "no policy helps: commands see no devices but /dev/null and its kind",
	RuleReadsOnly:          readsOnly.Suggest,
	"deny-git-write":       "no policy helps: the sandbox holds those files read-only",
}

// remedies returns what would make a command allowed.
func (p *Policy) remedies(s *shparse.Script, env Env, d *Decision) (list []string) {
	if d.Verdict == Allow {
		return nil
	}
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	for _, r := range d.Reasons {
		if r.Verdict != Allow && r.Suggest != "" {
			add("%s", r.Suggest)
		}
	}
	if w := workspace(); d.Verdict == RequireApproval && w != nil && w.Decide(s, env).Verdict == Allow {
		add(`the site's policy can allow it: profile = "workspace"`)
	}
	for _, r := range d.Reasons {
		switch {
		case r.Verdict == Allow, r.Rule == ruleUnread:
		case beyond[r.Rule] != "":
			add("%s", beyond[r.Rule])
		case r.Rule == ruleDefault:
			add(`the site's policy can allow it: a [[rule]] with verdict = "allow" that names the command`)
		case builtinRules()[r.Rule] != "":
			add("the site's policy can switch the rule off: [builtin] disable = [%q]", r.Rule)
		default:
			add("the rule %s is one of the site's or the project's: change it in their policy", r.Rule)
		}
	}
	return list
}

// builtinRules maps the ids of built-in rules to the file that they stand in.
var builtinRules = sync.OnceValue(func() map[string]string {
	ids := map[string]string{}
	for name, text := range map[string]string{"default.toml": defaultText, "workspace.toml": workspaceText} {
		file, err := readPolicyFile(Source{name, text})
		if err != nil { // the built-in files are tested
			continue
		}
		for _, r := range file.Rule {
			ids[r.ID] = name
		}
	}
	return ids
})

// A Rule is one of those that a policy goes by.
type Rule struct {
	ID       string
	Verdict  Verdict
	Risk     Risk
	Subject  string // what it is about, in the words of the file: "rm, recursive, force"
	Reason   string
	Source   string // the file, and the line where it is known: "default.toml:36"
	Examples int
}

// Rules returns the rules in the order of the files. The sources are those that
// the policy was made of, besides the built-in ones.
func (p *Policy) Rules(sources ...Source) []Rule {
	sources = append(slices.Clone(sources), Source{"default.toml", defaultText}, Source{"workspace.toml", workspaceText})
	var out []Rule
	for _, r := range p.rules.all {
		out = append(out, Rule{ID: r.ID, Verdict: r.Verdict, Risk: r.Risk, Subject: r.subject(), Reason: r.Reason,
			Source: origin(r.ID, sources), Examples: len(r.Match) + len(r.NotMatch)})
	}
	return out
}

// origin returns where the rule stands.
func origin(id string, sources []Source) string {
	for _, s := range sources {
		file, err := readPolicyFile(s)
		if err != nil || !slices.ContainsFunc(file.Rule, func(r *ruleFile) bool { return r.ID == id }) {
			continue
		}
		for i, line := range strings.Split(s.Text, "\n") {
			key, value, ok := strings.Cut(line, "=")
			value = strings.TrimSpace(value)
			if ok && strings.TrimSpace(key) == "id" && (strings.HasPrefix(value, `"`+id+`"`) || strings.HasPrefix(value, "'"+id+"'")) {
				return fmt.Sprintf("%s:%d", s.Name, i+1)
			}
		}
		return s.Name
	}
	return ""
}

// subject says what the rule is about.
func (r *rule) subject() string {
	var about []string
	if len(r.Command) > 0 {
		about = append(about, strings.Join(r.Command, " "))
	}
	for _, list := range []struct {
		name  string
		words []string
	}{{"subcommand", r.Subcommand}, {"options", r.Options}, {"operands", r.Operands}, {"effects", r.Effects}, {"places", r.Places}, {"paths", r.Paths}, {"replaces", r.Replaces}} {
		if len(list.words) > 0 {
			about = append(about, list.name+" "+strings.Join(list.words, ", "))
		}
	}
	if len(about) == 0 {
		return "whatever no rule names"
	}
	return strings.Join(about, "; ")
}
