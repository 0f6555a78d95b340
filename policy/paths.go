package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Paths are patterns of project-relative paths, in the plain part of the
// language of gitignore(5): names joined by "/", in each of which "*", "?" and
// "[a-z]" stand for what they do in the shell. A pattern is valid at any depth,
// one that begins with "/" from the top of the project alone. "!" before a
// pattern takes out again what those before it matched. What lies beneath a
// path that matches is covered too, whatever it is called.
//
// Paths are immutable. The zero value matches nothing.
type Paths struct {
	patterns []pattern
	byLast   map[string][]int // patterns by their last name, where it is plain
	wild     []int            // the others
}

// A pattern is one of Paths.
type pattern struct {
	text     string   // as it is written
	names    []string // its components
	plain    []bool   // components that stand for themselves
	head     string   // what the last component begins with
	tail     string   // what it ends in
	anchored bool     // valid from the top alone
	except   bool     // begins with "!"
}

// maxPatterns bounds a list: each is compared with each written path.
const maxPatterns = 1000

// parsePaths reads patterns.
func parsePaths(texts []string) (Paths, error) {
	var l Paths
	if len(texts) > maxPatterns {
		return l, fmt.Errorf("more than %d patterns", maxPatterns)
	}
	for _, text := range texts {
		p := pattern{text: text}
		rest, except := strings.CutPrefix(text, "!")
		rest, p.anchored = strings.CutPrefix(rest, "/")
		p.except = except
		if rest == "" || path.Clean("/"+rest) != "/"+rest || strings.ContainsAny(rest, "\\\x00") || strings.Contains(rest, "**") {
			return l, fmt.Errorf("%q: want names joined by \"/\", as \".envrc\" or \"/ci/*.key\"; a pattern is valid at any depth unless it begins with \"/\"", text)
		}
		for name := range strings.SplitSeq(rest, "/") {
			if _, err := path.Match(name, ""); err != nil {
				return l, fmt.Errorf("%q: %w", text, err)
			}
			p.names = append(p.names, name)
			p.plain = append(p.plain, !strings.ContainsAny(name, "*?["))
		}
		last := p.names[len(p.names)-1]
		p.head, p.tail = last[:wildcard(last)], last[strings.LastIndexAny(last, "*?]")+1:]
		l.patterns = append(l.patterns, p)
	}
	l.index()
	return l, nil
}

// wildcard returns where the first wildcard stands, or the length of the name.
func wildcard(name string) int {
	if i := strings.IndexAny(name, "*?["); i >= 0 {
		return i
	}
	return len(name)
}

// index sorts the patterns by what the last component of a path must be.
func (l *Paths) index() {
	l.byLast, l.wild = map[string][]int{}, nil
	for i, p := range l.patterns {
		if last := len(p.names) - 1; p.plain[last] {
			l.byLast[p.names[last]] = append(l.byLast[p.names[last]], i)
		} else {
			l.wild = append(l.wild, i)
		}
	}
}

// with returns the list with more patterns after its own.
func (l Paths) with(more Paths) Paths {
	both := Paths{patterns: append(slices.Clip(l.patterns), more.patterns...)}
	both.index()
	return both
}

// Patterns returns the patterns as they are written, in their order.
func (l Paths) Patterns() []string {
	out := make([]string, len(l.patterns))
	for i, p := range l.patterns {
		out[i] = p.text
	}
	return out
}

// Match reports whether the clean project-relative path matches by itself,
// whatever the directories are in which it lies.
func (l Paths) Match(rel string) bool {
	var store [16]string
	return l.match(split(store[:0], rel))
}

// Covers reports whether the clean project-relative path, or a directory on the
// way to it, matches.
func (l Paths) Covers(rel string) bool {
	var store [16]string
	names := split(store[:0], rel)
	for n := range names {
		if l.match(names[:n+1]) {
			return true
		}
	}
	return false
}

// begins reports whether the path, or a directory on the way to it, matches from
// its first component on.
func (l Paths) begins(rel string) bool {
	var store [16]string
	names := split(store[:0], rel)
	return slices.ContainsFunc(l.patterns, func(p pattern) bool {
		return len(p.names) <= len(names) && p.ends(names[:len(p.names)], len(p.names))
	})
}

// holds reports whether something beneath the path may match because of where
// it lies: the path ends in the first names of a longer pattern.
func (l Paths) holds(rel string) bool {
	var store [16]string
	names := split(store[:0], rel)
	return slices.ContainsFunc(l.patterns, func(p pattern) bool {
		for n := 1; n < len(p.names) && !p.except; n++ {
			if p.ends(names, n) {
				return true
			}
		}
		return false
	})
}

// split appends the components of a relative path.
func split(to []string, rel string) []string {
	for name := range strings.SplitSeq(rel, "/") {
		to = append(to, name)
	}
	return to
}

// match reports whether the components match: the last pattern that does says
// whether it counts.
func (l Paths) match(names []string) bool {
	last, decides := names[len(names)-1], -1
	for _, i := range l.byLast[last] {
		if l.patterns[i].ends(names, len(l.patterns[i].names)) {
			decides = i
		}
	}
	for _, i := range l.wild {
		p := &l.patterns[i]
		if i > decides && strings.HasPrefix(last, p.head) && strings.HasSuffix(last, p.tail) && p.ends(names, len(p.names)) {
			decides = i
		}
	}
	return decides >= 0 && !l.patterns[decides].except
}

// ends reports whether the components end in the first n of the pattern.
func (p *pattern) ends(names []string, n int) bool {
	from := len(names) - n
	if from < 0 || p.anchored && from > 0 {
		return false
	}
	for i := n - 1; i >= 0; i-- {
		name := names[from+i]
		if p.plain[i] {
			if p.names[i] != name {
				return false
			}
		} else if ok, err := path.Match(p.names[i], name); err != nil || !ok {
			return false
		}
	}
	return true
}

// Protected returns the paths of a project that commands write only with an
// approval that names them: what editors, agents and automation on the host run
// or are steered by. What steers git is not among them: see [Policy.Git].
func (p *Policy) Protected() Paths { return p.places.protected }

// Hidden returns the paths of a project that commands read as empty: keys,
// tokens and passwords. What git tracks is for whoever mounts it to except.
func (p *Policy) Hidden() Paths { return p.places.hidden }

// Git returns the paths, beneath a git directory of whatever kind and at any
// depth in it, that steer git or are run by it. Nothing opens them to direct
// writes.
func (p *Policy) Git() Paths { return p.places.git }
