package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// hookCalls holds a call to run "ls" of each agent, and what it reads when the
// command is replaced by "R" and when it is denied with "no".
var hookCalls = []struct{ agent, call, replaced, denied string }{
	{"claude",
		`{"session_id":"s","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls","timeout":120000}}`,
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"R","timeout":120000}}}`,
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}`},
	{"codex",
		`{"session_id":"s","turn_id":"t","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"}}`,
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"R"}}}`,
		`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}`},
	{"gemini",
		`{"cwd":"/p","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"ls","dir_path":"sub"}}`,
		`{"decision":"allow","hookSpecificOutput":{"tool_input":{"command":"R","dir_path":"sub"}}}`,
		`{"decision":"deny","reason":"no"}`},
	{"copilot",
		`{"sessionId":"s","timestamp":1,"cwd":"/p","toolName":"bash","toolArgs":{"command":"ls","description":"d"}}`,
		`{"modifiedArgs":{"command":"R","description":"d"},"permissionDecision":"allow"}`,
		`{"permissionDecision":"deny","permissionDecisionReason":"no"}`},
	{"copilot", // with its arguments in a string
		`{"cwd":"/p","toolName":"bash","toolArgs":"{\"command\":\"ls\"}"}`,
		`{"modifiedArgs":{"command":"R"},"permissionDecision":"allow"}`,
		`{"permissionDecision":"deny","permissionDecisionReason":"no"}`},
	{"opencode", `{"tool":"bash","cwd":"/p","args":{"command":"ls","workdir":"sub"}}`,
		`{"args":{"command":"R","workdir":"sub"}}`, `{"deny":"no"}`},
	{"pi", `{"tool":"bash","cwd":"/p","args":{"command":"ls"}}`,
		`{"args":{"command":"R"}}`, `{"deny":"no"}`},
}

// answerHook has the agent's hook answer the call.
func answerHook(agent, call string, judge func(*hookCall) (string, error)) (stdout, stderr string, status int) {
	var out, complaints bytes.Buffer
	h := &hookAnswer{dialect: dialects[agent], stdout: &out, stderr: &complaints}
	status = h.run(strings.NewReader(call), judge)
	return strings.TrimSuffix(out.String(), "\n"), complaints.String(), status
}

// TestHookAnswers proves that each agent reads, in its own form, that a command
// is replaced or denied, and that its other arguments stay as they were.
func TestHookAnswers(t *testing.T) {
	for _, c := range hookCalls {
		var got hookCall
		out, _, status := answerHook(c.agent, c.call, func(call *hookCall) (string, error) { got = *call; return "R", nil })
		if out != c.replaced || status != 0 {
			t.Errorf("%s: replaced: %s, status %d\nwant %s", c.agent, out, status, c.replaced)
		}
		dir := "/p"
		if strings.Contains(c.call, `"sub"`) {
			dir = "/p/sub"
		}
		if got.command != "ls" || got.dir != dir {
			t.Errorf("%s: judged %q in %s, want ls in %s", c.agent, got.command, got.dir, dir)
		}
		out, _, status = answerHook(c.agent, c.call, func(*hookCall) (string, error) { return "", &refusal{"no"} })
		if out != c.denied || status != 0 {
			t.Errorf("%s: denied: %s, status %d\nwant %s", c.agent, out, status, c.denied)
		}
	}
}

// TestHookFailsClosed proves that whatever goes wrong in the hook is a denial in
// the agent's form and status 2, which every agent takes for one.
func TestHookFailsClosed(t *testing.T) {
	bad := map[string]func(*hookCall) (string, error){
		"no daemon": func(*hookCall) (string, error) { return "", errors.New("no daemon is running") },
		"a panic":   func(*hookCall) (string, error) { panic("a fault") },
	}
	denied := func(t *testing.T, agent, out, complaint string, status int) {
		t.Helper()
		if !strings.Contains(out, "deny") || !strings.Contains(out, "nothing was run") || !strings.Contains(complaint, "nothing was run") || status != 2 {
			t.Errorf("%s: %q, %q, status %d: not a denial", agent, out, complaint, status)
		}
	}
	for what, judge := range bad {
		t.Run(what, func(t *testing.T) {
			for _, c := range hookCalls {
				out, complaint, status := answerHook(c.agent, c.call, judge)
				denied(t, c.agent, out, complaint, status)
			}
		})
	}
	never := func(*hookCall) (string, error) { t.Error("judged"); return "R", nil }
	for _, c := range hookCalls {
		shell := dialects[c.agent].shells[0]
		for _, call := range []string{
			"", "null", "[]", "{", `{"a":1}`, c.call[:len(c.call)/2], c.call + "x",
			strings.ReplaceAll(c.call, "ls", ""), strings.ReplaceAll(c.call, `"/p"`, `"p"`),
			strings.ReplaceAll(c.call, `"command"`, `"cmd"`), strings.ReplaceAll(c.call, `"command":"ls"`, `"command":["ls"]`),
			strings.ReplaceAll(c.call, `"`+shell+`"`, "7"),
			`{"` + dialects[c.agent].tool + `":"` + shell + `"}`,
			strings.Repeat(" ", maxHookCall) + c.call,
		} {
			if strings.Contains(call, `\"`) {
				continue
			}
			out, complaint, status := answerHook(c.agent, call, never)
			denied(t, c.agent, out, complaint, status)
		}
		var out, complaint bytes.Buffer
		h := &hookAnswer{dialect: dialects[c.agent], stdout: &out, stderr: &complaint}
		status := h.run(iotest.ErrReader(errors.New("broken")), never)
		denied(t, c.agent, out.String(), complaint.String(), status)
	}
}

// TestHookOtherTools proves that the hook says nothing about tools that run no
// shell command.
func TestHookOtherTools(t *testing.T) {
	for agent, call := range map[string]string{
		"claude":   `{"cwd":"/p","tool_name":"Read","tool_input":{"file_path":"/p/x"}}`,
		"gemini":   `{"cwd":"/p","tool_name":"read_file","tool_input":{}}`,
		"copilot":  `{"cwd":"/p","toolName":"view","toolArgs":{"path":"/p/x"}}`,
		"opencode": `{"tool":"read","cwd":"/p","args":{}}`,
	} {
		out, complaint, status := answerHook(agent, call, nil)
		if out != "" || complaint != "" || status != 0 {
			t.Errorf("%s: %q, %q, status %d, want nothing", agent, out, complaint, status)
		}
	}
}

// TestHookInstead proves that agents whose hooks cannot replace a command are
// told which tool to call, whatever the command is.
func TestHookInstead(t *testing.T) {
	for agent, call := range map[string]string{
		"qwen":   `{"cwd":"/p","tool_name":"run_shell_command","tool_input":{"command":"ls"}}`,
		"cursor": `{"cwd":"/p","command":"ls","hook_event_name":"beforeShellExecution"}`,
	} {
		out, _, status := answerHook(agent, call, nil)
		if !strings.Contains(out, "deny") || !strings.Contains(out, "run_command") || status != 0 {
			t.Errorf("%s: %q, status %d", agent, out, status)
		}
	}
}
