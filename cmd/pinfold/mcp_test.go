//go:build mcp

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

// mcpSession starts a daemon and pinfold mcp for a project in it, and connects
// to that as an agent does.
func mcpSession(t *testing.T, options *mcp.ClientOptions) (*mcp.ClientSession, *exec.Cmd, *testCaller) {
	t.Helper()
	d := startDaemon(t)
	caller := d.callers(t)[0]
	session, server := mcpConnect(t, caller, options)
	return session, server, caller
}

func mcpConnect(t *testing.T, caller *testCaller, options *mcp.ClientOptions) (*mcp.ClientSession, *exec.Cmd) {
	t.Helper()
	server := exec.Command(filepath.Join(bin, "pinfold"), "mcp", "--socket", caller.daemon.socket, "--project", caller.project)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: server}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session, server
}

// call calls a tool, and returns its structured answer and its text.
func call(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (answer map[string]any, text string, isError bool) {
	t.Helper()
	result, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	data, err := json.Marshal(result.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(data, &answer) // an error of the tool has none
	for _, c := range result.Content {
		text += c.(*mcp.TextContent).Text
	}
	if n := len(data) + len(text); n > 2*8192+2048 {
		t.Errorf("%s %v: the answer has %d bytes", tool, args, n)
	}
	return answer, text, result.IsError
}

// TestMCPTools proves that the tools are there, with schemas and with
// annotations that tell the truth.
func TestMCPTools(t *testing.T) {
	s, _, _ := mcpSession(t, nil)
	list, err := s.ListTools(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	reads := map[string]bool{"run_command": false, "run_signal": false,
		"check_command": true, "run_output": true, "session_status": true, "policy_summary": true}
	for _, tool := range list.Tools {
		want, known := reads[tool.Name]
		if !known || tool.Annotations.ReadOnlyHint != want || tool.InputSchema == nil || tool.OutputSchema == nil || tool.Description == "" {
			t.Errorf("%s: %+v", tool.Name, tool)
		}
		delete(reads, tool.Name)
	}
	if len(reads) > 0 {
		t.Errorf("not there: %v", reads)
	}
}

// TestMCPRun proves that a command runs confined in the project, and that the
// model reads all it needs in either form of the answer.
func TestMCPRun(t *testing.T) {
	s, _, caller := mcpSession(t, nil)
	answer, text, isError := call(t, s, "run_command", map[string]any{"command": "pwd; echo problem >&2; exit 3"})
	if isError || answer["state"] != "finished" || answer["exit_code"] != 3.0 || answer["stdout"] != caller.project+"\n" || answer["stderr"] != "problem\n" {
		t.Errorf("%v", answer)
	}
	if text != caller.project+"\n[stderr]\nproblem\n[exit status 3]" {
		t.Errorf("text %q", text)
	}
	answer, text, isError = call(t, s, "run_command", map[string]any{"command": "curl http://localhost"})
	if !isError || answer["state"] != "refused" || !strings.Contains(text, "PERMISSION_DENIED") || !strings.Contains(text, "network client") || !strings.Contains(text, "what to do") {
		t.Errorf("denied: %v, %q", answer, text)
	}
	for _, args := range []map[string]any{{"command": ""}, {}, {"command": "ls", "cwd": "/etc"}, {"command": "ls", "timeout": -1}, {"command": "ls", "timeout": 1e9}, {"command": 7}, {"command": "ls", "uid": 0}} {
		if _, text, isError := call(t, s, "run_command", args); !isError || text == "" {
			t.Errorf("%v: %q is no error", args, text)
		}
	}
	answer, text, _ = call(t, s, "check_command", map[string]any{"command": "rm -rf x"})
	if answer["verdict"] != "deny" || !strings.Contains(text, "denied") {
		t.Errorf("check: %v, %q", answer, text)
	}
	if _, text, _ := call(t, s, "policy_summary", nil); !strings.Contains(text, "git") {
		t.Errorf("summary: %q", text)
	}
	if _, text, _ := call(t, s, "session_status", nil); !strings.Contains(text, "run-1 exit status 3: pwd") {
		t.Errorf("status: %q", text)
	}
}

// TestMCPOutput proves that an answer holds head and tail of a long output, and
// that run_output has all of it, byte for byte.
func TestMCPOutput(t *testing.T) {
	s, _, _ := mcpSession(t, nil)
	const command = "for i in $(seq 3000); do echo \"zeile $i äöü\"; done"
	answer, _, _ := call(t, s, "run_command", map[string]any{"command": command})
	stdout := answer["stdout"].(string)
	if !strings.HasPrefix(stdout, "zeile 1 äöü\n") || !strings.HasSuffix(stdout, "zeile 3000 äöü\n") || answer["stdout_omitted"] == nil {
		t.Errorf("%q", stdout)
	}
	whole, err := exec.Command("bash", "-c", command).Output()
	if err != nil {
		t.Fatal(err)
	}
	var read strings.Builder
	for next := 0.0; ; {
		part, _, _ := call(t, s, "run_output", map[string]any{"run": answer["run"], "offset": next})
		read.WriteString(part["data"].(string))
		if next = part["next"].(float64); next == part["total"] {
			break
		}
	}
	if read.String() != string(whole) {
		t.Errorf("run_output has %d bytes, want %d", read.Len(), len(whole))
	}
	if part, _, _ := call(t, s, "run_output", map[string]any{"run": answer["run"], "offset": -5}); part["data"] != "äöü\n"[2:] && !strings.HasSuffix("äöü\n", part["data"].(string)) {
		t.Errorf("the last bytes are %q", part["data"])
	}
	if _, text, isError := call(t, s, "run_output", map[string]any{"run": "run-99"}); !isError || !strings.Contains(text, "session_status") {
		t.Errorf("no such run: %q", text)
	}
}

// TestMCPBackground proves that a background run returns at once, goes on, can be
// read and ended, and that a refused one is refused at once.
func TestMCPBackground(t *testing.T) {
	s, _, _ := mcpSession(t, nil)
	answer, text, _ := call(t, s, "run_command", map[string]any{"command": "echo ready; sleep 63.127", "background": true, "timeout": 100})
	if answer["state"] != "running" || !strings.Contains(text, "still running") {
		t.Fatalf("%v, %q", answer, text)
	}
	for deadline := time.Now().Add(60 * time.Second); ; {
		part, _, _ := call(t, s, "run_output", map[string]any{"run": answer["run"]})
		if part["data"] == "ready\n" && part["state"] == "running" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v", part)
		}
	}
	ended, _, isError := call(t, s, "run_signal", map[string]any{"run": answer["run"]})
	if isError || ended["state"] != "finished" || anyProcess("63.127") {
		t.Errorf("%v", ended)
	}
	if answer, _, isError := call(t, s, "run_command", map[string]any{"command": "curl http://localhost", "background": true}); !isError || answer["state"] != "refused" {
		t.Errorf("a refused one: %v", answer)
	}
}

// TestMCPCancel proves that a canceled call ends its command, that a cancel which
// comes too late does no harm, and that progress is told meanwhile.
func TestMCPCancel(t *testing.T) {
	var told atomic.Int32
	s, _, _ := mcpSession(t, &mcp.ClientOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { told.Add(1) }})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(mcpProgressTime+2*time.Second, cancel)
	params := &mcp.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": "sleep 64.127", "timeout": 100}}
	params.SetProgressToken("p")
	if _, err := s.CallTool(ctx, params); err == nil {
		t.Error("the canceled call succeeded")
	}
	eventually(t, "the command of a canceled call has ended", func() bool { return !anyProcess("64.127") })
	if told.Load() == 0 {
		t.Error("no progress was told")
	}
	late, cancelLate := context.WithCancel(context.Background())
	if _, err := s.CallTool(late, &mcp.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": "true"}}); err != nil {
		t.Error(err)
	}
	cancelLate()
	if answer, _, _ := call(t, s, "run_command", map[string]any{"command": "echo on"}); answer["stdout"] != "on\n" {
		t.Errorf("%v", answer)
	}
}

// TestMCPEnds proves that whichever way the client ends, the server ends and its
// commands with it: end of stdin, SIGINT, SIGTERM, and the server killed.
func TestMCPEnds(t *testing.T) {
	d := startDaemon(t)
	caller := d.callers(t)[0]
	for name, end := range map[string]func(*mcp.ClientSession, *exec.Cmd){
		"stdin":   func(s *mcp.ClientSession, _ *exec.Cmd) { _ = s.Close() },
		"SIGINT":  func(_ *mcp.ClientSession, c *exec.Cmd) { _ = c.Process.Signal(unix.SIGINT) },
		"SIGTERM": func(_ *mcp.ClientSession, c *exec.Cmd) { _ = c.Process.Signal(unix.SIGTERM) },
		"SIGKILL": func(_ *mcp.ClientSession, c *exec.Cmd) { _ = c.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			s, server := mcpConnect(t, caller, nil)
			call(t, s, "run_command", map[string]any{"command": "sleep 65.127", "timeout": 100, "background": true})
			eventually(t, "the command runs", func() bool { return anyProcess("65.127") })
			end(s, server)
			eventually(t, "command and server have ended", func() bool { return !anyProcess("65.127") && hasEnded(server.Process.Pid) })
		})
	}
}

// hasEnded reports whether the process has ended, waited for or not.
func hasEnded(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(string(out), "Z")
}

// TestMCPTwoClients proves that two servers at once do not see each other's runs.
func TestMCPTwoClients(t *testing.T) {
	a, _, caller := mcpSession(t, nil)
	b, _ := mcpConnect(t, caller, nil)
	call(t, a, "run_command", map[string]any{"command": "echo of a"})
	if _, text, isError := call(t, b, "run_output", map[string]any{"run": "run-1"}); !isError {
		t.Errorf("b reads a's run: %q", text)
	}
}

// TestMCPUnknownMethod proves that what the server does not know is the
// protocol's error for that.
func TestMCPUnknownMethod(t *testing.T) {
	d := startDaemon(t)
	caller := d.callers(t)[0]
	server := exec.Command(filepath.Join(bin, "pinfold"), "mcp", "--socket", d.socket, "--project", caller.project)
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":2,"method":"no/such"}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`,
	} {
		_, _ = io.WriteString(stdin, message+"\n") // the answers tell whether it was read
	}
	answers := map[float64]string{}
	for lines := bufio.NewScanner(stdout); len(answers) < 3 && lines.Scan(); {
		var answer struct{ ID float64 }
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		answers[answer.ID] = lines.Text()
	}
	if !strings.Contains(answers[2], "-32601") || !strings.Contains(answers[3], "result") {
		t.Errorf("%v", answers)
	}
	stdin.Close()
	if err := server.Wait(); err != nil {
		t.Errorf("at the end of stdin: %v", err)
	}
}
