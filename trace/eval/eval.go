// Package eval holds tasks that a daemon is tested on and judges, by the trace,
// whether it did what they expect.
//
// A file of tasks has one JSON object a line. A task makes a project, runs its
// steps there one after another, and expects something of each and of the end;
// or it is a row with a command and expect, "must_allow" or "must_not_allow",
// that is decided and not run. Nobody approves: what needs approval is refused.
package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pinfold/pinfold/trace"
)

// A Task is one line.
type Task struct {
	ID    string            `json:"id"`
	About string            `json:"about,omitempty"`
	Files map[string]string `json:"files,omitempty"` // by path in the project; one that ends with / is a directory
	Steps []Step            `json:"steps,omitempty"`
	// FilesAfter is what files hold in the end; null is that there is none.
	FilesAfter map[string]*string `json:"files_after,omitempty"`
	// TraceLacks lists texts that no record of the task may have.
	TraceLacks []string `json:"trace_lacks,omitempty"`

	// The plain form.
	Command string `json:"command,omitempty"`
	Expect  string `json:"expect,omitempty"`
}

// A Step is one command.
type Step struct {
	Command   string `json:"command"`
	Cwd       string `json:"cwd,omitempty"`
	ReadsOnly bool   `json:"reads_only,omitempty"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	Expect    Expect `json:"expect"`
}

// Expect is what a step's records and output must be. What is absent does not
// matter.
type Expect struct {
	PolicyDecision   string   `json:"policy_decision,omitempty"`
	RiskLevel        string   `json:"risk_level,omitempty"`
	ApprovalRequired *bool    `json:"approval_required,omitempty"`
	Approved         *bool    `json:"approved,omitempty"`
	ErrorType        *string  `json:"error_type,omitempty"`
	Rule             string   `json:"rule,omitempty"`
	ExitCode         *int     `json:"exit_code,omitempty"`
	Succeeds         *bool    `json:"succeeds,omitempty"` // exits with 0, or not
	OutputHas        []string `json:"output_has,omitempty"`
	OutputLacks      []string `json:"output_lacks,omitempty"`
	GrantWrite       []string `json:"grant_write,omitempty"`
	GrantReadOnly    *bool    `json:"grant_read_only,omitempty"`
	ReceiptLayers    []string `json:"receipt_layers,omitempty"`
	Redacted         string   `json:"redacted,omitempty"` // a kind that was taken out of the output
}

// A Kind says what kind of failure it is.
type Kind string

// The kinds.
const (
	Validation Kind = "validation" // the task itself, or the request that it makes, is wrong
	Permission Kind = "permission" // it was decided otherwise
	Behaviour  Kind = "behaviour"  // it was decided as expected and went otherwise
)

// A Failure is one expectation that was not met.
type Failure struct {
	Kind    Kind   `json:"kind"`
	Step    int    `json:"step"` // from 1; 0 for the whole task
	Message string `json:"message"`
}

// A Seen is what came of a step.
type Seen struct {
	Decided, Finished *trace.Record // nil when there is none
	Output            string        // both streams
	Invalid           string        // why the request was not valid
}

// Check compares a step with what came of it.
func (e *Expect) Check(step int, s Seen) (failures []Failure) {
	fail := func(k Kind, format string, a ...any) {
		failures = append(failures, Failure{k, step, fmt.Sprintf(format, a...)})
	}
	if s.Invalid != "" {
		fail(Validation, "the request is refused: %s", s.Invalid)
		return failures
	}
	d := s.Decided
	if d == nil {
		fail(Behaviour, "no decision is on the trace")
		return failures
	}
	errorType := d.ErrorType
	if s.Finished != nil {
		errorType = s.Finished.ErrorType
	}
	for _, c := range []struct{ name, want, got string }{
		{"policy_decision", e.PolicyDecision, d.PolicyDecision}, {"risk_level", e.RiskLevel, d.RiskLevel},
	} {
		if c.want != "" && c.want != c.got {
			fail(Permission, "%s is %s, want %s: %s", c.name, c.got, c.want, d.RiskReason)
		}
	}
	for _, c := range []struct {
		name string
		want *bool
		got  bool
	}{{"approval_required", e.ApprovalRequired, d.ApprovalRequired}, {"approved", e.Approved, d.Approved}} {
		if c.want != nil && *c.want != c.got {
			fail(Permission, "%s is %v, want %v: %s", c.name, c.got, *c.want, d.RiskReason)
		}
	}
	if e.Rule != "" && !slices.Contains(d.Rules, e.Rule) {
		fail(Permission, "rules are %v, want %s", d.Rules, e.Rule)
	}
	if e.ErrorType != nil && *e.ErrorType != errorType {
		kind := Behaviour
		if d.Approved != (s.Finished != nil) || !d.Approved {
			kind = Permission
		}
		fail(kind, "error_type is %q, want %q", errorType, *e.ErrorType)
	}
	if len(failures) > 0 {
		return failures
	}
	return e.checkOutcome(step, d, s)
}

// checkOutcome compares what is left when the decision is as expected.
func (e *Expect) checkOutcome(step int, d *trace.Record, s Seen) (failures []Failure) {
	fail := func(format string, a ...any) {
		failures = append(failures, Failure{Behaviour, step, fmt.Sprintf(format, a...)})
	}
	if e.GrantWrite != nil && (d.Grant == nil || !slices.Equal(d.Grant.Write, e.GrantWrite)) {
		fail("the grant writes %v, want %v", d.Grant, e.GrantWrite)
	}
	if e.GrantReadOnly != nil && d.Grant != nil && *e.GrantReadOnly != (len(d.Grant.Write)+len(d.Grant.Protected) == 0) {
		fail("the grant writes %v", d.Grant.Write)
	}
	for _, text := range e.OutputHas {
		if !strings.Contains(s.Output, text) {
			fail("the output lacks %q: %.300q", text, s.Output)
		}
	}
	for _, text := range e.OutputLacks {
		if strings.Contains(s.Output, text) {
			fail("the output has %q", text)
		}
	}
	f := s.Finished
	if f == nil {
		if e.ExitCode != nil || e.Succeeds != nil || e.ReceiptLayers != nil || e.Redacted != "" {
			fail("no outcome is on the trace")
		}
		return failures
	}
	if e.ExitCode != nil && (f.ExitCode == nil || *f.ExitCode != *e.ExitCode) {
		fail("exit_code is %s, want %d: %.300q", show(f.ExitCode), *e.ExitCode, s.Output)
	}
	if e.Succeeds != nil && *e.Succeeds != (f.ExitCode != nil && *f.ExitCode == 0) {
		fail("exit_code is %s: %.300q", show(f.ExitCode), s.Output)
	}
	for _, layer := range e.ReceiptLayers {
		if f.Receipt == nil || !slices.Contains(f.Receipt.Layers, layer) {
			fail("the receipt lacks the layer %s", layer)
		}
	}
	if e.Redacted != "" && f.Redactions[e.Redacted] == 0 {
		fail("nothing of kind %s was redacted: %v", e.Redacted, f.Redactions)
	}
	return failures
}

func show(n *int) string {
	if n == nil {
		return "not known"
	}
	return fmt.Sprint(*n)
}

// Read reads the tasks of files and of the *.jsonl files in directories, in the
// order of their names. Two tasks with one id are an error.
func Read(paths []string) ([]Task, error) {
	var tasks []Task
	seen := map[string]string{}
	for _, p := range paths {
		names := []string{p}
		if info, err := os.Stat(p); err != nil {
			return nil, err
		} else if info.IsDir() {
			if names, err = filepath.Glob(filepath.Join(p, "*.jsonl")); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			more, err := readFile(name)
			if err != nil {
				return nil, err
			}
			for _, t := range more {
				if seen[t.ID] != "" {
					return nil, fmt.Errorf("%s: the id %s is in %s too", name, t.ID, seen[t.ID])
				}
				seen[t.ID] = name
			}
			tasks = append(tasks, more...)
		}
	}
	return tasks, nil
}

func readFile(name string) (tasks []Task, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, 4<<20)
	for n := 1; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		t, err := Parse(s.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		tasks = append(tasks, t)
	}
	return tasks, s.Err()
}

// Parse reads one task. Unknown members are errors, but in the plain form, whose
// rows say more about themselves.
func Parse(line []byte) (t Task, err error) {
	if err = json.Unmarshal(line, &t); err != nil {
		return t, err
	}
	if t.Expect == "" {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		t = Task{}
		if err = d.Decode(&t); err != nil {
			return t, err
		}
	}
	switch {
	case t.ID == "":
		return t, fmt.Errorf("a task has no id")
	case t.Expect != "" && (t.Command == "" || len(t.Steps) > 0):
		return t, fmt.Errorf("%s: expect is about a command, without steps", t.ID)
	case t.Expect == "" && len(t.Steps) == 0:
		return t, fmt.Errorf("%s: there is nothing to do", t.ID)
	case t.Expect != "" && t.Expect != "must_allow" && t.Expect != "must_not_allow":
		return t, fmt.Errorf("%s: expect must be must_allow or must_not_allow", t.ID)
	}
	for name := range t.Files {
		if !filepath.IsLocal(name) {
			return t, fmt.Errorf("%s: the file %q is not in the project", t.ID, name)
		}
	}
	return t, nil
}

// A Result is what came of a task.
type Result struct {
	ID       string    `json:"id"`
	Passed   bool      `json:"passed"`
	Failures []Failure `json:"failures,omitempty"`
}

// A Report is what came of all of them, in their order.
type Report struct {
	Tasks    int          `json:"tasks"`
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Failures map[Kind]int `json:"failures"`
	Results  []Result     `json:"results"`
}

// NewReport counts the results.
func NewReport(results []Result) Report {
	r := Report{Tasks: len(results), Failures: map[Kind]int{}, Results: results}
	for _, one := range results {
		if one.Passed {
			r.Passed++
			continue
		}
		r.Failed++
		for _, f := range one.Failures {
			r.Failures[f.Kind]++
		}
	}
	return r
}

// Summary writes the report for a reader.
func (r Report) Summary(w io.Writer) {
	for _, one := range r.Results {
		for _, f := range one.Failures {
			fmt.Fprintf(w, "%s, step %d: %s: %s\n", one.ID, f.Step, f.Kind, f.Message)
		}
	}
	fmt.Fprintf(w, "%d tasks: %d passed, %d failed", r.Tasks, r.Passed, r.Failed)
	for _, k := range []Kind{Validation, Permission, Behaviour} {
		if n := r.Failures[k]; n > 0 {
			fmt.Fprintf(w, ", %d of %s", n, k)
		}
	}
	fmt.Fprintln(w)
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name     string         `xml:"name,attr"`
	Class    string         `xml:"classname,attr"`
	Failures []junitFailure `xml:"failure"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
}

// JUnit writes the report as JUnit's XML.
func (r Report) JUnit(w io.Writer) error {
	s := junitSuite{Name: "pinfold eval", Tests: r.Tasks, Failures: r.Failed}
	for _, one := range r.Results {
		c := junitCase{Name: one.ID, Class: "eval"}
		for _, f := range one.Failures {
			c.Failures = append(c.Failures, junitFailure{string(f.Kind), strings.ToValidUTF8(f.Message, "\uFFFD")})
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	return e.Encode(s)
}
