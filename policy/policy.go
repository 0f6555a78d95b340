package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// The time limits of commands.
const (
	DefaultTimeout = 10 * time.Second  // of a command that no fact calls slow
	BuildTimeout   = 120 * time.Second // of builds and tests
	MaxTimeout     = time.Hour         // the most that a request may ask for
)

// A Policy is a set of facts and rules. It is immutable and safe for
// concurrent use.
type Policy struct {
	facts     map[string]*fact
	variables variableFacts
	rules     ruleSet
	fallback  *rule // for what no rule names; nil when a profile has its own
	stranger  *rule // for a command that no fact describes: it never allows
	defaults  defaults
	unread    *rule // for what could not be judged to the end
	places    places
	readable  []string
	writable  []string
	hash      string
	projects  []projectPolicy // those that have one of their own
}

// setRules compiles the rules that the policy goes by.
func (p *Policy) setRules(files []*ruleFile) (err error) {
	if p.rules, err = compileRules(files); err != nil {
		return err
	}
	p.fallback, p.unread = p.rules.byID(ruleDefault), p.rules.byID(ruleUnread)
	if p.fallback != nil {
		p.stranger = p.fallback
	}
	return nil
}

// Readable returns the further roots that the site shows to every command.
func (p *Policy) Readable() []string { return slices.Clone(p.readable) }

// Writable returns the further roots that the site lets every command write.
func (p *Policy) Writable() []string { return slices.Clone(p.writable) }

// Hash returns the SHA-256 of the effective policy in hexadecimal: of its
// rules and facts as they were read.
func (p *Policy) Hash() string { return p.hash }

func hashFiles(files fs.FS, sources []Source) (string, error) {
	names, err := fs.Glob(files, "facts/*.toml")
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	var texts []string
	for _, s := range sources {
		texts = append(texts, s.Text)
	}
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		texts = append(texts, name, string(b))
	}
	if slices.ContainsFunc(sources, func(s Source) bool { return strings.Contains(s.Text, "profile") }) {
		texts = append(texts, workspaceText)
	}
	return hashText(texts...), nil
}

func hashText(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d %s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
