package policy

import (
	"slices"
	"testing"
)

// Commands of sed that leave the stream are found, wherever they stand, and
// letters that only look like them are not.
func TestSed(t *testing.T) {
	for script, want := range map[string][]sedUse{
		"":                    nil,
		"p":                   nil,
		"1,5p":                nil,
		"/write/p":            nil,
		"s/new/where/":        nil,
		"s/a/b/gI":            nil,
		"s/a/b/;s/c/d/2p":     nil,
		"/^func /,/^}/p":      nil,
		"s#/etc#/usr#g":       nil,
		"s/[/]/x/":            {{sedUnread, ""}},
		"s/a[bc]/e w/":        nil,
		"$!N;$!D":             nil,
		"y/abc/def/":          nil,
		":a;N;$!ba;s/\\n/ /g": nil,
		"a\\\ntext e w\np":    nil,
		"1i hello; e x":       nil,
		"/x/{s/a/b/;p}":       nil,
		"1!G;h;$!d":           nil,
		"0~3d":                nil,
		"/a/I,+3d":            nil,
		"\\,a,d":              nil,
		"# e x":               nil,
		"r/dev/stdin":         nil,
		"w /dev/stdout":       nil,
		"s/a/b/w /dev/stderr": nil,
		"q5":                  nil,
		"e":                   {{sedExecutes, ""}},
		"1e touch x":          {{sedExecutes, ""}},
		"s/a/b/e":             {{sedExecutes, ""}},
		"s/a/b/ge":            {{sedExecutes, ""}},
		"s,a,b,e":             {{sedExecutes, ""}},
		"/x/{e ls\n}":         {{sedExecutes, ""}},
		"p\n1e x":             {{sedExecutes, ""}},
		"p;e x":               {{sedExecutes, ""}},
		"a text\ne x":         {{sedExecutes, ""}},
		"w out":               {{sedWrites, "out"}},
		"s/a/b/w out":         {{sedWrites, "out"}},
		"s/a/b/gw out":        {{sedWrites, "out"}},
		"1W out":              {{sedWrites, "out"}},
		"r in\nw out":         {{sedReads, "in"}, {sedWrites, "out"}},
		"R /etc/passwd":       {{sedReads, "/etc/passwd"}},
		"$r in":               {{sedReads, "in"}},
		"s/a/b":               {{sedUnread, ""}},
		"k":                   {{sedUnread, ""}},
		"s/a/b/k":             {{sedUnread, ""}},
		"/a":                  {{sedUnread, ""}},
	} {
		s := sedReader{text: script}
		if got := s.read(); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", script, got, want)
		}
	}
}

// Programs of awk are split into tokens in which strings and regular
// expressions hide what only looks like code.
func TestAwkTokens(t *testing.T) {
	for program, want := range map[string][]awkToken{
		"{print $1}":  {{awkMark, "{"}, {awkWord, "print"}, {awkMark, "$"}, {awkWord, "1"}, {awkMark, "}"}},
		"/a|b/":       {{awkOther, "a|b"}},
		"$1/2/3":      {{awkMark, "$"}, {awkWord, "1"}, {awkMark, "/"}, {awkWord, "2"}, {awkMark, "/"}, {awkWord, "3"}},
		"x ~ /|/":     {{awkWord, "x"}, {awkMark, "~"}, {awkOther, "|"}},
		"\"a|b\"":     {{awkString, "a|b"}},
		"\"a\\\"b\"":  {{awkString, "a\"b"}},
		"a||b|c":      {{awkWord, "a"}, {awkMark, "||"}, {awkWord, "b"}, {awkMark, "|"}, {awkWord, "c"}},
		"a |& b":      {{awkWord, "a"}, {awkMark, "|&"}, {awkWord, "b"}},
		"# system()":  nil,
		"\"a":         {{awkBroken, ""}},
		"/a":          {{awkBroken, ""}},
		"/[/]/":       {{awkBroken, ""}, {awkOther, "]"}},
		"a >= b >> c": {{awkWord, "a"}, {awkMark, ">="}, {awkWord, "b"}, {awkMark, ">>"}, {awkWord, "c"}},
	} {
		if got := awkTokens(program); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", program, got, want)
		}
	}
}

// Paths of the project are placed by what lies on the way.
func TestPlaces(t *testing.T) {
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	for rel, want := range map[string]place{
		".": placeProject, "a": placeProject, "a/b": placeProject, "git": placeProject, "a.git": placeProject, "config": placeProject,
		".git": placeGit, "sub/.git": placeGit, ".git/config": placeGit, ".git/hooks": placeGit, ".git/hooks/pre-commit": placeGit,
		".git/modules/x/config": placeGit, ".git/worktrees/w/commondir": placeGit, ".git/info/exclude": placeGit,
		".git/objects/info/alternates": placeGit, ".git/HEAD": placeProtected, ".git/objects/ab/cd": placeProtected,
		".envrc": placeProtected, "sub/.envrc": placeProtected, ".vscode": placeProtected, ".vscode/settings.json": placeProtected,
		".github/workflows/ci.yml": placeProtected, ".github/ISSUE.md": placeProject, ".github": placeProject,
		"workflows": placeProject, ".github/workflowsx": placeProject, ".claude/x/y": placeProtected,
	} {
		if got := p.places.inProject(rel); got != want {
			t.Errorf("%s: %s, want %s", rel, placeNames[got], placeNames[want])
		}
	}
}
