package policy

import (
	"slices"
	"strings"

	"github.com/pinfold/pinfold/policy/hosts"
	"github.com/pinfold/pinfold/shparse"
)

// An execution is one command that is being judged.
type execution struct {
	judge  *judge
	base   string // the name by which facts and rules know the command
	call   *call
	words  call // what call points to: one allocation for both
	argv   []shparse.Field
	dirs   []string
	stdin  shparse.Input
	in     scope
	at     where
	known  bool // the fact is about this very program
	inside bool // it is a program in the project
	spared bool // by its options neither the fact's changes nor its ask hold

	replaced []string   // asking that does not apply to it
	opened   hosts.List // that rules of the site open for it
	record   bool       // keep what it does
	done     []effect   // what it does, when that is kept
}

// effects judges everything that the command does by its fact.
func (x *execution) effects() {
	f := x.call.fact
	roles := x.roles()
	if f.Ask != "" && !x.spared {
		x.askedAll(f.Ask)
		x.registries(f)
	}
	if f.stdin.kind != "" && x.stdin.Kind == shparse.Document {
		text := x.argv[0]
		text.Value = x.stdin.Text
		x.role(f.stdin, text, 0)
	}
	if x.call.path[len(x.call.path)-1] == "?" {
		x.asked("a subcommand that is not known", x.at)
		x.judge.opaque()
	}
	x.optionEffects()
	if x.judge.env.Git != nil {
		if f.Rewrites {
			x.rewrites()
		}
		if len(f.Hooks) > 0 {
			x.hooks()
		}
	}
	switch f.Syntax {
	case "find":
		x.find()
	case "test":
		x.test()
	case "shell":
		x.shell()
	case "pairs":
		x.pairs()
	default:
		x.operandEffects(roles)
	}
}

// allow takes what the command needs to run into the grant.
func (j *judge) allow(base, name string, x *execution) {
	f := x.call.fact
	j.slow = j.slow || f.Slow
	if f.Opaque {
		j.opaque()
		j.effect(x, &effect{kind: effectOpaque, at: x.at})
		return
	}
	for _, place := range f.Changes {
		if !x.spared {
			j.changes(place, x.at)
		}
	}
	if f.Builtin && !x.in.external {
		return
	}
	j.executes(name)
	for _, start := range f.Starts {
		j.executes(start)
	}
}

// changes grants a place that a command writes by itself, such as .git.
func (j *judge) changes(place string, at where) { j.wants(place, false, at) }

// asked judges something that the fact says to ask about. A yes opens what it
// needs.
func (x *execution) asked(reason string, at where) {
	for _, place := range x.call.fact.Approved {
		x.judge.changes(place, x.at)
	}
	x.judge.effect(x, &effect{kind: effectAsked, detail: reason, at: at})
}

// askedAll judges a command that the fact asks about as a whole, unless a rule
// of the site stands in the place of that.
func (x *execution) askedAll(reason string) {
	if !slices.Contains(x.replaced, factAsk+x.call.fact.path) {
		x.asked(reason, x.at)
		return
	}
	for _, place := range x.call.fact.Approved {
		x.judge.changes(place, x.at)
	}
}

// registries notes the hosts that a yes to the command opens.
func (x *execution) registries(f *fact) {
	if f.Net == "" || x.judge.env.Registries == nil {
		return
	}
	x.judge.asksFor = append(x.judge.asksFor, x.judge.env.Registries.Hosts(f.Net)...)
}

func (x *execution) span(f shparse.Field) where { return where{f.Offset, f.End} }

// optionEffects judges the options, those that enter a directory first, since
// the other paths are relative to it.
func (x *execution) optionEffects() {
	for _, g := range x.call.options {
		if g.option.role.kind == roleEnter && g.hasVal {
			x.enter(g.value)
		}
	}
	for _, g := range x.call.options {
		r := g.option.role
		switch {
		case r.kind == roleFlag, r.kind == roleEnter:
		case r.kind == roleAsks, r.kind == roleAsk:
			x.asked(g.text+" "+r.detail, x.span(*g.at))
		case r.kind == roleRest:
			x.restCommand(g)
		case g.hasVal:
			x.role(r, g.value, 0)
		}
	}
	for _, g := range x.call.unknown {
		x.unknownOption(g)
	}
}

// unknownOption judges an option that the fact does not list. When the fact is
// loose only a value that looks like a path matters.
func (x *execution) unknownOption(g given) {
	if _, known := g.at.Known(); !known && !g.hasVal || !x.call.fact.Loose {
		x.judge.effect(x, &effect{kind: effectOption, detail: g.at.String(), at: x.span(*g.at)})
		return
	}
	if g.hasVal && looksLikePath(g.value) {
		x.paths(g.value, effectReads)
	}
}

// looksLikePath reports whether the text is spelled as a path that may lead
// out of the directory.
func looksLikePath(f shparse.Field) bool {
	p := f.Prefix()
	return strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || climbs(f.Literal())
}

// enter changes the directory in which the rest of the command is judged.
func (x *execution) enter(f shparse.Field) {
	x.paths(f, effectEnters)
	text, known := f.Known()
	if !known || f.Many {
		x.dirs = nil
		return
	}
	var to []string
	for _, dir := range x.dirs {
		full := text
		if !strings.HasPrefix(text, "/") {
			full = dir + "/" + text
		}
		if real, _, err := x.judge.follow(full); err == nil {
			to = append(to, real)
		} else {
			to = append(to, full)
		}
	}
	x.dirs = to
}

// eachDir calls do for every directory in which the command may run.
func (x *execution) eachDir(do func(dir string)) {
	if len(x.dirs) == 0 {
		do("")
	}
	for _, dir := range x.dirs {
		do(dir)
	}
}

// paths judges a path operand that is read or entered.
func (x *execution) paths(f shparse.Field, kind effectKind) {
	x.eachDir(func(dir string) { x.judge.readPath(x, f, dir, kind, x.span(f)) })
}

func (x *execution) writes(f shparse.Field, how writing, kind effectKind) {
	x.eachDir(func(dir string) { x.judge.writePath(x, f, dir, how, kind, x.span(f)) })
}

// roles returns the roles of the operands, as the options make them.
func (x *execution) roles() []role {
	roles := x.call.fact.operands
	replaced := false
	for i := range x.call.fact.When {
		w := &x.call.fact.When[i]
		if len(w.Options) > 0 && !x.call.hasAny(w.Options) || len(x.call.operands) < w.Least {
			continue
		}
		if w.Ask != "" {
			x.askedAll(w.Ask)
		}
		for _, place := range w.Changes {
			x.judge.changes(place, x.at)
		}
		x.spared = x.spared || w.Spares
		if w.Operands != nil && !replaced {
			roles, replaced = w.operands, true
		}
	}
	return roles
}

// operandEffects judges the operands by their roles. Words that a pattern
// found and that begin with a dash are options that nobody wrote.
func (x *execution) operandEffects(roles []role) {
	for _, f := range x.argv[1:] {
		if f.Listed && strings.HasPrefix(f.Prefix(), "-") {
			x.judge.effect(x, &effect{kind: effectOption, detail: "a file name that is read as an option: " + f.String(), at: x.span(f)})
		}
	}
	for i, f := range x.call.operands {
		r, ok := roleOf(roles, i, len(x.call.operands))
		if !ok {
			if !x.call.fact.Loose {
				x.judge.effect(x, &effect{kind: effectOption, detail: "one operand too many: " + f.String(), at: x.span(f)})
			}
			continue
		}
		switch r.kind {
		case roleCommand:
			x.wrapped(x.call.operands[i:])
			return
		case roleAssigns:
			x.assignsThenCommand(x.call.operands[i:])
			return
		}
		x.role(r, f, i)
	}
	x.missingOperands(roles)
}

// missingOperands judges a wrapper without a command, where that means one.
func (x *execution) missingOperands(roles []role) {
	if len(x.call.operands) > 0 || len(roles) == 0 {
		return
	}
	if r := roles[0]; r.kind == roleCommand && r.detail != "" {
		f := x.argv[0]
		f.Value = shparse.Text(r.detail)
		x.wrapped([]shparse.Field{f})
	}
}

// role judges one operand, or the value of one option.
func (x *execution) role(r role, f shparse.Field, index int) {
	if holdsOne(f.Literal(), r.not) {
		x.asked(r.why, x.span(f))
	}
	switch r.kind {
	case roleRead, roleEnter:
		if isExactly(f, "-") && r.kind == roleRead {
			return
		}
		x.paths(f, effectReads)
	case roleList:
		x.asked("reads names of files from a file", x.span(f))
		x.paths(f, effectReads)
	case roleWrite:
		if !isExactly(f, "-") {
			x.writes(f, inPlace, effectWrites)
		}
	case roleReplace:
		x.writes(f, inParent, effectWrites)
	case roleDelete, roleMove:
		x.writes(f, inParent, effectDeletes)
	case roleAsk:
		x.asked(r.detail, x.span(f))
	case roleMode:
		if worldWritable(f) {
			x.judge.effect(x, &effect{kind: effectModes, detail: f.String(), at: x.span(f)})
		}
		if setsIdentity(f) {
			x.asked("lets a program run as its owner or group", x.span(f))
		}
	case roleProgram:
		x.program(f)
	case roleSplit:
		x.split(f, index)
	case roleCode:
		x.code(r.detail, f)
	case roleHost:
		x.reaches(f)
	case roleRemote, roleURL:
		if !x.remote(f) {
			x.paths(f, effectReads)
		}
	case roleSink:
		if !x.remote(f) {
			x.writes(f, inParent, effectWrites)
		}
	case roleMaybe:
		if looksLikePath(f) {
			x.paths(f, effectReads)
		}
	case rolePaths:
		x.eachPath(f)
	case roleKeyed:
		if i := strings.IndexAny(f.Prefix(), "=:"); i >= 0 && looksLikePath(cutField(f, i+1)) {
			x.writes(cutField(f, i+1), inParent, effectWrites)
		}
	case rolePlus:
		if !strings.HasPrefix(f.Prefix(), "+") {
			x.asked(r.detail, x.span(f))
		}
	case roleMakeVar:
		x.makeVariable(f)
	case roleModule:
		x.module(f)
	}
}

// eachPath judges paths that are joined by colons, as far as they are known.
func (x *execution) eachPath(f shparse.Field) {
	if _, known := f.Known(); !known {
		x.paths(f, effectReads)
		return
	}
	for _, part := range strings.Split(f.Literal(), ":") {
		one := f
		one.Value = shparse.Text(part)
		x.paths(one, effectReads)
	}
}

// holdsOne reports whether the text holds one of the others, in any case of
// letters and however it is spaced.
func holdsOne(text string, others []string) bool {
	if len(others) == 0 {
		return false
	}
	text = strings.ToLower(strings.Join(strings.Fields(text), ""))
	return slices.ContainsFunc(others, func(s string) bool { return strings.Contains(text, s) })
}

// remote judges host:path and URLs as the network, and reports whether the
// field is one.
func (x *execution) remote(f shparse.Field) bool {
	text := f.Literal()
	colon, slash := strings.IndexByte(text, ':'), strings.IndexByte(text, '/')
	if colon <= 0 || slash >= 0 && slash < colon || strings.HasPrefix(text, "file:") {
		return false
	}
	x.reaches(f)
	return true
}

// reaches judges a host that is named, alone or in a URL. One that a rule of the
// site opens for the command is what that rule is about.
func (x *execution) reaches(f shparse.Field) {
	if text, known := f.Known(); known && !f.Many && opens(x.opened, text) {
		return
	}
	x.judge.effect(x, &effect{kind: effectNetwork, detail: f.String(), at: x.span(f)})
}

// opens reports whether the list holds the host of an http or https URL.
func opens(list hosts.List, text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	port, known := map[string]uint16{"http": 80, "https": 443}[scheme]
	if !ok || !known {
		return false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	name, at, err := hosts.ParseAuthority(rest, port)
	if err != nil {
		return false
	}
	_, ok = list.Find(name, at)
	return ok
}

// module judges what a Python module does with the words that follow it: by its
// own fact, or by that of the command of the same name. Whether Python may run
// is settled.
func (x *execution) module(f shparse.Field) {
	name, known := f.Known()
	fact := x.judge.policy.facts[modulePrefix+name]
	if fact == nil {
		fact = x.judge.policy.facts[name]
	}
	if !known || f.Many || fact == nil || x.in.depth >= maxDepth {
		return
	}
	run := &execution{judge: x.judge, base: name, argv: append([]shparse.Field{f}, x.call.operands...), dirs: x.dirs,
		stdin: x.stdin, in: x.in, at: x.span(f), known: true}
	run.in.depth++
	run.call = readArgs(&run.words, fact, x.call.operands)
	run.effects()
	x.judge.slow = x.judge.slow || fact.Slow
}

// worldWritable reports whether a mode lets everybody write, or may.
func worldWritable(f shparse.Field) bool {
	text, known := f.Known()
	if !known {
		return false
	}
	octal := strings.TrimLeft(text, "+-=")
	if octal != "" && strings.Trim(octal, "01234567") == "" {
		return !strings.HasPrefix(text, "-") && strings.IndexByte("2367", octal[len(octal)-1]) >= 0
	}
	for _, clause := range strings.Split(text, ",") {
		i := strings.IndexAny(clause, "+-=")
		if i < 0 {
			continue
		}
		if who := clause[:i]; !strings.ContainsAny(who, "oa") {
			continue
		}
		for _, part := range strings.FieldsFunc(clause[i:], func(c rune) bool { return c == ',' }) {
			if grantsWrite(part) {
				return true
			}
		}
	}
	return false
}

// setsIdentity reports whether a mode sets the bits by which programs run as
// their owner or group.
func setsIdentity(f shparse.Field) bool {
	text, known := f.Known()
	if !known {
		return false
	}
	if octal := strings.TrimLeft(text, "+=0"); octal != "" && strings.Trim(octal, "01234567") == "" {
		return len(octal) > 3 && octal[len(octal)-4] != '1'
	}
	for _, clause := range strings.Split(text, ",") {
		if i := strings.IndexAny(clause, "+="); i >= 0 && strings.Contains(clause[i:], "s") {
			return true
		}
	}
	return false
}

// grantsWrite reports whether "+rw-x" and the like add the right to write.
func grantsWrite(ops string) bool {
	op := byte('+')
	for i := 0; i < len(ops); i++ {
		switch c := ops[i]; c {
		case '+', '-', '=':
			op = c
		case 'w', 'u', 'g': // u and g copy what the owner or the group has
			if op != '-' {
				return true
			}
		}
	}
	return false
}

// toolVariables of make name programs, or are read as shell text or makefiles.
// Those that builds read from the environment, too, are facts.
var toolVariables = map[string]bool{
	"SHELL": true, ".SHELLFLAGS": true, "RM": true, "MAKE": true, "MAKEFLAGS": true, "MFLAGS": true, "GNUMAKEFLAGS": true, "MAKEFILES": true,
	"INSTALL": true, "PATH": true, "TEX": true, "WEAVE": true, "CTANGLE": true, "CROSS_COMPILE": true, "DOCKER": true, "CO": true, "GET": true,
}

// makeVariable judges a target of make, or a variable that is set for it.
func (x *execution) makeVariable(f shparse.Field) {
	text := f.Literal()
	name, value, isVar := strings.Cut(text, "=")
	name = strings.TrimRight(name, ":+?! ")
	switch {
	case strings.ContainsAny(text, "$`") || isVar && strings.HasSuffix(strings.SplitN(text, "=", 2)[0], "!"):
		x.asked("a variable of make that holds code", x.span(f))
	case !isVar:
		if looksLikePath(f) {
			x.paths(f, effectReads)
		}
	case x.judge.policy.variables.program(name) && strings.Contains(f.Prefix(), "="):
		x.judge.tool(name, cutField(f, strings.IndexByte(text, '=')+1).Value, x.dirs, x.in, x.span(f))
	case toolVariables[name] || strings.HasPrefix(name, "LD_"):
		x.asked("a variable of make that names a program: "+name, x.span(f))
	case strings.ContainsAny(value, ";|&<>\n"):
		x.asked("a variable of make that holds shell syntax", x.span(f))
	default:
		if i := strings.IndexByte(text, '='); i < len(f.Prefix()) && looksLikePath(cutField(f, i+1)) {
			x.writes(cutField(f, i+1), inParent, effectWrites)
		}
	}
}
