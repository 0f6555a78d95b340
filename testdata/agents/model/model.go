// Package model is a model of a coding agent that follows a script. It speaks the
// protocols by which agents reach their models: OpenAI's chat completions and
// responses, and Anthropic's messages, all as streams.
//
// It keeps no state: an agent sends the whole conversation with each request, and the
// step to take next is the number of tool results in it.
package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// A Step is what the model does once: it runs a shell command by the agent's own tool,
// or calls another tool, or says something, which ends the agent's turn.
type Step struct {
	Shell string
	Tool  string         // a part of the tool's name
	Args  map[string]any // of the tool, or more for the shell
	Text  string
}

// A Server is the model. Its zero value says "done".
type Server struct {
	Script []Step

	mu      sync.Mutex
	results []string // what the agent said of each call, so far
	failed  []string
}

// Results returns what the agent told the model of each tool call.
func (s *Server) Results() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.results...)
}

// Failures returns which steps could not be taken, and why.
func (s *Server) Failures() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.failed...)
}

// shells are the names of the agents' own tools that run shell text.
var shells = []string{"Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command", "local_shell"}

// A tool is one that the agent offers.
type tool struct {
	name, namespace string
	schema          map[string]any
}

// A call is a tool call of the model's.
type call struct {
	tool
	args string // JSON
}

// next returns the step to take: a call, or text.
func (s *Server) next(tools []tool, results []string) (*call, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(tools) == 0 {
		return nil, "a title"
	}
	if len(results) > len(s.results) {
		s.results = results
	}
	if len(results) >= len(s.Script) {
		return nil, "done"
	}
	step := s.Script[len(results)]
	if step.Text != "" {
		return nil, step.Text
	}
	for _, t := range tools {
		args := map[string]any{}
		for name, value := range step.Args {
			args[name] = value
		}
		full := t.namespace + t.name
		switch {
		case step.Shell != "" && contains(shells, t.name):
			t.shellArgs(args, step.Shell)
		case step.Tool != "" && strings.Contains(full, step.Tool):
		default:
			continue
		}
		t.fill(args)
		data, err := json.Marshal(args)
		if err != nil {
			panic(err)
		}
		return &call{t, string(data)}, ""
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.namespace+t.name)
	}
	s.failed = append(s.failed, fmt.Sprintf("step %d: no such tool among %v", len(results), names))
	return nil, "there is no such tool"
}

// shellArgs puts the command where the tool takes it.
func (t *tool) shellArgs(args map[string]any, command string) {
	properties, _ := t.schema["properties"].(map[string]any)
	if _, ok := properties["yield_time_ms"]; ok {
		args["yield_time_ms"] = 60_000
	}
	if _, ok := properties["cmd"]; ok {
		args["cmd"] = command
		return
	}
	if p, _ := properties["command"].(map[string]any); p["type"] == "array" {
		args["command"] = []string{"bash", "-lc", command}
		return
	}
	args["command"] = command
}

// fill gives what the tool requires besides some value.
func (t *tool) fill(args map[string]any) {
	properties, _ := t.schema["properties"].(map[string]any)
	required, _ := t.schema["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		if _, given := args[name]; given {
			continue
		}
		p, _ := properties[name].(map[string]any)
		switch p["type"] {
		case "boolean":
			args[name] = false
		case "number", "integer":
			args[name] = 1
		case "array":
			args[name] = []any{}
		case "object":
			args[name] = map[string]any{}
		default:
			args[name] = "a step of the script"
		}
	}
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/chat/completions"):
		s.chat(&stream{w: w}, body)
	case strings.HasSuffix(path, "/responses"):
		s.responses(&stream{w: w}, body)
	case strings.HasSuffix(path, "/count_tokens"):
		reply(w, object{"input_tokens": 1})
	case strings.HasSuffix(path, "/messages"):
		s.messages(w, body)
	case strings.HasSuffix(path, "/models"):
		reply(w, object{"object": "list", "data": []any{object{"id": "scripted", "object": "model", "created": 1, "owned_by": "test"}}})
	default:
		http.NotFound(w, r)
	}
}

type object = map[string]any

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// A stream is an answer of server-sent events.
type stream struct {
	w     http.ResponseWriter
	count int
}

// send sends one event. It is named when name is not "", and has its number and its
// name in it then.
func (s *stream) send(name string, event object) {
	if s.count == 0 {
		s.w.Header().Set("Content-Type", "text/event-stream")
	}
	if name != "" {
		event["type"], event["sequence_number"] = name, s.count
		fmt.Fprintf(s.w, "event: %s\n", name)
	}
	s.count++
	data, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", data)
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func list(v any) []any { l, _ := v.([]any); return l }

func member(v any, name string) any {
	m, _ := v.(map[string]any)
	return m[name]
}

func text(v any) string { s, _ := v.(string); return s }

// flat returns a tool's result as text, whatever its form.
func flat(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	data, _ := json.Marshal(v)
	return string(data)
}

// chat answers in the form of chat completions.
func (s *Server) chat(out *stream, body object) {
	var tools []tool
	for _, t := range list(body["tools"]) {
		f := member(t, "function")
		schema, _ := member(f, "parameters").(map[string]any)
		tools = append(tools, tool{name: text(member(f, "name")), schema: schema})
	}
	var results []string
	for _, m := range list(body["messages"]) {
		if member(m, "role") == "tool" {
			results = append(results, flat(member(m, "content")))
		}
	}
	c, said := s.next(tools, results)
	id := fmt.Sprintf("call_%d", len(results))
	message, finish := object{"role": "assistant", "content": said}, "stop"
	if c != nil {
		finish = "tool_calls"
		message = object{"role": "assistant", "content": nil, "tool_calls": []any{object{"index": 0, "id": id, "type": "function",
			"function": object{"name": c.name, "arguments": c.args}}}}
	}
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	answer := object{"id": "chat_" + id, "created": 1, "model": body["model"]}
	if body["stream"] != true {
		answer["object"], answer["usage"] = "chat.completion", usage
		answer["choices"] = []any{object{"index": 0, "finish_reason": finish, "message": message}}
		reply(out.w, answer)
		return
	}
	answer["object"] = "chat.completion.chunk"
	for _, choice := range []object{{"index": 0, "delta": message, "finish_reason": nil}, {"index": 0, "delta": object{}, "finish_reason": finish}} {
		answer["choices"] = []any{choice}
		out.send("", answer)
	}
	answer["choices"], answer["usage"] = []any{}, usage
	out.send("", answer)
	fmt.Fprint(out.w, "data: [DONE]\n\n")
}

// responses answers in the form of responses.
func (s *Server) responses(out *stream, body object) {
	c, said, n := s.fromResponses(body)
	var item object
	if c == nil {
		item = object{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
			"content": []any{object{"type": "output_text", "text": said, "annotations": []any{}}}}
	} else {
		item = object{"id": fmt.Sprintf("fc_%d", n), "type": "function_call", "call_id": fmt.Sprintf("call_%d", n), "name": c.name, "arguments": c.args, "status": "completed"}
		if c.namespace != "" {
			item["namespace"] = c.namespace
		}
	}
	response := object{"id": fmt.Sprintf("resp_%d", n), "object": "response", "created_at": 1, "model": body["model"], "status": "completed", "output": []any{item},
		"usage": object{"input_tokens": 1, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": 1, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 2}}
	if body["stream"] != true {
		reply(out.w, response)
		return
	}
	begun := object{}
	for name, value := range response {
		begun[name] = value
	}
	begun["status"], begun["output"], begun["usage"] = "in_progress", []any{}, nil
	out.send("response.created", object{"response": begun})
	out.send("response.output_item.added", object{"output_index": 0, "item": item})
	if c == nil {
		part := object{"item_id": "msg_1", "output_index": 0, "content_index": 0}
		part["delta"] = said
		out.send("response.output_text.delta", part)
	}
	out.send("response.output_item.done", object{"output_index": 0, "item": item})
	out.send("response.completed", object{"response": response})
}

func (s *Server) fromResponses(body object) (*call, string, int) {
	var tools []tool
	for _, t := range list(body["tools"]) {
		schema, _ := member(t, "parameters").(map[string]any)
		switch member(t, "type") {
		case "function", "local_shell":
			name := text(member(t, "name"))
			if name == "" {
				name = "local_shell"
			}
			tools = append(tools, tool{name: name, schema: schema})
		case "namespace":
			for _, f := range list(member(t, "tools")) {
				schema, _ := member(f, "parameters").(map[string]any)
				tools = append(tools, tool{name: text(member(f, "name")), namespace: text(member(t, "name")), schema: schema})
			}
		}
	}
	var results []string
	for _, i := range list(body["input"]) {
		if strings.HasSuffix(text(member(i, "type")), "_output") {
			results = append(results, flat(member(i, "output")))
		}
	}
	c, said := s.next(tools, results)
	return c, said, len(results)
}

// messages answers in the form of messages.
func (s *Server) messages(w http.ResponseWriter, body object) {
	var tools []tool
	for _, t := range list(body["tools"]) {
		schema, _ := member(t, "input_schema").(map[string]any)
		tools = append(tools, tool{name: text(member(t, "name")), schema: schema})
	}
	var results []string
	for _, m := range list(body["messages"]) {
		for _, part := range list(member(m, "content")) {
			if member(part, "type") == "tool_result" {
				results = append(results, flat(member(part, "content")))
			}
		}
	}
	c, said := s.next(tools, results)
	content, stop := object{"type": "text", "text": said}, "end_turn"
	begin, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": said}
	if c != nil {
		id := fmt.Sprintf("toolu_%d", len(results))
		content, stop = object{"type": "tool_use", "id": id, "name": c.name, "input": json.RawMessage(c.args)}, "tool_use"
		begin, delta = object{"type": "tool_use", "id": id, "name": c.name, "input": object{}}, object{"type": "input_json_delta", "partial_json": c.args}
	}
	message := object{"id": fmt.Sprintf("msg_%d", len(results)), "type": "message", "role": "assistant", "model": body["model"],
		"usage": object{"input_tokens": 1, "output_tokens": 1}, "stop_sequence": nil}
	if body["stream"] != true {
		message["content"], message["stop_reason"] = []any{content}, stop
		reply(w, message)
		return
	}
	message["content"], message["stop_reason"] = []any{}, nil
	out := &stream{w: w}
	out.send("message_start", object{"message": message})
	out.send("content_block_start", object{"index": 0, "content_block": begin})
	out.send("content_block_delta", object{"index": 0, "delta": delta})
	out.send("content_block_stop", object{"index": 0})
	out.send("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	out.send("message_stop", object{})
}
