package confine

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A setting is one line of a git configuration: section.subsection.key in the
// spelling that git compares, section and key in small letters.
type setting struct{ name, value string }

// parseGitConfig reads a configuration as git-config(1) describes the syntax.
func parseGitConfig(data []byte) ([]setting, error) {
	var list []setting
	section := ""
	text := string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	for text != "" {
		text = strings.TrimLeft(text, " \t\r\n")
		switch {
		case text == "":
		case text[0] == '#' || text[0] == ';':
			_, text, _ = strings.Cut(text, "\n")
		case text[0] == '[':
			var err error
			if section, text, err = gitSection(text); err != nil {
				return nil, err
			}
		default:
			n := strings.IndexFunc(text, func(r rune) bool {
				return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			})
			if n < 0 {
				n = len(text)
			}
			if n == 0 || section == "" {
				return nil, fmt.Errorf("not git configuration: %.20q", text)
			}
			s := setting{name: section + "." + strings.ToLower(text[:n])}
			text = strings.TrimLeft(text[n:], " \t")
			if strings.HasPrefix(text, "=") {
				s.value, text = gitValue(text[1:])
			} else if text != "" && !strings.ContainsRune("\r\n#;", rune(text[0])) {
				return nil, fmt.Errorf("not git configuration: %.20q", text)
			}
			list = append(list, s)
		}
	}
	return list, nil
}

// gitSection reads "[section]" or "[section "sub"]".
func gitSection(text string) (section, rest string, err error) {
	bad := fmt.Errorf("not a section of git configuration: %.20q", text)
	end := strings.IndexAny(text, "]\" \t\n")
	if end < 0 || text[end] == '\n' {
		return "", "", bad
	}
	section = strings.ToLower(text[1:end])
	rest = strings.TrimLeft(text[end:], " \t")
	if strings.HasPrefix(rest, "]") {
		return section, rest[1:], nil
	}
	if !strings.HasPrefix(rest, "\"") {
		return "", "", bad
	}
	var sub strings.Builder
	for i := 1; i < len(rest) && rest[i] != '\n'; i++ {
		switch {
		case rest[i] == '\\' && i+1 < len(rest):
			i++
			sub.WriteByte(rest[i])
		case rest[i] != '"':
			sub.WriteByte(rest[i])
		case strings.HasPrefix(rest[i+1:], "]"):
			return section + "." + sub.String(), rest[i+2:], nil
		default:
			return "", "", bad
		}
	}
	return "", "", bad
}

// gitValue reads a value up to the end of its line.
func gitValue(text string) (value, rest string) {
	var b strings.Builder
	quoted, kept := false, 0
	text = strings.TrimLeft(text, " \t")
	i := 0
loop:
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			break loop
		case c == '\\' && i+1 < len(text):
			i++
			switch text[i] {
			case '\n':
				continue
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'b':
				b.WriteByte('\b')
			default:
				b.WriteByte(text[i])
			}
			kept = b.Len()
		case c == '"':
			quoted = !quoted
			kept = b.Len()
		case !quoted && (c == '#' || c == ';'):
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(text)
			}
			break loop
		default:
			b.WriteByte(c)
			if quoted || c != ' ' && c != '\t' && c != '\r' {
				kept = b.Len()
			}
		}
	}
	return b.String()[:kept], text[min(i, len(text)):]
}

// harmlessGit are the settings that a new repository may bring: they name no
// program, hook, include or other place. "*" stands for any subsection.
var harmlessGit = map[string]bool{
	"core.repositoryformatversion": true, "core.filemode": true, "core.bare": true, "core.logallrefupdates": true,
	"core.ignorecase": true, "core.precomposeunicode": true, "core.symlinks": true, "core.autocrlf": true, "core.eol": true,
	"core.sparsecheckout": true, "core.sparsecheckoutcone": true, "index.sparse": true,
	"extensions.objectformat": true, "extensions.refstorage": true, "extensions.worktreeconfig": true, "extensions.partialclone": true,
	"remote.*.url": true, "remote.*.fetch": true, "remote.*.promisor": true, "remote.*.partialclonefilter": true, "remote.*.tagopt": true,
	"branch.*.remote": true, "branch.*.merge": true, "branch.*.rebase": true, "branch.*.description": true,
	"user.name": true, "user.email": true, "init.defaultbranch": true, "submodule.*.url": true, "submodule.*.active": true, "submodule.active": true,
	"push.default": true, "pull.rebase": true, "gc.auto": true, "commit.gpgsign": true,
}

// isHarmless reports whether the setting can neither run a program nor lead git
// elsewhere. commit.gpgsign would run gpg: only "false" is harmless.
func (s setting) isHarmless() bool {
	name := s.name
	if first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.'); first != last {
		name = name[:first] + ".*" + name[last:]
	}
	switch {
	case !harmlessGit[name]:
		return false
	case name == "commit.gpgsign":
		return s.value == "false"
	case strings.HasSuffix(name, ".url"):
		return isPlainURL(s.value)
	}
	return true
}

// isPlainURL reports whether the URL is one that git fetches by itself: "ext::"
// and other helpers run programs, and what begins with "-" is an option.
func isPlainURL(url string) bool {
	if strings.HasPrefix(url, "-") || strings.Contains(url, "::") || strings.Contains(url, "://-") || strings.Contains(url, "@-") {
		return false
	}
	scheme, _, found := strings.Cut(url, "://")
	return !found || slices.Contains([]string{"https", "http", "ssh", "git", "file"}, scheme)
}

// steer finds what git's configuration points at inside the project, and takes
// it in when that has changed. The lock is held, the caller's ids are taken.
func (t *survey) steer() {
	steered := map[string]bool{}
	t.each(func(rel string, m mark) {
		if name := path.Base(rel); m.concern != steers || name != "config" && name != "config.worktree" || !m.mode.IsRegular() {
			return
		}
		data, err := t.readFile(rel)
		if err != nil {
			return
		}
		settings, err := parseGitConfig(data)
		if err != nil {
			return // git reads none of it either
		}
		for _, s := range settings {
			for _, to := range pointsAt(s, path.Dir(rel)) {
				steered[to] = true
			}
		}
	})
	same := len(steered) == len(t.steered)
	for rel := range steered {
		same = same && t.steered[rel]
	}
	if same {
		return
	}
	t.steered = steered
	before := t.all()
	for to := range steered {
		if d := t.directory(path.Dir(to)); d != nil {
			t.reenter(d, path.Base(to), before)
		}
	}
}

// reenter looks again at a name in a directory.
func (t *survey) reenter(d *directory, name string, before map[string]mark) {
	rel := d.rel()
	if child := d.children[name]; child != nil {
		t.drop(child, path.Join(rel, name))
		delete(d.children, name)
	}
	delete(d.marks, name)
	var st unix.Stat_t
	if t.stat(rel, name, &st) != nil {
		return
	}
	if child := t.enter(d, rel, name, typeOf(&st), before); child != nil {
		t.readBreadthFirst(child, before)
	}
}

// pointsAt returns the places in the project that the setting names: a
// directory of hooks, an include, and words of commands. base is the git
// directory.
func pointsAt(s setting, base string) []string {
	var places []string
	add := func(from, name string) {
		if name == "" || path.IsAbs(name) || strings.HasPrefix(name, "~") || strings.HasPrefix(name, "-") {
			return
		}
		if rel := path.Join(from, name); rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") {
			places = append(places, rel)
		}
	}
	section, _, _ := strings.Cut(s.name, ".")
	key := s.name[strings.LastIndexByte(s.name, '.')+1:]
	top := path.Dir(base) // commands run at the top of the work tree
	switch {
	case s.name == "core.hookspath":
		add(top, s.value)
	case (section == "include" || section == "includeif") && key == "path":
		add(base, s.value)
	case s.name == "core.fsmonitor", s.name == "core.sshcommand", s.name == "core.editor", s.name == "core.pager", s.name == "core.attributesfile",
		s.name == "core.excludesfile", s.name == "core.gitproxy", section == "diff" && (key == "command" || key == "textconv" || key == "external"),
		section == "merge" && key == "driver", section == "filter", section == "alias", section == "pager", section == "difftool", section == "mergetool",
		section == "credential", section == "gpg", section == "trailer", section == "sequence":
		for word := range strings.FieldsSeq(s.value) {
			word = strings.Trim(word, `"'!;`)
			if strings.Contains(word, "/") || strings.Contains(word, ".") {
				add(top, word)
			}
		}
	}
	return places
}

// errUnreadIndex is an index of a kind that is not read: nobody can tell what it
// holds.
var errUnreadIndex = errors.New("an index that is not read")

// indexEntries returns the object names, in hexadecimal, of the paths in a git
// index (gitformat-index(5), versions 2 to 4) for which wanted reports true.
func indexEntries(data []byte, wanted func(rel string) bool) (map[string]string, error) {
	if len(data) < 12+20 || string(data[:4]) != "DIRC" {
		return nil, errUnreadIndex
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return nil, errUnreadIndex
	}
	found := map[string]string{}
	previous := ""
	at := 12
	for range count {
		begin := at
		if at+62 > len(data) {
			return nil, errUnreadIndex
		}
		object, flags := data[at+40:at+60], binary.BigEndian.Uint16(data[at+60:])
		at += 62
		if flags&0x4000 != 0 { // extended, version 3
			at += 2
		}
		name := ""
		if version == 4 {
			strip, n := offsetVarint(data[min(at, len(data)):])
			at += n
			end := bytes.IndexByte(data[min(at, len(data)):], 0)
			if n == 0 || end < 0 || strip > len(previous) {
				return nil, errUnreadIndex
			}
			name = previous[:len(previous)-strip] + string(data[at:at+end])
			at += end + 1
		} else {
			end := bytes.IndexByte(data[min(at, len(data)):], 0)
			if end < 0 {
				return nil, errUnreadIndex
			}
			name = string(data[at : at+end])
			at = begin + (at+end-begin+8)/8*8 // one to eight NULs
		}
		previous = name
		if wanted(name) {
			found[name] = fmt.Sprintf("%x", object)
		}
	}
	if bytes.Contains(data[min(at, len(data)):], []byte("link")) { // a split index: the rest lies elsewhere
		return nil, errUnreadIndex
	}
	return found, nil
}

// offsetVarint reads the number that version 4 puts before a name, and how many
// bytes it takes; none when there is none.
func offsetVarint(data []byte) (value, n int) {
	for i, c := range data {
		if i > 4 {
			return 0, 0
		}
		if i > 0 {
			value++
		}
		value = value<<7 | int(c&0x7f)
		if c&0x80 == 0 {
			return value, i + 1
		}
	}
	return 0, 0
}

// blobName returns the name that git gives content (SHA-1 repositories).
func blobName(content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return fmt.Sprintf("%x", h.Sum(nil))
}
