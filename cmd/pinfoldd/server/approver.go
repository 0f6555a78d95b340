package server

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pinfold/pinfold/api"
)

// A process is one as /proc shows it.
type process struct {
	pid, parent int
	tty         int    // device number of its controlling terminal, 0 for none
	start       uint64 // in clock ticks since boot: tells it from one that had its pid before
}

// readProcess reads /proc/PID/stat (proc_pid_stat(5)).
func readProcess(pid int) (process, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	// The second field is the program's name in parentheses, with anything in it.
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return process{}, fmt.Errorf("/proc/%d/stat: no name", pid)
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	p := process{pid: pid}
	if p.parent, err = strconv.Atoi(fields[1]); err != nil {
		return process{}, err
	}
	if p.tty, err = strconv.Atoi(fields[4]); err != nil {
		return process{}, err
	}
	p.start, err = strconv.ParseUint(fields[19], 10, 64)
	return p, err
}

// maxAncestors bounds the walk up the processes.
const maxAncestors = 128

// ancestry returns the process and those above it, up to but without pid 1.
func ancestry(pid int) ([]process, error) {
	var chain []process
	for pid > 1 && len(chain) < maxAncestors {
		p, err := readProcess(pid)
		if err != nil {
			return nil, err
		}
		chain = append(chain, p)
		pid = p.parent
	}
	return chain, nil
}

// asking returns the processes of the asker's side: those above it that share
// its terminal; or, when it has none, all above it but the topmost, which is
// what the system started (a session's manager, a terminal server).
func asking(chain []process) []process {
	if len(chain) == 0 {
		return nil
	}
	if tty := chain[0].tty; tty != 0 {
		return slices.DeleteFunc(slices.Clone(chain), func(p process) bool { return p.tty != tty })
	}
	for _, p := range chain {
		if p.tty != 0 { // it gave its terminal up: those that have it count
			return slices.DeleteFunc(slices.Clone(chain), func(q process) bool { return q.tty != 0 && q.tty != p.tty })
		}
	}
	if len(chain) > 2 {
		return chain[:len(chain)-1]
	}
	return chain
}

// besides reports whether the approver's process is apart from the asker's side:
// it has a terminal, and none of the asker's side is above it.
func besides(asker, approver []process) error {
	if len(approver) == 0 || approver[0].tty == 0 {
		return fmt.Errorf("an approval of your own command must come from a terminal")
	}
	for _, a := range asker {
		if slices.ContainsFunc(approver, func(p process) bool { return p.pid == a.pid && p.start == a.start }) {
			return fmt.Errorf("it must not come from a process beside or below the one that asked; use another terminal")
		}
	}
	return nil
}

// An Authority says who may approve in this setting.
type Authority struct {
	System bool
	Group  *uint32 // of approvers, in the system's daemon; nil for none
}

// mayControl reports why the peer may not use the control socket; nil when he
// may: root and members of the group, or the user whose daemon it is.
func (a *Authority) mayControl(p *peer, only *uint32) *api.Error {
	if only != nil && p.uid == *only || a.System && (p.uid == 0 || a.member(p)) {
		return nil
	}
	return &api.Error{Code: api.PermissionDenied, Message: "you may not use the control socket"}
}

func (a *Authority) member(p *peer) bool {
	return a.Group != nil && p.member(*a.Group)
}

// mayDecide reports why the peer may not decide on what the caller asked; nil
// when he may. asker is the asker's side, as it was when it asked.
//
//	system daemon   root, and members of the group; never the uid that asked
//	user's daemon   the user; from a terminal that is not the asker's
func (a *Authority) mayDecide(p *peer, owner uint32, asker []process) *api.Error {
	no := func(message, action string) *api.Error {
		return &api.Error{Code: api.PermissionDenied, Message: message, RecommendedAction: action}
	}
	if a.System {
		switch {
		case p.uid == owner:
			return no("who asked cannot approve", "let somebody else who may approve decide: root, or a member of the group pinfold")
		case p.uid == 0 || a.member(p):
			return nil
		}
		return no("you may not approve", "let root, or a member of the group pinfold, decide")
	}
	if p.uid != owner {
		return no("you may not approve", "")
	}
	chain, err := ancestry(p.pid)
	if err == nil {
		err = besides(asker, chain)
	}
	if err != nil {
		return no(err.Error(), "run pinfold approvals in a terminal of your own")
	}
	return nil
}
