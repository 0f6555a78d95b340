package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// configDir returns a directory with files, in one that nobody else can write.
func configDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := policyDir(t)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestConfigLayers: drop-ins stand above the file, later names above earlier
// ones, and flags above all.
func TestConfigLayers(t *testing.T) {
	dir := configDir(t, map[string]string{
		"pinfold.toml":              "state = \"/a\"\nprojects = [\"/srv/\"]\n[trace]\nsync = \"always\"\nkeep = \"1h\"\n[limits]\nprocesses = 9\n",
		"pinfold.toml.d/10-a.toml":  "trace.keep = \"2h\"\nlimits.processes = 10\n",
		"pinfold.toml.d/20-b.toml":  "[limits]\nprocesses = 11\n[require]\ncgroup = true\n",
		"pinfold.toml.d/.hid.toml":  "nonsense",
		"pinfold.toml.d/30-c.other": "nonsense",
	})
	c, _ := parseCommand([]string{"--user", "--config", filepath.Join(dir, "pinfold.toml"), "--trace-keep", "3h", "--socket", "s"})
	o, err := c.options()
	if err != nil {
		t.Fatal(err)
	}
	here, _ := filepath.Abs("s")
	if o.state != "/a" || o.traceSync != "always" || o.traceKeep != 3*time.Hour || o.processes != 11 || !o.requireCgroup || o.socket != here ||
		!reflect.DeepEqual(o.projects, []string{"/srv"}) || len(c.files) != 3 {
		t.Errorf("got %+v from %q", o, c.files)
	}
	if b := o.bounds(); b.Limits.Processes != 11 || !b.RequireCgroup || b.Limits.MemoryBytes != 4<<30 {
		t.Errorf("bounds are %+v", b)
	}
}

// TestConfigErrors: what is wrong is named with file, line and column.
func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"stat = \"/x\"\n", `unknown key "stat": want one of socket, state,`},
		{"[trace]\nsink = 1\n", `:2:8: unknown key "trace.sink": want one of trace.sync,`},
		{"\n[tracing]\nsync = 1\n", `unknown key "tracing"`},
		{"[trace]\nsync = \"never\"\n", `trace.sync: must be "written" or "always"`},
		{"[trace]\nsync = 1\nkeep = \"x\"\n", ":2:8: trace.sync: must be"},
		{"[trace]\nsync = 1\nkeep = \"x\"\n", "trace.keep: must be a time"},
		{"idle = \"-3s\"\n", "idle: must be at least 0s"},
		{"[limits]\nprocesses = 1\n", ":2:13: limits.processes: must be from 8 to"},
		{"[limits]\nprocesses = 20.5\n", "must be a whole number"},
		{"state = \"relative\"\n", "state: must be an absolute path"},
		{"projects = [\"/a\", 3]\n", "projects: must be a list"},
		{"state = { a = 1 }\n", "state: must be an absolute path"},
		{"trace = 3\n", `unknown key "trace"`},
		{"state =\n", ":1:8: "},
		{"state = \"/a\"\nstate = \"/b\"\n", ":2:"},
	} {
		file := filepath.Join(configDir(t, map[string]string{"pinfold.toml": c.text}), "pinfold.toml")
		o := defaults(true)
		_, err := readConfig(&o, file, true)
		if err == nil || !strings.Contains(err.Error(), file+":") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := readConfig(new(options), "/nonexistent/pinfold.toml", true); err == nil {
		t.Error("a file that was named and is missing is no error")
	}
	if read, err := readConfig(new(options), "/nonexistent/pinfold.toml", false); err != nil || read != nil {
		t.Errorf("got %v, %v", read, err)
	}
}

// TestConfigOwner: others cannot have written it.
func TestConfigOwner(t *testing.T) {
	dir := configDir(t, map[string]string{"pinfold.toml": "", "pinfold.toml.d/a.toml": ""})
	for _, name := range []string{"pinfold.toml", "pinfold.toml.d/a.toml", "pinfold.toml.d"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := readConfig(new(options), filepath.Join(dir, "pinfold.toml"), true); err == nil || !strings.Contains(err.Error(), "of a configuration must not be writable by others") {
			t.Errorf("%s: got %v", name, err)
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSettings: each key can be set and is kept where no other is, and is
// described.
func TestSettings(t *testing.T) {
	seen := map[any]string{}
	o := defaults(false)
	for i := range settings {
		s := &settings[i]
		if s.doc == "" || s.usual == "" || !strings.HasSuffix(s.doc, ".") || settingOf(s.key) != s {
			t.Errorf("%s: is not described, or twice there", s.key)
		}
		at := s.in(&o)
		if other := seen[at]; other != "" {
			t.Errorf("%s is kept where %s is", s.key, other)
		}
		seen[at] = s.key
		var value any
		switch at := at.(type) {
		case *string:
			value = "/some/where"
			if s.oneOf != nil {
				value = s.oneOf[len(s.oneOf)-1]
			}
		case *[]string:
			value = []any{"/some/where"}
		case *bool:
			value = true
		case *int64:
			if *at < s.least || s.most > 0 && *at > s.most {
				t.Errorf("%s: the default %d is out of bounds", s.key, *at)
			}
			value = s.least + 1
		case *time.Duration:
			value = "77m"
		default:
			t.Fatalf("%s: is a %T", s.key, at)
		}
		before := reflect.ValueOf(at).Elem().Interface()
		if err := s.set(&o, value); err != nil || reflect.DeepEqual(before, reflect.ValueOf(at).Elem().Interface()) {
			t.Errorf("%s: %v, is %v as before", s.key, err, before)
		}
		if err := s.set(&o, 1.5); err == nil {
			t.Errorf("%s: takes 1.5", s.key)
		}
	}
}

// TestManual: the page has an entry for each key, and no other lines that
// man(7) would take for requests.
func TestManual(t *testing.T) {
	page := manual()
	for _, s := range settings {
		if n := strings.Count(page, "\n.TP\n.B "+roff(s.key)+"\n"); n != 1 {
			t.Errorf("%s: %d entries", s.key, n)
		}
	}
	known := map[string]bool{".TH": true, ".SH": true, ".SS": true, ".nf": true, ".fi": true, ".PP": true, ".TP": true, ".B": true, ".BR": true, ".I": true, ".IR": true, ".br": true}
	for line := range strings.Lines(page) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if (strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")) && !known[word] {
			t.Errorf("%q", line)
		}
	}
}
