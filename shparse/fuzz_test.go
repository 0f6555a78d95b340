package shparse

import (
	"errors"
	"testing"
)

// FuzzParse looks for text on which parsing, printing or reading fails, or
// whose canonical text is another script.
func FuzzParse(f *testing.F) {
	for seed := range 40 {
		g := generator{choices: choices(3000 + seed)}
		f.Add(g.script())
	}
	for _, text := range []string{"a\r\n", "cat <<-'E'\n\tx\nE", "`\\``", "${a[${b}]}", "[[ a =~ (b|c) ]]", "((a[1]++))", "a=([1]=b)", "$'\\x'", "{1..3}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (*Script, error){Parse, ParsePOSIX} {
			s, err := parse(text)
			if err != nil {
				var e *Error
				if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 {
					t.Fatalf("%q: error %#v", text, err)
				}
				continue
			}
			for _, act := range s.Read(hostWorld{"/home/u"}, Start{Dirs: []string{"/nowhere"}}) {
				if offset, end := Place(act); offset < 0 || offset > len(s.Source) || end < offset {
					t.Errorf("%q: %#v at %d to %d", text, act, offset, end)
				}
			}
			again, err := parse(s.Text)
			if err != nil {
				t.Fatalf("%q: canonical text %q: %v", text, s.Text, err)
			}
			if again.Text != s.Text || !sameShape(again.stmts, s.stmts) {
				t.Errorf("%q: canonical text %q becomes %q", text, s.Text, again.Text)
			}
		}
	})
}
