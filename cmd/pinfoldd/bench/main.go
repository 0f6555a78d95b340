// Command bench measures Pinfold against plain spawning, in one run and
// interleaved, so that what the machine does besides falls on both. It prints
// lines of the form "name value".
//
// It starts a daemon of its own (bin/pinfoldd, for root the system daemon, else
// the user's) in directories of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/policytest"
	"github.com/pinfold/pinfold/shparse"
	"github.com/pinfold/pinfold/trace"
)

const (
	clients   = 8
	realistic = `cd sub && git diff --stat HEAD -- a.go | head -20; for f in *.go; do grep -n "func $1" "$f" | sed -n '1,5p'; done 2>/dev/null`
)

func main() {
	n := flag.Int("n", 1000, "commands of each kind for the latencies")
	daemon := flag.String("daemon", "bin/pinfoldd", "the daemon's `binary`")
	flag.Parse()
	if err := run(*n, *daemon); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(n int, daemon string) error {
	b, err := start(daemon)
	if err != nil {
		return err
	}
	defer b.stop()
	steps := []func(int) error{b.sessions, b.latency, b.rate, b.decisions, b.records}
	for _, step := range steps {
		if err := step(n); err != nil {
			return err
		}
	}
	return nil
}

// A bench is a daemon with a project.
type bench struct {
	dir, project string
	socket       string
	daemon       *exec.Cmd
}

func start(daemon string) (*bench, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(home, "pinfold-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, project: filepath.Join(dir, "project"), socket: filepath.Join(dir, "run", "agent.sock")}
	args := []string{"--socket", b.socket, "--state", filepath.Join(dir, "state")}
	if os.Geteuid() != 0 {
		args = append(args, "--user")
	}
	err = errors.Join(os.Mkdir(b.project, 0o755), os.Mkdir(filepath.Join(dir, "run"), 0o700))
	if err == nil {
		b.daemon = exec.Command(daemon, args...)
		b.daemon.Stderr = os.Stderr
		err = b.daemon.Start()
	}
	for deadline := time.Now().Add(5 * time.Second); err == nil; time.Sleep(5 * time.Millisecond) {
		c := api.NewClient(b.socket)
		_, health := c.Health(context.Background())
		c.Close()
		if health == nil {
			return b, nil
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("the daemon does not serve: %w", health)
		}
	}
	b.stop()
	return nil, err
}

func (b *bench) stop() {
	if b.daemon != nil && b.daemon.Process != nil {
		b.daemon.Process.Signal(os.Interrupt)
		b.daemon.Wait()
	}
	os.RemoveAll(b.dir)
}

func (b *bench) exec(c *api.Client, project string) (time.Duration, error) {
	begin := time.Now()
	r, err := c.Exec(context.Background(), api.ExecRequest{Project: project, Command: "true"})
	took := time.Since(begin)
	if err == nil && (r.ExitCode == nil || *r.ExitCode != 0 || r.Receipt == nil) {
		err = fmt.Errorf("true ended with %+v", r.Outcome)
	}
	return took, err
}

// plain spawns what Pinfold spawns, without it, and collects its output too.
func plain() (time.Duration, error) {
	begin := time.Now()
	_, err := exec.Command("bash", "-c", "true").Output()
	return time.Since(begin), err
}

// sessions measures the first command in a project: the session's making too.
func (b *bench) sessions(int) error {
	c := api.NewClient(b.socket)
	defer c.Close()
	var first []time.Duration
	for i := range 15 {
		project := filepath.Join(b.dir, fmt.Sprintf("first%d", i))
		if err := os.Mkdir(project, 0o755); err != nil {
			return err
		}
		took, err := b.exec(c, project)
		if err != nil {
			return err
		}
		first = append(first, took)
	}
	report("session_first_ms", "%.2f", ms(quantile(first, 50)))
	return nil
}

// latency measures one command at a time in a warm session.
func (b *bench) latency(n int) error {
	c := api.NewClient(b.socket)
	defer c.Close()
	var confined, spawned, checked []time.Duration
	for i := range n + 20 {
		p, err := plain()
		if err != nil {
			return err
		}
		e, err := b.exec(c, b.project)
		if err != nil {
			return err
		}
		begin := time.Now()
		if _, err := c.Check(context.Background(), api.CheckRequest{Project: b.project, Command: "true"}); err != nil {
			return err
		}
		if i >= 20 { // warm
			spawned, confined, checked = append(spawned, p), append(confined, e), append(checked, time.Since(begin))
		}
	}
	report("plain_p50_ms", "%.3f", ms(quantile(spawned, 50)))
	report("plain_p99_ms", "%.3f", ms(quantile(spawned, 99)))
	report("exec_p50_ms", "%.3f", ms(quantile(confined, 50)))
	report("exec_p99_ms", "%.3f", ms(quantile(confined, 99)))
	report("exec_p50_ratio", "%.2f", ratio(quantile(confined, 50), quantile(spawned, 50)))
	report("exec_p99_ratio", "%.2f", ratio(quantile(confined, 99), quantile(spawned, 99)))
	report("check_p50_ms", "%.3f", ms(quantile(checked, 50)))
	return nil
}

// rate measures commands per second at several clients, in turns with plain
// spawning from as many goroutines.
func (b *bench) rate(n int) error {
	const turns = 6
	each := max(n/4/clients, 5)
	var spawned, confined time.Duration
	for range turns {
		p, err := together(each, func() (func() error, func()) {
			return func() error { _, err := plain(); return err }, func() {}
		})
		if err != nil {
			return err
		}
		e, err := together(each, func() (func() error, func()) {
			c := api.NewClient(b.socket)
			return func() error { _, err := b.exec(c, b.project); return err }, c.Close
		})
		if err != nil {
			return err
		}
		spawned, confined = spawned+p, confined+e
	}
	total := float64(turns * each * clients)
	report("plain_rate8", "%.0f", total/spawned.Seconds())
	report("exec_rate8", "%.0f", total/confined.Seconds())
	report("exec_rate8_ratio", "%.2f", ratio(spawned, confined))
	return nil
}

// together runs each client's work n times, all at once.
func together(n int, client func() (work func() error, done func())) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make([]error, clients)
	begin := time.Now()
	for i := range clients {
		wg.Go(func() {
			work, done := client()
			defer done()
			for range n {
				if errs[i] = work(); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// decisions measures parsing and deciding, without the socket.
func (b *bench) decisions(n int) error {
	rules, err := policy.Default()
	if err != nil {
		return err
	}
	sub := filepath.Join(b.project, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"a.go", "b.go", "c.go"} {
		if err := os.WriteFile(filepath.Join(sub, name), nil, 0o644); err != nil {
			return err
		}
	}
	looking := policytest.Env(b.project)
	env := looking
	env.Files = remembered{looking.Files, map[string]followed{}, map[string]string{}}
	decide := func(text string, env policy.Env, n int) (time.Duration, error) {
		var took []time.Duration
		for range n {
			begin := time.Now()
			script, err := shparse.Parse(text)
			if err != nil {
				return 0, err
			}
			rules.Decide(script, env)
			took = append(took, time.Since(begin))
		}
		return quantile(took, 50), nil
	}
	line, err := decide(realistic, env, max(n, 100))
	if err != nil {
		return err
	}
	report("decide_us", "%.1f", us(line))
	if line, err = decide(realistic, looking, max(n, 100)); err != nil {
		return err
	}
	report("decide_with_lookups_us", "%.1f", us(line))
	chain, err := decide(strings.TrimSuffix(strings.Repeat("true && ", 5000), "&& "), env, max(n/50, 5))
	if err != nil {
		return err
	}
	report("decide_chain5000_ms", "%.2f", ms(chain))
	return nil
}

// remembered answers look-ups from memory after the first time, so that the
// decision is measured without the file system.
type remembered struct {
	policy.Files
	paths    map[string]followed
	programs map[string]string
}

type followed struct {
	real string
	kind policy.Kind
	err  error
}

func (r remembered) Follow(path string) (string, policy.Kind, error) {
	f, ok := r.paths[path]
	if !ok {
		f.real, f.kind, f.err = r.Files.Follow(path)
		r.paths[path] = f
	}
	return f.real, f.kind, f.err
}

func (r remembered) Program(path string) (string, error) {
	if p, ok := r.programs[path]; ok {
		return p, nil
	}
	p, err := r.Files.Program(path)
	if err == nil {
		r.programs[path] = p
	}
	return p, err
}

// records measures the two records of a run on the trace.
func (b *bench) records(n int) error {
	log, _, err := trace.Open(trace.Options{Path: filepath.Join(b.dir, "trace.ndjson"), Mode: 0o600})
	if err != nil {
		return err
	}
	defer log.Close()
	var took []time.Duration
	for range max(n, 100) {
		begin := time.Now()
		r, err := log.Decide(trace.Decided{Run: "0", Args: trace.Args{Command: "true"}, PolicyDecision: "allow"})
		if err == nil {
			err = r.Finish(trace.Finished{})
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(begin))
	}
	report("trace_us", "%.1f", us(quantile(took, 50)))
	return nil
}

func quantile(d []time.Duration, percent int) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[min(len(s)*percent/100, len(s)-1)]
}

func us(d time.Duration) float64       { return float64(d) / float64(time.Microsecond) }
func ms(d time.Duration) float64       { return float64(d) / float64(time.Millisecond) }
func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
func report(name, format string, v float64) {
	fmt.Printf("%s "+format+"\n", name, v)
}
