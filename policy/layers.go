package policy

import (
	_ "embed" // for the built-in policies
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed default.toml
var defaultText string

//go:embed workspace.toml
var workspaceText string

// A Source is the text of a policy file, and the name to report it by.
type Source struct {
	Name string
	Text string
}

// A policyFile is the form of a policy in TOML.
type policyFile struct {
	Profile  string      `toml:"profile"`  // "default" or "workspace"
	Default  *preference `toml:"default"`  // for commands that no rule names
	Readable []string    `toml:"readable"` // further roots that the sandbox shows
	Writable []string    `toml:"writable"` // further roots that every command may write
	// Protected and Hidden are patterns of paths in a project, see [Paths].
	Protected []string    `toml:"protected"`
	Hidden    []string    `toml:"hidden"`
	Builtin   builtinFile `toml:"builtin"`
	Places    placesFile  `toml:"places"`
	Rule      []*ruleFile `toml:"rule"`
}

// A preference is a verdict, which may also be spelled as other tools do.
type preference Verdict

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *preference) UnmarshalText(text []byte) error {
	switch string(text) {
	case "always_allow":
		*p = preference(Allow)
		return nil
	case "always_ask":
		*p = preference(RequireApproval)
		return nil
	}
	if err := (*Verdict)(p).UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, always_allow or always_ask", err)
	}
	return nil
}

type builtinFile struct {
	Disable []string `toml:"disable"` // built-in rules that do not apply
}

// profiles are the built-in policies that a site may choose by name.
var profiles = map[string]string{"default": "", "workspace": workspaceText}

// Default returns the built-in policy. It fails only when the built-in files
// are wrong: each rule and each fact carries examples, which are decided here.
func Default() (*Policy, error) { return Load() }

// Load returns the built-in policy as the site's files change it, the first of
// them first. Each may choose a profile, switch off built-in rules by name, add
// rules, and name further roots. An error says which file, and where in it.
func Load(sites ...Source) (*Policy, error) {
	p, err := load(factFiles, Source{"default.toml", defaultText}, sites)
	if err != nil {
		return nil, locate(err, sites...)
	}
	return p, nil
}

func load(facts fs.FS, builtin Source, sites []Source) (*Policy, error) {
	base, err := readPolicyFile(builtin)
	if err != nil {
		return nil, err
	}
	p := &Policy{facts: map[string]*fact{}}
	var variables []variableFact
	if p.facts, variables, err = loadFacts(facts); err != nil {
		return nil, err
	}
	if p.variables, err = indexVariables(variables); err != nil {
		return nil, err
	}
	if p.places, err = compilePlaces(base); err != nil {
		return nil, fmt.Errorf("%s: %w", builtin.Name, err)
	}
	rules := base.Rule
	if err := p.setRules(rules); err != nil {
		return nil, fmt.Errorf("%s: %w", builtin.Name, err)
	}
	if err := errors.Join(p.checkRuleExamples(rules), errors.Join(p.checkFactExamples()...)); err != nil {
		return nil, err
	}
	for _, site := range sites {
		if rules, err = p.change(rules, site); err != nil {
			return nil, err
		}
	}
	if err := p.setRules(rules); err != nil {
		return nil, fmt.Errorf("%s: %w", names(append([]Source{builtin}, sites...)), err)
	}
	if p.hash, err = hashFiles(facts, append([]Source{builtin}, sites...)); err != nil {
		return nil, err
	}
	return p, p.checkRuleExamples(slices.DeleteFunc(rules, func(r *ruleFile) bool {
		return r.ID == ruleDefault || slices.Contains(base.Rule, r)
	}))
}

func names(sources []Source) string {
	var out []string
	for _, s := range sources {
		out = append(out, s.Name)
	}
	return strings.Join(out, ", ")
}

func readPolicyFile(s Source) (policyFile, error) {
	var file policyFile
	err := decodeStrict(s.Name, s.Text, &file)
	return file, err
}

// change applies a site's file to the rules and the policy.
func (p *Policy) change(rules []*ruleFile, site Source) ([]*ruleFile, error) {
	file, err := readPolicyFile(site)
	if err != nil {
		return nil, err
	}
	fail := func(key, format string, args ...any) error {
		return fmt.Errorf("%s: %s", at(site, key), fmt.Sprintf(format, args...))
	}
	if file.Profile != "" {
		text, ok := profiles[file.Profile]
		if !ok {
			return nil, fail(file.Profile, "unknown profile %q: want default or workspace", file.Profile)
		}
		if text != "" {
			if rules, err = p.change(rules, Source{file.Profile + ".toml", text}); err != nil {
				return nil, err
			}
		}
	}
	for _, id := range file.Builtin.Disable {
		i := slices.IndexFunc(rules, func(r *ruleFile) bool { return r.ID == id })
		if i < 0 || id == ruleUnread {
			return nil, fail(id, "builtin: no rule %q can be switched off", id)
		}
		rules = slices.Delete(slices.Clone(rules), i, i+1)
	}
	for _, root := range append(slices.Clone(file.Readable), file.Writable...) {
		if !strings.HasPrefix(root, "/") || root == "/" || climbs(root) {
			return nil, fail(root, "%q: want the absolute path of a directory", root)
		}
	}
	if file.Places.any() {
		return nil, fail("places", "places are built in: use readable and writable")
	}
	if err := p.addPatterns(site, file); err != nil {
		return nil, err
	}
	p.readable = append(p.readable, file.Readable...)
	p.writable = append(p.writable, file.Writable...)
	rules = append(slices.Clip(rules), file.Rule...)
	if file.Default != nil {
		rules = withDefault(rules, Verdict(*file.Default))
	}
	return rules, nil
}

// addPatterns adds what a file protects and hides to what is already.
func (p *Policy) addPatterns(source Source, file policyFile) error {
	for _, list := range []struct {
		key   string
		to    *Paths
		texts []string
	}{{"protected", &p.places.protected, file.Protected}, {"hidden", &p.places.hidden, file.Hidden}} {
		more, err := parsePaths(list.texts)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", at(source, wrongText(err, list.key)), list.key, err)
		}
		if len(list.texts) > 0 {
			*list.to = list.to.with(more)
		}
	}
	return nil
}

// wrongText returns the text that an error quotes, or another where it has none.
func wrongText(err error, other string) string {
	if m := quoted.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return other
}

// withDefault gives commands that no rule names another verdict. A command
// that no fact describes is still asked about.
func withDefault(rules []*ruleFile, v Verdict) []*ruleFile {
	out := slices.Clone(rules)
	for i, r := range out {
		if r.ID == ruleDefault {
			changed := *r
			changed.Verdict = v
			out[i] = &changed
		}
	}
	return out
}

// Tighten returns the policy with the rules of a project's own file, which can
// only deny or ask.
func (p *Policy) Tighten(project Source) (*Policy, error) {
	q, err := p.tighten(project)
	if err != nil {
		return nil, locate(err, project)
	}
	return q, nil
}

func (p *Policy) tighten(project Source) (*Policy, error) {
	file, err := readPolicyFile(project)
	if err != nil {
		return nil, err
	}
	loosens := func(key, what string) error {
		return fmt.Errorf("%s: a project's policy can only tighten: %s", at(project, key), what)
	}
	switch {
	case file.Profile != "":
		return nil, loosens("profile", "it chooses a profile")
	case file.Default != nil && Verdict(*file.Default) == Allow:
		return nil, loosens("default", "it allows by default")
	case len(file.Readable)+len(file.Writable) > 0:
		return nil, loosens("able", "it adds roots")
	case len(file.Builtin.Disable) > 0:
		return nil, loosens("disable", "it switches off rules")
	case file.Places.any():
		return nil, loosens("places", "it changes places")
	}
	for _, text := range slices.Concat(file.Protected, file.Hidden) {
		if strings.HasPrefix(text, "!") {
			return nil, loosens(text, fmt.Sprintf("%q takes a path out", text))
		}
	}
	for _, r := range file.Rule {
		if r.Verdict == Allow {
			return nil, loosens(r.ID, fmt.Sprintf("rule %q allows", r.ID))
		}
	}
	q := *p
	rules := append(p.rules.files(), file.Rule...)
	if file.Default != nil {
		rules = withDefault(rules, min(Verdict(*file.Default), p.fallbackVerdict()))
	}
	if err := q.addPatterns(project, file); err != nil {
		return nil, err
	}
	if err := q.setRules(rules); err != nil {
		return nil, fmt.Errorf("%s: %w", project.Name, err)
	}
	q.hash = hashText(p.hash, project.Text)
	return &q, q.checkRuleExamples(file.Rule)
}

func (p *Policy) fallbackVerdict() Verdict {
	if p.fallback == nil {
		return Allow
	}
	return p.fallback.Verdict
}

// at names the place in a source where a text stands first, by line and column.
func at(s Source, text string) string {
	for i, line := range strings.Split(s.Text, "\n") {
		if column := strings.Index(line, text); column >= 0 {
			return fmt.Sprintf("%s:%d:%d", s.Name, i+1, column+1)
		}
	}
	return s.Name
}
