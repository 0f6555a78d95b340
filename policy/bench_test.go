package policy_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/shparse"
)

// memoryFiles is a file system in memory: every program exists in /usr/bin.
type memoryFiles struct{}

func (memoryFiles) Follow(path string) (string, policy.Kind, error) {
	switch {
	case path == "/home/u/project" || path == "/home/u/project/sub":
		return path, policy.Directory, nil
	case strings.HasPrefix(path, "/usr/bin/"):
		return path, policy.Regular, nil
	}
	return path, policy.Missing, nil
}

func (memoryFiles) List(string, int) ([]string, error) {
	return []string{"main.go", "sub", "go.mod"}, nil
}
func (memoryFiles) Program(string) (string, error) { return "", nil }

var memoryEnv = policy.Env{Project: "/home/u/project", Dir: ".", Home: "/home/u", Path: []string{"/usr/bin"},
	Readable: []string{"/usr"}, Writable: []string{"/tmp"}, Files: memoryFiles{}}

func parseAndDecide(b testing.TB, p *policy.Policy, text string) policy.Decision {
	b.Helper()
	return parseAndDecideIn(b, p, text, memoryEnv)
}

func parseAndDecideIn(t testing.TB, p *policy.Policy, text string, env policy.Env) policy.Decision {
	t.Helper()
	s, err := shparse.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(s, env)
}

// What a decision on a line costs, from text to grant.
func BenchmarkDecide(b *testing.B) {
	p := builtin(b)
	for i, text := range []string{
		"git status",
		"cd sub && grep -rn \"foo bar\" --include='*.go' . 2>/dev/null | head -20; git log --oneline -5",
		"for f in *.go; do wc -l \"$f\"; done",
	} {
		b.Run(fmt.Sprint("line", i), func(b *testing.B) {
			b.ReportAllocs()
			measure(b, func() { parseAndDecide(b, p, text) })
		})
	}
	chain := func(sep string) string {
		var s strings.Builder
		for i := range 5000 {
			if i > 0 {
				s.WriteString(sep)
			}
			fmt.Fprintf(&s, "echo a%d", i)
		}
		return s.String()
	}
	for name, sep := range map[string]string{"and": " && ", "semicolon": "; ", "newline": "\n", "pipe": " | "} {
		text := chain(sep)
		b.Run("chain5000/"+name, func(b *testing.B) {
			measure(b, func() { parseAndDecide(b, p, text) })
		})
	}
}

// measure runs the benchmark and reports processor time too, which counts on a
// busy machine.
func measure(b *testing.B, do func()) {
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		do()
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
}
