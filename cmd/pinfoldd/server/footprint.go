package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

const (
	maxFootprint = 20_000 // names of a project that are looked at
	maxChanged   = 20     // files that an approver is shown
	maxDeep      = 64     // directories in one another
)

// A footprint is what the file system says of a project's files without any being
// opened: their names, kinds, inodes, sizes and times. Whatever is written changes
// it: a file's time of change (stat(2), ctime) is the kernel's and cannot be set.
type footprint struct {
	hash    string            // "" when the project was not looked through
	part    bool              // there are more names than were looked at
	changed []api.ChangedFile // those that changed last, the latest first
}

// lookThrough returns the project's footprint. It is called as the caller, and
// opens directories alone. What git keeps for itself, objects, logs and the index,
// is passed over: it changes when somebody looks at the project.
func lookThrough(project string) (footprint, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, project, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return footprint{}, err
	}
	l := &lookingThrough{sum: sha256.New(), left: maxFootprint}
	l.directory(fd, "", 0)
	slices.SortFunc(l.changed, func(a, b api.ChangedFile) int { return b.At.Compare(a.At) })
	l.footprint.changed = l.changed[:min(len(l.changed), maxChanged)]
	for i := range l.footprint.changed {
		l.footprint.changed[i].Path = clean(l.footprint.changed[i].Path)
	}
	l.footprint.hash = hex.EncodeToString(l.sum.Sum(nil))
	return l.footprint, nil
}

type lookingThrough struct {
	footprint
	sum  hash.Hash
	left int
}

// directory looks at what is in the directory, which it closes.
func (l *lookingThrough) directory(fd int, rel string, depth int) {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	names, err := f.Readdirnames(l.left + 1)
	if len(names) > l.left || depth >= maxDeep {
		l.part = true
		return
	}
	if err != nil && len(names) > 0 {
		fmt.Fprintf(l.sum, "%q cannot be read\n", rel)
	}
	slices.Sort(names)
	l.left -= len(names)
	for _, name := range names {
		if path.Base(rel) == ".git" && (name == "objects" || name == "logs" || name == "index") {
			continue
		}
		l.entry(fd, path.Join(rel, name), name, depth)
	}
}

func (l *lookingThrough) entry(dir int, rel, name string, depth int) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		fmt.Fprintf(l.sum, "%q is not there\n", rel)
		return
	}
	fmt.Fprintf(l.sum, "%q %o %d %d\n", rel, st.Mode, st.Dev, st.Ino)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR { // a directory's own times say no more than its names
		fmt.Fprintf(l.sum, "%d %d %d\n", st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		l.changed = append(l.changed, api.ChangedFile{Path: rel, At: time.Unix(0, st.Ctim.Nano()).UTC()})
		return
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintf(l.sum, "%q cannot be opened\n", rel)
		return
	}
	l.directory(fd, rel, depth+1)
}
