package policy

import (
	_ "embed" // for the built-in policies
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/shparse"
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
	choices
	Readable []string `toml:"readable"` // further roots that the sandbox shows
	Writable []string `toml:"writable"` // further roots that every command may write
	// Protected and Hidden are patterns of paths in a project, see [Paths].
	Protected []string      `toml:"protected"`
	Hidden    []string      `toml:"hidden"`
	Places    placesFile    `toml:"places"`
	Project   []projectFile `toml:"project"` // what holds in some projects alone
}

// choices are what a file says about commands.
type choices struct {
	Profile  string                `toml:"profile"`  // "default" or "workspace"
	Default  *preference           `toml:"default"`  // for commands that no rule names
	Groups   map[string]preference `toml:"groups"`   // the same for groups of commands
	Commands map[string]preference `toml:"commands"` // the same for commands: "touch", "git push"
	Builtin  builtinFile           `toml:"builtin"`
	Rule     []*ruleFile           `toml:"rule"`
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
	files := make([]policyFile, len(sites))
	for i, site := range sites {
		if files[i], err = readPolicyFile(site); err != nil {
			return nil, err
		}
		if rules, err = p.change(rules, site, files[i]); err != nil {
			return nil, err
		}
	}
	if err := p.setRules(rules); err != nil {
		return nil, fmt.Errorf("%s: %w", names(append([]Source{builtin}, sites...)), err)
	}
	if p.hash, err = hashFiles(facts, append([]Source{builtin}, sites...)); err != nil {
		return nil, err
	}
	added := slices.DeleteFunc(slices.Clone(rules), func(r *ruleFile) bool { return slices.Contains(base.Rule, r) })
	if err := errors.Join(p.checkReplaces(added), p.checkRuleExamples(added)); err != nil {
		return nil, err
	}
	if err := p.checkReached(added, sites); err != nil {
		return nil, err
	}
	for i, site := range sites {
		for _, project := range files[i].Project {
			if err := p.addProject(rules, site, project); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// checkReplaces checks that what rules replace is there to be replaced.
func (p *Policy) checkReplaces(rules []*ruleFile) error {
	for _, r := range rules {
		for _, name := range r.Replaces {
			if wrong := p.cannotReplace(name); wrong != "" {
				return fmt.Errorf("rule %q: replaces: %q: %s", r.ID, name, wrong)
			}
		}
	}
	return nil
}

// cannotReplace says why what is named cannot be replaced, "" when it can.
func (p *Policy) cannotReplace(name string) string {
	command, isFact := strings.CutPrefix(name, factAsk)
	if !isFact {
		switch r := p.rules.byID(name); {
		case r == nil || builtinRules()[name] == "":
			return "is no built-in rule that is in force; what is asked about a command as a whole is named \"" + factAsk + "git push\""
		case r.Verdict != RequireApproval || len(r.Command) == 0:
			return "is no rule that asks about commands: switch it off with [builtin] disable"
		}
		return ""
	}
	words := strings.Fields(command)
	if len(words) == 0 || p.facts[words[0]] == nil {
		return "nothing is known of this command"
	}
	f := p.facts[words[0]]
	for _, word := range words[1:] {
		if f = f.Sub[word]; f == nil {
			return "nothing is known of this subcommand"
		}
	}
	if f.path != command {
		return "is described as \"" + factAsk + f.path + "\""
	}
	if f.Ask == "" && !slices.ContainsFunc(f.When, func(w when) bool { return w.Ask != "" }) {
		return "is not asked about as a whole"
	}
	return ""
}

// checkReached checks that each rule of the site's files that allows or asks
// has an example that gets its verdict: otherwise a stricter rule stands before
// it always, and it does nothing.
func (p *Policy) checkReached(rules []*ruleFile, sites []Source) error {
	var wrong []error
	for _, r := range rules {
		own := slices.ContainsFunc(sites, func(s Source) bool { return idOffset(s.Text, r.ID) >= 0 })
		if r.Verdict == Deny || !own {
			continue
		}
		var stricter string
		reached := slices.ContainsFunc(r.Match, func(text string) bool {
			found, by := p.verdictOf(text)
			stricter = fmt.Sprintf("%q %s by the rule %s", text, verdictWords(found), by)
			return found == r.Verdict || by == r.ID
		})
		if !reached {
			wrong = append(wrong, fmt.Errorf("rule %q: never decides, since stricter ones do: %s", r.ID, stricter))
		}
	}
	return errors.Join(wrong...)
}

// verdictOf decides an example, and names a rule that made the verdict.
func (p *Policy) verdictOf(text string) (Verdict, string) {
	s, err := shparse.Parse(text)
	if err != nil {
		return Deny, "of the shell"
	}
	d := p.Decide(s, exampleEnv)
	if len(d.Rules) == 0 {
		return d.Verdict, ruleDefault
	}
	return d.Verdict, d.Rules[0]
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
func (p *Policy) change(rules []*ruleFile, site Source, file policyFile) (_ []*ruleFile, err error) {
	fail := func(key, format string, args ...any) error {
		return fmt.Errorf("%s: %s", at(site, key), fmt.Sprintf(format, args...))
	}
	if file.Profile != "" {
		text, ok := profiles[file.Profile]
		if !ok {
			return nil, fail(file.Profile, "unknown profile %q: want default or workspace", file.Profile)
		}
		if text != "" {
			source := Source{file.Profile + ".toml", text}
			profile, err := readPolicyFile(source)
			if err != nil {
				return nil, err
			}
			if rules, err = p.change(rules, source, profile); err != nil {
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
	if err := p.choose(site, file, false); err != nil {
		return nil, err
	}
	return append(slices.Clip(rules), file.Rule...), nil
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

// Tighten returns the policy with the rules of a project's own file, which can
// only deny or ask.
func (p *Policy) Tighten(project Source) (*Policy, error) {
	q, err := p.tighten(project)
	if err != nil {
		return nil, locate(err, project)
	}
	return q, nil
}

// loosens is the error of a project's file that would loosen the policy.
func loosens(place, what string) error {
	return fmt.Errorf("%s: a project's policy can only tighten: %s", place, what)
}

func (p *Policy) tighten(project Source) (*Policy, error) {
	file, err := readPolicyFile(project)
	if err != nil {
		return nil, err
	}
	if err := checkTightens(project, file); err != nil {
		return nil, err
	}
	q := *p
	if err := q.choose(project, file, true); err != nil {
		return nil, err
	}
	if err := q.addPatterns(project, file); err != nil {
		return nil, err
	}
	if err := q.setRules(append(p.rules.files(), file.Rule...)); err != nil {
		return nil, fmt.Errorf("%s: %w", project.Name, err)
	}
	q.hash = hashText(p.hash, project.Text)
	return &q, q.checkRuleExamples(file.Rule)
}

// checkTightens checks that nothing in a project's file can allow, add to a
// grant or switch a rule off.
func checkTightens(project Source, file policyFile) error {
	for _, key := range []struct {
		table, name string
		given       bool
		what        string
	}{
		{"", "profile", file.Profile != "", "it chooses a profile"},
		{"", "readable", len(file.Readable) > 0, "it adds roots"},
		{"", "writable", len(file.Writable) > 0, "it adds roots"},
		{"builtin", "disable", len(file.Builtin.Disable) > 0, "it switches off rules"},
		{"", "places", file.Places.any(), "it changes places"},
		{"", "project", len(file.Project) > 0, "it speaks of other projects"},
	} {
		if key.given {
			return loosens(project.keyAt(key.table, key.name), key.what)
		}
	}
	for _, text := range slices.Concat(file.Protected, file.Hidden) {
		if strings.HasPrefix(text, "!") {
			return loosens(at(project, text), fmt.Sprintf("%q takes a path out", text))
		}
	}
	for _, r := range file.Rule {
		switch {
		case r.Verdict == Allow:
			return loosens(project.ruleAt(r.ID, "verdict"), fmt.Sprintf("rule %q allows", r.ID))
		case r.Widen != nil:
			return loosens(project.ruleAt(r.ID, "widen"), fmt.Sprintf("rule %q widens a grant", r.ID))
		case len(r.Replaces) > 0:
			return loosens(project.ruleAt(r.ID, "replaces"), fmt.Sprintf("rule %q replaces others", r.ID))
		}
	}
	return nil
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

// keyAt names the place of a key in a table, "" for those above all tables.
func (s Source) keyAt(table, key string) string {
	in, last := "", ""
	for i, line := range strings.Split(s.Text, "\n") {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "[") {
			in = strings.Trim(text, "[] \t\r")
		}
		name, _, isKey := strings.Cut(text, "=")
		name = strings.Trim(name, " \t'\"")
		column := strings.Index(line, strings.TrimSpace(text)) + 1
		switch {
		case in == key || in == table+"."+key, isKey && in == table && name == key, isKey && name == table+"."+key:
			return fmt.Sprintf("%s:%d:%d", s.Name, i+1, column)
		case last == "" && strings.Contains(text, key):
			last = fmt.Sprintf("%s:%d:%d", s.Name, i+1, column)
		}
	}
	if last != "" {
		return last
	}
	return s.Name
}

// ruleAt names the place of a key of a rule, or of the rule.
func (s Source) ruleAt(id, key string) string {
	start := idOffset(s.Text, id)
	if start < 0 {
		return s.Name
	}
	from := max(strings.LastIndex(s.Text[:start], "[["), 0)
	length := len(s.Text) - from
	if next := strings.Index(s.Text[start:], "[["); next >= 0 {
		length = start - from + next
	}
	offset := start
	if m := regexp.MustCompile(`(?m)^\s*(?:\[rule\.)?(` + key + `)\b`).FindStringSubmatchIndex(s.Text[from : from+length]); m != nil {
		offset = from + m[2]
	}
	return s.offsetAt(offset)
}

// offsetAt names the place of a byte.
func (s Source) offsetAt(offset int) string {
	before := s.Text[:offset]
	return fmt.Sprintf("%s:%d:%d", s.Name, strings.Count(before, "\n")+1, offset-strings.LastIndexByte(before, '\n'))
}
