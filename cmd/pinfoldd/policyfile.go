package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/cmd/pinfoldd/server"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
)

const (
	systemPolicy  = "/etc/pinfold/policy.toml"
	maxPolicyFile = 1 << 20 // bytes
)

// userPolicy returns the policy file of the calling user.
func userPolicy() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pinfold", "policy.toml"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%w; name a policy file with --policy", err)
	}
	return filepath.Join(home, ".config", "pinfold", "policy.toml"), nil
}

// A policyFile is where the site's policy lies.
type policyFile struct {
	path     string
	required bool   // it was named: one that is missing is an error
	state    string // the daemon's own directory, symlinks followed; "" when there is none
	sockets  string // the directory of its sockets, the same way
}

// sources returns the file, or nothing when it is missing and may be.
func (p policyFile) sources() ([]policy.Source, error) {
	text, err := readOwned(p.path, "policy")
	if errors.Is(err, fs.ErrNotExist) && !p.required {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []policy.Source{{Name: p.path, Text: text}}, nil
}

// load returns the site's policy.
func (p policyFile) load() (*policy.Policy, error) {
	sources, err := p.sources()
	if err != nil {
		return nil, err
	}
	rules, err := policy.Load(sources...)
	if err != nil {
		return nil, err
	}
	return rules, p.checkRoots(append(rules.Readable(), rules.Writable()...))
}

// checkRoots checks that no directory that the policy shows to commands holds,
// or lies in, what is the daemon's own: its state, its sockets, its policy.
func (p policyFile) checkRoots(roots []string) error {
	for _, root := range roots {
		real := realPath(root)
		holdsSockets := p.sockets != "" && contains(real, p.sockets)
		if contains(real, realPath(p.path)) || holdsSockets || p.state != "" && (contains(real, p.state) || contains(p.state, real)) {
			return fmt.Errorf("%s: readable and writable must not hold, or lie in, what is pinfold's own: %s", p.path, root)
		}
	}
	return nil
}

// contains reports whether the clean path is dir or lies beneath it.
func contains(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// realPath follows symlinks as far as there is something.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(realPath(dir), filepath.Base(path))
	}
	return path
}

// readOwned reads a file, a policy for instance, that nobody but root and the
// user who calls can have written.
func readOwned(name, what string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: is no plain file", name)
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return "", err
	}
	if err := checkOwners(real, what); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPolicyFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxPolicyFile {
		return "", fmt.Errorf("%s: is longer than %d MiB", name, maxPolicyFile>>20)
	}
	return string(text), nil
}

// checkOwners checks that the file, and each directory above it, belongs to
// root or the user who calls, and that nobody else can write it. In a directory
// with the sticky bit others cannot replace what is not theirs.
func checkOwners(name, purpose string) error {
	for what := "the file"; ; what = "the directory" {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		isSticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
		switch {
		case st.Uid != 0 && int(st.Uid) != os.Geteuid():
			return fmt.Errorf("%s: %s of a %s must belong to root or uid %d, but belongs to uid %d; chown it", name, what, purpose, os.Geteuid(), st.Uid)
		case st.Mode&0o022 != 0 && !isSticky:
			return fmt.Errorf("%s: %s of a %s must not be writable by others, but has mode %04o; chmod go-w it", name, what, purpose, st.Mode&0o7777)
		case name == "/":
			return nil
		}
		name = filepath.Dir(name)
	}
}

// A siteRules keeps the site's policy in force, and loads it again on demand.
type siteRules struct {
	file    policyFile
	manager *confine.Manager
	records *trace.Log
	log     *log.Logger
	set     func(*policy.Policy)           // gives a policy to what decides
	again   func() (confine.Bounds, error) // reads the configuration again

	mu   sync.Mutex // held while the policy is loaded again
	hash string     // of the policy in force
}

// adopt puts the policy in force, and returns the roots that no command sees as
// it says.
func (s *siteRules) adopt(p *policy.Policy) []confine.LeftOut {
	s.manager.SetPaths(p.Protected(), p.Hidden())
	left := s.manager.SetRoots(p.Readable(), p.Writable())
	for _, l := range left {
		s.log.Printf("policy %s: the directory %s %s", s.file.path, l.Path, l.Why)
	}
	s.hash = p.Hash()
	s.record(trace.PolicyLoad{Policy: s.hash})
	return left
}

func (s *siteRules) record(l trace.PolicyLoad) {
	l.File = s.file.path
	if err := s.records.PolicyLoaded(l); err != nil {
		s.log.Printf("the trace cannot be written: %v", err)
	}
}

// reload reads the policy, and what of the configuration a reload takes, again.
// When one of them is wrong both stay in force as they were.
func (s *siteRules) reload() (server.Reload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.hash
	p, err := s.file.load()
	var bounds confine.Bounds
	if err == nil {
		bounds, err = s.again()
	}
	if err != nil {
		s.log.Printf("the policy was not reloaded, the old one (%.12s) stays in force: %v", old, err)
		s.record(trace.PolicyLoad{Policy: old, Problem: err.Error()})
		return server.Reload{Policy: old}, err
	}
	s.manager.SetBounds(bounds)
	if p.Hash() == old {
		s.log.Printf("policy %s: reloaded, nothing has changed (%.12s)", s.file.path, old)
		return server.Reload{Policy: old, LeftOut: s.manager.SetRoots(p.Readable(), p.Writable())}, nil
	}
	left := s.adopt(p)
	s.set(p)
	s.log.Printf("policy %s: reloaded, was %.12s, is %.12s", s.file.path, old, p.Hash())
	return server.Reload{Policy: p.Hash(), Changed: true, LeftOut: left}, nil
}

// reloadOn reloads whenever the channel says so, until ctx ends.
func (s *siteRules) reloadOn(ctx context.Context, again <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-again:
			_, _ = s.reload() // the log says what came of it
		}
	}
}
