//go:build agents

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pinfold/pinfold/testdata/agents/model"
)

// Real agents, as testdata/agents/package.json pins them, are driven by a scripted model
// through each way in. What the model is told and what is on the disk afterwards show
// what happened. $PINFOLD_AGENTS is the directory that holds their node_modules.

// A drivenAgent is how one agent is pointed at the model.
type drivenAgent struct {
	program string
	// prepare writes the agent's configuration into the home, and returns its
	// environment and arguments.
	prepare func(home, url string) (env, args []string)
	shell   bool   // its shell can be replaced
	mcp     string // a part of the MCP tool's name, "" when that way is not driven
	// failsOpen says that the agent runs the command when its hook is broken.
	failsOpen bool
}

var drivenAgents = map[string]drivenAgent{
	"claude": {
		program: "claude", shell: true, mcp: "mcp__pinfold__run_command",
		prepare: func(_, url string) (env, args []string) {
			return []string{"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
					"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "ENABLE_TOOL_SEARCH=false"},
				[]string{"-p", "go", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash,mcp__pinfold"}
		},
	},
	"codex": {
		program: "codex", mcp: "run_command", failsOpen: true,
		prepare: func(home, url string) (env, args []string) {
			appendFile(filepath.Join(home, ".codex/config.toml"), fmt.Sprintf("model = \"scripted\"\nmodel_provider = \"scripted\"\n"+
				"[model_providers.scripted]\nname = \"scripted\"\nbase_url = %q\nwire_api = \"responses\"\nenv_key = \"KEY\"\n[features]\nplugins = false\n", url+"/v1"))
			return []string{"KEY=x", "CODEX_HOME=" + filepath.Join(home, ".codex")},
				[]string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "go"}
		},
	},
	"opencode": {
		program: "opencode", shell: true, mcp: "pinfold_run_command",
		prepare: func(home, url string) (env, args []string) {
			file := filepath.Join(home, ".config/opencode/opencode.json")
			config := map[string]any{"provider": map[string]any{"scripted": map[string]any{
				"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": map[string]any{"baseURL": url + "/v1", "apiKey": "x"},
				"models": map[string]any{"scripted": map[string]any{"name": "scripted", "tool_call": true}}}}}
			data, _ := json.Marshal(config)
			appendFile(file, string(data))
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"},
				[]string{"run", "--model", "scripted/scripted", "go"}
		},
	},
	"copilot": {
		program: "copilot", mcp: "pinfold-run_command",
		prepare: func(_, url string) (env, args []string) {
			return []string{"COPILOT_PROVIDER_BASE_URL=" + url + "/v1", "COPILOT_PROVIDER_TYPE=openai", "COPILOT_PROVIDER_API_KEY=x",
				"COPILOT_MODEL=scripted", "COPILOT_OFFLINE=true"}, []string{"--allow-all-tools", "-p", "go"}
		},
	},
}

// appendFile writes a file of a test.
func appendFile(file, content string) {
	_ = os.MkdirAll(filepath.Dir(file), 0o755)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err == nil {
		_, _ = f.WriteString(content)
		_ = f.Close()
	}
}

// A drive is one agent in a home of its own, with a daemon and a model.
type drive struct {
	t       *testing.T
	name    string
	agent   drivenAgent
	daemon  *testDaemon
	project string
	home    string
	model   *model.Server
	env     []string
	args    []string
}

func newDrive(t *testing.T, name string, script ...model.Step) *drive {
	t.Helper()
	agents := os.Getenv("PINFOLD_AGENTS")
	if agents == "" {
		agents = repositoryFile(t, "testdata/agents")
	}
	d := &drive{t: t, name: name, agent: drivenAgents[name], daemon: startDaemon(t), model: &model.Server{Script: script}}
	d.project, d.home = d.daemon.callers(t)[0].project, filepath.Join(d.daemon.root, "home")
	program := filepath.Join(agents, "node_modules/.bin", d.agent.program)
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make test-agents installs it", err)
	}
	server := httptest.NewServer(d.model)
	t.Cleanup(server.Close)
	env, args := d.agent.prepare(d.home, server.URL)
	d.env = append([]string{"HOME=" + d.home, "PATH=" + bin + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "IS_SANDBOX=1",
		"PINFOLD_SOCKET=" + d.daemon.socket, "PINFOLD_UNATTENDED=1"}, env...)
	d.args = append([]string{program}, args...)
	if err := os.MkdirAll(filepath.Join(d.project, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

// setup runs pinfold setup for the agent.
func (d *drive) setup(flags ...string) {
	d.t.Helper()
	args := append(append([]string{"setup", "--write", "--socket", d.daemon.socket}, flags...), d.name)
	cmd := exec.Command(filepath.Join(bin, "pinfold"), args...)
	cmd.Env, cmd.Dir = d.env, d.project
	if out, err := cmd.CombinedOutput(); err != nil {
		d.t.Fatalf("pinfold setup: %v\n%s", err, out)
	}
}

// command is the agent's, in a group of its own.
func (d *drive) command() (*exec.Cmd, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := exec.Command(d.args[0], d.args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = d.env, d.project, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, &out
}

// run runs the agent to its end, and returns what it told the model of each call.
func (d *drive) run() []string {
	d.t.Helper()
	cmd, out := d.command()
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	timer := time.AfterFunc(5*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	timer.Stop()
	results := d.model.Results()
	if len(results) < len(d.model.Script) || len(d.model.Failures()) > 0 {
		d.t.Fatalf("%d of %d steps were taken: %v, %v\n%s", len(results), len(d.model.Script), err, d.model.Failures(), out)
	}
	return results
}

// An expected is what is expected of one step.
type expected struct {
	command  string
	has, not string // in what the model is told
	made     string // a file that is there afterwards
	never    string // a file that is not
}

// confined are the steps of the ways in. What is unconfined sees a file outside.
func confined(outside string) []expected {
	return []expected{
		{command: "echo allowed-$((40+2)) > made.txt; cat made.txt", has: "allowed-42", made: "made.txt"},
		{command: fmt.Sprintf("python3 -c \"import os; print('seen' if os.path.exists('%s') else 'not-seen')\"", outside), has: "not-seen"},
		{command: "curl -o leak.txt http://localhost:9/; echo x > after-denied", has: "network client", never: "after-denied"},
		{command: "rm made.txt", has: "approv", made: "made.txt"},
		{command: "cd sub && echo a b | tr a-z A-Z && pwd | sed 's,.*/,in-,'", has: "in-sub"},
		{command: "sleep 2; echo long-$((1+1))", has: "long-2"},
		{command: "python3 -m http.server 8199 >/dev/null 2>&1 & for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3; " +
			"python3 -c \"import urllib.request as u; print('served', u.urlopen('http://127.0.0.1:8199').status)\" 2>/dev/null && break; done", has: "served 200"},
		{command: "ls nosuch; exit 7", has: "nosuch"},
	}
}

func (d *drive) verify(checks []expected, results []string) {
	d.t.Helper()
	for i, c := range checks {
		if c.has != "" && !strings.Contains(results[i], c.has) || c.not != "" && strings.Contains(results[i], c.not) {
			d.t.Errorf("%s\nwas answered %.1500s\nwant %q, not %q", c.command, results[i], c.has, c.not)
		}
		if _, err := os.Stat(filepath.Join(d.project, c.made)); err != nil {
			d.t.Errorf("%s: %v", c.command, err)
		}
		if _, err := os.Stat(filepath.Join(d.project, c.never)); c.never != "" && err == nil {
			d.t.Errorf("%s: made %s", c.command, c.never)
		}
	}
}

func outsideFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// eachAgent runs the test for the agents that $PINFOLD_AGENT names, else for all.
func eachAgent(t *testing.T, f func(t *testing.T, name string)) {
	for name := range drivenAgents {
		if only := os.Getenv("PINFOLD_AGENT"); only == "" || strings.Contains(only, name) {
			t.Run(name, func(t *testing.T) { f(t, name) })
		}
	}
}

func shellSteps(checks []expected) (steps []model.Step) {
	for _, c := range checks {
		steps = append(steps, model.Step{Shell: c.command})
	}
	return steps
}

// TestAgentsHook proves that with the hook alone each agent's commands are judged and
// confined.
func TestAgentsHook(t *testing.T) {
	eachAgent(t, func(t *testing.T, name string) {
		checks := confined(outsideFile(t))
		d := newDrive(t, name, shellSteps(checks)...)
		d.setup()
		d.verify(checks, d.run())
	})
}

// TestAgentsShell proves the same for the agents that let their shell be chosen, and
// that the directory is kept where the agent keeps it.
func TestAgentsShell(t *testing.T) {
	eachAgent(t, func(t *testing.T, name string) {
		if !drivenAgents[name].shell {
			t.Skip("this agent's shell cannot be chosen")
		}
		checks := confined(outsideFile(t))
		if name == "claude" {
			checks = append(checks, expected{command: "pwd | sed 's,.*/,still-in-,'", has: "still-in-sub"}) // after an earlier cd
		}
		d := newDrive(t, name, shellSteps(checks)...)
		shims := filepath.Join(d.daemon.root, "shims")
		if out, err := exec.Command(filepath.Join(bin, "pinfold"), "shim", "install", shims).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		d.env = append(d.env, "SHELL="+filepath.Join(shims, "bash"), "CLAUDE_CODE_SHELL="+filepath.Join(shims, "bash"))
		d.verify(checks, d.run())
	})
}

// TestAgentsHookFails proves that without a daemon no command runs, and that a hook
// which crashes or says nothing that can be read lets none through where the agent can be
// told so.
func TestAgentsHookFails(t *testing.T) {
	eachAgent(t, func(t *testing.T, name string) {
		t.Run("no daemon", func(t *testing.T) {
			d := newDrive(t, name, model.Step{Shell: "echo x > ran"})
			d.setup()
			d.daemon.stop(t, syscall.SIGKILL)
			d.verify([]expected{{has: "nothing was run", never: "ran"}}, d.run())
		})
		t.Run("a broken hook", func(t *testing.T) {
			if drivenAgents[name].failsOpen {
				t.Skip("this agent runs what its hook did not answer to")
			}
			d := newDrive(t, name, model.Step{Shell: "echo x > ran"})
			broken := filepath.Join(d.daemon.root, "broken")
			if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no JSON\nexit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			d.setup()
			replaceInTree(t, d.home, filepath.Join(bin, "pinfold"), broken)
			d.run()
			if _, err := os.Stat(filepath.Join(d.project, "ran")); err == nil {
				t.Error("the command ran")
			}
		})
	})
}

// replaceInTree replaces text in every small file below the directory.
func replaceInTree(t *testing.T, dir, old, with string) {
	t.Helper()
	n := 0
	_ = filepath.WalkDir(dir, func(file string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(file)
		if err == nil && len(data) < 1<<16 && bytes.Contains(data, []byte(old)) {
			n++
			err = os.WriteFile(file, bytes.ReplaceAll(data, []byte(old), []byte(with)), 0o644)
		}
		return err
	})
	if n == 0 {
		t.Fatalf("%s is in no file below %s", old, dir)
	}
}

// TestAgentsKilled proves that an agent which is killed leaves nothing running.
func TestAgentsKilled(t *testing.T) {
	eachAgent(t, func(t *testing.T, name string) {
		d := newDrive(t, name, model.Step{Shell: "while sleep 0.1; do echo x >> alive; done"})
		d.setup()
		cmd, _ := d.command()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		alive := filepath.Join(d.project, "alive")
		waitUntil(t, "the command writes", func() bool { _, err := os.Stat(alive); return err == nil })
		killTree(cmd.Process.Pid)
		_ = cmd.Wait()
		settled(t, alive)
	})
}

// killTree kills a process and its descendants, whatever their groups.
func killTree(pid int) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, child := range strings.Fields(string(children)) {
		var n int
		if _, err := fmt.Sscan(child, &n); err == nil {
			killTree(n)
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
