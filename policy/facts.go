package policy

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed facts/*.toml
var factFiles embed.FS

// A fact says what a command, or one subcommand of it, does. It is read from
// a file under facts/; facts/README.md describes the format.
type fact struct {
	Names    []string          `toml:"names"`    // of the command; empty in a subcommand
	About    string            `toml:"about"`    // what it does, in a few words
	Builtin  bool              `toml:"builtin"`  // bash has it built in
	Opaque   bool              `toml:"opaque"`   // runs code that no fact describes
	Slow     bool              `toml:"slow"`     // a build or a test: gets the long time limit
	Loose    bool              `toml:"loose"`    // options that are not listed are harmless flags
	Syntax   string            `toml:"syntax"`   // how its arguments are read; see syntaxes
	Flags    string            `toml:"flags"`    // options without a value: synonyms joined by "/"
	Options  map[string]string `toml:"options"`  // options with a value, or that matter: synonyms → role
	Operands []string          `toml:"operands"` // roles in order; one may end in "..."
	When     []when            `toml:"when"`     // other roles when options are given
	Starts   []string          `toml:"starts"`   // programs that it starts: names, or absolute paths
	Ask      string            `toml:"ask"`      // why it is always asked about
	Net      string            `toml:"net"`      // the package manager whose registries it needs when that is approved
	Changes  []string          `toml:"changes"`  // places in the project that it writes besides its operands
	Approved []string          `toml:"approved"` // places that it writes when what was asked about is approved
	Response string            `toml:"response"` // role of FILE in a word @FILE, which holds more arguments: "read" or "list"
	Stdin    string            `toml:"stdin"`    // role of the text that it gets as its standard input, where that is known
	Ends     string            `toml:"ends"`     // options after whose value all words are operands
	Hooks    []string          `toml:"hooks"`    // git runs these of the repository's own hooks
	Rewrites bool              `toml:"rewrites"` // git alone knows which files of the work tree it changes
	Runner   bool              `toml:"runner"`   // what it runs are programs of the project's own environment
	Sub      map[string]*fact  `toml:"sub"`      // subcommands, names of the same joined by "/"; the first operand chooses
	Bare     string            `toml:"bare"`     // the subcommand that stands for none
	Allow    []string          `toml:"allow"`    // examples that are allowed when the command is
	Refuse   []string          `toml:"refuse"`   // examples that are not, even then

	group    string   // the file that it is described in, without ".toml"
	path     string   // "git stash list"
	root     []string // path, as the beginning of a call's
	options  map[string]*option
	longs    []string // long names, sorted
	operands []role
	stdin    role
}

// A when changes the fact when one of the options is given.
type when struct {
	Options  []string `toml:"options"`
	Least    int      `toml:"least"`    // only with at least so many operands
	Operands []string `toml:"operands"` // instead of the fact's
	Changes  []string `toml:"changes"`  // besides the fact's
	Ask      string   `toml:"ask"`
	Spares   bool     `toml:"spares"` // then neither the fact's changes nor its ask hold

	operands []role
}

// An option is one option of a command with all its spellings.
type option struct {
	name string // the longest spelling without dashes
	role role
	ends bool // the words after its value are operands
}

// A role says what an operand or the value of an option is to the command.
type role struct {
	kind   roleKind
	detail string   // of ask: why; of code: the language
	many   bool     // of an operand: repeats
	glued  bool     // of an option: the value is optional, and never a word of its own
	second *role    // of an option: a second word that it takes
	not    []string // a value with one of these in it must be asked about
	why    string   // then: why
}

type roleKind string

const (
	roleFlag    roleKind = "flag"    // no value
	roleAsks    roleKind = "asks"    // no value, and must be asked about
	roleAsk     roleKind = "ask"     // a value, and must be asked about
	roleValue   roleKind = "value"   // plain text
	roleRead    roleKind = "read"    // a path that is read
	roleList    roleKind = "list"    // a file that names the files to read
	roleWrite   roleKind = "write"   // a file that is created, or written in place
	roleReplace roleKind = "replace" // a path that is created or replaced in its directory
	roleDelete  roleKind = "delete"  // a path that is removed
	roleMove    roleKind = "move"    // a path that is renamed away
	roleEnter   roleKind = "enter"   // the directory in which the command runs
	roleMode    roleKind = "mode"    // permissions
	roleProgram roleKind = "program" // the name of a program that is run
	roleCommand roleKind = "command" // the words of a command
	roleRest    roleKind = "rest"    // of an option: all words that follow, up to ";", are a command
	roleMaybe   roleKind = "maybe"   // plain text, or a path that is read when it is spelled as one that leads elsewhere
	rolePaths   roleKind = "paths"   // paths that are read, joined by ":"
	roleKeyed   roleKind = "keyed"   // KEY=PATH or KEY:PATH, where PATH may be written; or plain text
	roleCode    roleKind = "code"    // text in the language of the detail
	roleSplit   roleKind = "split"   // text that is split into the words of a command
	roleAssigns roleKind = "assigns" // NAME=VALUE, as many as there are
	roleModule  roleKind = "module"  // a Python module that is run
	roleHost    roleKind = "host"    // a network address
	roleRemote  roleKind = "remote"  // a path, or host:path
	roleSink    roleKind = "sink"    // a path that is replaced, or host:path
	roleReplStr roleKind = "replstr" // of xargs: what stands for the input
	roleMakeVar roleKind = "makevar" // a target or NAME=VALUE of make
	roleURL     roleKind = "url"     // a path, or a URL
	rolePlus    roleKind = "plus"    // a value that begins with "+"; any other must be asked about
)

var roleKinds = func() map[roleKind]bool {
	m := map[roleKind]bool{}
	for _, k := range []roleKind{roleFlag, roleAsks, roleAsk, roleValue, roleRead, roleList, roleWrite, roleReplace,
		roleDelete, roleMove, roleEnter, roleMode, roleProgram, roleCommand, roleCode, roleSplit, roleAssigns,
		roleModule, roleHost, roleRemote, roleReplStr, roleMakeVar, roleURL, rolePlus, roleSink, roleRest, roleKeyed, rolePaths, roleMaybe} {
		m[k] = true
	}
	return m
}()

// languages are the details of roleCode, and who reads them.
var languages = map[string]bool{"sh": true, "bash": true, "sed": true, "awk": true, "sqlite": true, "opaque": true}

// syntaxes are the ways in which arguments are read.
var syntaxes = map[string]bool{
	"":      true, // GNU: bundled letters, abbreviated long options, options anywhere
	"posix": true, // the same, but options end at the first operand
	"go":    true, // -name, --name, -name=value; anywhere
	"find":  true, // paths, then an expression of -name words
	"pairs": true, // name=value, as dd has them
	"words": true, // no options at all
	"test":  true, // the expressions of test
	"shell": true, // a shell: -c, a script, or standard input
	"tar":   true, // GNU, where the first word may be letters without a dash
}

// A factFile is one file under facts/.
type factFile struct {
	Command  []*fact        `toml:"command"`
	Module   []*fact        `toml:"module"` // of Python, that are run by -m
	Variable []variableFact `toml:"variable"`
}

// loadFacts reads the fact files. Commands are indexed by their names, modules
// by "-m " and theirs.
func loadFacts(files fs.FS) (commands map[string]*fact, variables []variableFact, err error) {
	names, err := fs.Glob(files, "facts/*.toml")
	if err != nil {
		return nil, nil, err
	}
	commands = map[string]*fact{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, nil, err
		}
		var file factFile
		if err := decodeStrict(name, string(text), &file); err != nil {
			return nil, nil, err
		}
		for _, f := range file.Module {
			for i := range f.Names {
				f.Names[i] = modulePrefix + f.Names[i]
			}
		}
		for _, f := range append(file.Command, file.Module...) {
			f.group = strings.TrimSuffix(path.Base(name), ".toml")
			if err := f.index(commands); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		variables = append(variables, file.Variable...)
	}
	return commands, variables, nil
}

// modulePrefix stands before the names of modules, so that they are none of
// commands.
const modulePrefix = "-m "

// decodeStrict reads TOML and refuses keys that mean nothing.
func decodeStrict(name, text string, into any) error {
	meta, err := toml.Decode(text, into)
	if err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return fmt.Errorf("%s:%d:%d: %s", name, syntax.Position.Line, syntax.Position.Col, syntax.Message)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		key := extra[0][len(extra[0])-1]
		return fmt.Errorf("%s: unknown key %q", at(Source{name, text}, key), extra[0].String())
	}
	return nil
}

func (f *fact) index(commands map[string]*fact) error {
	if len(f.Names) == 0 {
		return fmt.Errorf("a command without names")
	}
	if len(f.Allow)+len(f.Refuse) == 0 {
		return fmt.Errorf("%s: no examples", f.Names[0])
	}
	for _, name := range f.Names {
		if commands[name] != nil {
			return fmt.Errorf("%s: described twice", name)
		}
		commands[name] = f
	}
	return f.compile(f.Names[0], nil)
}

// compile checks a fact and prepares it for reading arguments. A subcommand
// has the options of its command too.
func (f *fact) compile(path string, parent *fact) (err error) {
	f.path, f.root = path, []string{path}
	if !syntaxes[f.Syntax] {
		return fmt.Errorf("%s: unknown syntax %q", path, f.Syntax)
	}
	f.options = map[string]*option{}
	for _, spellings := range strings.Fields(f.Flags) {
		f.add(spellings, role{kind: roleFlag})
	}
	for spellings, text := range f.Options {
		r, err := parseRole(text)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", path, spellings, err)
		}
		f.add(spellings, r)
	}
	for name := range f.options {
		if strings.HasPrefix(name, "--") {
			f.longs = append(f.longs, name)
		}
	}
	sort.Strings(f.longs)
	for _, spelling := range strings.Fields(f.Ends) {
		if o := f.options[spelling]; o != nil {
			o.ends = true
		} else {
			return fmt.Errorf("%s: ends names no option: %q", path, spelling)
		}
	}
	switch f.Response {
	case "", string(roleRead), string(roleList):
	default:
		return fmt.Errorf("%s: response: unknown role %q: want read or list", path, f.Response)
	}
	if f.Stdin != "" {
		if f.stdin, err = parseRole(f.Stdin); err != nil {
			return fmt.Errorf("%s: stdin: %w", path, err)
		}
	}
	if f.operands, err = parseRoles(f.Operands); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for i := range f.When {
		w := &f.When[i]
		if w.operands, err = parseRoles(w.Operands); err != nil {
			return fmt.Errorf("%s: when: %w", path, err)
		}
	}
	subs := map[string]*fact{}
	for names, sub := range f.Sub {
		if sub.Syntax == "" {
			sub.Syntax = f.Syntax
		}
		if sub.Response == "" {
			sub.Response = f.Response
		}
		if sub.Starts == nil {
			sub.Starts = f.Starts
		}
		if sub.Approved == nil {
			sub.Approved = f.Approved
		}
		sub.Opaque = sub.Opaque || f.Opaque
		sub.Slow = sub.Slow || f.Slow
		if err := sub.compile(path+" "+names, f); err != nil {
			return err
		}
		for _, name := range strings.Split(names, "/") {
			if subs[name] != nil {
				return fmt.Errorf("%s: %s: described twice", path, name)
			}
			subs[name] = sub
		}
	}
	f.Sub = subs
	if f.Bare != "" && f.Sub[f.Bare] == nil {
		return fmt.Errorf("%s: bare names no subcommand: %q", path, f.Bare)
	}
	return nil
}

func (f *fact) add(spellings string, r role) {
	o := &option{role: r}
	for _, s := range strings.Split(spellings, "/") {
		if name := strings.TrimLeft(s, "-"); len(name) > len(o.name) {
			o.name = name
		}
		f.options[s] = o
	}
}

func parseRoles(texts []string) ([]role, error) {
	out := make([]role, 0, len(texts))
	for _, text := range texts {
		plain, limit, _ := strings.Cut(text, ";")
		many := strings.HasSuffix(plain, "...")
		r, err := parseRole(strings.TrimSuffix(plain, "...") + text[len(plain):len(text)-len(limit)] + limit)
		if err != nil {
			return nil, err
		}
		r.many = many
		out = append(out, r)
	}
	return out, nil
}

// parseRole reads "kind", "kind?", "kind:detail" or "kind+kind", and after it
// perhaps "; not TEXT TEXT: reason".
func parseRole(text string) (role, error) {
	if plain, limit, limited := strings.Cut(text, "; not "); limited {
		r, err := parseRole(plain)
		texts, why, _ := strings.Cut(limit, ": ")
		r.not, r.why = strings.Fields(texts), why
		if err == nil && (len(r.not) == 0 || why == "") {
			err = fmt.Errorf("role %q needs texts and a reason", text)
		}
		return r, err
	}
	if first, second, two := strings.Cut(text, "+"); two && roleKinds[roleKind(first)] {
		r, err := parseRole(first)
		if err != nil {
			return r, err
		}
		next, err := parseRole(second)
		r.second = &next
		return r, err
	}
	kind, detail, _ := strings.Cut(text, ":")
	r := role{kind: roleKind(strings.TrimSuffix(kind, "?")), detail: strings.TrimSpace(detail), glued: strings.HasSuffix(kind, "?")}
	switch {
	case !roleKinds[r.kind]:
		return r, fmt.Errorf("unknown role %q", text)
	case r.kind == roleCode && !languages[r.detail]:
		return r, fmt.Errorf("unknown language %q", r.detail)
	case (r.kind == roleAsk || r.kind == roleAsks) && r.detail == "":
		return r, fmt.Errorf("role %q needs a reason", text)
	}
	return r, nil
}

// roleOf returns the role of the operand at index of count.
func roleOf(roles []role, index, count int) (role, bool) {
	repeat := -1
	for i, r := range roles {
		if r.many {
			repeat = i
		}
	}
	switch after := len(roles) - 1 - repeat; {
	case repeat < 0:
		if index < len(roles) {
			return roles[index], true
		}
		return role{}, false
	case index < repeat:
		return roles[index], true
	case count-index <= after && count > repeat+after-1:
		return roles[len(roles)-(count-index)], true
	}
	return roles[repeat], true
}
