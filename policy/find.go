package policy

import (
	"strings"

	"github.com/pinfold/pinfold/shparse"
)

// find judges paths that are searched, and an expression of words that begin
// with a dash.
func (x *execution) find() {
	args := x.call.operands
	starts := []shparse.Field{}
	for len(args) > 0 && !startsExpression(args[0]) {
		f := args[0]
		if text, known := f.Known(); known && (text == "-H" || text == "-L" || text == "-P") {
			args = args[1:]
			continue
		}
		if o := x.call.fact.options[f.Prefix()]; o != nil && strings.HasPrefix(f.Prefix(), "-") {
			break
		}
		x.paths(f, effectReads)
		starts = append(starts, f)
		args = args[1:]
	}
	for len(args) > 0 {
		args = x.findWord(args, starts)
	}
}

func startsExpression(f shparse.Field) bool {
	p := f.Prefix()
	if p == "-H" || p == "-L" || p == "-P" {
		return false
	}
	return len(p) > 1 && p[0] == '-' || p == "(" || p == "!" || p == "," || p == ")"
}

// findWord judges one word of the expression with its values and returns what
// follows.
func (x *execution) findWord(args, starts []shparse.Field) []shparse.Field {
	f := args[0]
	args = args[1:]
	text, known := f.Known()
	if !known || f.Many {
		if strings.HasPrefix(f.Prefix(), "-") {
			x.judge.effect(x, &effect{kind: effectOption, detail: f.String(), at: x.span(f)})
		}
		return args
	}
	switch text {
	case "(", ")", "!", ",":
		return args
	}
	if f.Listed && strings.HasPrefix(text, "-") {
		x.judge.effect(x, &effect{kind: effectOption, detail: "a file name that is read as an option: " + text, at: x.span(f)})
	}
	o := x.call.fact.options[text]
	switch {
	case o == nil && strings.HasPrefix(text, "-newer"):
		return x.findValue(role{kind: roleRead}, args)
	case o == nil && strings.HasPrefix(text, "-"):
		x.judge.effect(x, &effect{kind: effectOption, detail: text, at: x.span(f)})
		return args
	case o == nil:
		x.paths(f, effectReads)
		return args
	case o.role.kind == roleCommand:
		return x.findCommand(text, args, starts)
	case o.role.kind == roleDelete:
		for _, s := range orHere(starts, f) {
			x.writes(s, inside, effectDeletes)
		}
		return args
	case o.role.kind == roleFlag:
		return args
	case o.role.kind == roleAsks:
		x.asked(text+" "+o.role.detail, x.span(f))
		return args
	}
	args = x.findValue(o.role, args)
	if text == "-fprintf" { // its second value is the format
		return args[min(1, len(args)):]
	}
	return args
}

func (x *execution) findValue(r role, args []shparse.Field) []shparse.Field {
	if len(args) == 0 {
		return nil
	}
	x.role(r, args[0], 0)
	return args[1:]
}

// orHere returns the starting points of a search: the current directory when
// none is named.
func orHere(starts []shparse.Field, at shparse.Field) []shparse.Field {
	if len(starts) > 0 {
		return starts
	}
	at.Value = shparse.Text(".")
	return []shparse.Field{at}
}

// findCommand judges the command of -exec, up to its ";" or "+".
func (x *execution) findCommand(text string, args, starts []shparse.Field) []shparse.Field {
	end := len(args)
	for i, f := range args {
		if isExactly(f, ";") || isExactly(f, "+") && i > 0 && isExactly(args[i-1], "{}") {
			end = i
			break
		}
	}
	if end == 0 {
		return args[min(1, len(args)):]
	}
	in := x.in
	in.depth, in.external = in.depth+1, true
	dirs := x.dirs
	found := shparse.Unknown(shparse.Any)
	if strings.HasSuffix(text, "dir") {
		dirs, found = nil, shparse.Concat(shparse.Text("./"), shparse.Unknown(shparse.Name))
	} else if all := orHere(starts, x.argv[0]); len(all) == 1 {
		if start, known := all[0].Known(); known {
			found = shparse.Concat(shparse.Text(strings.TrimSuffix(start, "/")+"/"), shparse.Unknown(shparse.Any))
		}
	}
	x.judge.run(replaced(args[:end], "{}", found), dirs, shparse.Input{}, in)
	return args[min(end+1, len(args)):]
}

// fileTests are the operators of test whose operand is a path.
const fileTests = "abcdefghkprstuwxGLNOS"

// test judges the expressions of test and [.
func (x *execution) test() {
	args := x.call.operands
	for i, f := range args {
		text, known := f.Known()
		if !known || f.Many {
			continue
		}
		unary := len(text) == 2 && text[0] == '-' && strings.IndexByte(fileTests, text[1]) >= 0
		if unary && i+1 < len(args) && !(text == "-a" && i > 0) && text != "-t" {
			x.paths(args[i+1], effectReads)
		}
		if (text == "-nt" || text == "-ot" || text == "-ef") && i > 0 && i+1 < len(args) {
			x.paths(args[i-1], effectReads)
			x.paths(args[i+1], effectReads)
		}
	}
}
