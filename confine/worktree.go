package confine

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
)

// Git keeps some of what concerns a work tree outside of it (git-worktree(1)). A
// linked work tree has a file ".git" that names its own directory within the
// common one of the repository; a repository names its linked work trees.

// maxWorktrees bounds how many linked work trees of a project are looked at.
const maxWorktrees = 200

// A gitLinks is what a project's git has outside of the project.
type gitLinks struct {
	// Of a linked work tree: the repository's common directory and, in it, the
	// work tree's own, absolute; "" when the project is none.
	common, own string
	// others are the files ".git" of the repository's other work trees, by their
	// absolute paths, with their content. Git forgets a work tree whose file is
	// gone.
	others map[string]string
	inodes [2]Identity // of common and own
}

// equal reports whether a session that was made with l fits o.
func (l gitLinks) equal(o gitLinks) bool {
	return l.common == o.common && l.own == o.own && l.inodes == o.inodes && maps.Equal(l.others, o.others)
}

// gitLinksOf finds them, as the caller. What the project says counts only as far
// as the other side says the same: a file ".git" that names somebody's
// repository, which does not name it back, opens nothing.
func gitLinksOf(project string) (l gitLinks) {
	dotGit := filepath.Join(project, ".git")
	var st unix.Stat_t
	if unix.Lstat(dotGit, &st) != nil {
		return l
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		l.findOthers(dotGit, project)
	case unix.S_IFREG:
		l.findCommon(dotGit)
	}
	return l
}

// findCommon follows the file ".git" of a linked work tree there and back.
func (l *gitLinks) findCommon(dotGit string) {
	own, ok := readLink(dotGit, "gitdir: ")
	if !ok || filepath.Base(filepath.Dir(own)) != "worktrees" {
		return
	}
	back, ok := readLink(filepath.Join(own, "gitdir"), "")
	if !ok || back != dotGit {
		return
	}
	common, ok := readLink(filepath.Join(own, "commondir"), "")
	if !ok || filepath.Dir(filepath.Dir(own)) != common || within(dotGit, common) || within(common, filepath.Dir(dotGit)) ||
		slices.ContainsFunc(ownTops, func(top string) bool { return within(common, top) || within(top, common) }) {
		return
	}
	var st unix.Stat_t
	for i, dir := range []string{common, own} {
		if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir || unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return
		}
		l.inodes[i] = Identity{st.Dev, st.Ino}
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(common, name)); err != nil {
			return
		}
	}
	l.common, l.own = common, own
}

// findOthers reads which linked work trees the repository has elsewhere.
func (l *gitLinks) findOthers(git, project string) {
	dir := filepath.Join(git, "worktrees")
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries[:min(len(entries), maxWorktrees)] {
		own := filepath.Join(dir, e.Name())
		file, ok := readLink(filepath.Join(own, "gitdir"), "")
		if !ok || filepath.Base(file) != ".git" || within(file, project) {
			continue
		}
		if to, ok := readLink(file, "gitdir: "); ok && to == own {
			if l.others == nil {
				l.others = map[string]string{}
			}
			l.others[file] = "gitdir: " + own + "\n"
		}
	}
}

// readLink returns the path that the file holds after the prefix, absolute and
// clean. It reads regular files only, without following a link in the last place.
func readLink(name, prefix string) (string, bool) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", false
	}
	data, err := io.ReadAll(io.LimitReader(f, unix.PathMax+1))
	if err != nil {
		return "", false
	}
	return linkedPath(data, prefix, filepath.Dir(name))
}

// show puts what git has outside into the root: the common directory read-only,
// and of other work trees the file by which git knows that they are there.
func (l gitLinks) show(b *base) {
	if l.common != "" {
		b.bind(l.common, l.common, attrRO|attrNoexec, placeRead)
	}
	own := maps.Clone(b.made)
	for _, file := range slices.Sorted(maps.Keys(l.others)) {
		dir := filepath.Dir(file)
		if b.under(dir) || own[dir] {
			continue // a mounted tree, or something of the root's own
		}
		b.dir(dir)
		b.do(op{kind: opFile, a: file, b: l.others[file], arg: 0o444})
	}
}

// What of a linked work tree's git is written by ordinary work, and what of that
// steers git or is run by it. The rest of the common directory stays read-only:
// configuration, hooks, packed references, and the other work trees.
var (
	commonWritten = []string{"objects", "refs", "logs"}
	commonHeld    = []string{"objects/info"}
	ownHeld       = []string{"commondir", "gitdir", "config.worktree", "hooks", "modules", "info"}
)

// worktree makes a linked work tree's git writable to a grant that writes the
// project's.
func (p *plan) worktree(s *session, g policy.Grant) error {
	l := s.links
	if l.common == "" || !reaches(g, ".git") {
		return nil
	}
	places := []string{l.own}
	for _, name := range commonWritten {
		places = append(places, filepath.Join(l.common, name))
	}
	for _, place := range places {
		fd, err := s.openInRoot(place)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		var st unix.Stat_t
		if err == nil {
			p.close = append(p.close, fd)
			err = unix.Fstat(fd, &st)
		}
		if err != nil {
			return &ProjectError{Path: place, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		p.rules = append(p.rules, rule{fd, rightRead | rightWrite})
		p.ops = append(p.ops, op{kind: opRebind, a: place, clear: attrRO})
	}
	var held []string
	for _, name := range commonHeld {
		held = append(held, filepath.Join(l.common, name))
	}
	for _, name := range ownHeld {
		held = append(held, filepath.Join(l.own, name))
	}
	for _, full := range held {
		if fd, err := s.openInRoot(full); err == nil {
			unix.Close(fd)
		} else {
			p.absent = append(p.absent, full)
		}
		p.ops = append(p.ops, op{kind: opRebind, flags: opfOptional, a: full, set: attrRO})
	}
	return nil
}

// clearLinked takes away what of absent has appeared.
func (gd *guard) clearLinked() (created []Created, stays string) {
	err := gd.survey.caller.Do(func() error {
		for _, full := range gd.absent {
			dir, err := unix.Open(filepath.Dir(full), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			var st unix.Stat_t
			if errors.Is(unix.Fstatat(dir, filepath.Base(full), &st, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT) {
				unix.Close(dir)
				continue
			}
			to, err := gd.survey.moveAway(dir, filepath.Dir(full), full)
			unix.Close(dir)
			switch {
			case err != nil:
				stays = full
			default:
				created = append(created, Created{full, to})
			}
		}
		return nil
	})
	if err != nil {
		stays = gd.absent[0]
	}
	return created, stays
}
