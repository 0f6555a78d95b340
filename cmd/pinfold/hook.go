package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pinfold/pinfold/api"
)

const (
	// maxHookCall is the most bytes that an agent may send to its hook: a
	// command and what the agent says beside it.
	maxHookCall = 4 << 20
	// hookTime is how long a hook may take. The agents let a command through
	// when their hook does not answer in time (after 30 s, as set up), so it
	// denies before that.
	hookTime = 25 * time.Second
	// hookRunTime is the time that a replaced command gets: the agents have
	// timeouts of their own, and a client that is killed ends its run.
	hookRunTime = "1h"
)

// A dialect is how one agent speaks with a hook that it calls before it uses a
// tool. What is written here was seen by running the agent, or is from its
// documentation where seen is "".
type dialect struct {
	seen string // version of the agent
	// tool and input name the members of the call that hold the tool's name and
	// its arguments; tool "" is a hook for shell commands only, input "" a call
	// that is the arguments itself.
	tool, input string
	shells      []string // tools whose argument "command" is text for a shell
	dir         string   // argument that names the directory to start in
	// instead, when the agent's hook cannot replace a command, is the MCP tool
	// that the model should call; every shell command is denied then.
	instead string
	// deny and replace return what the agent reads on stdout.
	deny    func(reason string) any
	replace func(input map[string]any) any
}

// dialects are the agents that pinfold hook knows.
var dialects = map[string]dialect{
	"claude": {
		seen: "2.1.332", tool: "tool_name", input: "tool_input", shells: []string{"Bash", "Monitor"},
		deny: denyPreToolUse, replace: replacePreToolUse,
	},
	"codex": {
		seen: "0.171.0", tool: "tool_name", input: "tool_input", shells: []string{"Bash"},
		deny: denyPreToolUse, replace: replacePreToolUse,
	},
	"copilot": {
		seen: "1.0.102", tool: "toolName", input: "toolArgs", shells: []string{"bash"},
		deny: func(reason string) any {
			return object{"permissionDecision": "deny", "permissionDecisionReason": reason}
		},
		replace: func(input map[string]any) any {
			return object{"permissionDecision": "allow", "modifiedArgs": input}
		},
	},
	"gemini": {
		seen: "0.61.0", tool: "tool_name", input: "tool_input", shells: []string{"run_shell_command"}, dir: "dir_path",
		deny: func(reason string) any { return object{"decision": "deny", "reason": reason} },
		replace: func(input map[string]any) any {
			return object{"decision": "allow", "hookSpecificOutput": object{"tool_input": input}}
		},
	},
	// The plugins of opencode and pi are files of ours, which speak plainly.
	"opencode": plugin("1.18.33", "workdir"),
	"pi":       plugin("1.6.0", ""),
	"qwen": {
		seen: "0.24.4", tool: "tool_name", input: "tool_input", shells: []string{"run_shell_command"},
		instead: "mcp__pinfold__run_command", deny: denyPreToolUse,
	},
	"cursor": {
		instead: "run_command of the MCP server pinfold",
		deny: func(reason string) any {
			return object{"permission": "deny", "user_message": reason, "agent_message": reason}
		},
	},
}

// object is a JSON object.
type object = map[string]any

func denyPreToolUse(reason string) any {
	return object{"hookSpecificOutput": object{
		"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}}
}

func replacePreToolUse(input map[string]any) any {
	return object{"hookSpecificOutput": object{
		"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": input}}
}

func plugin(seen, dir string) dialect {
	return dialect{
		seen: seen, tool: "tool", input: "args", shells: []string{"bash"}, dir: dir,
		deny:    func(reason string) any { return object{"deny": reason} },
		replace: func(input map[string]any) any { return object{"args": input} },
	}
}

// A hookCall is what an agent wants to run.
type hookCall struct {
	shell   bool           // it is a shell command; else the hook has no opinion
	input   map[string]any // the tool's arguments
	command string
	dir     string // absolute
}

// hook is pinfold hook: it reads an agent's call on stdin and answers on stdout.
// Whatever fails ends as a denial.
func hook(args []string) int {
	var socket, project string
	var useMCP bool
	flags := newFlags("hook", " "+strings.Join(slices.Sorted(maps.Keys(dialects)), "|"), &socket)
	flags.StringVar(&project, "project", "", "the project's `directory` (default the git top-level of where the agent is)")
	flags.BoolVar(&useMCP, "mcp", false, "deny every shell command, and name the MCP tool to call instead")
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	d, known := dialects[flags.Arg(0)]
	if !known || flags.NArg() != 1 {
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return exitUsage // the agents' status for a denial, too
	}
	if useMCP && d.instead == "" {
		d.instead = "run_command of the MCP server " + mcpServerName
	}
	h := &hookAnswer{dialect: d, stdout: os.Stdout, stderr: os.Stderr}
	defer time.AfterFunc(hookTime, func() { os.Exit(h.fail(fmt.Errorf("no answer within %v", hookTime))) }).Stop()
	return h.run(os.Stdin, func(call *hookCall) (string, error) { return judgeCall(socket, project, call) })
}

// A hookAnswer gives the one answer to an agent.
type hookAnswer struct {
	dialect
	stdout, stderr io.Writer
	once           sync.Once
}

// run reads the call, has it judged, and returns the hook's exit status. The
// judge returns the text to run instead, or a [refusal]; any other error is a
// failure.
func (h *hookAnswer) run(stdin io.Reader, judge func(*hookCall) (string, error)) (status int) {
	defer func() {
		if p := recover(); p != nil {
			status = h.fail(fmt.Errorf("panic: %v", p))
		}
	}()
	call, err := h.read(stdin)
	if err != nil {
		return h.fail(err)
	}
	if !call.shell {
		return exitOK
	}
	if h.instead != "" {
		return h.refuse("shell commands are run by Pinfold here: call " + h.instead + " with this command instead")
	}
	text, err := judge(call)
	var no *refusal
	switch {
	case errors.As(err, &no):
		return h.refuse(no.reason)
	case err != nil:
		return h.fail(err)
	}
	input := maps.Clone(call.input)
	input["command"] = text
	return h.answer(h.replace(input), "", exitOK)
}

// read reads the agent's call.
func (h *hookAnswer) read(stdin io.Reader) (*hookCall, error) {
	data, err := io.ReadAll(io.LimitReader(stdin, maxHookCall+1))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's call: %w", err)
	}
	if len(data) > maxHookCall {
		return nil, fmt.Errorf("the agent's call is longer than %d bytes", maxHookCall)
	}
	var call map[string]any
	if err := decodeObject(data, &call); err != nil {
		return nil, fmt.Errorf("the agent's call: %w", err)
	}
	if h.tool != "" {
		tool, ok := call[h.tool].(string)
		if !ok {
			return nil, fmt.Errorf("the agent's call names no tool in %q", h.tool)
		}
		if !slices.Contains(h.shells, tool) {
			return &hookCall{}, nil
		}
	}
	return h.shellCall(call)
}

// decodeObject reads one JSON object and nothing else. Numbers stay as they are
// written.
func decodeObject(data []byte, v *map[string]any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more follows the JSON object")
	}
	if *v == nil {
		return errors.New("null is no object")
	}
	return nil
}

// shellCall returns the call of a tool that runs a shell command.
func (h *hookAnswer) shellCall(call map[string]any) (*hookCall, error) {
	input := call
	if h.input != "" {
		switch v := call[h.input].(type) {
		case map[string]any:
			input = v
		case string: // the arguments as JSON in a string
			input = nil
			if err := decodeObject([]byte(v), &input); err != nil {
				return nil, fmt.Errorf("the tool's arguments: %w", err)
			}
		default:
			return nil, fmt.Errorf("the agent's call has no arguments in %q", h.input)
		}
	}
	c := &hookCall{shell: true, input: input}
	c.command, _ = input["command"].(string)
	if c.command == "" {
		return nil, errors.New("the tool's arguments hold no command")
	}
	c.dir, _ = call["cwd"].(string)
	if c.dir == "" {
		var err error
		if c.dir, err = currentDir(); err != nil {
			return nil, err
		}
	}
	if dir, _ := input[h.dir].(string); h.dir != "" && dir != "" {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(c.dir, dir)
		}
		c.dir = dir
	}
	if !filepath.IsAbs(c.dir) {
		return nil, fmt.Errorf("the agent's directory %q is not absolute", c.dir)
	}
	return c, nil
}

// refuse answers that the command may not run.
func (h *hookAnswer) refuse(reason string) int { return h.answer(h.deny(reason), "", exitOK) }

// fail answers that the command may not run because Pinfold failed. Status 2 is
// a denial to every agent, also to one that does not understand the rest.
func (h *hookAnswer) fail(err error) int {
	reason := "pinfold: " + visible(err.Error()) + "; nothing was run"
	return h.answer(h.deny(reason), reason, exitUsage)
}

// answer writes the first answer and returns its status; a second one waits for
// the program to end.
func (h *hookAnswer) answer(answer any, complaint string, status int) int {
	first := false
	h.once.Do(func() { first = true })
	if !first {
		select {}
	}
	data, err := json.Marshal(answer)
	if err == nil {
		_, err = h.stdout.Write(append(data, '\n'))
	}
	if err != nil {
		complaint, status = "pinfold: "+visible(err.Error()), exitUsage
	}
	if complaint != "" {
		fprint(h.stderr, complaint+"\n")
	}
	return status
}

// A refusal is a decision that the command may not run.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// judgeCall asks the daemon about the call and returns the text that runs it
// confined. The daemon decides again when that runs.
func judgeCall(socket, project string, call *hookCall) (string, error) {
	w, err := whereOf(socket, project, call.dir)
	if err != nil {
		return "", err
	}
	client, err := connect(socket)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), hookTime)
	defer cancel()
	answer, err := client.Check(ctx, api.CheckRequest{Project: w.project, Command: call.command, Cwd: w.cwd})
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Code == api.ParseError {
		return "", &refusal{explain(refused, call.command)}
	}
	if err != nil {
		return "", err
	}
	// What has to be approved runs into the daemon, and waits there.
	if v := answer.Decision.Verdict; v != "allow" && v != "require_approval" {
		return "", &refusal{describe(answer, call.command)}
	}
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	words := []string{own, "run", "--project", w.project, "--timeout", hookRunTime}
	if w.cwd != "" {
		words = append(words, "--cwd", w.cwd)
	}
	if socket != "" {
		words = append(words, "--socket", socket)
	}
	return quoteAll(append(words, "--", call.command)), nil
}

// whereOf returns the project that dir lies in and dir relative to it. Unlike a
// person's command, an agent's does not quietly start elsewhere.
func whereOf(socket, project, dir string) (*where, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	given := project != ""
	if project, err = projectOf(project, dir); err != nil {
		return nil, err
	}
	w := &where{socket: socket, project: project, cwd: relative(project, dir, given)}
	if real, err := filepath.EvalSymlinks(project); err != nil || w.cwd == "" && real != dir {
		return nil, fmt.Errorf("the agent is in %s, which does not lie in the project %s", dir, project)
	}
	return w, nil
}
