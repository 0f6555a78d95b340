package shparse

import (
	"regexp"
	"slices"
	"strings"

	shpattern "mvdan.cc/sh/v3/pattern"
)

// maxMatches bounds the names that a pattern is expanded to; more are unknown
// names.
const maxMatches = 256

// maxListed bounds the names that all patterns of a script are matched with.
const maxListed = 20_000

// expandPatterns replaces the fields that are patterns by what they match.
func (r *reader) expandPatterns(fields []Field, st *state) []Field {
	if !slices.ContainsFunc(fields, func(f Field) bool { return f.pattern != "" }) {
		return fields
	}
	var out []Field
	for _, f := range fields {
		if f.pattern == "" {
			out = append(out, f)
			continue
		}
		out = append(out, r.matches(f, st)...)
	}
	return out
}

// matches expands one pattern. When nothing matches it stands for itself.
func (r *reader) matches(f Field, st *state) []Field {
	pattern := f.pattern
	f.pattern = ""
	r.listing(f, pattern, st)
	dir, ok := "", strings.HasPrefix(pattern, "/")
	if len(st.dirs) == 1 {
		dir, ok = st.dirs[0], true
	}
	var found []string
	if ok {
		found, ok = r.glob(dir, pattern)
	}
	if !ok || len(found) > maxMatches {
		return []Field{unlisted(f, pattern)}
	}
	if len(found) == 0 {
		return []Field{f}
	}
	found = slices.Clone(found)
	slices.Sort(found)
	out := make([]Field, 0, len(found))
	for _, name := range slices.Compact(found) {
		out = append(out, Field{Value: Text(name), Listed: true, Offset: f.Offset, End: f.End})
	}
	return out
}

// unlisted returns what a pattern may match when the names are not known: its
// literal directory, and names in it.
func unlisted(f Field, pattern string) Field {
	literal := literalDir(pattern)
	class := Name
	rest := pattern[len(literal):]
	if strings.Contains(rest, "/") || strings.HasPrefix(rest, ".") || literal == "" && strings.IndexAny(rest, "*?[") == 0 {
		class = Any
	}
	dir := unescapePattern(literal)
	f.Value = Value{text: dir, holes: []hole{{len(dir), class}}}
	f.Many, f.Listed = true, true
	return f
}

// literalDir returns the beginning of a pattern up to the last slash before
// its first active character.
func literalDir(pattern string) string {
	end := len(pattern)
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == '\\' {
			i++
		} else if strings.IndexByte("*?[", pattern[i]) >= 0 {
			end = i
			break
		}
	}
	return pattern[:strings.LastIndexByte(pattern[:end], '/')+1]
}

func unescapePattern(s string) string { return unescape(s, `*?[]\`) }

// listing says which directory a pattern reads.
func (r *reader) listing(f Field, pattern string, st *state) {
	dir := unescapePattern(literalDir(pattern))
	if dir == "" {
		dir = "."
	}
	f.Value = Text(dir)
	r.emit(&Path{Use: List, Target: f, Dirs: st.dirs, Offset: f.Offset, End: f.End})
}

// glob returns the paths that match below the directory, spelled as the shell
// spells them. It is not ok when a directory could not be listed.
func (r *reader) glob(dir, pattern string) (paths []string, ok bool) {
	key := dir + "\x00" + pattern
	if g, done := r.globbed[key]; done {
		return g.paths, g.ok
	}
	paths, ok = r.globOnce(dir, pattern)
	if r.globbed == nil {
		r.globbed = map[string]globResult{}
	}
	r.globbed[key] = globResult{paths, ok}
	return paths, ok
}

// A globResult is what a pattern matched in a directory.
type globResult struct {
	paths []string
	ok    bool
}

func (r *reader) globOnce(dir, pattern string) (paths []string, ok bool) {
	prefixes := []string{""}
	if strings.HasPrefix(pattern, "/") {
		dir, prefixes = "", []string{"/"}
		pattern = strings.TrimLeft(pattern, "/")
	}
	ok = true
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		var next []string
		for _, p := range prefixes {
			names, complete := r.component(dir, p, part, i+1 < len(parts))
			ok = ok && complete
			next = append(next, names...)
			if len(next) > maxMatches || !ok {
				return nil, false
			}
		}
		prefixes = next
	}
	return prefixes, ok
}

// component extends one path by what one component of a pattern matches.
func (r *reader) component(dir, prefix, part string, more bool) (paths []string, ok bool) {
	slash := ""
	if more {
		slash = "/"
	}
	if part == "" || !hasActive(part) {
		return []string{prefix + unescapePattern(part) + slash}, true
	}
	expr, err := shpattern.Regexp(part, shpattern.Filenames|shpattern.EntireString)
	if err != nil {
		return nil, false
	}
	match, err := regexp.Compile(expr)
	if err != nil {
		return nil, false
	}
	if r.listed > maxListed {
		return nil, false
	}
	names, ok := r.world.List(dir + "/" + prefix)
	r.listed += len(names)
	if !ok {
		return nil, r.step() && !r.world.IsDir(dir+"/"+prefix)
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") && !strings.HasPrefix(part, ".") || !match.MatchString(name) {
			continue
		}
		if more && !r.world.IsDir(dir+"/"+prefix+name) {
			continue
		}
		paths = append(paths, prefix+name+slash)
	}
	if strings.HasPrefix(part, ".") {
		paths = append(paths, dots(prefix, slash, match)...)
	}
	return paths, true
}

// dots adds "." and "..", which some shells let patterns match.
func dots(prefix, slash string, match *regexp.Regexp) (paths []string) {
	for _, name := range []string{".", ".."} {
		if match.MatchString(name) {
			paths = append(paths, prefix+name+slash)
		}
	}
	return paths
}

// hasActive reports whether the pattern can match anything but itself. A
// bracket is only active when it is closed.
func hasActive(pattern string) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '*', '?':
			return true
		case '[':
			if strings.Contains(pattern[i+1:], "]") {
				return true
			}
		}
	}
	return false
}
