package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// currentDir returns the current directory with symlinks followed, whatever
// $PWD says.
func currentDir() (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buf)
	if err != nil {
		return "", os.NewSyscallError("getcwd", err)
	}
	return string(buf[:n-1]), nil
}

// projectOf returns the absolute path of the project: the one given, or the git
// top-level that dir lies in, or dir.
func projectOf(given, dir string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	home, _ := os.UserHomeDir() // without one there is none to leave out
	for top := dir; top != "/"; top = filepath.Dir(top) {
		if top != home && isTopLevel(top) {
			return top, nil
		}
	}
	return dir, nil
}

// isTopLevel reports whether the directory holds a git repository and is the
// user's own: a .git that somebody left in a shared directory above is not
// meant.
func isTopLevel(dir string) bool {
	var st syscall.Stat_t
	if syscall.Lstat(filepath.Join(dir, ".git"), &st) != nil {
		return false
	}
	return syscall.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

// relative returns dir relative to the project, "" when it is the project or
// does not lie inside. A project that was given may have symlinks in it.
func relative(project, dir string, given bool) string {
	if given {
		if real, err := filepath.EvalSymlinks(project); err == nil {
			project = real
		}
	}
	rel, inside := strings.CutPrefix(dir, project+"/")
	if !inside {
		return ""
	}
	return rel
}
