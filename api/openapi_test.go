package api

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// described are the types that openapi.yaml describes, each under its name.
var described = []any{
	ExecRequest{}, CheckRequest{}, Result{}, Provenance{}, Connection{}, Denied{}, Encoding{}, Truncated{}, Decision{}, Reason{}, At{}, Grant{}, Net{}, Receipt{}, Limits{}, Usage{},
	DecidedEvent{}, StartedEvent{}, OutputEvent{}, FinishedEvent{}, CheckAnswer{}, Status{}, Layer{}, TraceAnswer{}, ErrorAnswer{}, Error{},
	Created{}, ApprovalEvent{}, Approval{}, ApprovalCaller{}, ChangedFile{}, ApprovalRun{}, Approver{}, ApprovalDecision{}, ApprovalAnswer{}, ApprovalList{},
	LimitsRequest{}, RunInfo{}, BackgroundAnswer{}, RunsAnswer{}, RunAnswer{}, Piece{}, SignalRequest{}, StdinRequest{}, ResizeRequest{}, DoneAnswer{}, Outcome{},
	SessionRequest{}, Budget{}, Spent{}, Session{}, SessionAnswer{}, SessionList{}, WaitingAnswer{}, BatchRequest{}, BatchCommand{}, BatchAnswer{}, BatchResult{},
	Explanation{}, Part{}, Effect{}, PolicySummary{}, Rule{}, LeftOut{}, ReloadAnswer{},
}

func TestOpenAPIDescribesTheTypes(t *testing.T) {
	schemas := at(t, readYAML(t, OpenAPI), "components", "schemas")
	var names []string
	for _, v := range described {
		typ := reflect.TypeOf(v)
		names = append(names, typ.Name())
		schema, ok := schemas[typ.Name()].(map[string]any)
		if !ok {
			t.Errorf("%s is not described", typ.Name())
			continue
		}
		compare(t, typ, schema)
	}
	for name := range schemas {
		if !slices.Contains(names, name) {
			t.Errorf("%s is described, but no type", name)
		}
	}
}

// compare checks the schema's properties against the struct's JSON members.
func compare(t *testing.T, typ reflect.Type, schema map[string]any) {
	t.Helper()
	properties := at(t, schema, "properties")
	var members, required []string
	for _, f := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" {
			continue
		}
		members = append(members, name)
		if options != "omitempty" {
			required = append(required, name)
		}
		property, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("%s.%s is not described", typ.Name(), name)
			continue
		}
		nullable := f.Type.Kind() == reflect.Pointer && options != "omitempty" && !isStruct(f.Type)
		if got, want := shape(property), shapeOf(f.Type, nullable); got != want {
			t.Errorf("%s.%s is described as %s, but is %s", typ.Name(), name, got, want)
		}
	}
	for name := range properties {
		if !slices.Contains(members, name) {
			t.Errorf("%s.%s is described, but not there", typ.Name(), name)
		}
	}
	var got []string
	if list, ok := schema["required"].([]any); ok {
		for _, v := range list {
			got = append(got, v.(string))
		}
	}
	slices.Sort(got)
	slices.Sort(required)
	if !slices.Equal(got, required) {
		t.Errorf("%s requires %q, but always has %q", typ.Name(), got, required)
	}
}

func isStruct(typ reflect.Type) bool {
	return typ.Kind() == reflect.Pointer && typ.Elem().Kind() == reflect.Struct
}

// shape returns the schema in short: "string", "null|string", "[]X", "X".
func shape(schema map[string]any) string {
	if ref, ok := schema["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#/components/schemas/")
	}
	if list, ok := schema["oneOf"].([]any); ok { // something or null
		return shape(list[0].(map[string]any))
	}
	switch typ := schema["type"].(type) {
	case []any:
		return fmt.Sprintf("%v|%v", typ[1], typ[0])
	case string:
		if items, ok := schema["items"].(map[string]any); ok {
			return "[]" + shape(items)
		}
		if values, ok := schema["additionalProperties"].(map[string]any); ok {
			return "map " + shape(values)
		}
		return typ
	}
	return "nothing"
}

func shapeOf(typ reflect.Type, nullable bool) string {
	if nullable {
		return "null|" + shapeOf(typ.Elem(), false)
	}
	if typ.String() == "json.RawMessage" {
		return "object"
	}
	if typ == reflect.TypeFor[time.Time]() {
		return "string"
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return shapeOf(typ.Elem(), false)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Slice:
		return "[]" + shapeOf(typ.Elem(), false)
	case reflect.Map:
		return "map " + shapeOf(typ.Elem(), false)
	}
	return typ.Name()
}

func TestOpenAPIListsCodesAndBounds(t *testing.T) {
	schemas := at(t, readYAML(t, OpenAPI), "components", "schemas")
	var codes []string
	for _, c := range at(t, schemas, "Error", "properties", "code")["enum"].([]any) {
		codes = append(codes, c.(string))
	}
	slices.Sort(codes)
	var want []string
	for c := range statuses {
		want = append(want, string(c))
	}
	slices.Sort(want)
	if !slices.Equal(codes, want) {
		t.Errorf("codes are %q, described as %q", want, codes)
	}
	for path, want := range map[string]any{
		"timeout_ms maximum":   MaxTimeout.Milliseconds(),
		"output_limit maximum": MaxOutputLimit,
		"output_limit default": DefaultOutputLimit,
	} {
		name, what, _ := strings.Cut(path, " ")
		if got := at(t, schemas, "ExecRequest", "properties", name)[what]; got != fmt.Sprint(want) {
			t.Errorf("%s is described as %v, but is %v", path, got, want)
		}
	}
}

// TestOpenAPIRefsLead checks that no reference leads nowhere.
func TestOpenAPIRefsLead(t *testing.T) {
	doc := readYAML(t, OpenAPI)
	for line := range strings.Lines(OpenAPI) {
		if _, ref, ok := strings.Cut(line, `$ref: "#/`); ok {
			at(t, doc, strings.Split(strings.TrimSuffix(strings.TrimSpace(ref), `"`), "/")...)
		}
	}
}

// at returns the map at the path.
func at(t *testing.T, m map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, name := range path {
		next, ok := m[name].(map[string]any)
		if !ok {
			t.Fatalf("%s: nothing at %s; there is %v", strings.Join(path, "/"), name, slices.Sorted(maps.Keys(m)))
		}
		m = next
	}
	return m
}

// readYAML reads the part of YAML that openapi.yaml is written in: maps and
// lists by indentation, scalars on one line (all as strings, quotes removed),
// folded text, and lists of scalars in brackets.
func readYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	r := &yamlReader{t: t}
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if trimmed != "" {
			r.lines = append(r.lines, yamlLine{len(line) - len(strings.TrimLeft(line, " ")), trimmed})
		}
	}
	m, ok := r.block(0).(map[string]any)
	if !ok || r.pos != len(r.lines) {
		t.Fatalf("not a map, or not read to its end: line %v", r.pos)
	}
	return m
}

type yamlLine struct {
	indent int
	text   string
}

type yamlReader struct {
	t     *testing.T
	lines []yamlLine
	pos   int
}

// block reads the map or list whose lines have the indent.
func (r *yamlReader) block(indent int) any {
	if strings.HasPrefix(r.lines[r.pos].text, "- ") {
		var list []any
		for r.pos < len(r.lines) && r.lines[r.pos].indent == indent && strings.HasPrefix(r.lines[r.pos].text, "- ") {
			r.lines[r.pos] = yamlLine{indent + 2, r.lines[r.pos].text[2:]}
			list = append(list, r.block(indent+2))
		}
		return list
	}
	m := map[string]any{}
	for r.pos < len(r.lines) && r.lines[r.pos].indent == indent && !strings.HasPrefix(r.lines[r.pos].text, "- ") {
		name, value, ok := strings.Cut(r.lines[r.pos].text, ":")
		if !ok {
			r.t.Fatalf("%q is not a member", r.lines[r.pos].text)
		}
		name = strings.Trim(name, `"`)
		if m[name] != nil {
			r.t.Fatalf("%s is given twice", name)
		}
		r.pos++
		switch value = strings.TrimSpace(value); {
		case value == ">":
			for r.pos < len(r.lines) && r.lines[r.pos].indent > indent {
				r.pos++
			}
			m[name] = "folded"
		case value != "":
			m[name] = scalar(value)
		case r.pos < len(r.lines) && r.lines[r.pos].indent > indent:
			m[name] = r.block(r.lines[r.pos].indent)
		default:
			r.t.Fatalf("%s has no value", name)
		}
	}
	return m
}

func scalar(text string) any {
	inner, isList := strings.CutPrefix(text, "[")
	if !isList {
		return strings.Trim(text, `"`)
	}
	var list []any
	for part := range strings.SplitSeq(strings.TrimSuffix(inner, "]"), ",") {
		list = append(list, strings.Trim(strings.TrimSpace(part), `"`))
	}
	return list
}
