package confine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/hosts"
)

// #include "keeper.h"
import "C"

// A plan is what one command needs of the kernel, all of it derived from its
// grant.
type plan struct {
	ops    []op     // in the command's own mount namespace
	rules  []rule   // Landlock, on descriptors
	late   []lateFS // Landlock, on what is only mounted there
	filter uint32   // the second seccomp filter
	probes uint32   // what the probe has to find
	close  []int    // descriptors opened for rules
	config landlock.Config
	absent []string   // names of a linked work tree's git, absolute, that must not appear
	hosts  hosts.List // the network namespace is the command's own, with a door to these; none means its session's
	masked []string   // sockets and FIFOs of the project that are empty files inside
}

type lateFS struct {
	path   string
	rights landlock.AccessFSSet
}

// readonly are the places of the project that stay read-only beneath a granted
// one.
func (p *plan) readonly() []string {
	var list []string
	for _, o := range p.ops {
		if o.kind == opRebind && o.flags&opfProject != 0 && o.set&attrRO != 0 {
			list = append(list, o.a)
		}
	}
	return list
}

func (p *plan) free() {
	for _, fd := range p.close {
		unix.Close(fd)
	}
	p.close = nil
}

// newPlan derives the plan. It opens the places of the grant beneath the
// session's root: descriptors that the rules follow, whatever is renamed
// meanwhile.
func (s *session) newPlan(g policy.Grant) (*plan, error) {
	list, err := named(g)
	if err != nil {
		return nil, err
	}
	p := &plan{filter: filterPinned, probes: probesAlways | C.PROBE_NO_SOCKET | C.PROBE_NOEXEC, hosts: list}
	switch {
	case g.ExecAny:
		p.filter = filterAny
		p.probes = probesAlways | C.PROBE_NO_ROUTE
	case len(list) > 0:
		p.filter = filterDoor
		p.probes = probesAlways | C.PROBE_NO_ROUTE | C.PROBE_NOEXEC
	}
	if s.m.abi >= abiScopes {
		p.probes |= C.PROBE_SCOPE_SIGNAL
		if g.ExecAny { // the others have no socket to try it with
			p.probes |= C.PROBE_SCOPE_ABSTRACT
		}
	}
	p.config = handled(s.m.abi, g.Pinned())
	whole := slices.Contains(g.Write, ".")
	if !whole {
		p.probes |= C.PROBE_PROJECT_READONLY
	}
	p.places(s, g, whole)
	err = p.programs(s, g)
	if err == nil {
		err = p.writes(s, g)
	}
	if err == nil {
		err = p.worktree(s, g)
	}
	if err != nil {
		p.free()
		return nil, err
	}
	if err := p.mask(s); err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// places gives each place of the root its rights and, for grants with any
// program, takes noexec off.
func (p *plan) places(s *session, g policy.Grant, whole bool) {
	p.late = append(p.late, lateFS{"/proc", rightRead})
	if g.ExecAny {
		// a process may write its own comm and oom_score_adj
		p.late[0].rights = rightRead | ll.AccessFSWriteFile | ll.AccessFSTruncate
		p.ops = append(p.ops,
			op{kind: opDevpts, a: "/dev/pts"},
			op{kind: opTmpfs, a: "/dev/shm", b: "mode=1777,size=1g,nr_inodes=10k", set: attrLocked})
		p.late = append(p.late,
			lateFS{"/dev/pts", rightDevice | ll.AccessFSIoctlDev},
			lateFS{"/dev/shm", rightRead | rightWrite})
	}
	for i, at := range s.base.places {
		if at.kind == placeCanary {
			p.rules = append(p.rules, rule{s.fds[i], ll.AccessFSReadFile})
			continue
		}
		rights := landlock.AccessFSSet(rightRead)
		var clear uint64
		switch at.kind {
		case placeRoot:
			// names may be listed; what is in the files stays with the rules
			p.rules = append(p.rules, rule{s.fds[i], ll.AccessFSReadDir})
			continue
		case placeDev:
			rights = rightDevice
		case placeCache:
			// a grant that writes nothing gets no cache to write either
			if g.ExecAny && !g.ReadOnly() {
				rights |= rightWrite
				clear |= attrRO
			}
		case placeShared:
			rights |= rightWrite
		case placeScratch:
			// its owner may have changed the mode, for all that come later
			p.ops = append(p.ops, op{kind: opMode, a: at.path, arg: 0o1777})
			// a rule on a directory above the project would be one on the
			// project: not unless that is granted anyway
			if !within(s.project, at.path) || whole {
				rights |= rightWrite
			}
		case placeRead, placeUnder, placeTool, placeHome, placeProject:
		}
		if g.ExecAny && at.kind != placeDev && at.kind != placeUnder {
			rights |= rightExec
			clear |= attrNoexec
		}
		if at.path == "/etc" { // part of the root itself
			clear = 0
			rights &^= ll.AccessFSExecute
		}
		if at.kind == placeTool || at.kind == placeUnder {
			rights = 0 // the rule of what it lies in covers it: rules climb over mounts
		}
		if clear != 0 {
			p.ops = append(p.ops, op{kind: opAttr, a: at.path, clear: clear})
		}
		if rights != 0 {
			p.rules = append(p.rules, rule{s.fds[i], rights})
		}
	}
}

// terminal gives a command the terminal that its init makes.
func (p *plan) terminal(g policy.Grant) {
	if !g.ExecAny {
		p.ops = append(p.ops, op{kind: opDevpts, a: "/dev/pts"})
		p.late = append(p.late, lateFS{"/dev/pts", rightDevice | ll.AccessFSIoctlDev})
	}
	p.late = append(p.late, lateFS{"/dev/tty", rightDevice&rightFile | ll.AccessFSIoctlDev})
}

// programs pins executions to bash, its loader and the listed programs.
func (p *plan) programs(s *session, g policy.Grant) error {
	if g.ExecAny {
		return nil
	}
	shell := s.m.shell
	for _, path := range slices.Concat([]string{shell.path, shell.loader}, g.Exec) {
		if path == "" {
			continue
		}
		fd, err := s.openInRoot(path)
		if err != nil {
			return &Unavailable{Layer: "exec pinning", Err: fmt.Errorf("open %s: %w", path, err)}
		}
		p.close = append(p.close, fd)
		p.rules = append(p.rules, rule{fd, rightExec})
		if path != shell.path && path != shell.loader {
			p.ops = append(p.ops, op{kind: opRebind, a: path, clear: attrNoexec})
		}
	}
	return nil
}

// openInRoot opens a place of the session's root as a command would find it.
func (s *session) openInRoot(path string) (int, error) {
	return unix.Openat2(s.fds[0], strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// writes binds the granted places writable and repeats it in Landlock.
func (p *plan) writes(s *session, g policy.Grant) error {
	for _, place := range g.Write {
		if !filepath.IsLocal(place) {
			return &Unavailable{Layer: "mount view", Err: fmt.Errorf("the grant leaves the project: %q", place)}
		}
		if err := p.write(s, filepath.Clean(place)); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) write(s *session, place string) error {
	fd, err := unix.Openat2(s.projectFD, place, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	var st unix.Stat_t
	if err == nil {
		p.close = append(p.close, fd)
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return &ProjectError{Path: place, Err: fmt.Errorf("the granted place changed since it was judged: %w", err)}
	}
	rights := landlock.AccessFSSet(rightRead | rightWrite)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFREG:
		rights &= rightFile
	default:
		return &ProjectError{Path: place, Err: fmt.Errorf("neither a file nor a directory")}
	}
	p.rules = append(p.rules, rule{fd, rights})
	if place == "." {
		p.ops = append(p.ops, op{kind: opAttr, a: s.project, clear: attrRO})
		return nil
	}
	p.ops = append(p.ops, op{kind: opRebind, flags: opfProject, a: place, clear: attrRO})
	return nil
}
