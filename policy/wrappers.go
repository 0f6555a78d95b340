package policy

import (
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// wrapped judges the command that a wrapper runs.
func (x *execution) wrapped(argv []shparse.Field) {
	base := x.base
	in := x.in
	in.depth++
	in.external = in.external || !x.call.fact.Builtin || base == "exec"
	in.opaque, in.local = in.opaque || x.call.fact.Opaque && x.call.fact.Runner, in.local || x.call.fact.Runner
	stdin := x.stdin
	if first, known := argv[0].Known(); known && first == "" {
		return
	}
	if base == "xargs" {
		stdin = shparse.Input{Kind: shparse.Piped}
		more := x.fromInput(argv)
		if len(more) > len(argv) && !x.call.has("no-run-if-empty") && in.input != someInput { // it runs once though there is no input
			none := in
			none.input = noInput
			x.judge.run(argv, x.dirs, stdin, none)
		}
		if in.input == noInput {
			return
		}
		in.input = someInput
		argv = more
	}
	x.judge.run(argv, x.dirs, stdin, in)
}

// restCommand judges the command that an option ends with. What stands for a
// file in it, or is added to it, is not known.
func (x *execution) restCommand(g given) {
	if len(g.rest) == 0 {
		return
	}
	argv := replaced(g.rest, "{}", shparse.Unknown(shparse.Any))
	more := argv[len(argv)-1]
	more.Value, more.Many, more.Listed = shparse.Unknown(shparse.Any), true, false
	in := x.in
	in.depth, in.external = in.depth+1, true
	in.opaque, in.local = in.opaque || x.call.fact.Opaque && x.call.fact.Runner, in.local || x.call.fact.Runner
	x.judge.run(append(argv, more), x.dirs, shparse.Input{}, in)
}

// fromInput returns the command of xargs with what it reads: in the places of
// the replacement string, or any number of words at the end.
func (x *execution) fromInput(argv []shparse.Field) []shparse.Field {
	replace := ""
	for _, g := range x.call.options {
		if g.option.role.kind != roleReplStr {
			continue
		}
		replace = "{}"
		if text, known := g.value.Known(); g.hasVal && known && text != "" {
			replace = text
		} else if g.hasVal && !known {
			replace = ""
		}
	}
	if replace == "" {
		more := argv[len(argv)-1]
		more.Value, more.Many, more.Listed = shparse.Unknown(shparse.Any), true, false
		return append(argv[:len(argv):len(argv)], more)
	}
	return replaced(argv, replace, shparse.Unknown(shparse.Any))
}

// replaced returns the words with every occurrence of the text replaced.
func replaced(argv []shparse.Field, text string, by shparse.Value) []shparse.Field {
	out := make([]shparse.Field, len(argv))
	for i, f := range argv {
		out[i] = f
		known, ok := f.Known()
		if !ok || !strings.Contains(known, text) {
			continue
		}
		parts := strings.Split(known, text)
		v := shparse.Text(parts[0])
		for _, part := range parts[1:] {
			v = shparse.Concat(v, by, shparse.Text(part))
		}
		out[i].Value = v
	}
	return out
}

// assignsThenCommand judges the operands of env: NAME=VALUE words, then a
// command.
func (x *execution) assignsThenCommand(operands []shparse.Field) {
	for i, f := range operands {
		name, _, found := strings.Cut(f.Prefix(), "=")
		if found && !f.Many {
			x.judge.assign(&shparse.Assign{Name: name, Value: f.Value.Cut(len(name) + 1), Command: "env", Offset: f.Offset, End: f.End})
			continue
		}
		x.wrapped(operands[i:])
		return
	}
}

// split judges the text that env -S splits into words: only when it is plain
// words, since its escapes are its own.
func (x *execution) split(f shparse.Field, index int) {
	text, known := f.Known()
	if !known || strings.ContainsAny(text, "\\\"'${}#") {
		x.asked("splits text in a way that is not followed", x.span(f))
		x.judge.opaque()
		return
	}
	var argv []shparse.Field
	for _, word := range strings.Fields(text) {
		w := f
		w.Value = shparse.Text(word)
		argv = append(argv, w)
	}
	argv = append(argv, x.call.operands...)
	x.call.operands = nil
	if len(argv) > 0 {
		x.assignsThenCommand(argv)
	}
}

// program judges a program that an option names, with arguments that the
// command chooses.
func (x *execution) program(f shparse.Field) {
	text, known := f.Known()
	if known && text == "" {
		return
	}
	argv := []shparse.Field{f}
	if words := strings.Fields(text); known && len(words) > 1 {
		argv = argv[:0]
		for _, word := range words {
			w := f
			w.Value = shparse.Text(word)
			argv = append(argv, w)
		}
	}
	more := f
	more.Value, more.Many = shparse.Unknown(shparse.Any), true
	in := x.in
	in.depth, in.external = in.depth+1, true
	x.judge.run(append(argv, more), x.dirs, shparse.Input{Kind: shparse.Piped}, in)
}

// code judges text in a language.
func (x *execution) code(language string, f shparse.Field) {
	text, known := f.Known()
	switch {
	case language == "sh" || language == "bash":
		x.shellText(language, f, []shparse.Field{{Value: shparse.Text(language)}})
	case language == "opaque":
	case !known || f.Many:
		// Unknown text is bounded by the grant: nothing but this program can
		// be executed, and nothing written that is not granted.
	case language == "sed":
		x.sed(text, f)
	case language == "awk":
		x.awk(text, f)
	case language == "sqlite":
		x.sqlite(text, f)
	}
}

// shellText judges text that a shell will run, in the grammar of that shell.
func (x *execution) shellText(language string, f shparse.Field, args []shparse.Field) {
	at := x.span(f)
	text, known := f.Known()
	if !known || f.Many {
		x.judge.effect(x, &effect{kind: effectCode, detail: "runs shell text that is not known", at: at})
		x.judge.opaque()
		return
	}
	if x.in.depth >= maxDepth {
		x.judge.unread(at)
		return
	}
	parse := shparse.Parse
	if language == "sh" {
		parse = shparse.ParsePOSIX
	}
	s, err := parse(text)
	if err != nil {
		x.judge.effect(x, &effect{kind: effectCode, detail: "runs shell text that cannot be read: " + err.Error(), at: at})
		x.judge.opaque()
		return
	}
	x.judge.nested(s, at, shparse.Start{Dirs: x.dirs, Args: args, ArgsKnown: len(args) > 0, Stdin: x.stdin}, x.in)
}

// shell judges sh, bash and dash: text after -c, a script, or standard input.
func (x *execution) shell() {
	language := "sh"
	if x.base == "bash" {
		language = "bash"
	}
	command, rest, fromInput := x.shellOptions(x.call.operands)
	switch {
	case command && len(rest) > 0:
		args := rest[1:]
		if len(args) == 0 {
			args = []shparse.Field{{Value: shparse.Text(language)}}
		}
		x.shellText(language, rest[0], args)
	case command:
	case len(rest) > 0 && !fromInput:
		x.paths(rest[0], effectReads)
		x.judge.effect(x, &effect{kind: effectOpaque, detail: rest[0].String(), at: x.span(rest[0])})
		x.judge.opaque()
	case x.stdin.Kind == shparse.Document:
		f := x.argv[0]
		f.Value = x.stdin.Text
		x.stdin = shparse.Input{}
		x.shellText(language, f, nil)
	default:
		x.judge.effect(x, &effect{kind: effectCode, detail: "runs shell text from its standard input", at: x.at})
		x.judge.opaque()
	}
}

// shellOptions reads the options of a shell and returns whether -c and -s were
// among them, and the words after the options.
func (x *execution) shellOptions(args []shparse.Field) (command bool, rest []shparse.Field, fromInput bool) {
	for len(args) > 0 {
		f := args[0]
		text, known := f.Known()
		switch {
		case !known || f.Many:
			if strings.HasPrefix(f.Prefix(), "-") || f.Prefix() == "" {
				x.judge.effect(x, &effect{kind: effectCode, detail: "a shell whose options are not known", at: x.span(f)})
				x.judge.opaque()
			}
			return command, args, fromInput
		case text == "--" || text == "-":
			return command, args[1:], fromInput
		case text == "--norc", text == "--noprofile", text == "--login", text == "--noediting", text == "--verbose":
		case strings.HasPrefix(text, "--"):
			x.asked("the option "+text+" of a shell", x.span(f))
		case len(text) > 1 && (text[0] == '-' || text[0] == '+'):
			letters := text[1:]
			command = command || text[0] == '-' && strings.Contains(letters, "c")
			fromInput = fromInput || strings.Contains(letters, "s")
			if strings.Trim(letters, "cseuxvfnlho") != "" {
				x.asked("the option "+text+" of a shell", x.span(f))
			}
			if strings.ContainsAny(letters, "oO") && len(args) > 1 {
				args = args[1:]
				if name, _ := args[0].Known(); name != "pipefail" && name != "errexit" && name != "nounset" && name != "xtrace" {
					x.asked("a mode of a shell that is not known", x.span(args[0]))
				}
			}
		default:
			return command, args, fromInput
		}
		args = args[1:]
	}
	return command, nil, fromInput
}

// pairs judges the operands of dd: name=value.
func (x *execution) pairs() {
	for _, f := range x.call.operands {
		name, _, found := strings.Cut(f.Prefix(), "=")
		o := x.call.fact.options[name+"="]
		switch {
		case f.Many || !found || o == nil:
			x.judge.effect(x, &effect{kind: effectOption, detail: f.String(), at: x.span(f)})
		case o.role.kind != roleFlag:
			x.role(o.role, cutField(f, len(name)+1), 0)
		}
	}
}
