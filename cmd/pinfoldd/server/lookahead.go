package server

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

// The bounds of looking ahead. Where one bites nothing more is told: what is
// protected is mounted read-only all the same, but a command may fail half way.
const (
	maxLooks  = 8               // git commands of one text
	lookTime  = 4 * time.Second // within judgeTime
	lookBytes = 4 << 20         // of names
)

// A lookahead tells what git commands would do by asking git: in the sandbox,
// with the project read-only and git alone. A decision that comes upon a command
// for the first time goes without the answer; look gets it, and then it is
// decided again.
type lookahead struct {
	server   *Server
	question question
	answers  map[look]string // what git printed
	open     []look          // asked, and not answered
}

// A look is shell text that asks git.
type look struct{ dir, text string }

// answer returns what git prints, "" when that is not known yet.
func (l *lookahead) answer(q look) string {
	text, answered := l.answers[q]
	if !answered && q.text != "" && len(l.answers)+len(l.open) < maxLooks {
		l.open = append(l.open, q)
	}
	return text
}

// Rewrites implements [policy.Git].
func (l *lookahead) Rewrites(r policy.Rewrite) (names []string) {
	top, rest, _ := strings.Cut(l.answer(look{r.Dir, lookText(r)}), "\n")
	if !path.IsAbs(top) {
		return nil // no repository
	}
	for name := range strings.SplitSeq(rest, "\x00") {
		if name = strings.TrimLeft(name, "\n"); name != "" {
			names = append(names, path.Join(top, name))
		}
	}
	return names
}

// Hooks implements [policy.Git].
func (l *lookahead) Hooks(dir string, names []string) []string {
	text := `hooks=$(git rev-parse --git-path hooks 2>/dev/null) || exit 0` + "\nfor name in " + strings.Join(names, " ") +
		`; do [ -f "$hooks/$name" ] && echo "$name"; done; exit 0`
	return strings.Fields(l.answer(look{dir, text}))
}

// look answers what is open, and reports whether anything was.
func (l *lookahead) look(ctx context.Context, v *verdict) bool {
	if len(l.open) == 0 || v.err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	for _, q := range l.open {
		l.answers[q] = l.ask(ctx, v, q)
	}
	l.open = nil
	return true
}

// ask runs the text.
func (l *lookahead) ask(ctx context.Context, v *verdict, q look) string {
	dir, err := filepath.Rel(v.project, q.dir)
	if err != nil || !filepath.IsLocal(dir) {
		return ""
	}
	grant, ok := l.grant(v)
	if !ok {
		return ""
	}
	var out bytes.Buffer
	outcome, err := l.server.Confiner.Run(ctx, confine.Request{Caller: l.question.caller, Project: v.project, Root: v.root, Dir: dir, Text: q.text,
		Grant: grant, Timeout: lookTime, OutputLimit: lookBytes, Stdout: &out, Stderr: io.Discard})
	if err != nil || outcome.Ended != confine.EndedItself {
		return ""
	}
	return out.String()
}

// grant is what git itself needs to read, as the built-in facts have it.
func (l *lookahead) grant(v *verdict) (g policy.Grant, ok bool) {
	script, err := shparse.Parse("git diff")
	if err != nil {
		return g, false
	}
	view, err := l.server.Confiner.View(l.question.caller, v.project)
	if err != nil {
		return g, false
	}
	t := &tree{project: v.project, private: private(v.rules, view.Writable)}
	if err := l.question.caller.Do(func() error {
		g = v.rules.Decide(script, policy.Env{Project: v.project, Dir: ".", Home: view.Home, Path: view.Path, Readable: view.Readable, Writable: view.Writable, Files: t}).Grant
		return nil
	}); err != nil {
		return g, false
	}
	return g, g.ReadOnly() && g.Pinned() && len(g.Exec) > 0
}

// lookText returns the commands that print what the command would change: first
// the top of the work tree on a line, then names relative to it, a NUL after
// each. Names of too much do no harm, so one that can be a commit or a path is
// taken for both. It returns "" for a command that changes no file.
func lookText(r policy.Rewrite) string {
	l := looks{}
	do, known := lookers[r.Command]
	switch {
	case r.Vague || !known:
		l.run("ls-files", "-z", "--full-name", ":/")
	default:
		do(&l, r)
	}
	if len(l.lines) == 0 {
		return ""
	}
	return "export GIT_OPTIONAL_LOCKS=0\ngit rev-parse --show-toplevel || exit 0\n" + strings.Join(l.lines, "\n") + "\nexit 0\n"
}

// looks are commands of git.
type looks struct{ lines []string }

func (l *looks) run(args ...string) {
	line := "git"
	for _, a := range args {
		q, err := syntax.Quote(a, syntax.LangBash)
		if err != nil {
			return // a NUL or so, which git cannot be given
		}
		line += " " + q
	}
	l.lines = append(l.lines, line+" 2>/dev/null")
}

// differ prints where commits, the index and the work tree differ, as git-diff(1)
// takes them.
func (l *looks) differ(commits []string, paths ...string) {
	for _, c := range commits {
		if strings.HasPrefix(c, "-") {
			return
		}
	}
	args := append([]string{"diff", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules", "-z"}, commits...)
	l.run(append(append(args, "--"), paths...)...)
}

// commit prints what a commit changes, or each of a range.
func (l *looks) commit(name string) {
	if strings.HasPrefix(name, "-") {
		return
	}
	args := []string{"log", "-z", "-m", "--format=", "--name-only", "--no-renames", "--no-ext-diff"}
	if !strings.Contains(name, "..") {
		args = append(args, "--no-walk")
	}
	l.run(append(args, name, "--")...)
}

// branch prints how HEAD differs from what the name means to git switch: a
// branch, or one of a remote that has it.
func (l *looks) branch(name string) {
	if name == "-" {
		name = "@{-1}"
	}
	l.differ([]string{"HEAD", name})
	l.differ([]string{"HEAD", "refs/remotes/origin/" + name})
}

// stashed prints what a stash holds, and what is in the way.
func (l *looks) stashed(r policy.Rewrite) {
	name := "stash@{0}"
	if n := len(r.Operands); n > 0 {
		name = r.Operands[n-1]
	}
	if strings.Trim(name, "0123456789") == "" {
		name = "stash@{" + name + "}"
	}
	l.differ([]string{name + "^1", name})
	l.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", name+"^3")
}

// lookers say for each command of git what prints the files that it changes.
var lookers = map[string]func(l *looks, r policy.Rewrite){
	"checkout": func(l *looks, r policy.Rewrite) {
		if r.Has("b", "B", "orphan") {
			for _, start := range r.Operands {
				l.branch(start)
			}
			return
		}
		for _, name := range r.Operands {
			l.branch(name)
		}
		if len(r.Operands) > 0 {
			l.differ(nil, r.Operands...)
			l.differ([]string{"HEAD"}, r.Operands...)
			l.differ(r.Operands[:1], r.Operands[1:]...)
		}
		if r.Has("force", "f") {
			l.differ([]string{"HEAD"})
		}
	},
	"switch": func(l *looks, r policy.Rewrite) {
		for _, name := range r.Operands {
			l.branch(name)
		}
		if r.Has("force", "f", "discard-changes") {
			l.differ([]string{"HEAD"})
		}
	},
	"restore": func(l *looks, r policy.Rewrite) {
		switch source, given := r.Options["source"]; {
		case r.Has("staged") && !r.Has("worktree"):
		case given:
			l.differ([]string{source}, r.Operands...)
		default:
			l.differ(nil, r.Operands...)
			l.differ([]string{"HEAD"}, r.Operands...)
		}
	},
	"reset": func(l *looks, r policy.Rewrite) {
		if r.Has("hard", "merge", "keep") {
			to := "HEAD"
			if len(r.Operands) > 0 {
				to = r.Operands[0]
			}
			l.differ([]string{to})
		}
	},
	"clean": func(l *looks, r policy.Rewrite) {
		if !r.Has("dry-run", "n") {
			l.run(append([]string{"ls-files", "--others", "-z", "--full-name", "--"}, r.Operands...)...)
		}
	},
	"rm": listed, "mv": listed,
	"merge": func(l *looks, r policy.Rewrite) {
		l.abort(r)
		for _, name := range upstream(r.Operands) {
			l.differ([]string{"HEAD..." + name})
		}
	},
	"pull": func(l *looks, r policy.Rewrite) { // what is there before it fetches
		l.differ([]string{"HEAD...@{upstream}"})
		l.differ([]string{"HEAD...FETCH_HEAD"})
	},
	"rebase": func(l *looks, r policy.Rewrite) {
		l.abort(r)
		onto := upstream(r.Operands)
		if to, given := r.Options["onto"]; given {
			onto = append(onto, to)
		}
		for _, name := range onto {
			l.differ([]string{"HEAD", name})
			l.commit(name + "..HEAD")
		}
		if len(r.Operands) > 1 {
			l.commit(r.Operands[0] + ".." + r.Operands[1])
		}
	},
	"cherry-pick": picked, "revert": picked,
	"am": patched, "apply": func(l *looks, r policy.Rewrite) {
		if !r.Has("check", "stat", "numstat", "summary", "cached") || r.Has("apply") {
			patched(l, r)
		}
	},
	"stash": stashes, "stash push": stashes, "stash save": stashes, "stash bare": stashes,
	"stash pop": (*looks).stashed, "stash apply": (*looks).stashed,
	"stash branch": func(l *looks, r policy.Rewrite) {
		l.stashed(policy.Rewrite{Operands: r.Operands[min(1, len(r.Operands)):]})
		l.differ([]string{"HEAD", "stash@{0}^1"})
	},
}

func listed(l *looks, r policy.Rewrite) {
	if !r.Has("cached") {
		l.run(append([]string{"ls-files", "-z", "--full-name", "--"}, r.Operands...)...)
	}
}

// abort prints what going back from a merge or rebase changes.
func (l *looks) abort(r policy.Rewrite) {
	if r.Has("abort", "quit", "continue", "skip") {
		l.differ([]string{"HEAD"})
		l.differ([]string{"HEAD", "ORIG_HEAD"})
	}
}

// upstream returns the names, or where the branch comes from.
func upstream(names []string) []string {
	if len(names) == 0 {
		return []string{"@{upstream}"}
	}
	return names
}

func picked(l *looks, r policy.Rewrite) {
	l.abort(r)
	for _, name := range r.Operands {
		l.commit(name)
	}
}

func patched(l *looks, r policy.Rewrite) {
	l.abort(r)
	args := []string{"apply", "--numstat", "-z"}
	if strip, given := r.Options["p"]; given {
		args = append(args, "-p"+cmp.Or(strip, "1"))
	}
	if dir, given := r.Options["directory"]; given {
		args = append(args, "--directory="+dir)
	}
	l.numbered(append(append(args, "--"), r.Operands...))
}

// numbered prints the names of --numstat -z, which stand behind two numbers.
func (l *looks) numbered(args []string) {
	n := len(l.lines)
	if l.run(args...); len(l.lines) > n {
		l.lines[n] += ` | while IFS=$'\t' read -r -d '' _ _ name; do printf '%s\0' "$name"; done`
	}
}

func stashes(l *looks, r policy.Rewrite) {
	l.differ([]string{"HEAD"})
	l.differ(nil)
	switch {
	case r.Has("all", "a"):
		l.run("ls-files", "--others", "-z", "--full-name", ":/")
	case r.Has("include-untracked", "u"):
		l.run("ls-files", "--others", "--exclude-standard", "-z", "--full-name", ":/")
	}
}
