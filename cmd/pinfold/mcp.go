//go:build mcp

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

const (
	// mcpAnswerTime is when a call that still runs is answered with the run's
	// id: clients give up after 60 s.
	mcpAnswerTime = 45 * time.Second
	// mcpProgressTime is how often a client that asked is told that a command
	// still runs.
	mcpProgressTime = 5 * time.Second
	// mcpStreamLimit is the most bytes of each stream that one answer holds;
	// both together stay below the 8 KB that some clients cut at.
	mcpStreamLimit = 3500
)

const mcpInstructions = `Shell commands run through this server are judged by a policy and confined by the kernel to the project. ` +
	`policy_summary says what is allowed here. A refusal names the reason, the place in the command, and what to do instead.`

// mcpCommand is pinfold mcp: a Model Context Protocol server on stdin and
// stdout.
func mcpCommand(args []string) int {
	var socket, project string
	flags := newFlags("mcp", "", &socket)
	flags.StringVar(&project, "project", "", "the project's `directory` (default the git top-level, else the current directory)")
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	if flags.NArg() > 0 {
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return exitUsage
	}
	dir, err := currentDir()
	if err == nil {
		project, err = projectOf(project, dir)
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	ctx := cancelOnSignal()
	s := &mcpServer{socket: socket, project: project, runs: newMCPRuns(ctx)}
	defer s.runs.close()
	err = s.server().Run(ctx, &mcp.StdioTransport{})
	if err != nil && ctx.Err() == nil && !errors.Is(err, mcp.ErrConnectionClosed) && !isEOF(err) {
		complain("%v", err)
		return exitFailed
	}
	return exitOK
}

// isEOF reports whether the client closed its end.
func isEOF(err error) bool {
	return strings.Contains(err.Error(), "EOF") || errors.Is(err, unix.EPIPE)
}

// An mcpServer answers the tools for one project.
type mcpServer struct {
	socket, project string
	runs            *mcpRuns
}

// The tools' arguments and answers. The jsonschema tags are what the model
// reads.
type (
	runArguments struct {
		Command    string  `json:"command" jsonschema:"text for bash"`
		Cwd        string  `json:"cwd,omitempty" jsonschema:"directory to start in, relative to the project"`
		Timeout    float64 `json:"timeout,omitempty" jsonschema:"seconds that the command may take, at most 3600; default 10, or 120 for builds and tests"`
		Background bool    `json:"background,omitempty" jsonschema:"return at once with the run's id; read the output with run_output"`
	}
	checkArguments struct {
		Command string `json:"command" jsonschema:"text for bash; nothing is run"`
		Cwd     string `json:"cwd,omitempty" jsonschema:"directory to start in, relative to the project"`
	}
	outputArguments struct {
		Run    string `json:"run" jsonschema:"id that run_command returned"`
		Stream string `json:"stream,omitempty" jsonschema:"stdout (default) or stderr"`
		Offset int64  `json:"offset,omitempty" jsonschema:"byte to start at; negative counts from the end"`
		Wait   bool   `json:"wait,omitempty" jsonschema:"wait, up to 45 s, until the command has ended"`
	}
	signalArguments struct {
		Run string `json:"run" jsonschema:"id that run_command returned"`
	}
	none struct{}
)

// A runAnswer says how a command ended, or that it still runs.
type runAnswer struct {
	State      string       `json:"state" jsonschema:"finished, running, waiting for a person's approval, or refused when it did not run"`
	Run        string       `json:"run,omitempty" jsonschema:"id for run_output and run_signal"`
	ExitCode   *int         `json:"exit_code,omitempty"`
	Signal     string       `json:"signal,omitempty" jsonschema:"signal that ended it"`
	Stdout     string       `json:"stdout" jsonschema:"head and tail; the rest by run_output"`
	Stderr     string       `json:"stderr" jsonschema:"head and tail; the rest by run_output"`
	OmittedOut int64        `json:"stdout_omitted,omitempty" jsonschema:"bytes left out between head and tail"`
	OmittedErr int64        `json:"stderr_omitted,omitempty" jsonschema:"bytes left out between head and tail"`
	Error      *answerError `json:"error,omitempty"`
}

// An answerError is why a command did not run to its own end.
type answerError struct {
	Code    string `json:"code"`
	Message string `json:"message" jsonschema:"what, where in the command, by which rule, and what to do instead"`
}

type checkReply struct {
	Verdict string `json:"verdict" jsonschema:"allow, deny or require_approval"`
	Risk    string `json:"risk,omitempty"`
	Text    string `json:"text" jsonschema:"the decision in words"`
}

type outputReply struct {
	Run    string `json:"run"`
	State  string `json:"state" jsonschema:"running or finished"`
	Data   string `json:"data"`
	Offset int64  `json:"offset" jsonschema:"where data begins"`
	Next   int64  `json:"next" jsonschema:"offset to go on at"`
	Total  int64  `json:"total" jsonschema:"bytes that the stream has so far"`
}

type textReply struct {
	Text string `json:"text"`
}

// server returns the server with its tools.
func (s *mcpServer) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "pinfold", Title: "Pinfold", Version: version},
		&mcp.ServerOptions{Instructions: mcpInstructions, Capabilities: &mcp.ServerCapabilities{}})
	yes, no := true, false
	changes := &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no}
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no}
	mcp.AddTool(server, &mcp.Tool{Name: "run_command", Annotations: changes,
		Description: "Run a shell command in the project, judged by policy and confined. Answers within 45 s: with the result, or with a run id while it goes on."}, s.run)
	mcp.AddTool(server, &mcp.Tool{Name: "check_command", Annotations: reads,
		Description: "Say whether a shell command would be allowed, and why. Runs nothing."}, s.check)
	mcp.AddTool(server, &mcp.Tool{Name: "run_output", Annotations: reads,
		Description: "Read output of a run, also while it goes on."}, s.output)
	mcp.AddTool(server, &mcp.Tool{Name: "run_signal", Annotations: changes,
		Description: "End a run that goes on, with all its processes."}, s.signal)
	mcp.AddTool(server, &mcp.Tool{Name: "session_status", Annotations: reads,
		Description: "Show the runs of this session, and what confines them."}, s.status)
	mcp.AddTool(server, &mcp.Tool{Name: "policy_summary", Annotations: reads,
		Description: "Say in short what commands may do in this project."}, s.policy)
	return server
}

// run is run_command.
func (s *mcpServer) run(ctx context.Context, req *mcp.CallToolRequest, in runArguments) (*mcp.CallToolResult, runAnswer, error) {
	timeout := time.Duration(in.Timeout * float64(time.Second))
	if in.Timeout < 0 || timeout > api.MaxTimeout {
		return nil, runAnswer{}, fmt.Errorf("timeout: must be from 0.001 to %v seconds", api.MaxTimeout.Seconds())
	}
	client, err := connect(s.socket)
	if err != nil {
		return nil, runAnswer{}, err
	}
	run := s.runs.start(client, api.ExecRequest{Project: s.project, Command: in.Command, Cwd: in.Cwd, TimeoutMS: timeout.Milliseconds()})
	if in.Background {
		// A refusal comes at once, and says more than an id.
		run.await(ctx, time.Second, func() bool { return run.started })
	} else {
		stop := context.AfterFunc(ctx, run.cancel)
		report := reportProgress(ctx, req)
		run.await(ctx, mcpAnswerTime, func() bool { return false })
		report()
		stop()
	}
	answer := run.answer()
	return runResult(in.Command, answer), *answer, nil
}

// runResult is the answer as text, for clients that show the model only that.
func runResult(command string, a *runAnswer) *mcp.CallToolResult {
	var b strings.Builder
	b.WriteString(a.Stdout)
	if a.Stderr != "" {
		fmt.Fprintf(&b, "%s[stderr]\n%s", lineEnd(b.String()), a.Stderr)
	}
	b.WriteString(lineEnd(b.String()))
	switch {
	case a.State == "waiting":
		fmt.Fprintf(&b, "[run %s is not started: it waits for a person's approval; see with run_output or session_status later] %s", a.Run, a.Error.Message)
	case a.State == "running":
		fmt.Fprintf(&b, "[still running; run %s: read on with run_output, end it with run_signal]", a.Run)
	case a.Error != nil:
		fmt.Fprintf(&b, "[%s] %s", a.Error.Code, a.Error.Message)
	case a.Signal != "":
		fmt.Fprintf(&b, "[ended by %s]", a.Signal)
	case a.ExitCode != nil:
		fmt.Fprintf(&b, "[exit status %d]", *a.ExitCode)
	}
	if a.OmittedOut > 0 || a.OmittedErr > 0 {
		fmt.Fprintf(&b, "\n[output is cut; run_output with run %s has the rest]", a.Run)
	}
	return &mcp.CallToolResult{IsError: a.Error != nil && a.State != "waiting", Content: []mcp.Content{&mcp.TextContent{Text: b.String()}}}
}

// lineEnd returns what ends the text's last line.
func lineEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return ""
	}
	return "\n"
}

// reportProgress tells the client regularly that its call is being served, if it
// wants to know, until the function that it returns is called.
func reportProgress(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		began := time.Now()
		for tick := time.NewTicker(mcpProgressTime); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // a client that is gone needs none
					ProgressToken: token, Progress: time.Since(began).Seconds(), Message: "running"})
			}
		}
	}()
	return func() { close(done); <-finished }
}

// check is check_command.
func (s *mcpServer) check(ctx context.Context, _ *mcp.CallToolRequest, in checkArguments) (*mcp.CallToolResult, checkReply, error) {
	client, err := connect(s.socket)
	if err != nil {
		return nil, checkReply{}, err
	}
	defer client.Close()
	answer, err := client.Check(ctx, api.CheckRequest{Project: s.project, Command: in.Command, Cwd: in.Cwd})
	if refused, ok := errors.AsType[*api.Error](err); ok {
		return nil, checkReply{}, errors.New(explain(refused, in.Command))
	}
	if err != nil {
		return nil, checkReply{}, err
	}
	reply := checkReply{Verdict: answer.Decision.Verdict, Risk: answer.Decision.Risk, Text: describe(answer, in.Command)}
	return textResult(reply.Text), reply, nil
}

// output is run_output.
func (s *mcpServer) output(ctx context.Context, _ *mcp.CallToolRequest, in outputArguments) (*mcp.CallToolResult, outputReply, error) {
	run, err := s.runs.find(in.Run)
	if err != nil {
		return nil, outputReply{}, err
	}
	if in.Wait {
		run.await(ctx, mcpAnswerTime, func() bool { return false })
	}
	reply, err := run.read(in.Stream, in.Offset, 2*mcpStreamLimit)
	if err != nil {
		return nil, outputReply{}, err
	}
	text := fmt.Sprintf("%s%s[bytes %d to %d of %d, %s]", reply.Data, lineEnd(reply.Data), reply.Offset, reply.Next, reply.Total, reply.State)
	return textResult(text), *reply, nil
}

// signal is run_signal.
func (s *mcpServer) signal(ctx context.Context, _ *mcp.CallToolRequest, in signalArguments) (*mcp.CallToolResult, runAnswer, error) {
	run, err := s.runs.find(in.Run)
	if err != nil {
		return nil, runAnswer{}, err
	}
	run.cancel()
	run.await(ctx, api.CancelGrace, func() bool { return false })
	answer := run.answer()
	result := runResult(run.command, answer)
	result.IsError = false // it ended because it was told to
	return result, *answer, nil
}

// status is session_status.
func (s *mcpServer) status(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, textReply, error) {
	client, err := connect(s.socket)
	if err != nil {
		return nil, textReply{}, err
	}
	defer client.Close()
	status, err := client.Status(ctx)
	if err != nil {
		return nil, textReply{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "project %s, %s daemon %s, policy %.12s\n", visible(s.project), status.Setting, status.Version, status.Policy)
	for _, layer := range status.Layers {
		if !layer.OK {
			fmt.Fprintf(&b, "missing: %s, %s\n", layer.Name, layer.Detail)
		}
	}
	b.WriteString(s.runs.list())
	return textResult(b.String()), textReply{b.String()}, nil
}

// policy is policy_summary.
func (s *mcpServer) policy(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, textReply, error) {
	client, err := connect(s.socket)
	if err != nil {
		return nil, textReply{}, err
	}
	defer client.Close()
	_, summary, err := client.PolicySummary(ctx, s.project)
	if err != nil {
		return nil, textReply{}, err
	}
	return textResult(summary.Text), textReply{summary.Text}, nil
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
