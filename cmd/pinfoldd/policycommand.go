package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/cmd/pinfoldd/server"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

const policyUsage = `usage:
  pinfold policy check [--project] FILE    say whether a policy file can be used
  pinfold policy show [flags] [FILE]       show the rules, and where they stand
  pinfold policy test [FILE]               decide the examples of all rules and commands
  pinfold policy diff [flags] OLD NEW [COMMANDS]
                                           decide the commands by both, and show what changes
  pinfold policy summary [flags]           what commands may do in the project, by the daemon
  pinfold policy reload                    have the daemon read its policy again

FILE is a site's policy; without one it is the one that the daemon of this
machine or user would read. OLD and NEW may be - for the built-in policy.
COMMANDS is a file with a command on each line, or JSON with a command in each
line's "command"; without it they are read from standard input.
`

// The exit statuses of pinfoldd policy.
const (
	policyOK    = 0
	policyWrong = 1 // the file cannot be used; diff: something changes
	policyUsed  = 2 // wrong usage, or a failure
)

// policyCommand is pinfoldd policy, which pinfold policy executes.
func policyCommand(args []string) int {
	commands := map[string]func([]string) (int, error){
		"check": policyCheck, "show": policyShow, "test": policyTest, "diff": policyDiff,
	}
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		fmt.Print(policyUsage)
		return policyOK
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, policyUsage)
		return policyUsed
	}
	status, err := commands[args[0]](args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return policyOK
	case err != nil:
		fmt.Fprintf(os.Stderr, "pinfold policy %s: %v\n", args[0], err)
		return max(status, policyWrong)
	}
	return status
}

// policyFlags returns the flags of a subcommand.
func policyFlags(name, operands string) *flag.FlagSet {
	flags := flag.NewFlagSet("pinfold policy "+name, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: pinfold policy %s [flags] %s\n", name, operands)
		flags.PrintDefaults()
	}
	return flags
}

// operands parses the flags, and checks the number of operands.
func operands(flags *flag.FlagSet, args []string, least, most int) ([]string, error) {
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if n := flags.NArg(); n < least || n > most {
		return nil, errors.New("wrong number of operands, see pinfold policy --help")
	}
	return flags.Args(), nil
}

// fileOf returns the policy file that is named, or the one that the daemon
// reads: the machine's when it has a daemon, else the user's.
func fileOf(names []string) (policyFile, error) {
	if len(names) > 0 {
		return policyFile{path: names[0], required: true}, nil
	}
	if _, err := os.Stat(api.SystemSocket); err == nil {
		return policyFile{path: systemPolicy}, nil
	}
	path, err := userPolicy()
	return policyFile{path: path}, err
}

// policyCheck is pinfold policy check.
func policyCheck(args []string) (int, error) {
	flags := policyFlags("check", "FILE")
	asProject := flags.Bool("project", false, "the file is a project's .pinfold.toml, which can only deny, or ask about, more")
	names, err := operands(flags, args, 1, 1)
	if err != nil {
		return policyUsed, err
	}
	text, err := os.ReadFile(names[0])
	if err != nil {
		return policyUsed, err
	}
	source := policy.Source{Name: names[0], Text: string(text)}
	var p *policy.Policy
	if *asProject {
		site, err := fileOf(nil)
		if err == nil {
			p, err = site.load()
		}
		if err != nil {
			return policyUsed, fmt.Errorf("the site's own policy: %w", err)
		}
		p, err = p.Tighten(source)
		if err != nil {
			return policyWrong, err
		}
	} else if p, err = policy.Load(source); err != nil {
		return policyWrong, err
	}
	if _, err := readOwned(names[0], "policy"); !*asProject && err != nil {
		fmt.Fprintf(os.Stderr, "pinfold policy check: as it lies there a daemon would not take it: %v\n", err)
	}
	fmt.Printf("%s: good, %d rules, policy %s\n", names[0], len(p.Rules()), p.Hash())
	return policyOK, nil
}

// policyShow is pinfold policy show.
func policyShow(args []string) (int, error) {
	flags := policyFlags("show", "[FILE]")
	project := flags.String("project", "", "tightened by the .pinfold.toml of this `directory`")
	names, err := operands(flags, args, 0, 1)
	if err != nil {
		return policyUsed, err
	}
	file, err := fileOf(names)
	if err != nil {
		return policyUsed, err
	}
	sources, err := file.sources()
	if err != nil {
		return policyWrong, err
	}
	p, err := policy.Load(sources...)
	if err != nil {
		return policyWrong, err
	}
	if *project != "" {
		text, err := os.ReadFile(*project + "/.pinfold.toml")
		if err != nil {
			return policyUsed, err
		}
		source := policy.Source{Name: ".pinfold.toml", Text: string(text)}
		if p, err = p.Tighten(source); err != nil {
			return policyWrong, err
		}
		sources = append(sources, source)
	}
	site := file.path
	if len(sources) == 0 {
		site += " (there is none: the built-in policy)"
	}
	fmt.Printf("policy   %s\nsite     %s\nreadable %s\nwritable %s\ngroups   %s\n",
		p.Hash(), site, list(p.Readable()), list(p.Writable()), list(p.Groups()))
	for _, verdict := range []policy.Verdict{policy.Deny, policy.RequireApproval, policy.Allow} {
		fmt.Printf("\n%s\n", verdict)
		for _, r := range p.Rules(sources...) {
			if r.Verdict == verdict {
				fmt.Printf("  %-28s %s\n  %-28s %s: %s\n", r.ID, r.Source, "", r.Reason, r.Subject)
			}
		}
	}
	return policyOK, nil
}

func list(words []string) string {
	if len(words) == 0 {
		return "nothing besides"
	}
	return strings.Join(words, " ")
}

// policyTest is pinfold policy test. A policy whose examples decide otherwise
// than they say does not load.
func policyTest(args []string) (int, error) {
	names, err := operands(policyFlags("test", "[FILE]"), args, 0, 1)
	if err != nil {
		return policyUsed, err
	}
	file, err := fileOf(names)
	if err != nil {
		return policyUsed, err
	}
	p, err := file.load()
	if err != nil {
		return policyWrong, err
	}
	examples := 0
	rules := p.Rules()
	for _, r := range rules {
		examples += r.Examples
	}
	fmt.Printf("%s: %d examples of %d rules hold, and those of the commands' facts\n", file.path, examples, len(rules))
	return policyOK, nil
}

// policyDiff is pinfold policy diff.
func policyDiff(args []string) (int, error) {
	flags := policyFlags("diff", "OLD NEW [COMMANDS]")
	var where place
	flags.StringVar(&where.project, "project", ".", "decide as in this `directory`")
	flags.StringVar(&where.home, "home", "", "with this `directory` as the home (default your own)")
	flags.StringVar(&where.path, "path", "", "with programs from these `directories`, separated by : (default the system's)")
	names, err := operands(flags, args, 2, 3)
	if err != nil {
		return policyUsed, err
	}
	var sides [2]*policy.Policy
	for i, name := range names[:2] {
		if sides[i], err = namedPolicy(name); err != nil {
			return policyUsed, err
		}
	}
	in := io.Reader(os.Stdin)
	if len(names) == 3 {
		f, err := os.Open(names[2])
		if err != nil {
			return policyUsed, err
		}
		defer f.Close()
		in = f
	}
	commands, err := readCommands(in)
	if err != nil {
		return policyUsed, err
	}
	d, err := compare(sides, where, commands)
	if err != nil {
		return policyUsed, err
	}
	fmt.Print(d.String())
	if d.changed > 0 {
		return policyWrong, nil
	}
	return policyOK, nil
}

func namedPolicy(name string) (*policy.Policy, error) {
	if name == "-" {
		return policy.Default()
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return policy.Load(policy.Source{Name: name, Text: string(text)})
}

// readCommands reads a command from each line, or from the "command" of an
// object on it.
func readCommands(in io.Reader) (commands []string, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		var row struct {
			Command string `json:"command"`
		}
		if strings.HasPrefix(line, `{"`) && json.Unmarshal([]byte(line), &row) == nil && row.Command != "" {
			line = row.Command
		}
		commands = append(commands, line)
	}
	return commands, lines.Err()
}

// A difference is what two policies decide differently.
type difference struct {
	total, changed int
	order          []string            // "require_approval → allow", as first seen
	groups         map[string][]string // a line for each command
}

// A place is where commands are decided, without a daemon.
type place struct{ project, home, path string }

// env returns the environment there; what a policy shows besides is part of it.
func (w place) env(p *policy.Policy) (policy.Env, error) {
	env, err := server.Local(w.project, p)
	if err != nil {
		return env, err
	}
	if w.home != "" {
		if env.Home, err = filepath.Abs(w.home); err != nil {
			return env, err
		}
	}
	if w.path != "" {
		env.Path = nil
		for _, dir := range strings.Split(w.path, ":") {
			if !filepath.IsAbs(dir) {
				return env, fmt.Errorf("--path: %q: want absolute directories, separated by \":\"", dir)
			}
			env.Path = append(env.Path, filepath.Clean(dir))
			env.Readable = append(env.Readable, filepath.Clean(dir))
		}
	}
	return env, nil
}

// compare decides the commands by both policies.
func compare(sides [2]*policy.Policy, where place, commands []string) (*difference, error) {
	d := &difference{total: len(commands), groups: map[string][]string{}}
	var envs [2]policy.Env
	for i, p := range sides {
		var err error
		if envs[i], err = where.env(p); err != nil {
			return nil, err
		}
	}
	for _, text := range commands {
		s, err := shparse.Parse(text)
		if err != nil {
			continue // refused by both
		}
		old, changed := sides[0].Decide(s, envs[0]), sides[1].Decide(s, envs[1])
		if old.Verdict == changed.Verdict {
			continue
		}
		group := old.Verdict.String() + " → " + changed.Verdict.String()
		if d.groups[group] == nil {
			d.order = append(d.order, group)
		}
		d.changed++
		d.groups[group] = append(d.groups[group], fmt.Sprintf("%s\n      %s → %s", printable(text), strings.Join(old.Rules, ", "), strings.Join(changed.Rules, ", ")))
	}
	return d, nil
}

// printable keeps the text on one line, and its control characters from the
// terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '⏎'
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return '\uFFFD'
		}
		return r
	}, text)
}

// String shows what changes, grouped.
func (d *difference) String() string {
	var b strings.Builder
	for _, group := range d.order {
		fmt.Fprintf(&b, "%s: %d\n", group, len(d.groups[group]))
		for _, line := range d.groups[group] {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	fmt.Fprintf(&b, "%d of %d commands are decided differently\n", d.changed, d.total)
	return b.String()
}
