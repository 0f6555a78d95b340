package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

const (
	// projectFile is the policy of a project, in its top directory.
	projectFile = ".pinfold.toml"
	// projectRule is the rule that an error names when that file is wrong.
	projectRule = "project-policy"

	maxProjectFile = 64 << 10 // bytes of it
	maxTightened   = 128      // policies of projects that are remembered
	// settleTime is how old a file's last change must be for what was read to
	// be remembered: one that follows within the clock's tick looks the same.
	settleTime = 2 * time.Second
	maxProblem = 1000 // bytes that an error repeats of what is wrong
)

// A Decider decides on commands: a [policy.Policy].
type Decider interface {
	Decide(s *shparse.Script, env policy.Env) policy.Decision
	Examine(s *shparse.Script, env policy.Env) policy.Explanation
	Rules(sources ...policy.Source) []policy.Rule
	Summary() string
	Tighten(project policy.Source) (*policy.Policy, error)
	Disable(names []string) (*policy.Policy, error)
	Readable() []string
	Writable() []string
	Hash() string
}

// policies are the site's policy and what projects have made of it.
type policies struct {
	site atomic.Pointer[Decider]

	mu    sync.Mutex
	known map[policyFileID]tightened
}

// A policyFileID is a file, as one user sees it.
type policyFileID struct {
	uid      uint32
	dev, ino uint64
}

// A policyVersion changes whenever what comes of a file may have changed.
type policyVersion struct {
	size         int64
	mtime, ctime unix.Timespec
	site         string // hash of the site's policy
}

// tightened is what came of a project's file: a policy, or what is wrong.
type tightened struct {
	version policyVersion
	policy  Decider
	err     *api.Error
}

// SetPolicy puts another policy in the site's place. What was decided stays
// decided.
func (s *Server) SetPolicy(p Decider) { s.policies.site.Store(&p) }

// sitePolicy returns the site's policy.
func (s *Server) sitePolicy() Decider { return *s.policies.site.Load() }

// of returns the policy for the project: the site's for it, tightened by the project's
// own file when there is one. A file that is wrong, loosens, or cannot be read
// is an error: nothing is decided by half a policy. It is called as the caller.
func (p *policies) of(site Decider, project string, uid uint32) (Decider, *api.Error) {
	if all, ok := site.(*policy.Policy); ok {
		site = all.For(project)
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(unix.AT_FDCWD, path.Join(project, projectFile), &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
		return site, nil
	case err != nil:
		return nil, wrongProjectFile(projectFile + ": " + reason(err))
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, wrongProjectFile(projectFile + ": must be a plain file, not a link or anything else")
	}
	if known, ok := p.find(idOf(&st, uid)); ok && known.version == versionOf(&st, site.Hash()) {
		return known.policy, known.err
	}
	return p.read(site, project, uid)
}

func idOf(st *unix.Stat_t, uid uint32) policyFileID { return policyFileID{uid, st.Dev, st.Ino} }

func versionOf(st *unix.Stat_t, site string) policyVersion {
	return policyVersion{st.Size, st.Mtim, st.Ctim, site}
}

func (p *policies) find(id policyFileID) (tightened, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.known[id]
	return t, ok
}

// remember keeps what came of a file, in the place of any other when there are
// too many.
func (p *policies) remember(id policyFileID, t tightened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.known[id]; !ok && len(p.known) >= maxTightened {
		for other := range p.known {
			delete(p.known, other)
			break
		}
	}
	if p.known == nil {
		p.known = map[policyFileID]tightened{}
	}
	p.known[id] = t
}

// read reads the project's file and tightens the site's policy by it.
func (p *policies) read(site Decider, project string, uid uint32) (Decider, *api.Error) {
	text, st, err := readProjectFile(project)
	if err != nil {
		return nil, wrongProjectFile(err.Error())
	}
	t := tightened{version: versionOf(&st, site.Hash())}
	if q, err := site.Tighten(policy.Source{Name: projectFile, Text: text}); err != nil {
		t.err = wrongProjectFile(err.Error())
	} else {
		t.policy = q
	}
	if time.Since(time.Unix(st.Ctim.Unix())) > settleTime {
		p.remember(idOf(&st, uid), t)
	}
	return t.policy, t.err
}

// wrongProjectFile returns the error of a project whose file is wrong.
func wrongProjectFile(problem string) *api.Error {
	problem = strings.ReplaceAll(problem, "\n", "; ")
	if len(problem) > maxProblem {
		problem = strings.ToValidUTF8(problem[:maxProblem], "") + "…"
	}
	return &api.Error{
		Code: api.PermissionDenied, Rule: projectRule,
		Message: "nothing runs while the project's policy is wrong: " + strings.ToValidUTF8(problem, "\uFFFD"),
		RecommendedAction: "ask the user to correct " + projectFile + ", which can only deny, or ask about, more than the site does; " +
			"pinfold policy check --project " + projectFile + " shows what is wrong",
	}
}

// readProjectFile reads the file beneath the project, and what it was when it
// was read.
func readProjectFile(project string) (string, unix.Stat_t, error) {
	var before, after unix.Stat_t
	fail := func(err error) (string, unix.Stat_t, error) {
		return "", after, fmt.Errorf("%s: cannot be read: %s", projectFile, reason(err))
	}
	dir, err := openStraight(project)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(dir)
	// With a descriptor that cannot read first: nothing but a plain file is
	// ever opened.
	found, err := unix.Openat2(dir, projectFile, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fail(err)
	}
	defer unix.Close(found)
	if err := unix.Fstat(found, &before); err != nil {
		return fail(err)
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", after, errors.New(projectFile + ": must be a plain file, not a link or anything else")
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), projectFile)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProjectFile+1))
	if err == nil {
		err = unix.Fstat(fd, &after)
	}
	switch {
	case err != nil:
		return fail(err)
	case len(text) > maxProjectFile:
		return "", after, fmt.Errorf("%s: is longer than %d KiB", projectFile, maxProjectFile>>10)
	case versionOf(&before, "") != versionOf(&after, ""):
		return "", after, errors.New(projectFile + ": changed while it was read; try again")
	}
	return string(text), after, nil
}

// private returns the places that commands have of their own: what every
// command may write, but for what the site shares from the host.
func private(site Decider, writable []string) []string {
	own := slices.Concat(alwaysPrivate, writable)
	for _, root := range site.Writable() {
		if real, _, err := new(tree).Follow(root); err == nil {
			own = slices.DeleteFunc(own, func(place string) bool { return place == real })
		}
	}
	return own
}
