package policy

import (
	"slices"
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// A call is one command with its words sorted out by its fact.
type call struct {
	fact     *fact
	path     []string // the command and its subcommands
	options  []given
	operands []shparse.Field
	unknown  []given // options that the fact does not list
}

// A given is an option as it was given.
type given struct {
	option *option // nil when the fact does not list it
	text   string  // as it was spelled, without its value
	value  shparse.Field
	hasVal bool
	rest   []shparse.Field // of roleRest: the words of the command
	at     *shparse.Field  // the word in which it stands
}

// title returns the name of the command with its subcommands.
func (c *call) title(name string) string {
	for _, sub := range c.path[1:] {
		if sub != "?" && sub != "*" && sub != "bare" {
			name += " " + sub
		}
	}
	return name
}

func (c *call) has(name string) bool {
	for _, g := range c.options {
		if g.option.name == name {
			return true
		}
	}
	return false
}

func (c *call) hasAny(names []string) bool { return slices.ContainsFunc(names, c.has) }

// readArgs fills c: it sorts the words after the name by the syntax of the fact. Global
// options are read before a subcommand, whose own syntax reads the rest.
func readArgs(c *call, f *fact, args []shparse.Field) *call {
	*c = call{fact: f, path: f.root}
	p := parser{call: c, fact: f, args: args}
	for {
		p.read(len(p.fact.Sub) > 0)
		if len(p.fact.Sub) == 0 {
			return c
		}
		next := p.subcommand()
		if next == nil {
			return c
		}
		c.fact, p.fact = next, next
	}
}

type parser struct {
	call *call
	fact *fact
	args []shparse.Field
}

// subcommand chooses the fact of the subcommand that comes next, or nil.
func (p *parser) subcommand() *fact {
	if len(p.args) == 0 {
		if p.fact.Bare != "" {
			p.call.path = append(slices.Clip(p.call.path), p.fact.Bare)
			return p.fact.Sub[p.fact.Bare]
		}
		return nil
	}
	name, known := p.args[0].Known()
	if sub := p.fact.Sub[name]; known && !p.args[0].Many && sub != nil {
		p.call.path = append(slices.Clip(p.call.path), name)
		p.args = p.args[1:]
		return sub
	}
	if sub := p.fact.Sub["*"]; sub != nil {
		p.call.path = append(slices.Clip(p.call.path), "*")
		return sub
	}
	p.call.operands = append(p.call.operands, p.args...)
	p.call.path = append(slices.Clip(p.call.path), "?")
	p.args = nil
	return nil
}

// read takes words until the arguments end, or with stop at the first operand.
func (p *parser) read(stop bool) {
	switch p.fact.Syntax {
	case "words", "find", "test", "shell", "pairs":
		if !stop {
			p.rest()
			return
		}
	case "posix":
		p.options(true, stop)
		return
	case "tar":
		p.bareBundle()
	}
	p.options(stop, stop)
}

// rest takes all the words that are left as operands.
func (p *parser) rest() {
	if p.call.operands == nil {
		p.call.operands = p.args[:len(p.args):len(p.args)]
	} else {
		p.call.operands = append(p.call.operands, p.args...)
	}
	p.args = nil
}

func (p *parser) options(stopAtOperand, leave bool) {
	for len(p.args) > 0 {
		f := p.args[0]
		prefix := f.Prefix()
		switch {
		case prefix != "" && !f.Many && p.marked(f, prefix[:1]):
		case f.Many && prefix == "", len(prefix) < 2 && !dashWithHole(f), prefix != "" && prefix[0] != '-' || prefix == "":
			if stopAtOperand {
				if !leave {
					p.rest()
				}
				return
			}
			p.call.operands = append(p.call.operands, f)
			p.args = p.args[1:]
		case isExactly(f, "--"):
			p.args = p.args[1:]
			if leave {
				return
			}
			p.rest()
		case p.fact.Syntax == "go":
			p.goOption(f)
		case strings.HasPrefix(prefix, "--"):
			p.long(f)
		default:
			p.bundle(f, f.Value.Cut(1))
		}
	}
}

// marked takes a word that some programs read as an option though it begins with
// no dash: +COMMAND, and @FILE with more arguments.
func (p *parser) marked(f shparse.Field, mark string) bool {
	o := p.fact.options["+"]
	switch {
	case mark == "+" && o != nil:
	case mark == "@" && p.fact.Response != "" && !isExactly(f, "@"):
		o = &option{name: "@", role: role{kind: roleKind(p.fact.Response)}}
	default:
		return false
	}
	p.args = p.args[1:]
	p.give(o, mark, &f, cutField(f, 1), true, false)
	return true
}

func isExactly(f shparse.Field, s string) bool {
	text, known := f.Known()
	return known && !f.Many && text == s
}

// dashWithHole reports a word such as "-$x", which is an option of some kind.
func dashWithHole(f shparse.Field) bool {
	_, known := f.Known()
	return !known && f.Prefix() == "-"
}

func (p *parser) unknownOption(f shparse.Field, text string) {
	p.call.unknown = append(p.call.unknown, given{text: text, at: &f})
}

// long reads --name, --name=value or an abbreviation. An abbreviation of
// several options counts as all of them. The program may have an option of
// exactly that name, which takes no value: so the value of an abbreviation,
// when it is the next word, is read for itself, too.
func (p *parser) long(f shparse.Field) {
	p.args = p.args[1:]
	prefix := f.Prefix()
	name, _, hasValue := strings.Cut(prefix, "=")
	_, known := f.Known()
	if !known && !hasValue || f.Many {
		p.unknownOption(f, name)
		return
	}
	found := p.lookup(name)
	if len(found) == 0 {
		g := given{text: name, at: &f, hasVal: hasValue}
		if hasValue {
			g.value = cutField(f, len(name)+1)
		}
		p.call.unknown = append(p.call.unknown, g)
		return
	}
	exact := p.fact.options[name] != nil
	for _, o := range found {
		p.give(o, name, &f, cutIf(f, len(name)+1, hasValue), hasValue, !exact)
	}
	if exact {
		p.second(found[0], name, f)
	}
}

// second takes the other word of an option that takes two.
func (p *parser) second(o *option, text string, at shparse.Field) {
	if o.role.second != nil {
		p.give(&option{name: o.name, role: *o.role.second}, text, &at, shparse.Field{}, false, false)
	}
}

func takesWord(o *option) bool {
	return o.role.kind != roleFlag && o.role.kind != roleAsks && !o.role.glued
}

// lookup returns the options that a long spelling may stand for.
func (p *parser) lookup(name string) []*option {
	if o := p.fact.options[name]; o != nil {
		return []*option{o}
	}
	var found []*option
	i, _ := slices.BinarySearch(p.fact.longs, name)
	for ; i < len(p.fact.longs) && strings.HasPrefix(p.fact.longs[i], name); i++ {
		if o := p.fact.options[p.fact.longs[i]]; !slices.Contains(found, o) {
			found = append(found, o)
		}
	}
	return found
}

// give notes an option. Its value is glued, or the next word, which the caller
// takes when peek is set.
func (p *parser) give(o *option, text string, at *shparse.Field, value shparse.Field, hasValue, peek bool) {
	g := given{option: o, text: text, at: at}
	switch {
	case o.role.kind == roleRest:
		end := slices.IndexFunc(p.args, func(f shparse.Field) bool { return isExactly(f, ";") })
		if end < 0 {
			end = len(p.args)
		}
		if hasValue {
			g.rest = append(g.rest, value)
		}
		g.rest = append(g.rest, p.args[:end]...)
		p.args = p.args[min(end+1, len(p.args)):]
	case hasValue:
		g.value, g.hasVal = value, true
	case takesWord(o) && len(p.args) > 0:
		g.value, g.hasVal = p.args[0], true
		if !peek {
			p.args = p.args[1:]
		}
	}
	p.call.options = append(p.call.options, g)
	if o.ends {
		p.rest()
	}
}

func cutIf(f shparse.Field, n int, ok bool) shparse.Field {
	if !ok {
		return shparse.Field{}
	}
	return cutField(f, n)
}

func cutField(f shparse.Field, n int) shparse.Field {
	f.Value = f.Value.Cut(n)
	return f
}

// bundle reads letters, of which the first that takes a value takes the rest.
func (p *parser) bundle(f shparse.Field, rest shparse.Value) {
	p.args = p.args[1:]
	if f.Many && len(rest.Literal()) == 0 {
		p.unknownOption(f, f.Literal())
		return
	}
	if o := p.fact.options["-#"]; o != nil && isNumber(rest) {
		p.give(o, f.Literal(), &f, shparse.Field{}, false, false)
		return
	}
	if text, known := f.Known(); known && p.fact.options[text] != nil && len(text) > 2 { // -name options of some tools
		p.give(p.fact.options[text], text, &f, shparse.Field{}, false, false)
		return
	}
	if o, name, n := p.single(f.Prefix()); o != nil {
		p.give(o, name, &f, cutField(f, n), true, false)
		return
	}
	for strange := false; ; {
		prefix := rest.Prefix()
		if prefix == "" {
			if _, known := rest.Known(); !known {
				p.unknownOption(f, f.Literal())
			}
			return
		}
		letter := "-" + prefix[:1]
		rest = rest.Cut(1)
		o := p.fact.options[letter]
		_, isKnown := rest.Known()
		empty := isKnown && rest.Literal() == ""
		switch {
		case o == nil:
			g := given{text: letter, at: &f}
			p.call.unknown = append(p.call.unknown, g)
			strange = true // what follows may be its value, and then takes no word
		case o.role.kind == roleFlag || o.role.kind == roleAsks:
			p.give(o, letter, &f, shparse.Field{}, false, false)
		case empty:
			p.give(o, letter, &f, shparse.Field{}, false, strange)
			return
		default:
			value := f
			value.Value = rest
			p.give(o, letter, &f, value, true, false)
			return
		}
	}
}

// single finds -name=value, and -name:value of an option "-name:", and returns
// where the value begins.
func (p *parser) single(prefix string) (o *option, name string, value int) {
	i := strings.IndexAny(prefix, "=:")
	if i < 3 {
		return nil, "", 0
	}
	name = prefix[:i]
	if prefix[i] == ':' {
		name = prefix[:i+1]
	}
	return p.fact.options[name], name, i + 1
}

func isNumber(v shparse.Value) bool {
	for _, c := range v.Literal() {
		if c < '0' || c > '9' {
			return false
		}
	}
	_, known := v.Known()
	return known && v.Literal() != "" || !known && v.Class() == shparse.Number
}

// bareBundle reads the first word of tar, which may be letters without a dash.
// The values of its letters are then the words that follow, in order.
func (p *parser) bareBundle() {
	if len(p.args) == 0 {
		return
	}
	f := p.args[0]
	text, known := f.Known()
	if !known || f.Many || text == "" || text[0] == '-' {
		return
	}
	p.args = p.args[1:]
	for _, c := range text {
		letter := "-" + string(c)
		o := p.fact.options[letter]
		if o == nil {
			p.unknownOption(f, letter)
			continue
		}
		p.give(o, letter, &f, shparse.Field{}, false, false)
	}
}

// goOption reads -name, --name, -name=value and -name value.
func (p *parser) goOption(f shparse.Field) {
	p.args = p.args[1:]
	prefix := f.Prefix()
	name, _, hasValue := strings.Cut(prefix, "=")
	_, known := f.Known()
	if !known && !hasValue || f.Many {
		p.unknownOption(f, name)
		return
	}
	o := p.fact.options["-"+strings.TrimLeft(name, "-")]
	if o == nil {
		g := given{text: name, at: &f, hasVal: hasValue}
		if hasValue {
			g.value = cutField(f, len(name)+1)
		}
		p.call.unknown = append(p.call.unknown, g)
		return
	}
	p.give(o, name, &f, cutIf(f, len(name)+1, hasValue), hasValue, false)
}
