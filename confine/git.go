package confine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Git inside reads one configuration besides the repository's: /etc/gitconfig,
// which is made for the session. It holds what git needs to know of the caller,
// from his own configuration, and nothing that names a program or a place.

// gitSettings are those of the caller's own configuration that hold inside.
var gitSettings = []string{"user.name", "user.email", "core.autocrlf", "init.defaultbranch"}

const (
	gitExcludesKey = "core.excludesfile" // only the content is shown
	gitExcludes    = "/etc/gitignore"    // there
	gitExcludesMax = 64 << 10            // bytes; a longer file counts for nothing
	gitValueMax    = 1 << 10             // bytes; a longer value counts for nothing
	gitDeadline    = time.Second         // for reading all of it
)

// A gitUser is what git is told of the caller.
type gitUser struct {
	settings [][2]string // keys of gitSettings, in the order in which git says them
	excludes string      // what core.excludesFile holds
}

// gitUserOf asks git itself, so that includes and conditions count as they do
// outside. Git runs as the caller, in the project: it reads configuration there
// and runs nothing. What the repository says of itself is left out, since the
// command reads it where it lies, and since a repository is not to choose a file
// of the caller's to be shown. A git that fails, or takes too long, says nothing.
func gitUserOf(c Caller, project string) gitUser {
	var u gitUser
	excludes := filepath.Join(c.Home, ".config/git/ignore")
	if gitConfigured(c) {
		for _, kv := range readGitSettings(c, project) {
			if kv[0] == gitExcludesKey {
				excludes = kv[1]
			} else {
				u.settings = append(u.settings, kv)
			}
		}
	}
	if rest, ok := strings.CutPrefix(excludes, "~/"); ok {
		excludes = filepath.Join(c.Home, rest)
	}
	u.excludes = readGitExcludes(c, excludes)
	return u
}

// gitConfigured spares starting git where nobody has configured it.
func gitConfigured(c Caller) (found bool) {
	c.Do(func() error {
		for _, name := range []string{"/etc/gitconfig", filepath.Join(c.Home, ".gitconfig"), filepath.Join(c.Home, ".config/git/config")} {
			_, err := os.Stat(name)
			found = found || err == nil
		}
		return nil
	})
	return found
}

func readGitSettings(c Caller, project string) [][2]string {
	ctx, cancel := context.WithTimeout(context.Background(), gitDeadline)
	defer cancel()
	keys := strings.Join(append(slices.Clone(gitSettings), gitExcludesKey), "|")
	cmd := exec.CommandContext(ctx, "/usr/bin/git", "config", "--show-scope", "--null", "--includes", "--get-regexp",
		"^("+strings.ReplaceAll(keys, ".", `\.`)+")$")
	cmd.Dir, cmd.WaitDelay = project, gitDeadline
	cmd.Env = []string{"HOME=" + c.Home, "PATH=/usr/bin:/bin", "LC_ALL=C", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(project)}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}}
	}
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return parseGitSettings(string(out))
}

// parseGitSettings reads what git config prints: scope NUL key LF value NUL, or
// without LF for a key that stands alone and means true.
func parseGitSettings(out string) (settings [][2]string) {
	fields := strings.Split(out, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		key, value, given := strings.Cut(fields[i+1], "\n")
		if !given {
			value = "true"
		}
		own := fields[i] == "global" || fields[i] == "system"
		if own && len(value) <= gitValueMax && (key == gitExcludesKey || slices.Contains(gitSettings, key)) {
			settings = append(settings, [2]string{key, value})
		}
	}
	return settings
}

// readGitExcludes reads as the caller, regular files only.
func readGitExcludes(c Caller, name string) (content string) {
	if !filepath.IsAbs(name) {
		return ""
	}
	c.Do(func() error {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(f, gitExcludesMax+1))
		if err == nil && len(text) <= gitExcludesMax {
			content = string(text)
		}
		return err
	})
	return content
}

// config is git's system configuration inside. A fresh mount has other device
// numbers, which git would take for changed files.
func (u gitUser) config(project string) string {
	var b strings.Builder
	// a directory that only looks like a repository is not taken for one
	fmt.Fprintf(&b, "[core]\n\tcheckStat = minimal\n[safe]\n\tdirectory = %s\n\tbareRepository = explicit\n", gitQuote(project))
	if u.excludes != "" {
		fmt.Fprintf(&b, "[core]\n\texcludesFile = %s\n", gitExcludes)
	}
	for _, kv := range u.settings {
		section, key, _ := strings.Cut(kv[0], ".")
		fmt.Fprintf(&b, "[%s]\n\t%s = %s\n", section, key, gitQuote(kv[1]))
	}
	return b.String()
}

// gitQuote writes a value as git-config(1) has it.
func gitQuote(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(value) + `"`
}
