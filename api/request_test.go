package api

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseExec(t *testing.T) {
	limit := 5
	zero := 0
	for _, c := range []struct {
		name, body string
		want       ExecRequest
		fields     []string // of the refusal
	}{
		{name: "least", body: `{"project":"/p","command":"ls"}`, want: ExecRequest{Project: "/p", Command: "ls"}},
		{name: "all", body: ` { "cwd" : "a/b" , "timeout_ms":1500,"output_limit": 5,"command":"ls","project":"/p" } ` + "\n",
			want: ExecRequest{Project: "/p", Command: "ls", Cwd: "a/b", TimeoutMS: 1500, OutputLimit: &limit}},
		{name: "no output", body: `{"project":"/p","command":"ls","output_limit":0}`, want: ExecRequest{Project: "/p", Command: "ls", OutputLimit: &zero}},
		{name: "escapes", body: `{"project":"\/p","command":"a\n\t\"\\\u00e9\ud83d\ude00é"}`,
			want: ExecRequest{Project: "/p", Command: "a\n\t\"\\é😀é"}},
		{name: "escaped name", body: `{"pr\u006fject":"/p","command":"ls"}`, want: ExecRequest{Project: "/p", Command: "ls"}},
		{name: "cwd that goes up and comes back", body: `{"project":"/p","command":"ls","cwd":"a/../b"}`,
			want: ExecRequest{Project: "/p", Command: "ls", Cwd: "a/../b"}},

		{name: "empty", body: ``, fields: []string{"body: must be a JSON object, but ends too early"}},
		{name: "not JSON", body: `project=/p`, fields: []string{"body: must be one JSON object and nothing else; the error is at byte 1"}},
		{name: "an array", body: `[]`, fields: []string{"body: must be a JSON object"}},
		{name: "null", body: `null`, fields: []string{"body: must be a JSON object"}},
		{name: "trailing data", body: `{"project":"/p","command":"ls"}{}`,
			fields: []string{"body: must be one JSON object and nothing else; the error is at byte 32"}},
		{name: "cut off", body: `{"project":"/p","command":"ls`, fields: []string{"body: must be a JSON object, but ends too early"}},
		{name: "invalid UTF-8", body: "{\"project\":\"/p\",\"command\":\"\xff\"}", fields: []string{"body: must be valid UTF-8"}},
		{name: "lone surrogate", body: `{"project":"/p","command":"\ud800x"}`,
			fields: []string{"command: must be valid Unicode, without lone surrogates"}},
		{name: "low surrogate first", body: `{"project":"/p","command":"\ude00\ud83d"}`,
			fields: []string{"command: must be valid Unicode, without lone surrogates"}},
		{name: "NUL", body: `{"project":"/p","command":"a\u0000b"}`, fields: []string{"command: must not contain NUL"}},
		{name: "missing", body: `{}`, fields: []string{"project: is missing", "command: is missing"}},
		{name: "empty command", body: `{"project":"/p","command":" \n"}`, fields: []string{"command: must not be empty"}},
		{name: "wrong types", body: `{"project":["/p"],"command":null,"cwd":1,"timeout_ms":"1","output_limit":true}`,
			fields: []string{"project: must be a string", "command: must be a string", "cwd: must be a string",
				"timeout_ms: must be a number", "output_limit: must be a number"}},
		{name: "relative project", body: `{"project":"p","command":"ls"}`, fields: []string{"project: must be an absolute path"}},
		{name: "control in project", body: `{"project":"/p\n","command":"ls"}`, fields: []string{"project: must not contain control characters"}},
		{name: "long project", body: `{"project":"/` + strings.Repeat("p", MaxPath) + `","command":"ls"}`,
			fields: []string{"project: must be at most 4096 bytes"}},
		{name: "absolute cwd", body: `{"project":"/p","command":"ls","cwd":"/p"}`, fields: []string{"cwd: must be relative to the project"}},
		{name: "cwd outside", body: `{"project":"/p","command":"ls","cwd":"a/../../p"}`, fields: []string{"cwd: must lie inside the project"}},
		{name: "no time", body: `{"project":"/p","command":"ls","timeout_ms":0}`,
			fields: []string{"timeout_ms: must be a whole number from 1 to 3600000"}},
		{name: "fraction", body: `{"project":"/p","command":"ls","timeout_ms":1.0}`,
			fields: []string{"timeout_ms: must be a whole number from 1 to 3600000"}},
		{name: "exponent", body: `{"project":"/p","command":"ls","timeout_ms":1e3}`,
			fields: []string{"timeout_ms: must be a whole number from 1 to 3600000"}},
		{name: "too much time", body: `{"project":"/p","command":"ls","timeout_ms":99999999999999999999}`,
			fields: []string{"timeout_ms: must be a whole number from 1 to 3600000"}},
		{name: "negative output", body: `{"project":"/p","command":"ls","output_limit":-1}`,
			fields: []string{"output_limit: must be a whole number from 0 to 1000000"}},
		{name: "unknown field", body: `{"project":"/p","command":"ls","uid":0}`, fields: []string{"uid: unknown field"}},
		{name: "another case", body: `{"Project":"/p","project":"/p","command":"ls"}`, fields: []string{"field 1: unknown field"}},
		{name: "nested unknown", body: `{"project":"/p","x":{"a":[1,"]}",{"b":"\""}]},"command":"ls"}`, fields: []string{"x: unknown field"}},
		{name: "a secret as a name", body: `{"project":"/p","command":"ls","sk-A1b2C3":"x"}`, fields: []string{"field 3: unknown field"}},
		{name: "given twice", body: `{"project":"/p","command":"ls","command":"rm"}`, fields: []string{"command: given more than once"}},
		{name: "given twice by escape", body: `{"project":"/p","command":"ls","comm\u0061nd":"rm"}`, fields: []string{"command: given more than once"}},
		{name: "more than five", body: `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}`,
			fields: []string{"a: unknown field", "b: unknown field", "c: unknown field", "d: unknown field", "e: unknown field"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseExec([]byte(c.body))
			if err == nil {
				if c.fields != nil {
					t.Fatalf("accepted, want %q", c.fields)
				}
				if got.Project != c.want.Project || got.Command != c.want.Command || got.Cwd != c.want.Cwd || got.TimeoutMS != c.want.TimeoutMS ||
					(got.OutputLimit == nil) != (c.want.OutputLimit == nil) || got.OutputLimit != nil && *got.OutputLimit != *c.want.OutputLimit {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				return
			}
			if !slices.Equal(err.Fields, c.fields) {
				t.Errorf("got  %q\nwant %q", err.Fields, c.fields)
			}
			if err.Code != InvalidArguments || err.Retryable {
				t.Errorf("got %+v", err)
			}
		})
	}
}

func TestParseCheckTakesNoMore(t *testing.T) {
	if _, err := ParseCheck([]byte(`{"project":"/p","command":"ls","cwd":"a"}`)); err != nil {
		t.Error(err)
	}
	if _, err := ParseCheck([]byte(`{"project":"/p","command":"ls","timeout_ms":1}`)); err == nil {
		t.Error("timeout_ms was accepted")
	}
}

func TestRefusalNeverEchoes(t *testing.T) {
	const secret = "hunter2-Secret"
	for _, body := range []string{
		secret,
		`{"project":"` + secret + `","command":"` + secret + `\u0000","cwd":"/` + secret + `"}`,
		`{"` + secret + `":"` + secret + `","timeout_ms":"` + secret + `"}`,
		`{"project":"/p","command":"` + secret,
	} {
		_, err := ParseExec([]byte(body))
		if err == nil {
			t.Errorf("%s: accepted", body)
		} else if strings.Contains(err.Error()+strings.Join(err.Fields, ""), secret) {
			t.Errorf("%s: repeated in %v", body, err)
		}
	}
}

// FuzzParseExec checks that no body makes the reader panic, and that what it
// accepts is within the bounds.
func FuzzParseExec(f *testing.F) {
	f.Add(`{"project":"/p","command":"ls","cwd":"a","timeout_ms":1,"output_limit":2}`)
	f.Add(`{"\ud83d":[{"a":"\\\""},-1e5],"x":null}`)
	f.Fuzz(func(t *testing.T, body string) {
		r, err := ParseExec([]byte(body))
		if err != nil {
			if len(err.Fields) == 0 || len(err.Fields) > 5 {
				t.Errorf("%d fields", len(err.Fields))
			}
			return
		}
		if r.Project[0] != '/' || strings.TrimSpace(r.Command) == "" || strings.ContainsRune(r.Command, 0) ||
			time.Duration(r.TimeoutMS)*time.Millisecond > MaxTimeout || r.OutputLimit != nil && *r.OutputLimit > MaxOutputLimit {
			t.Errorf("accepted %+v", r)
		}
	})
}

func TestEveryCodeHasAStatus(t *testing.T) {
	for code, status := range statuses {
		if status < 200 || status > 503 || code.Status() != status {
			t.Errorf("%s: %d", code, status)
		}
	}
	if Code("NEW").Status() != 500 {
		t.Error("an unknown code is not 500")
	}
}

func BenchmarkParseExec(b *testing.B) {
	body := []byte(`{"project":"/home/user/project","command":"grep -rn foo . | head -5","timeout_ms":` + strconv.Itoa(1000) + `}`)
	for b.Loop() {
		if _, err := ParseExec(body); err != nil {
			b.Fatal(err)
		}
	}
}

// The word that a command only reads is a field of both requests.
func TestReadsOnlyField(t *testing.T) {
	for value, want := range map[string]string{"true": "", "false": "", `"yes"`: "reads_only: must be true or false", "1": "reads_only: must be true or false"} {
		body := []byte(`{"project":"/p","command":"ls","reads_only":` + value + `}`)
		exec, err := ParseExec(body)
		check, err2 := ParseCheck(body)
		for _, err := range []*Error{err, err2} {
			if want == "" && err != nil || want != "" && (err == nil || !slices.Equal(err.Fields, []string{want})) {
				t.Errorf("%s: %v", value, err)
			}
		}
		if isTrue := value == "true"; exec.ReadsOnly != isTrue || check.ReadsOnly != isTrue {
			t.Errorf("%s: %+v, %+v", value, exec, check)
		}
	}
}

func TestParseCheckExplain(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		r, err := ParseCheck([]byte(`{"project":"/p","command":"ls","explain":` + value + `}`))
		if err != nil || r.Explain != want {
			t.Errorf("%s: %+v, %v", value, r, err)
		}
	}
	for _, value := range []string{`"true"`, "1", "null", "[]"} {
		if _, err := ParseCheck([]byte(`{"project":"/p","command":"ls","explain":` + value + `}`)); err == nil || !slices.Equal(err.Fields, []string{"explain: must be true or false"}) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
