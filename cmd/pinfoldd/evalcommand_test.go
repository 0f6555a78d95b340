package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace/eval"
)

func evals(t *testing.T, site string, paths ...string) eval.Report {
	t.Helper()
	report, err := runEvals(paths, site, 2)
	if u, ok := errors.AsType[*confine.Unavailable](err); ok {
		t.Skip(u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestEvalSuite runs the tasks of testdata/evals, all of which pass.
func TestEvalSuite(t *testing.T) {
	report := evals(t, "", filepath.Join("..", "..", "testdata", "evals"))
	if report.Failed > 0 {
		var b strings.Builder
		report.Summary(&b)
		t.Error(b.String())
	}
	if report.Tasks < 120 {
		t.Errorf("%d tasks", report.Tasks)
	}
}

// TestEvalTellsFailuresApart runs tasks that fail, each in one way.
func TestEvalTellsFailuresApart(t *testing.T) {
	rows := []struct {
		task string
		want eval.Kind
	}{
		{`{"id":"1","steps":[{"command":"cat /etc/passwd","expect":{"policy_decision":"allow"}}]}`, eval.Permission},
		{`{"id":"2","steps":[{"command":"echo hi","expect":{"approved":false}}]}`, eval.Permission},
		{`{"id":"3","steps":[{"command":"rm a","expect":{"approval_required":false}}]}`, eval.Permission},
		{`{"id":"4","steps":[{"command":"echo hi","expect":{"risk_level":"high"}}]}`, eval.Permission},
		{`{"id":"5","steps":[{"command":"echo hi","expect":{"rule":"no-such"}}]}`, eval.Permission},
		{`{"id":"6","steps":[{"command":"sudo ls","expect":{"error_type":"timeout"}}]}`, eval.Permission},
		{`{"id":"7","command":"sudo ls","expect":"must_allow"}`, eval.Permission},
		{`{"id":"8","command":"ls","expect":"must_not_allow"}`, eval.Permission},
		{`{"id":"9","steps":[{"command":" ","expect":{}}]}`, eval.Validation},
		{`{"id":"10","steps":[{"command":"echo hi","cwd":"/etc","expect":{}}]}`, eval.Validation},
		{`{"id":"11","steps":[{"command":"echo hi","expect":{"exit_code":1}}]}`, eval.Behaviour},
		{`{"id":"12","steps":[{"command":"echo hi","expect":{"succeeds":false}}]}`, eval.Behaviour},
		{`{"id":"13","steps":[{"command":"echo hi","expect":{"output_has":["ho"]}}]}`, eval.Behaviour},
		{`{"id":"14","steps":[{"command":"echo hi","expect":{"output_lacks":["hi"]}}]}`, eval.Behaviour},
		{`{"id":"15","steps":[{"command":"echo hi","expect":{"receipt_layers":["none"]}}]}`, eval.Behaviour},
		{`{"id":"16","steps":[{"command":"echo hi","expect":{"redacted":"github"}}]}`, eval.Behaviour},
		{`{"id":"17","steps":[{"command":"echo hi","expect":{"grant_write":["."]}}]}`, eval.Behaviour},
		{`{"id":"18","steps":[{"command":"echo hi > a","expect":{"grant_read_only":true}}]}`, eval.Behaviour},
		{`{"id":"19","steps":[{"command":"echo hi","expect":{"error_type":"timeout"}}]}`, eval.Behaviour},
		{`{"id":"20","steps":[{"command":"echo hi","expect":{}}],"files_after":{"a":"b"}}`, eval.Behaviour},
		{`{"id":"21","steps":[{"command":"echo hi > a","expect":{}}],"files_after":{"a":null}}`, eval.Behaviour},
		{`{"id":"22","steps":[{"command":"echo hi","expect":{}}],"trace_lacks":["echo hi"]}`, eval.Behaviour},
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, r.task)
	}
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	report := evals(t, "", file)
	for i, r := range report.Results {
		if len(r.Failures) != 1 || r.Failures[0].Kind != rows[i].want {
			t.Errorf("%s: got %+v, want one of %s", rows[i].task, r.Failures, rows[i].want)
		}
	}
}

func TestEvalTasksAreChecked(t *testing.T) {
	for _, line := range []string{
		`{"steps":[{"command":"x"}]}`, `{"id":"a"}`, `{"id":"a","steps":[{"command":"x","expect":{"exit":0}}]}`, `{"id":"a","command":"x","expect":"allow"}`,
		`{"id":"a","expect":"must_allow"}`, `{"id":"a","files":{"../x":""},"steps":[{"command":"x","expect":{}}]}`, `nothing`,
	} {
		if task, err := eval.Parse([]byte(line)); err == nil {
			t.Errorf("%s: %+v", line, task)
		}
	}
}
