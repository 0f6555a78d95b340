package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/cmd/pinfoldd/server"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/trace"
	"github.com/pinfold/pinfold/trace/eval"
)

// evalCommand is pinfoldd eval, which pinfold eval executes. It exits with 1 when
// a task failed, 2 when the tasks could not be run.
func evalCommand(args []string) int {
	flags := flag.NewFlagSet("pinfold eval", flag.ContinueOnError)
	out := flags.String("out", "", "write the report as JSON to this `file`")
	junit := flags.String("junit", "", "write the report as JUnit's XML to this `file`")
	site := flags.String("policy", "", "the site's policy, a `file` (default the built-in one)")
	jobs := flags.Int("jobs", 2, "run `n` tasks at once")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() == 0 || *jobs < 1:
		fmt.Fprintln(os.Stderr, "usage: pinfold eval [flags] TASKS.jsonl|DIRECTORY …")
		return 2
	}
	report, err := runEvals(flags.Args(), *site, *jobs)
	if err == nil {
		report.Summary(os.Stdout)
		err = writeReports(report, *out, *junit)
	}
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "pinfold eval: %v\n", err)
		return 2
	case report.Failed > 0:
		return 1
	}
	return 0
}

func writeReports(r eval.Report, out, junit string) error {
	if out != "" {
		text, err := json.MarshalIndent(r, "", " ")
		if err == nil {
			err = os.WriteFile(out, append(text, '\n'), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if junit == "" {
		return nil
	}
	f, err := os.Create(junit)
	if err != nil {
		return err
	}
	return errors.Join(r.JUnit(f), f.Close())
}

// runEvals runs the tasks against a daemon of their own, in this process.
func runEvals(paths []string, site string, jobs int) (report eval.Report, err error) {
	tasks, err := eval.Read(paths)
	if err != nil {
		return report, err
	}
	rules, err := loadRules(site)
	if err != nil {
		return report, err
	}
	b, err := newEvalBench(rules)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	results := make([]eval.Result, len(tasks))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(jobs, 8) { // a caller may have 16 commands at once
		wg.Go(func() {
			for i := range next {
				failures := b.task(&tasks[i])
				results[i] = eval.Result{ID: tasks[i].ID, Passed: len(failures) == 0, Failures: failures}
			}
		})
	}
	for i := range tasks {
		next <- i
	}
	close(next)
	wg.Wait()
	return eval.NewReport(results), nil
}

func loadRules(site string) (*policy.Policy, error) {
	if site == "" {
		return policy.Default()
	}
	text, err := os.ReadFile(site)
	if err != nil {
		return nil, err
	}
	return policy.Load(policy.Source{Name: site, Text: string(text)})
}

// An evalBench is a daemon in a directory that is removed after it.
type evalBench struct {
	dir     string
	manager *confine.Manager
	records *trace.Log
	server  *server.Server
	client  *api.Client
	served  chan error
}

func newEvalBench(rules *policy.Policy) (b *evalBench, err error) {
	b = &evalBench{served: make(chan error, 1)}
	// Not below /tmp, which commands have for themselves.
	if b.dir, err = os.MkdirTemp("/var/tmp", "pinfold-eval-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(b.dir)
		}
	}()
	state := filepath.Join(b.dir, "state")
	if err = errors.Join(os.Chmod(b.dir, 0o755), os.Mkdir(state, 0o711), os.Mkdir(filepath.Join(b.dir, "projects"), 0o755)); err != nil {
		return nil, err
	}
	if b.manager, err = confine.New(confine.Config{StateDir: state}); err != nil {
		return nil, err
	}
	if b.records, _, err = trace.Open(trace.Options{Path: filepath.Join(state, traceFile), Mode: 0o600, Version: version, Build: build, Setting: "user"}); err != nil {
		return nil, errors.Join(err, b.manager.Close())
	}
	socket := filepath.Join(b.dir, "agent.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: socket})
	if err != nil {
		return nil, errors.Join(err, b.records.Close(), b.manager.Close())
	}
	uid := uint32(os.Geteuid())
	b.server = server.New(server.Config{Confiner: b.manager, Policy: rules, Trace: b.records, Version: version, Build: build, Setting: "user",
		OnlyUID: &uid, StateDir: state, Socket: socket, Log: log.New(io.Discard, "", 0)})
	b.client = api.NewClient(socket)
	go func() { b.served <- b.server.Serve(listener) }()
	return b, nil
}

func (b *evalBench) close() error {
	b.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	err := b.server.Shutdown(ctx)
	return errors.Join(err, <-b.served, b.records.Close(), b.manager.Close(), os.RemoveAll(b.dir))
}

// task runs one task in a project of its own.
func (b *evalBench) task(t *eval.Task) (failures []eval.Failure) {
	invalid := func(err error) []eval.Failure { return []eval.Failure{{Kind: eval.Validation, Message: err.Error()}} }
	project, err := os.MkdirTemp(filepath.Join(b.dir, "projects"), "task-")
	if err != nil {
		return invalid(err)
	}
	defer os.RemoveAll(project)
	if err := makeFiles(project, t.Files); err != nil {
		return invalid(err)
	}
	if t.Expect != "" {
		return b.row(t, project)
	}
	for i := range t.Steps {
		seen := b.step(project, &t.Steps[i])
		failures = append(failures, t.Steps[i].Expect.Check(i+1, seen)...)
	}
	for name, want := range t.FilesAfter {
		got, err := os.ReadFile(filepath.Join(project, name))
		switch {
		case want == nil && err == nil:
			failures = append(failures, eval.Failure{Kind: eval.Behaviour, Message: name + " is there"})
		case want != nil && (err != nil || string(got) != *want):
			failures = append(failures, eval.Failure{Kind: eval.Behaviour, Message: fmt.Sprintf("%s holds %.200q, want %q: %v", name, got, *want, err)})
		}
	}
	return append(failures, b.lacks(t, project)...)
}

// lacks checks what no record of the task may have.
func (b *evalBench) lacks(t *eval.Task, project string) (failures []eval.Failure) {
	if len(t.TraceLacks) == 0 {
		return nil
	}
	answer, err := b.client.TraceQuery(context.Background(), url.Values{"project": {project}, "limit": {"1000"}})
	if err != nil {
		return []eval.Failure{{Kind: eval.Behaviour, Message: err.Error()}}
	}
	for _, text := range t.TraceLacks {
		for _, r := range answer.Records {
			if strings.Contains(string(r), text) {
				failures = append(failures, eval.Failure{Kind: eval.Behaviour, Message: "the trace has " + text})
				break
			}
		}
	}
	return failures
}

func makeFiles(project string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(project, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// row decides a row of the plain form.
func (b *evalBench) row(t *eval.Task, project string) []eval.Failure {
	allowed := false
	answer, err := b.client.Check(context.Background(), api.CheckRequest{Project: project, Command: t.Command})
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.ParseError && e.Code != api.PermissionDenied || err != nil && !ok {
		return []eval.Failure{{Kind: eval.Validation, Message: err.Error()}}
	}
	if err == nil {
		allowed = answer.Decision.Verdict == policy.Allow.String()
	}
	if allowed != (t.Expect == "must_allow") {
		verdict := "is refused"
		if allowed {
			verdict = "is allowed"
		}
		return []eval.Failure{{Kind: eval.Permission, Message: fmt.Sprintf("%.200q %s", t.Command, verdict)}}
	}
	return nil
}

// step runs one command and returns what the trace has of it.
func (b *evalBench) step(project string, s *eval.Step) (seen eval.Seen) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	start := time.Now().Add(-time.Second)
	result, err := b.client.Exec(ctx, api.ExecRequest{Project: project, Command: s.Command, Cwd: s.Cwd, ReadsOnly: s.ReadsOnly, TimeoutMS: s.TimeoutMS, Unattended: true})
	if result != nil {
		seen.Output = result.Stdout + result.Stderr
	}
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.InvalidArguments || err != nil && !ok {
		seen.Invalid = err.Error()
		return seen
	}
	answer, err := b.client.TraceQuery(ctx, url.Values{"project": {project}, "limit": {"4"}, "since": {start.UTC().Format(time.RFC3339)}})
	if err != nil {
		seen.Invalid = err.Error()
		return seen
	}
	for _, raw := range answer.Records {
		var r trace.Record
		if json.Unmarshal(raw, &r) != nil {
			continue
		}
		switch r.Event {
		case trace.EventDecided:
			seen.Decided, seen.Finished = &r, nil
		case trace.EventFinished:
			if seen.Decided != nil && r.Run == seen.Decided.Run {
				seen.Finished = &r
			}
		}
	}
	return seen
}
