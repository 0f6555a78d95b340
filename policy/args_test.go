package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/shparse"
)

// sorter is a fact with all kinds of options.
func sorter(t *testing.T, syntax string) *fact {
	t.Helper()
	f := &fact{Names: []string{"x"}, Syntax: syntax, Flags: "-a/--all -b --brief -#",
		Options: map[string]string{"-o/--output": "write", "-n/--number": "value", "-i/--in-place": "value?", "--outer": "value", "-long": "value", "--two": "value+read",
			"+": "value", "-agent:": "value", "--end": "value", "--rest": "rest"},
		Response: "read", Ends: "--end", Operands: []string{"read..."}, Allow: []string{"x"}}
	if err := f.index(map[string]*fact{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// field makes a field of known text; "…" in it stands for something unknown.
func field(text string) shparse.Field {
	var values []shparse.Value
	for i, part := range strings.Split(text, "…") {
		if i > 0 {
			values = append(values, shparse.Unknown(shparse.Any))
		}
		values = append(values, shparse.Text(part))
	}
	return shparse.Field{Value: shparse.Concat(values...)}
}

// Options are read as GNU programs, Go programs and others read them.
func TestOptions(t *testing.T) {
	for _, row := range []struct {
		syntax, args string
		options      string // name, or name=value
		operands     string
		unknown      string
	}{
		{"", "-a x", "all", "x", ""},
		{"", "-ab x", "all b", "x", ""},
		{"", "-aofile x", "all output=file", "x", ""},
		{"", "-o file x", "output=file", "x", ""},
		{"", "x -o file", "output=file", "x", ""},
		{"", "--output=file x", "output=file", "x", ""},
		{"", "--output file x", "output=file", "x", ""},
		{"", "--outp=file", "output=file", "", ""},
		{"", "--out=file x", "outer=file output=file", "x", ""},
		{"", "--out file x", "outer=file output=file", "file x", ""},
		{"", "--outp -a x", "output=-a all", "x", ""},
		{"", "-zo -a x", "output=-a all", "x", "-z"},
		{"", "+b x", "+=b", "x", ""},
		{"", "-long=y x", "long=y", "x", ""},
		{"", "-agent:y x", "agent:=y", "x", ""},
		{"", "@file x", "@=file", "x", ""},
		{"", "@ x", "", "@ x", ""},
		{"", "--end v -a x", "end=v", "-a x", ""},
		{"", "-a --rest ls -b ; x", "all rest", "x", ""},
		{"", "--a", "all", "", ""},
		{"", "-- -a x", "", "-a x", ""},
		{"", "-i x", "in-place", "x", ""},
		{"", "-i.bak x", "in-place=.bak", "x", ""},
		{"", "--in-place x", "in-place", "x", ""},
		{"", "--in-pl=.bak x", "in-place=.bak", "x", ""},
		{"", "-20 x", "#", "x", ""},
		{"", "-z", "", "", "-z"},
		{"", "-az", "all", "", "-z"},
		{"", "--zzz=1", "", "", "--zzz"},
		{"", "- x", "", "- x", ""},
		{"", "-o", "output", "", ""},
		{"", "-o…", "output=…", "", ""},
		{"", "-…", "", "", "-"},
		{"", "-a…", "all", "", "-a"},
		{"", "--out…", "", "", "--out"},
		{"", "--output=… x", "output=…", "x", ""},
		{"", "… x", "", "… x", ""},
		{"", "x …", "", "x …", ""},
		{"", "--two a b c", "two=a two=b", "c", ""},
		{"posix", "-a x -b", "all", "x -b", ""},
		{"posix", "-o file x -a", "output=file", "x -a", ""},
		{"posix", "-a -- -b", "all", "-b", ""},
		{"words", "-a x --output=y", "", "-a x --output=y", ""},
		{"go", "-long x y", "long=x", "y", ""},
		{"go", "-long=x y", "long=x", "y", ""},
		{"go", "--long=x y -long z", "long=x long=z", "y", ""},
		{"go", "-zzz y", "", "y", "-zzz"},
		{"tar", "ao file x", "all output=file", "x", ""},
		{"tar", "-ao file x", "all output=file", "x", ""},
	} {
		var args []shparse.Field
		for _, word := range strings.Fields(row.args) {
			args = append(args, field(word))
		}
		var c call
		readArgs(&c, sorter(t, row.syntax), args)
		var options, operands, unknown []string
		for _, g := range c.options {
			text := g.option.name
			if g.hasVal {
				text += "=" + g.value.String()
			}
			options = append(options, text)
		}
		for _, f := range c.operands {
			operands = append(operands, f.String())
		}
		for _, g := range c.unknown {
			unknown = append(unknown, g.text)
		}
		if !slices.Equal(options, strings.Fields(row.options)) || !slices.Equal(operands, strings.Fields(row.operands)) ||
			!slices.Equal(unknown, strings.Fields(row.unknown)) {
			t.Errorf("%q %q: options %q, operands %q, unknown %q", row.syntax, row.args, options, operands, unknown)
		}
	}
}

// Roles are given to operands from both ends, the repeated one between.
func TestRoles(t *testing.T) {
	for _, row := range []struct {
		roles string
		count int
		want  string
	}{
		{"read...", 3, "read read read"},
		{"value read...", 3, "value read read"},
		{"read... write", 3, "read read write"},
		{"read... write", 1, "write"},
		{"read write", 3, "read write -"},
		{"value read... write", 4, "value read read write"},
		{"value read... write", 2, "value write"},
		{"", 1, "-"},
	} {
		roles, err := parseRoles(strings.Fields(row.roles))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range row.count {
			r, ok := roleOf(roles, i, row.count)
			if !ok {
				r.kind = "-"
			}
			got = append(got, string(r.kind))
		}
		if !slices.Equal(got, strings.Fields(row.want)) {
			t.Errorf("%q of %d: %q, want %q", row.roles, row.count, got, row.want)
		}
	}
}

// Wrong facts do not load.
func TestWrongFacts(t *testing.T) {
	for name, f := range map[string]*fact{
		"no names":          {Allow: []string{"x"}},
		"no examples":       {Names: []string{"x"}},
		"unknown syntax":    {Names: []string{"x"}, Allow: []string{"x"}, Syntax: "dos"},
		"unknown role":      {Names: []string{"x"}, Allow: []string{"x"}, Operands: []string{"eat"}},
		"unknown language":  {Names: []string{"x"}, Allow: []string{"x"}, Operands: []string{"code:cobol"}},
		"ask without why":   {Names: []string{"x"}, Allow: []string{"x"}, Options: map[string]string{"-a": "ask"}},
		"bare without sub":  {Names: []string{"x"}, Allow: []string{"x"}, Bare: "y"},
		"wrong role of sub": {Names: []string{"x"}, Allow: []string{"x"}, Sub: map[string]*fact{"y": {Operands: []string{"eat"}}}},
	} {
		if err := f.index(map[string]*fact{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Modes that let everybody write are told from others.
func TestWorldWritable(t *testing.T) {
	for mode, want := range map[string]bool{
		"777": true, "0777": true, "666": true, "1777": true, "002": true, "7": true, "+002": true, "a+w": true, "o+w": true, "a=rwx": true,
		"u+x,o+w": true, "go=rw": true, "ugo+w": true, "o=u": true, "a+rwx": true, "o+rw-x": true, "u=rwx,go=u": true,
		"755": false, "644": false, "700": false, "775": false, "u+w": false, "g+w": false, "+x": false, "a+x": false, "o-w": false,
		"-002": false, "o=r": false, "u+w,o+r": false, "go-w": false, "a+r,u+w": false, "": false,
	} {
		if got := worldWritable(field(mode)); got != want {
			t.Errorf("%q: %v, want %v", mode, got, want)
		}
	}
}
