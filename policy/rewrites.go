package policy

import (
	"path"
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// rewrites judges a git command that changes files which its words do not name:
// those among them that are protected are written like any other. What is not
// there yet is no concern here: new names are looked at when the command has
// ended.
func (x *execution) rewrites() {
	r := Rewrite{Command: strings.Join(x.call.path[1:], " "), Options: map[string]string{}}
	word := func(f shparse.Field) string {
		text, known := f.Known()
		r.Vague = r.Vague || !known || f.Many
		return text
	}
	for _, g := range x.call.options {
		r.Options[g.option.name] = ""
		if g.hasVal {
			r.Options[g.option.name] = word(g.value)
		}
	}
	for _, g := range x.call.unknown {
		name := strings.TrimLeft(g.text, "-")
		r.Options[name] = ""
		if g.hasVal {
			r.Options[name] = word(g.value)
		} else if _, known := g.at.Known(); !known {
			r.Vague = true
		}
	}
	for _, f := range x.call.operands {
		r.Operands = append(r.Operands, word(f))
	}
	dirs := x.dirs
	if len(dirs) == 0 {
		dirs, r.Vague = []string{x.judge.env.Project}, true
	}
	for _, dir := range dirs {
		r.Dir = dir
		for _, name := range x.judge.env.Git.Rewrites(r) {
			x.rewritten(name)
		}
	}
}

// rewritten judges one file that git would change.
func (x *execution) rewritten(name string) {
	j := x.judge
	if !within(j.env.Project, name) {
		return
	}
	rel := relative(j.env.Project, name)
	held := j.policy.places.protected.outermost(rel)
	if held == "" {
		return
	}
	if _, kind, err := j.follow(path.Join(j.env.Project, held)); err == nil && kind == Missing {
		return
	}
	j.effect(x, &effect{kind: effectWrites, place: placeProtected, detail: rel, path: rel, protected: held, at: x.at})
}

// hooks judges the hooks that git runs of the repository's own: code of the
// project's, which may be anything.
func (x *execution) hooks() {
	for _, dir := range x.dirs {
		found := x.judge.env.Git.Hooks(dir, x.call.fact.Hooks)
		if len(found) == 0 {
			continue
		}
		x.judge.opaque()
		x.judge.slow = true
		x.judge.effect(x, &effect{kind: effectOpaque, detail: "runs the hook " + strings.Join(found, ", "), at: x.at})
	}
}

// outermost returns the shortest beginning of the path that matches, or "".
func (l Paths) outermost(rel string) string {
	for i := 0; i < len(rel); i++ {
		if rel[i] == '/' && l.Match(rel[:i]) {
			return rel[:i]
		}
	}
	if l.Match(rel) {
		return rel
	}
	return ""
}
