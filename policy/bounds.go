package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/policy/hosts"
)

// bounds are what a rule leaves of a command's grant, or adds to it.
type bounds struct {
	Write   *words `toml:"write"`    // project-relative places; of narrow, none means to write nothing
	Exec    *words `toml:"exec"`     // programs: names, or absolute paths
	ExecAny bool   `toml:"exec_any"` // any program that the sandbox shows
	Net     *words `toml:"net"`      // hosts that may be reached, as [hosts.ParseEntry] reads them; of widen alone
}

// check checks what can be checked without a project.
func (b *bounds) check() error {
	if b == nil {
		return nil
	}
	for _, place := range b.writes() {
		if place != "." && (place == "" || path.Clean("/"+place) != "/"+place || strings.ContainsRune(place, 0)) {
			return fmt.Errorf("%q: want a path relative to the project, without \"..\"", place)
		}
	}
	for _, name := range b.programs() {
		if name == "" || strings.Contains(name, "/") && path.Clean(name) != name || strings.Contains(name, "/") && !path.IsAbs(name) {
			return fmt.Errorf("%q: want the name of a program, or its absolute path", name)
		}
	}
	if _, err := hosts.ParseList(b.hosts()); err != nil {
		return fmt.Errorf("net: %w", err)
	}
	return nil
}

func (b *bounds) hosts() []string {
	if b == nil || b.Net == nil {
		return nil
	}
	return *b.Net
}

func (b *bounds) writes() []string {
	if b.Write == nil {
		return nil
	}
	return *b.Write
}

func (b *bounds) programs() []string {
	if b.Exec == nil {
		return nil
	}
	return *b.Exec
}

// needs are what commands need of a grant.
type needs struct {
	writes  []string // project-relative
	opened  []string // protected
	exec    map[string]bool
	execAny bool
	hosts   []string // by rules of the site
}

// A limit is what may be written, while a command is judged to which it
// applies.
type limit struct {
	rule   *rule    // what says so
	places []string // project-relative
}

// bounded judges a command of which some rules change the grant: what it needs
// is collected apart, narrowed, widened, and added to the rest.
func (j *judge) bounded(rules []*rule, do func()) {
	outer, depth := j.needs, len(j.limits)
	j.needs = needs{}
	for _, r := range rules {
		if r.Narrow != nil && r.Narrow.Write != nil {
			j.limits = append(j.limits, limit{r, *r.Narrow.Write})
		}
	}
	do()
	j.limits = j.limits[:depth]
	for _, r := range rules {
		j.narrow(r.Narrow)
	}
	for _, r := range rules {
		j.widen(r.Widen)
	}
	outer.add(j.needs)
	j.needs = outer
}

func (n *needs) add(more needs) {
	n.writes = append(n.writes, more.writes...)
	n.opened = append(n.opened, more.opened...)
	n.execAny = n.execAny || more.execAny
	n.hosts = append(n.hosts, more.hosts...)
	for name := range more.exec {
		if n.exec == nil {
			n.exec = map[string]bool{}
		}
		n.exec[name] = true
	}
}

// narrow leaves of what is needed what the bounds have too.
func (j *judge) narrow(b *bounds) {
	if b == nil {
		return
	}
	if b.Write != nil {
		j.writes = common(j.writes, j.existing(*b.Write))
		if len(*b.Write) == 0 {
			j.opened = nil
		}
	}
	if b.Exec != nil {
		outer, wasAny := j.exec, j.execAny
		j.exec, j.execAny = nil, false
		for _, name := range *b.Exec {
			j.executes(name)
		}
		if !wasAny {
			for name := range j.exec {
				if !outer[name] {
					delete(j.exec, name)
				}
			}
		}
	}
}

func (j *judge) widen(b *bounds) {
	if b == nil {
		return
	}
	if places := j.existing(b.writes()); len(places) > 0 {
		j.writes = append(j.writes, places...)
		j.risk = max(j.risk, Medium)
	}
	for _, name := range b.programs() {
		j.executes(name)
	}
	j.execAny = j.execAny || b.ExecAny
	if list := b.hosts(); len(list) > 0 {
		j.hosts = append(j.hosts, list...)
		j.risk = max(j.risk, Medium)
	}
}

// existing returns those of the places that are in the project as they are
// spelled: what does not exist, is a link or protected cannot be granted.
func (j *judge) existing(list []string) (out []string) {
	for _, place := range list {
		full := path.Join(j.env.Project, place)
		real, kind, err := j.follow(full)
		if err == nil && real == full && (kind == Directory || kind == Regular) && j.placeOf(real) == placeProject {
			out = append(out, place)
		}
	}
	return out
}

// common returns the places that lie in one of each list.
func common(a, b []string) (out []string) {
	for _, x := range a {
		for _, y := range b {
			switch {
			case beneath(y, x):
				out = append(out, x)
			case beneath(x, y):
				out = append(out, y)
			}
		}
	}
	return out
}

// beneath reports whether the project-relative place is dir or lies in it.
func beneath(dir, place string) bool { return dir == "." || within(dir, place) }

// wants notes a place that must be written, and objects when a limit leaves it
// out. Of what is vague the limit leaves what it can.
func (j *judge) wants(place string, vague bool, at where) {
	for _, l := range j.limits {
		if vague && len(l.places) > 0 || slices.ContainsFunc(l.places, func(dir string) bool { return beneath(dir, place) }) {
			continue
		}
		j.found(l.outside(), place, at)
	}
	j.writes = append(j.writes, place)
	j.risk = max(j.risk, Medium)
}

// outside returns the rule that denies to write outside of the limit.
func (l *limit) outside() *rule {
	r := &rule{ruleFile: ruleFile{ID: l.rule.ID, Verdict: Deny, Risk: Medium, Suggest: l.rule.Suggest,
		Reason: "writes outside of " + strings.Join(l.places, ", ")}}
	if len(l.places) == 0 {
		r.Reason = "writes, and was to read only"
	}
	return r
}

// readsOnly is the rule of a request that says that its command only reads.
var readsOnly = &rule{ruleFile: ruleFile{ID: RuleReadsOnly, Narrow: &bounds{Write: &words{}},
	Suggest: "ask again without saying that the command only reads"}}
