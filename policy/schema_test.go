package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/pinfold/pinfold/shparse"
)

func readSchema(t *testing.T) map[string]any {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal([]byte(Schema), &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// The schema has every key that the loader takes, and no other.
func TestSchemaHasEveryKey(t *testing.T) {
	root := readSchema(t)
	rule := root["$defs"].(map[string]any)["rule"].(map[string]any)
	properties := root["properties"].(map[string]any)
	for _, row := range []struct {
		typ    reflect.Type
		schema any
	}{
		{reflect.TypeFor[policyFile](), root}, {reflect.TypeFor[ruleFile](), rule},
		{reflect.TypeFor[bounds](), root["$defs"].(map[string]any)["bounds"]},
		{reflect.TypeFor[projectFile](), root["$defs"].(map[string]any)["project"]},
		{reflect.TypeFor[builtinFile](), properties["builtin"]}, {reflect.TypeFor[placesFile](), properties["places"]},
	} {
		described := row.schema.(map[string]any)["properties"].(map[string]any)
		var keys []string
		for _, f := range reflect.VisibleFields(row.typ) {
			key := f.Tag.Get("toml")
			if key == "" || key == "-" {
				continue
			}
			keys = append(keys, key)
			property, ok := described[key].(map[string]any)
			if !ok {
				t.Errorf("%s: the key %s is not in the schema", row.typ, key)
				continue
			}
			isWords := f.Type == reflect.TypeFor[words]() || f.Type == reflect.TypeFor[*words]()
			if isWords != (property["anyOf"] != nil) {
				t.Errorf("%s: the key %s is a %s, in the schema %v", row.typ, key, f.Type, property)
			}
			if isList := f.Type.Kind() == reflect.Slice && !isWords; isList != (property["type"] == "array") {
				t.Errorf("%s: the key %s is a %s, in the schema %v", row.typ, key, f.Type, property["type"])
			}
		}
		for key := range described {
			if !slices.Contains(keys, key) {
				t.Errorf("%s: the schema has a key %s, which the loader does not take", row.typ, key)
			}
		}
	}
	ruleKeys := rule["properties"].(map[string]any)
	for key, names := range map[string][]string{"effects": effectNames[:], "places": placeNames[:]} {
		choices := ruleKeys[key].(map[string]any)["anyOf"].([]any)
		if got := wordsOf(choices[0].(map[string]any)["enum"]); !slices.Equal(got, names) {
			t.Errorf("%s: the schema has %q, the loader %q", key, got, names)
		}
	}
	for key, names := range map[string][]string{"verdict": verdictNames[:], "risk": riskNames[:]} {
		if got := wordsOf(ruleKeys[key].(map[string]any)["enum"]); !slices.Equal(got, names) {
			t.Errorf("%s: the schema has %q, the loader %q", key, got, names)
		}
	}
	for _, name := range wordsOf(properties["profile"].(map[string]any)["enum"]) {
		if _, ok := profiles[name]; !ok {
			t.Errorf("the schema has a profile %s", name)
		}
	}
}

func wordsOf(list any) (out []string) {
	for _, v := range list.([]any) {
		out = append(out, v.(string))
	}
	return out
}

// The built-in policies and the example of the README are as the schema says;
// what is wrong is not.
func TestSchemaHoldsPolicies(t *testing.T) {
	root := readSchema(t)
	valid := map[string]string{"default.toml": defaultText, "workspace.toml": workspaceText, "README.md": readmePolicy(t)}
	for name, text := range valid {
		if problems := validate(t, root, text); problems != nil {
			t.Errorf("%s: %q", name, problems)
		}
	}
	for _, text := range []string{
		"profile = 'lax'", "default = 'auto'", "unknown = 1", "readable = ['x']", "readable = '/x'", "[builtin]\nenable = ['x']",
		"[[rule]]\nid = 'a'", "[[rule]]\nid = 'a'\nreason = 'r'\nverdict = 'ask'", "[[rule]]\nid = 'a'\nreason = 'r'\neffects = ['flies']",
		"[rule]\nid = 'a'\nreason = 'r'", "[[rule]]\nid = ''\nreason = 'r'",
	} {
		if validate(t, root, text) == nil {
			t.Errorf("the schema takes %q", text)
		}
		if _, err := Load(Source{"wrong.toml", text}); err == nil {
			t.Errorf("the loader takes %q", text)
		}
	}
}

// The site's policy that the README shows does what the README says.
func TestReadmePolicy(t *testing.T) {
	p, err := Load(Source{"README.md", readmePolicy(t)})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Readable(), []string{"/srv/shared-docs"}) {
		t.Errorf("readable: %q", p.Readable())
	}
	for text, want := range map[string]Verdict{"terraform apply": Deny, "terraform fmt": Allow, "npm test": Allow, "git push": RequireApproval} {
		s, err := shparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Decide(s, exampleEnv); d.Verdict != want {
			t.Errorf("%s: %v, want %v: %+v", text, d.Verdict, want, d.Reasons)
		}
	}
}

// readmePolicy returns the first TOML block of README.md.
func readmePolicy(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "```toml\n")
	text, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md shows no policy")
	}
	return text
}

// validate checks TOML against the part of JSON Schema that schema.json uses.
func validate(t *testing.T, root map[string]any, text string) []string {
	t.Helper()
	var doc map[string]any
	if _, err := toml.Decode(text, &doc); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatal(err)
	}
	c := schemaCheck{root: root}
	c.check("", root, plain)
	return c.problems
}

type schemaCheck struct {
	root     map[string]any
	problems []string
}

func (c *schemaCheck) wrong(path, format string, args ...any) {
	c.problems = append(c.problems, path+": "+fmt.Sprintf(format, args...))
}

func (c *schemaCheck) check(path string, schema map[string]any, value any) {
	for key := range schema {
		switch key {
		case "$schema", "$defs", "$ref", "title", "description", "default", "type", "properties", "additionalProperties", "required", "items", "enum", "minLength", "pattern", "anyOf":
		default:
			c.wrong(path, "this check does not know %s", key)
		}
	}
	if ref, ok := schema["$ref"].(string); ok {
		at := c.root
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at[name].(map[string]any)
		}
		c.check(path, at, value)
		return
	}
	if choices, ok := schema["anyOf"].([]any); ok {
		for _, choice := range choices {
			alone := schemaCheck{root: c.root}
			if alone.check(path, choice.(map[string]any), value); alone.problems == nil {
				return
			}
		}
		c.wrong(path, "is none of what it may be")
		return
	}
	switch v := value.(type) {
	case bool:
		if schema["type"] != "boolean" {
			c.wrong(path, "is true or false")
		}
	case string:
		c.text(path, schema, v)
	case []any:
		if schema["type"] != "array" {
			c.wrong(path, "is a list")
			return
		}
		for i, item := range v {
			c.check(fmt.Sprintf("%s[%d]", path, i), schema["items"].(map[string]any), item)
		}
	case map[string]any:
		c.object(path, schema, v)
	default:
		c.wrong(path, "is neither text, list nor table")
	}
}

func (c *schemaCheck) text(path string, schema map[string]any, v string) {
	if schema["type"] != "string" {
		c.wrong(path, "is text")
	}
	if list, ok := schema["enum"]; ok && !slices.Contains(wordsOf(list), v) {
		c.wrong(path, "%q is none of %q", v, wordsOf(list))
	}
	if least, ok := schema["minLength"].(float64); ok && len(v) < int(least) {
		c.wrong(path, "is too short")
	}
	if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
		c.wrong(path, "%q is not like %s", v, pattern)
	}
}

func (c *schemaCheck) object(path string, schema map[string]any, v map[string]any) {
	if schema["type"] != "object" {
		c.wrong(path, "is a table")
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, value := range v {
		if property, ok := properties[key].(map[string]any); ok {
			c.check(path+"."+key, property, value)
		} else if others, ok := schema["additionalProperties"].(map[string]any); ok {
			c.check(path+"."+key, others, value)
		} else {
			c.wrong(path, "the key %s is not known", key)
		}
	}
	if list, ok := schema["required"]; ok {
		for _, key := range wordsOf(list) {
			if _, ok := v[key]; !ok {
				c.wrong(path, "%s is missing", key)
			}
		}
	}
}
