package policy

import (
	"crypto/sha256"
	_ "embed" // for default.toml
	"encoding/hex"
	"fmt"
	"io/fs"
	"sort"
	"time"
)

// The time limits of commands.
const (
	DefaultTimeout = 10 * time.Second  // of a command that no fact calls slow
	BuildTimeout   = 120 * time.Second // of builds and tests
	MaxTimeout     = time.Hour         // the most that a request may ask for
)

//go:embed default.toml
var defaultText []byte

// A Policy is a set of facts and rules. It is immutable and safe for
// concurrent use.
type Policy struct {
	facts     map[string]*fact
	variables variableFacts
	rules     ruleSet
	fallback  *rule // the default rule
	unread    *rule // for what could not be judged to the end
	places    places
	hash      string
}

// A policyFile is the form of a policy in TOML.
type policyFile struct {
	Places placesFile  `toml:"places"`
	Rule   []*ruleFile `toml:"rule"`
}

// Default returns the built-in policy. It fails only when the built-in files
// are wrong: each rule and each fact carries examples, which are decided here.
func Default() (*Policy, error) { return load(factFiles, "default.toml", string(defaultText)) }

// load builds a policy out of fact files and the text of its rules.
func load(facts fs.FS, name, text string) (*Policy, error) {
	var file policyFile
	if err := decodeStrict(name, text, &file); err != nil {
		return nil, err
	}
	p := &Policy{}
	var variables []variableFact
	var err error
	if p.facts, variables, err = loadFacts(facts); err != nil {
		return nil, err
	}
	if p.variables, err = indexVariables(variables); err != nil {
		return nil, err
	}
	if p.rules, err = compileRules(file.Rule); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.fallback, p.unread = p.rules.byID(ruleDefault), p.rules.byID(ruleUnread)
	if p.places, err = compilePlaces(file.Places); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if p.hash, err = hashFiles(facts, text); err != nil {
		return nil, err
	}
	if err := p.checkExamples(); err != nil {
		return nil, err
	}
	return p, nil
}

// Hash returns the SHA-256 of the effective policy in hexadecimal: of its
// rules and facts as they were read.
func (p *Policy) Hash() string { return p.hash }

func hashFiles(files fs.FS, text string) (string, error) {
	names, err := fs.Glob(files, "facts/*.toml")
	if err != nil {
		return "", err
	}
	sort.Strings(names)
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%s", len(text), text)
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
