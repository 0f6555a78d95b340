// Package policytest gives tests a real [policy.Files] and an environment on
// a directory. It uses the rights of the test's own process and bounds no time,
// so it is not for serving callers.
package policytest

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pinfold/pinfold/policy"
)

// Files looks names up in the file system of the process.
type Files struct{}

// maxLinks bounds the symlinks on one path.
const maxLinks = 40

// Follow implements [policy.Files].
func (Files) Follow(path string) (string, policy.Kind, error) {
	links := 0
	return follow("/", path, &links)
}

// follow resolves path from the directory base, which is followed already.
func follow(base, path string, links *int) (string, policy.Kind, error) {
	kind := policy.Directory
	if strings.HasPrefix(path, "/") {
		base = "/"
	}
	for rest := path; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			continue
		case "..":
			base = filepath.Dir(base)
			continue
		}
		next := filepath.Join(base, part)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			base, kind = next, policy.Missing
			continue
		case err != nil && strings.Contains(err.Error(), "not a directory"):
			base, kind = next, policy.Missing
			continue
		case err != nil:
			return "", 0, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			base, kind = next, kindOf(info.Mode())
			continue
		}
		if *links++; *links > maxLinks {
			return "", 0, errors.New("too many symlinks")
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", 0, err
		}
		if base, kind, err = follow(base, target, links); err != nil {
			return "", 0, err
		}
	}
	return base, kind, nil
}

func kindOf(mode fs.FileMode) policy.Kind {
	switch {
	case mode.IsRegular():
		return policy.Regular
	case mode.IsDir():
		return policy.Directory
	}
	return policy.Other
}

// List implements [policy.Files].
func (Files) List(dir string, limit int) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(limit + 1)
	if err == nil && len(names) > limit {
		err = errors.New("too many names")
	}
	if len(names) == 0 {
		return nil, nil
	}
	return names, err
}

// Program implements [policy.Files].
func (Files) Program(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	text, isScript := strings.CutPrefix(string(line), "#!")
	if fields := strings.Fields(text); isScript && len(fields) > 0 {
		return fields[0], nil
	}
	return "", nil
}

// Env returns an environment whose project is the directory. Writable besides
// is /tmp, or /var/tmp for a project in /tmp, so that what lies beside the
// project is outside.
func Env(project string) policy.Env {
	scratch := "/tmp"
	if strings.HasPrefix(project, "/tmp/") {
		scratch = "/var/tmp"
	}
	return policy.Env{
		Project: project, Dir: ".", Home: "/home/pinfold-test",
		Path:     []string{"/usr/local/bin", "/usr/bin", "/bin"},
		Readable: []string{"/usr", "/bin", "/lib", "/lib64", "/sbin"},
		Writable: []string{scratch},
		Files:    Files{},
	}
}
