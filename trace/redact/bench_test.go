package redact

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// goroot returns where Go is installed; the test is skipped when it is not.
func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("the source of Go is needed")
	}
	return string(bytes.TrimSpace(out))
}

// ordinary returns text as commands print it: Go's own source.
func ordinary(t testing.TB) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(goroot(t), "src", "net", "http", "*.go"))
	if err != nil || len(names) == 0 {
		t.Skip("the source of Go is needed")
	}
	var all []byte
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

func BenchmarkOrdinary(b *testing.B) {
	in := ordinary(b)
	r := New(Options{})
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		w := r.Writer(io.Discard)
		for piece := in; len(piece) > 0; {
			n := min(32<<10, len(piece))
			w.Write(piece[:n])
			piece = piece[n:]
		}
		w.Close()
	}
}

// BenchmarkPlainRegexp is for comparison: one of the simplest of all patterns.
func BenchmarkPlainRegexp(b *testing.B) {
	in := ordinary(b)
	re := regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{36}|sk-[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}`)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		re.FindIndex(in)
	}
}

func BenchmarkMemchr(b *testing.B) {
	in := ordinary(b)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		bytes.Count(in, []byte("\x01"))
	}
}

// TestFalsePositives counts what is hit in ordinary text, line by line, and
// lists it: under one in ten thousand lines.
func TestFalsePositives(t *testing.T) {
	r := New(Options{})
	lines, hits := 0, 0
	for _, dir := range []string{"net", "net/http", "os", "go/token", "go/parser", "cmd/compile/internal/syntax", "encoding/json", "database/sql"} {
		names, _ := filepath.Glob(filepath.Join(goroot(t), "src", dir, "*.go"))
		for _, n := range names {
			if bytes.HasSuffix([]byte(n), []byte("_test.go")) {
				continue // tests hold what looks like secrets on purpose
			}
			b, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(b) {
				lines++
				if _, counts := r.String(string(line)); counts != nil {
					hits++
					t.Logf("%s: %v in %s", n, counts, line)
				}
			}
		}
	}
	if lines == 0 {
		t.Skip("the source of Go is needed")
	}
	if hits*10_000 > lines {
		t.Errorf("%d of %d lines were hit", hits, lines)
	}
}
