package server

import (
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/hosts"
)

// registries knows which hosts the caller's package managers ask: as his own
// configuration outside the project has it, and where that says nothing, as the
// manager that is installed does. It is used on a thread of the caller's
// (confine.Caller.Do). Nothing but the addresses of registries is taken from
// there: no token, no user and no password.
type registries struct {
	home   string
	inside []string // places that commands write: what lies there says nothing
}

var _ policy.Registries = registries{}

func newRegistries(c confine.Caller, project string, writable []string) registries {
	return registries{c.Home, append([]string{project}, writable...)}
}

// maxConfig bounds a configuration file, in bytes; of a longer one the rest counts
// for nothing.
const maxConfig = 256 << 10

// A source is where a manager's registries are said, as URLs in the first group.
type source struct {
	file    string // "~/" is the home; with patterns, the last that is there
	pattern *regexp.Regexp
}

var (
	goProxy = regexp.MustCompile(`(?m)^\s*GOPROXY\s*=\s*(\S+)`)
	goSums  = regexp.MustCompile(`(?m)^\s*GOSUMDB\s*=\s*(\S+)`)
	npmMain = regexp.MustCompile(`(?m)^\s*registry\s*=\s*["']?(\S+?)["']?\s*$`)
	npmLine = regexp.MustCompile(`(?m)^\s*(?:@[\w.-]+:)?registry\s*=\s*["']?(\S+?)["']?\s*$`)
	pipLine = regexp.MustCompile(`(?m)^\s*(?:extra[-_])?index[-_]url\s*[=:]\s*(\S+)`)
	pipMain = regexp.MustCompile(`(?m)^\s*index[-_]url\s*[=:]\s*(\S+)`)
	cargo   = regexp.MustCompile(`(?m)^\s*(?:registry|index)\s*=\s*["'](\S+?)["']`)

	// in the programs themselves
	npmDefault = regexp.MustCompile(`define\('registry', \{\s*default: '([^']+)'|new Definition\('registry', \{\s*default: '([^']+)'`)
	pipDefault = regexp.MustCompile(`PackageIndex\(\s*"([^"]+)",\s*file_storage_domain="([^"]+)"`)
)

// configured are the caller's own sources for each manager: those that are there
// count together. defaults count when none of them says anything.
var (
	configured = map[string][]source{
		"npm":   {{"~/.npmrc", npmLine}, {"/etc/npmrc", npmLine}},
		"pip":   {{"~/.config/pip/pip.conf", pipLine}, {"~/.pip/pip.conf", pipLine}, {"/etc/pip.conf", pipLine}},
		"go":    {{"~/.config/go/env", goProxy}},
		"sum":   {{"~/.config/go/env", goSums}},
		"cargo": {{"~/.cargo/config.toml", cargo}, {"~/.cargo/config", cargo}},
	}
	defaults = map[string][]source{
		"npm": {{"/usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js", npmDefault},
			{"/usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js", npmDefault},
			{"/usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js", npmDefault},
			{"~/.nvm/versions/node/*/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js", npmDefault}},
		"pip": {{"/usr/lib/python3/dist-packages/pip/_internal/models/index.py", pipDefault},
			{"/usr/local/lib/python3*/*-packages/pip/_internal/models/index.py", pipDefault},
			{"~/.pyenv/versions/*/lib/python3*/site-packages/pip/_internal/models/index.py", pipDefault}},
		"go":  {{"/usr/local/go/go.env", goProxy}, {"/usr/lib/go/go.env", goProxy}, {"/usr/lib/go-*/go.env", goProxy}},
		"sum": {{"/usr/local/go/go.env", goSums}, {"/usr/lib/go/go.env", goSums}, {"/usr/lib/go-*/go.env", goSums}},
	}
)

// Hosts implements [policy.Registries].
func (r registries) Hosts(manager string) []string {
	said := r.said(manager)
	if manager == "go" {
		said = append(said, r.said("sum")...)
	}
	var out []string
	for _, text := range said {
		if e, ok := entryOf(text); ok && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// said returns what the sources say for a manager.
func (r registries) said(manager string) []string {
	if found := r.search(configured[manager]); len(found) > 0 {
		return found
	}
	for _, s := range defaults[manager] {
		if found := r.search([]source{s}); len(found) > 0 {
			return found
		}
	}
	return nil
}

func (r registries) search(sources []source) (found []string) {
	for _, s := range sources {
		for _, match := range s.pattern.FindAllStringSubmatch(r.read(s.file), 32) {
			for _, text := range match[1:] {
				found = append(found, strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '|' })...)
			}
		}
	}
	return found
}

// read returns the beginning of a file, "" when there is none, or none that only
// its owner's hand writes.
func (r registries) read(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if !filepath.IsAbs(r.home) {
			return ""
		}
		name = filepath.Join(r.home, rest)
	}
	if strings.Contains(name, "*") {
		list, _ := filepath.Glob(name)
		if len(list) == 0 {
			return ""
		}
		name = list[len(list)-1]
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	real, err := filepath.EvalSymlinks(name)
	st, statErr := f.Stat()
	if err != nil || statErr != nil || !st.Mode().IsRegular() ||
		slices.ContainsFunc(r.inside, func(dir string) bool { return real == dir || strings.HasPrefix(real, strings.TrimSuffix(dir, "/")+"/") }) {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxConfig))
	return string(b)
}

// entryOf returns the entry for the host of a registry that is said as a URL, or as
// a host alone as in GOSUMDB.
func entryOf(text string) (string, bool) {
	u, ok := plainURL(text)
	if !ok {
		name, _, _ := strings.Cut(text, "+") // a checksum database's key follows
		if !strings.Contains(name, ".") || strings.ContainsAny(text, ":/") {
			return "", false
		}
		u = &url.URL{Scheme: "https", Host: name}
	}
	name, port, err := hosts.ParseAuthority(u.Host, map[string]uint16{"https": 443, "http": 80}[u.Scheme])
	if err != nil {
		return "", false
	}
	e := hosts.Entry{Name: name}
	if port != 443 && port != 80 {
		e.Port = port
	}
	return e.String(), true
}

// plainURL reads the URL of a registry, and leaves user and password out.
func plainURL(text string) (*url.URL, bool) {
	u, err := url.Parse(strings.TrimPrefix(text, "sparse+"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, false
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}, true
}

// environment says to the managers inside, which see no configuration of the
// caller's, what it says of registries.
func (r registries) environment() (env []string) {
	for _, row := range []struct {
		manager, variable string
		pattern           *regexp.Regexp
	}{{"npm", "npm_config_registry", npmMain}, {"pip", "PIP_INDEX_URL", pipMain}, {"go", "GOPROXY", goProxy}} {
		var sources []source
		for _, s := range configured[row.manager] {
			sources = append(sources, source{s.file, row.pattern})
		}
		for _, text := range r.search(sources) {
			if u, ok := plainURL(text); ok {
				env = append(env, row.variable+"="+u.String())
				break
			}
		}
	}
	return env
}
