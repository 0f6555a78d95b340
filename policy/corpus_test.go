package policy_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
)

// A corpusRow is one line of a corpus: a command, and what must come of it.
type corpusRow struct {
	ID         string   `json:"id"`
	Class      string   `json:"class"`
	Command    string   `json:"command"`
	Expect     string   `json:"expect"` // must_allow or must_not_allow
	Confidence string   `json:"confidence"`
	ExtraAllow []string `json:"extra_allow"`
	Why        string   `json:"why"`
	Setup      struct {
		Sh string `json:"sh"`
	} `json:"setup"`
}

func readCorpus(t testing.TB, file string) (rows []corpusRow) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var row corpusRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		rows = append(rows, row)
	}
	return rows
}

// projects are directories that rows start in, by what fills them. Nothing is
// run there, so that rows share them.
type projects map[string]string

func (p projects) of(t testing.TB, row corpusRow) string {
	t.Helper()
	if p[row.Setup.Sh] == "" {
		p[row.Setup.Sh] = corpusProject(t, row)
	}
	return p[row.Setup.Sh]
}

// corpusProject makes the directory that a row starts in.
func corpusProject(t testing.TB, row corpusRow) string {
	t.Helper()
	root := scratch(t)
	dir := filepath.Join(root, "project")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if row.Setup.Sh != "" {
		setup := exec.Command("bash", "-c", row.Setup.Sh)
		setup.Dir = dir
		setup.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + root}
		if out, err := setup.CombinedOutput(); err != nil {
			t.Logf("%s: setup: %v: %s", row.ID, err, out)
		}
	}
	return dir
}

// corpora are inputs that fooled other systems, or that they refused without
// need, and further ones of the same kinds.
var corpora = []string{"../testdata/corpus/policy.jsonl", "../testdata/corpus/more.jsonl"}

// The decisions on the corpora. PINFOLD_CORPUS names another file of the same
// form.
func TestCorpus(t *testing.T) {
	files := corpora
	if file := os.Getenv("PINFOLD_CORPUS"); file != "" {
		files = []string{file}
	}
	p := builtin(t)
	var rows []corpusRow
	for _, file := range files {
		rows = append(rows, readCorpus(t, file)...)
	}
	firm, judgement, at := 0, 0, projects{}
	for _, row := range rows {
		verdict, reasons := corpusVerdict(t, p, row, at.of(t, row))
		if (verdict == policy.Allow) == (row.Expect == "must_allow") {
			continue
		}
		if row.Confidence == "judgement" {
			judgement++
		} else {
			firm++
			t.Errorf("%s (%s) is wrong", row.ID, row.Class)
		}
		t.Logf("%s %s %s: %s: %q: %s: %s", row.ID, row.Class, row.Confidence, verdict, row.Command, row.Why, reasons)
	}
	t.Logf("corpus: %d rows, %d firm wrong, %d judgement wrong", len(rows), firm, judgement)
}

func corpusVerdict(t testing.TB, p *policy.Policy, row corpusRow, project string) (policy.Verdict, string) {
	s, err := shparse.Parse(row.Command)
	if err != nil {
		return policy.Deny, err.Error()
	}
	p, err = p.AllowAlso(row.ExtraAllow)
	if err != nil {
		t.Fatalf("%s: %v", row.ID, err)
	}
	d := p.Decide(s, policytest.Env(project))
	var reasons []string
	for _, r := range d.Reasons {
		if r.Verdict == d.Verdict {
			reasons = append(reasons, r.Message)
		}
	}
	return d.Verdict, strings.Join(reasons, "; ")
}
