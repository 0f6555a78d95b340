package confine

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	attrRO     = unix.MOUNT_ATTR_RDONLY
	attrNoexec = unix.MOUNT_ATTR_NOEXEC
	attrLocked = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// A View is what a command of a caller sees besides its project, as far as a
// decision depends on it.
type View struct {
	Home     string   // HOME inside
	Path     []string // PATH inside, in order
	Readable []string // roots outside the project that are shown
	Writable []string // roots outside the project that every command may write

	LeftOut []LeftOut // roots of the site that commands do not see

	site roots // those of the site that exist
}

// LeftOut is a directory that the site names and that commands do not see, or
// see elsewhere.
type LeftOut struct {
	Path string
	Why  string // lower case, no full stop
}

// systemTrees are shown as the host has them, read-only.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"}

// libraryTrees stay executable under a pinned grant: shared libraries and the
// loader are mapped from them. On systems that keep libraries in /usr/lib64
// alone, /usr/lib holds programs.
var libraryTrees = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/lib64", "/nix/store"}

// etcFiles are copied, etcTrees shown: what programs need to run, nothing that
// tells of the machine's users or steers a program beyond its defaults.
var (
	etcFiles = []string{"ld.so.cache", "ld.so.conf", "localtime", "timezone", "os-release", "debian_version", "mime.types",
		"magic", "protocols", "services", "rpc", "ethertypes", "shells", "inputrc", "locale.alias", "manpath.config", "lsb-release"}
	etcTrees = []string{"alternatives", "ld.so.conf.d", "ssl/certs", "ca-certificates", "pki/tls/certs", "terminfo", "fonts", "perl",
		"python3", "python3.11", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "chromium.d", "maven"}
)

// homeTools are toolchains and package stores in the caller's home, shown
// read-only where they exist: programs and libraries, never configuration.
var homeTools = []string{"go/bin", "go/pkg/mod", ".cargo/bin", ".cargo/registry", ".cargo/git", ".rustup", ".nvm/versions", ".pyenv",
	".rbenv", ".volta", ".bun/bin", ".deno/bin", ".local/bin", ".local/lib", ".local/pipx", ".local/share/pnpm",
	".local/share/fnm", ".local/share/mise", ".sdkman/candidates"}

// homeCaches persist per caller and project, writable under ExecAny only.
var homeCaches = []string{".cache", ".npm", ".m2", ".gradle", ".yarn"}

// pathInHome go before the system's directories in PATH.
var pathInHome = []string{".local/bin", ".cargo/bin", "go/bin", ".pyenv/shims", ".pyenv/bin", ".volta/bin", ".bun/bin", ".deno/bin", ".rbenv/shims"}

var pathOfSystem = []string{"/usr/local/go/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// scratch are the directories for temporary files, each a file system of the
// session.
var scratch = []string{"/tmp", "/var/tmp"}

// homeOf returns HOME inside: the caller's own, but for homes that lie where
// the new root has something else.
func homeOf(c Caller) string {
	home := filepath.Clean(c.Home)
	if !filepath.IsAbs(home) || home == "/" || strings.ContainsAny(home, ":\n") {
		return "/home/user"
	}
	if slices.ContainsFunc(ownTops, func(top string) bool { return within(home, top) }) {
		return "/home/user"
	}
	return home
}

// ownTops are the directories that the new root has of its own.
var ownTops = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/etc", "/dev", "/proc",
	"/sys", "/run", "/tmp", "/var/tmp", "/.pinfold"}

// within reports whether path is dir or lies beneath it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// roots are directories of the host that the site shows besides.
type roots struct{ readable, writable []string }

func (r roots) equal(o roots) bool {
	return slices.Equal(r.readable, o.readable) && slices.Equal(r.writable, o.writable)
}

// existing leaves the directories that the caller can reach and that do not
// stand in the way of anything: what the new root has of its own, or a writable
// one above the project or the home, which would make those writable too.
func (r roots) existing(home, project string) (roots, []LeftOut) {
	var left []LeftOut
	keep := func(list []string, writable bool) []string {
		var kept []string
		for _, dir := range list {
			real, why := followRoot(dir, writable, home, project)
			if why == "" {
				kept = append(kept, real)
				if real != dir {
					why = "leads through a symbolic link: commands see it as " + real
				}
			}
			if why != "" {
				left = append(left, LeftOut{dir, why})
			}
		}
		return kept
	}
	kept := roots{readable: keep(r.readable, false)}
	kept.writable = keep(r.writable, true)
	return kept, left
}

// followRoot follows the directory, or says why commands cannot see it.
func followRoot(dir string, writable bool, home, project string) (real, why string) {
	real, err := filepath.EvalSymlinks(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "does not exist"
	case err != nil:
		return "", "cannot be reached: " + err.Error()
	case !isDir(real):
		return "", "is no directory"
	case slices.ContainsFunc(ownTops, func(top string) bool { return within(real, top) || within(top, real) }):
		return "", "lies where commands have something of their own"
	case project != "" && within(real, project):
		return "", "lies in the project"
	case writable && home != "" && within(home, real):
		return "", "holds the home, which would be writable"
	case writable && project != "" && within(project, real):
		return "", "holds the project, which would be writable"
	}
	return real, ""
}

// A tool is a toolchain in the caller's home, and where it lies with links
// followed.
type tool struct{ name, source string }

// viewOf finds what there is of the toolchains and the site's roots, with the
// caller's rights.
func viewOf(c Caller, project string, site roots) (View, []tool, error) {
	v := View{Home: homeOf(c)}
	var tools []tool
	err := c.Do(func() error {
		site, v.LeftOut = site.existing(v.Home, project)
		for _, t := range homeTools {
			source, err := filepath.EvalSymlinks(filepath.Join(c.Home, t))
			if err == nil && isDir(source) && !within(project, source) && !within(source, project) {
				tools = append(tools, tool{t, source})
			}
		}
		if isDir(filepath.Join(c.Home, ".nvm/versions")) {
			nodes, _ := filepath.Glob(filepath.Join(c.Home, ".nvm/versions/node/*/bin"))
			slices.Sort(nodes)
			if len(nodes) > 0 {
				v.Path = append(v.Path, filepath.Join(v.Home, strings.TrimPrefix(nodes[len(nodes)-1], c.Home)))
			}
		}
		return nil
	})
	if err != nil {
		return View{}, nil, err
	}
	for _, p := range pathInHome {
		if slices.ContainsFunc(tools, func(t tool) bool { return within(p, t.name) }) {
			v.Path = append(v.Path, filepath.Join(v.Home, p))
		}
	}
	for _, p := range pathOfSystem {
		if isDir(p) {
			v.Path = append(v.Path, p)
		}
	}
	for _, t := range systemTrees {
		if isDir(t) {
			v.Readable = append(v.Readable, t)
		}
	}
	for _, t := range tools {
		v.Readable = append(v.Readable, filepath.Join(v.Home, t.name))
	}
	for _, t := range homeCaches {
		v.Readable = append(v.Readable, filepath.Join(v.Home, t))
	}
	for _, s := range scratch {
		if !within(project, s) {
			v.Writable = append(v.Writable, s)
		}
	}
	v.Readable = append(v.Readable, site.readable...)
	v.Readable = append(v.Readable, site.writable...)
	v.Writable = append(v.Writable, site.writable...)
	v.site = site
	return v, tools, nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// A place is a directory of the new root that the keeper hands a descriptor of,
// for Landlock rules.
type place struct {
	path string
	kind placeKind
}

type placeKind uint8

const (
	placeRoot    placeKind = iota // the new root, to find programs beneath
	placeCanary                   // may be read, so that only the right to execute is missing
	placeRead                     // programs, libraries, configuration
	placeUnder                    // a tree mounted in one of these
	placeTool                     // a toolchain in the home
	placeCache                    // written under ExecAny
	placeDev                      // device nodes
	placeScratch                  // written by every command
	placeHome                     // the home itself
	placeShared                   // a directory of the site's that every command may write
	placeProject
)

// A base is the plan of a session's root: what the keeper does, and the places
// that it hands back.
type base struct {
	ops    []op
	places []place
	view   View
	made   map[string]bool // directories that exist in the new root
	mounts []string        // beneath these nothing can be made
}

func (b *base) do(o op) { b.ops = append(b.ops, o) }

// dir makes a directory with its parents, unless a mounted tree has them.
func (b *base) dir(path string) {
	if b.made[path] || path == "/" {
		return
	}
	if b.under(path) {
		return
	}
	b.dir(filepath.Dir(path))
	b.do(op{kind: opDir, a: path, arg: 0o755})
	b.made[path] = true
}

// under reports whether the path lies in something that is mounted.
func (b *base) under(path string) bool {
	return slices.ContainsFunc(b.mounts, func(m string) bool { return within(path, m) })
}

func (b *base) bind(source, path string, attr uint64, kind placeKind) {
	b.dir(path)
	b.do(op{kind: opBind, a: path, b: source, set: attr | attrLocked})
	b.mounts = append(b.mounts, path)
	b.places = append(b.places, place{path, kind})
}

func (b *base) tmpfs(path, options string, attr uint64) {
	b.dir(path)
	b.do(op{kind: opTmpfs, a: path, b: options, set: attr | attrLocked})
}

// newBase plans the root of a session. Everything is read-only and noexec but
// what the comments say; a command's own plan loosens that in its own copy.
func newBase(c Caller, project, cache string, links gitLinks, site roots, shell shell) (*base, error) {
	view, tools, err := viewOf(c, project, site)
	if err != nil {
		return nil, err
	}
	b := &base{view: view, made: map[string]bool{"/proc": true}}
	b.places = append(b.places, place{"/", placeRoot})
	b.system(shell)
	if err := b.etc(c, project); err != nil {
		return nil, err
	}
	b.do(op{kind: opDir, a: "/dev", arg: 0o755})
	b.do(op{kind: opDev, a: "/dev"})
	b.do(op{kind: opAttr, a: "/dev", set: attrRO | attrNoexec | unix.MOUNT_ATTR_NOSUID})
	b.mounts = append(b.mounts, "/dev")
	b.places = append(b.places, place{"/dev", placeDev})
	b.canaries()
	b.dir("/run")
	for _, s := range scratch {
		b.tmpfs(s, "mode=1777,size=1g,nr_inodes=200k", attrNoexec)
		b.places = append(b.places, place{s, placeScratch})
	}
	b.home(project, cache, tools)
	for _, dir := range view.site.readable {
		b.bind(dir, dir, attrRO|attrNoexec, placeRead)
	}
	for _, dir := range view.site.writable {
		b.bind(dir, dir, attrNoexec, placeShared)
	}
	links.show(b)
	b.pinParents(project)
	b.bind(project, project, attrRO|attrNoexec, placeProject)
	// last: nothing more is made in them
	b.do(op{kind: opAttr, a: b.view.Home, set: attrRO})
	b.do(op{kind: opAttr, a: "/", set: attrRO})
	return b, nil
}

// pinParents keeps the way to a project below a scratch directory: its first
// part becomes a read-only mount, which nobody can rename or remove.
func (b *base) pinParents(project string) {
	for _, s := range scratch {
		if !within(project, s) {
			continue
		}
		b.dir(filepath.Dir(project))
		first, _, more := strings.Cut(strings.TrimPrefix(project, s+"/"), "/")
		if more {
			b.dir(project)
			b.do(op{kind: opRebind, a: filepath.Join(s, first), set: attrRO})
		}
	}
}

// emptyFile and emptyDir lie over what is to be read as empty.
const (
	emptyFile = "/.pinfold/empty"
	emptyDir  = "/.pinfold/empty.d"
)

// canaries are what the probe tries, where only Landlock stands in the way. The
// mount is read-only, so that no command can make them harder to reach for the
// next; what is opened for writing is a device node, which a read-only mount
// does not stop.
func (b *base) canaries() {
	b.tmpfs("/.pinfold", "mode=0755,size=64k", 0)
	b.do(op{kind: opFile, a: "/.pinfold/read", b: "canary\n", arg: 0o644})
	b.do(op{kind: opFile, a: "/.pinfold/write", arg: 0o644})
	b.do(op{kind: opFile, a: emptyFile, arg: 0o444})
	b.do(op{kind: opDir, a: emptyDir, arg: 0o555})
	b.do(op{kind: opFile, a: "/.pinfold/exec", b: "no program at all\n", arg: 0o755})
	b.do(op{kind: opRebind, a: "/.pinfold/write", b: "/dev/zero", set: attrRO})
	b.do(op{kind: opAttr, a: "/.pinfold", set: attrRO})
	b.mounts = append(b.mounts, "/.pinfold")
	b.places = append(b.places, place{"/.pinfold/exec", placeCanary})
}

func (b *base) system(shell shell) {
	for _, t := range systemTrees {
		st, err := os.Lstat(t)
		switch {
		case err != nil:
		case st.Mode()&os.ModeSymlink != 0: // /bin → usr/bin
			target, err := os.Readlink(t)
			if err == nil {
				b.do(op{kind: opLink, a: t, b: target})
				b.mounts = append(b.mounts, t)
			}
		case st.IsDir():
			b.bind(t, t, attrRO|attrNoexec, placeRead)
		}
	}
	// what is mapped executable under every grant: libraries and bash
	for _, t := range libraryTrees {
		if real, err := filepath.EvalSymlinks(t); err == nil && real == t {
			b.do(op{kind: opRebind, a: t, clear: attrNoexec})
		}
	}
	b.do(op{kind: opRebind, a: shell.path, clear: attrNoexec})
	if !slices.ContainsFunc(libraryTrees, func(t string) bool { return within(shell.loader, t) }) && shell.loader != "" {
		b.do(op{kind: opRebind, a: shell.loader, clear: attrNoexec})
	}
}

func (b *base) etc(c Caller, project string) error {
	b.dir("/etc")
	b.places = append(b.places, place{"/etc", placeRead})
	file := func(name, content string) {
		b.dir(filepath.Dir("/etc/" + name))
		b.do(op{kind: opFile, a: "/etc/" + name, b: content, arg: 0o644})
	}
	var group strings.Builder
	for _, g := range slices.Concat([]uint32{c.GID}, c.Groups) {
		if g != 0 {
			fmt.Fprintf(&group, "g%d:x:%d:\n", g, g)
		}
	}
	passwd := "root:x:0:0:root:/root:/bin/bash\n"
	if c.UID != 0 {
		passwd += fmt.Sprintf("%s:x:%d:%d::%s:/bin/bash\n", userName(c), c.UID, c.GID, b.view.Home)
	}
	file("passwd", passwd+"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	file("group", "root:x:0:\n"+group.String()+"nogroup:x:65534:\n")
	file("hosts", "127.0.0.1 localhost pinfold\n::1 localhost\n")
	file("hostname", "pinfold\n")
	file("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
	file("resolv.conf", "")
	file("machine-id", "")
	git := gitUserOf(c, project)
	file("gitconfig", git.config(project))
	if git.excludes != "" {
		file(filepath.Base(gitExcludes), git.excludes)
	}
	for _, name := range etcFiles {
		// the real file, where /etc has a link to it
		content, err := os.ReadFile("/etc/" + name)
		if err == nil && len(content) < 1<<20 {
			file(name, string(content))
		}
	}
	for _, name := range etcTrees {
		if source, err := filepath.EvalSymlinks("/etc/" + name); err == nil && isDir(source) {
			b.bind(source, "/etc/"+name, attrRO|attrNoexec, placeUnder)
		}
	}
	return nil
}

func userName(c Caller) string {
	if c.Name == "" || strings.ContainsAny(c.Name, ":\n/ ") {
		return "user"
	}
	return c.Name
}

// home is a directory without configuration: toolchains and caches only.
func (b *base) home(project, cache string, tools []tool) {
	home := b.view.Home
	b.tmpfs(home, "mode=0755,size=16m", attrNoexec)
	b.places = append(b.places, place{home, placeHome})
	for _, t := range tools {
		b.bind(t.source, filepath.Join(home, t.name), attrRO|attrNoexec, placeTool)
	}
	for _, t := range homeCaches {
		if path := filepath.Join(home, t); !within(project, path) {
			b.bind(filepath.Join(cache, t), path, attrRO|attrNoexec, placeCache)
		}
	}
}

// A shell is bash on this machine.
type shell struct {
	path   string // symlinks followed
	loader string // the program interpreter of its ELF header, symlinks followed; "" when it is static
}

func findShell() (shell, error) {
	path, err := filepath.EvalSymlinks("/bin/bash")
	if err != nil {
		path, err = filepath.EvalSymlinks("/usr/bin/bash")
	}
	if err != nil {
		return shell{}, &Unavailable{Layer: "shell", Err: err, Fix: "install bash as /bin/bash"}
	}
	f, err := elf.Open(path)
	if err != nil {
		return shell{}, &Unavailable{Layer: "shell", Err: err}
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return shell{}, &Unavailable{Layer: "shell", Err: err}
		}
		loader, err := filepath.EvalSymlinks(string(bytes.TrimRight(name, "\x00")))
		if err != nil {
			return shell{}, &Unavailable{Layer: "shell", Err: err}
		}
		return shell{path, loader}, nil
	}
	return shell{path: path}, nil
}

// environment is what a command starts with: an allow list, nothing of the
// daemon's or the caller's own.
func environment(c Caller, v View) []string {
	tmp := "/tmp"
	if len(v.Writable) > 0 {
		tmp = v.Writable[0]
	}
	name := userName(c)
	if c.UID == 0 {
		name = "root"
	}
	env := []string{
		"HOME=" + v.Home, "USER=" + name, "LOGNAME=" + name, "SHELL=/bin/bash",
		"PATH=" + strings.Join(v.Path, ":"), "TMPDIR=" + tmp, "LANG=C.UTF-8", "TERM=dumb",
		// no terminal: pagers and prompts would wait for nobody
		"PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "DEBIAN_FRONTEND=noninteractive",
		// a status that may not write the index must not try to
		"GIT_OPTIONAL_LOCKS=0",
		// there is no network: say so at once
		"GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-modcacherw", "CARGO_NET_OFFLINE=true",
		"npm_config_offline=true", "npm_config_update_notifier=false", "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",
	}
	if !slices.Contains(v.Readable, filepath.Join(v.Home, "go/pkg/mod")) {
		env = append(env, "GOMODCACHE="+filepath.Join(v.Home, ".cache/go-mod"))
	}
	return env
}

// withEnv returns the environment with more, each in the place of the variables of
// its name before it.
func withEnv(env, more []string) []string {
	if len(more) == 0 {
		return env
	}
	all := slices.Concat(env, more)
	last := map[string]int{}
	for i, e := range all {
		name, _, _ := strings.Cut(e, "=")
		last[name] = i
	}
	kept := all[:0]
	for i, e := range all {
		if name, _, _ := strings.Cut(e, "="); last[name] == i {
			kept = append(kept, e)
		}
	}
	return kept
}
