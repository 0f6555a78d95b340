package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
)

// configurations are files as people have them.
var configurations = map[string]string{
	"no file":      "",
	"empty":        "{}\n",
	"one line":     `{"model":"x","permissions":{"allow":["Bash(ls)"]}}`,
	"two spaces":   "{\n  \"model\": \"x\",\n  \"env\": {\n    \"A\": \"1\"\n  }\n}\n",
	"four spaces":  "{\n    \"model\": \"x\"\n}\n",
	"tabs":         "{\n\t\"model\": \"x\",\n\t\"list\": [\n\t\t1,\n\t\t2\n\t]\n}",
	"CRLF":         "{\r\n  \"model\": \"x\"\r\n}\r\n",
	"comments":     "// mine\n{\n  // the model\n  \"model\": \"x\", // not y\n  /* more */ \"n\": 1.50 // last\n}\n// end\n",
	"commas":       "{\n  \"model\": \"x\",\n  \"list\": [1, 2,],\n}\n",
	"other hooks":  "{\n  \"hooks\": {\n    \"HOOK\": [\n      {\"matcher\": \"Edit\", \"hooks\": [{\"type\": \"command\", \"command\": \"fmt\"}]} // format\n    ]\n  },\n  \"z\": 1\n}\n",
	"other event":  "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": []\n      }\n    ]\n  }\n}\n",
	"escaped name": "{\n  \"h\\u006foks\": {\n    \"HOOK\": [\n      {\"matcher\": \"Edit\"}\n    ]\n  }\n}\n",
}

// TestSetupAndUndo proves for each agent and form of file that setup adds
// exactly one entry, leaves all else byte for byte, is the same when done twice,
// and is taken back without a trace.
func TestSetupAndUndo(t *testing.T) {
	for agent, in := range installations {
		if in.whole != nil {
			continue
		}
		event := in.names[len(in.names)-1]
		for what, before := range configurations {
			before = strings.ReplaceAll(before, "HOOK", event)
			t.Run(agent+"/"+what, func(t *testing.T) {
				with := edited(t, in, agent, before, "/opt/pinfold hook "+agent, false)
				if n := strings.Count(with, "/opt/pinfold hook "+agent); n != 1 {
					t.Fatalf("%d entries in\n%s", n, with)
				}
				checkEntry(t, with, in.names)
				for line := range strings.Lines(before) {
					line = strings.TrimRight(strings.TrimSpace(line), "{}[]")
					if !strings.Contains(strings.ReplaceAll(with, ",", ""), strings.ReplaceAll(line, ",", "")) {
						t.Errorf("%q is gone from\n%s", line, with)
					}
				}
				if again := edited(t, in, agent, with, "/opt/pinfold hook "+agent, false); again != with {
					t.Errorf("a second time changes it:\n%s\nto\n%s", with, again)
				}
				moved := edited(t, in, agent, with, "/usr/bin/pinfold hook "+agent, false)
				if strings.Contains(moved, "/opt/") || strings.Count(moved, "pinfold hook") != 1 {
					t.Errorf("an entry is not replaced:\n%s", moved)
				}
				if after := edited(t, in, agent, with, "", true); after != before && !(what == "empty" && after == "") {
					t.Errorf("undone, it is\n%q\nand was\n%q", after, before)
				}
			})
		}
	}
}

func edited(t *testing.T, in installation, agent, before, command string, undo bool) string {
	t.Helper()
	after, err := in.edit(agent, []byte(before), command, undo)
	if err != nil {
		t.Fatal(err)
	}
	return string(after)
}

// checkEntry checks that the agent will find the entry where it looks.
func checkEntry(t *testing.T, doc string, names []string) {
	t.Helper()
	standard, err := hujson.Standardize([]byte(doc))
	if err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	var at any
	if err := json.Unmarshal(standard, &at); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		at = at.(map[string]any)[name]
	}
	list := at.([]any)
	if data, _ := json.Marshal(list[len(list)-1]); !strings.Contains(string(data), "pinfold") {
		t.Errorf("the entry is not the last of %v:\n%s", names, doc)
	}
}

// TestSetupLeavesOthers proves that a file which setup does not understand, or
// that is somebody else's, is an error and not a change.
func TestSetupLeavesOthers(t *testing.T) {
	for _, c := range []struct{ agent, before string }{
		{"claude", "{"}, {"claude", "[]"}, {"claude", `{"hooks":[]}`}, {"claude", `{"hooks":{"PreToolUse":{}}}`},
		{"copilot", `{"version":1}`}, {"opencode", "export const Mine = 1"},
	} {
		if after, err := installations[c.agent].edit(c.agent, []byte(c.before), "/opt/pinfold hook "+c.agent, false); err == nil {
			t.Errorf("%s: %s became %s", c.agent, c.before, after)
		}
	}
}

// TestSetupWhole proves that the files which are all ours call the hook by the
// command that setup gives, and are removed by undo.
func TestSetupWhole(t *testing.T) {
	for agent, in := range installations {
		if in.whole == nil {
			continue
		}
		command := `'/opt/a "b" c/pinfold' hook ` + agent
		made := edited(t, in, agent, "", command, false)
		quoted, _ := json.Marshal(command)
		if !strings.Contains(made, string(quoted)) {
			t.Errorf("%s: %s is not in\n%s", agent, quoted, made)
		}
		if after := edited(t, in, agent, made, "", true); after != "" {
			t.Errorf("%s: undone, it is\n%s", agent, after)
		}
	}
}

// TestSetupMCPAndUndo proves the same of the MCP server's entry in each agent's file.
func TestSetupMCPAndUndo(t *testing.T) {
	words := []string{"/opt/a b/pinfold", "mcp"}
	for agent, in := range mcpInstallations {
		files := configurations
		if in.names == nil {
			files = tomlConfigurations
		}
		for what, before := range files {
			t.Run(agent+"/"+what, func(t *testing.T) {
				edit := func(old string, words []string, undo bool) string {
					after, err := in.edit([]byte(old), words, undo)
					if err != nil {
						t.Fatal(err)
					}
					return string(after)
				}
				with := edit(before, words, false)
				if strings.Count(with, "/opt/a b/pinfold") != 1 {
					t.Fatalf("the server is not there once:\n%s", with)
				}
				if in.names != nil {
					standard, err := hujson.Standardize([]byte(with))
					var doc map[string]any
					if err == nil {
						err = json.Unmarshal(standard, &doc)
					}
					if err != nil || doc[in.names[0]].(map[string]any)[mcpServerName] == nil {
						t.Fatalf("%v: no server in\n%s", err, with)
					}
				}
				if again := edit(with, words, false); again != with {
					t.Errorf("a second time changes it:\n%s\nto\n%s", with, again)
				}
				if after := edit(with, words, true); after != before && !(what == "empty" && after == "") {
					t.Errorf("undone, it is\n%q\nand was\n%q", after, before)
				}
				if after := edit(before, words, true); after != before {
					t.Errorf("undone though it was not there:\n%q\nand was\n%q", after, before)
				}
			})
		}
	}
}

// tomlConfigurations are codex's files as people have them.
var tomlConfigurations = map[string]string{
	"no file":          "",
	"a key":            "model = \"x\"\n",
	"no last line end": "model = \"x\"",
	"a table":          "[features]\nplugins = false\n",
	"tables":           "model = \"x\"\n\n[a.b]\nc = 1\n\n[a.d]\ne = [1,\n 2]\n",
	"another server":   "[mcp_servers.other]\ncommand = \"x\"\n",
	"comments":         "# mine\nmodel = \"x\" # not y\n# end\n",
	"CRLF":             "model = \"x\"\r\n",
	"empty lines":      "model = \"x\"\n\n\n",
	"a long string":    "text = \"\"\"\n[mcp_servers]\n\"\"\"\n",
}

// TestSetupMCPLeavesOthers proves that a server of this name which setup did not write is
// an error.
func TestSetupMCPLeavesOthers(t *testing.T) {
	for agent, before := range map[string]string{
		"claude": `{"mcpServers":{"pinfold":{"command":"x"}}}`, "codex": "[mcp_servers.pinfold]\ncommand = \"x\"\n",
		"opencode": `{"mcp":[]}`, "copilot": "{",
	} {
		if after, err := mcpInstallations[agent].edit([]byte(before), []string{"/opt/pinfold", "mcp"}, false); err == nil {
			t.Errorf("%s: %s became %s", agent, before, after)
		}
	}
}
