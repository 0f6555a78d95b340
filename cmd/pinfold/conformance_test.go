package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
)

// A conformanceCase is what every client is asked to do, in testdata/conformance.json.
type conformanceCase struct {
	Name, Call, Command, Run, Write, Signal string
	Options                                 json.RawMessage
	Stdin                                   string         `json:"stdin_base64"`
	Want                                    map[string]any // a part of the answer
	Loose                                   []string       // members of which only the presence counts
}

// TestConformance proves that the clients in Go, Python (both of them) and JavaScript
// do the same with a real daemon, case by case.
func TestConformance(t *testing.T) {
	file := repositoryFile(t, "testdata/conformance.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []conformanceCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t)
	project := d.callers(t)[0].project
	python, node := "api/python/conformance.py", "api/typescript/conformance.mjs"
	for _, c := range []struct {
		name, script string
		args         []string
	}{
		{"go", "", nil},
		{"python", python, []string{"python3", "-B", "SCRIPT", "sync"}},
		{"python asyncio", python, []string{"python3", "-B", "SCRIPT", "async"}},
		{"javascript", node, []string{"node", "SCRIPT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var answers []map[string]any
			if c.script == "" {
				answers = goAnswers(t, cases, d.socket, project)
			} else {
				args := slices.Clone(c.args)
				if _, err := exec.LookPath(args[0]); err != nil {
					t.Skipf("%s is not installed here", args[0])
				}
				args[slices.Index(args, "SCRIPT")] = repositoryFile(t, c.script)
				answers = scriptAnswers(t, append(args, file, d.socket, project))
			}
			if len(answers) != len(cases) {
				t.Fatalf("%d answers to %d cases", len(answers), len(cases))
			}
			for i, want := range cases {
				for _, name := range want.Loose {
					if answers[i][name] == nil {
						t.Errorf("%s: no %s in %v", want.Name, name, answers[i])
					}
					delete(answers[i], name)
					delete(want.Want, name)
				}
				if missing := missing(want.Want, answers[i]); missing != "" {
					t.Errorf("%s: %s\nin %.2000v", want.Name, missing, answers[i])
				}
			}
			settled(t, filepath.Join(project, "alive"))
		})
	}
}

// repositoryFile returns a file of the repository, or skips when the test runs apart
// from it.
func repositoryFile(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("../..", name))
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		t.Skipf("%s is not here", name)
	}
	return file
}

// settled checks that nothing appends to the file any more, and removes it.
func settled(t *testing.T, file string) {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	waitUntil(t, "the canceled command ends", func() bool {
		before := size()
		time.Sleep(300 * time.Millisecond)
		return size() == before
	})
	_ = os.Remove(file)
}

// missing says what of want is not in got, "" when all is.
func missing(want, got any) string {
	if w, ok := want.(map[string]any); ok {
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("want %v, got %v", want, got)
		}
		for name, value := range w {
			if m := missing(value, g[name]); m != "" {
				return name + ": " + m
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("want %v, got %v", want, got)
	}
	return ""
}

func scriptAnswers(t *testing.T, args []string) []map[string]any {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	var answers []map[string]any
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Buffer(nil, 8<<20); lines.Scan(); {
		var answer map[string]any
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		answers = append(answers, answer)
	}
	return answers
}

func goAnswers(t *testing.T, cases []conformanceCase, socket, project string) []map[string]any {
	t.Helper()
	client := api.NewClient(socket)
	defer client.Close()
	var answers []map[string]any
	for _, c := range cases {
		answer, err := goAnswer(client, c, project)
		if e, ok := errors.AsType[*api.Error](err); ok {
			answer = map[string]any{"error": e, "result": answer}
		} else if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		data, err := json.Marshal(answer)
		var plain map[string]any
		if err == nil {
			err = json.Unmarshal(data, &plain)
		}
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, plain)
	}
	return answers
}

func goAnswer(client *api.Client, c conformanceCase, project string) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := api.ExecRequest{Project: project, Command: c.Command}
	if c.Options != nil {
		if err := json.Unmarshal(c.Options, &req); err != nil {
			return nil, err
		}
	}
	if strings.Contains(string(c.Options), `"timeout_ms": 0`) {
		req.TimeoutMS = -1 // 0 is not sent
	}
	if c.Stdin != "" {
		req.Stdin, req.StdinEncoding = c.Stdin, api.Base64
	}
	switch c.Call {
	case "exec":
		return client.Exec(ctx, req)
	case "check":
		return client.Check(ctx, api.CheckRequest{Project: project, Command: c.Command, Cwd: req.Cwd})
	case "stream", "cancel":
		return goStream(ctx, client, req, c.Call == "cancel", cancel)
	case "background":
		return goBackground(ctx, client, req, c)
	case "run":
		_, answer, err := client.Run(ctx, c.Run, 0, 0)
		return answer, err
	case "status":
		return client.Status(ctx)
	}
	_, answer, err := client.PolicySummary(ctx, project)
	return answer, err
}

func goStream(ctx context.Context, client *api.Client, req api.ExecRequest, stop bool, cancel func()) (any, error) {
	var out strings.Builder
	var names []string
	var code *int
	err := client.Stream(ctx, req, func(e *api.Event) error {
		if stop && ctx.Err() != nil {
			return nil
		}
		if len(names) == 0 || names[len(names)-1] != e.Event {
			names = append(names, e.Event)
		}
		if e.Event == api.EventStdout {
			out.WriteString(e.Data)
			if stop {
				cancel()
			}
		}
		code = e.ExitCode
		return nil
	})
	if stop && errors.Is(err, context.Canceled) {
		err = nil
	}
	return map[string]any{"events": names, "stdout": out.String(), "stdout_size": out.Len(), "exit_code": code,
		"stdout_base64": base64.StdEncoding.EncodeToString([]byte(out.String()))}, err
}

func goBackground(ctx context.Context, client *api.Client, req api.ExecRequest, c conformanceCase) (any, error) {
	_, started, err := client.Background(ctx, req)
	if err == nil && c.Write != "" {
		err = client.WriteStdin(ctx, started.Run, []byte(c.Write), true)
	}
	if err == nil && c.Signal != "" {
		err = client.Signal(ctx, started.Run, c.Signal)
	}
	output := ""
	for cursor := int64(0); err == nil; {
		var r *api.RunAnswer
		if _, r, err = client.Run(ctx, started.Run, cursor, 5*time.Second); err != nil {
			break
		}
		for _, p := range r.Output {
			output += p.Data
		}
		if cursor = r.Cursor; r.State == api.RunEnded && len(r.Output) == 0 {
			return map[string]any{"output": output, "result": r.Result}, nil
		}
	}
	return nil, err
}
