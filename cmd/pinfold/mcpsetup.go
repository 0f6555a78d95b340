package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// An mcpInstallation is where an agent finds its MCP servers. The hook stays beside it:
// it denies the agent's own shell and names the server's tool.
type mcpInstallation struct {
	user, project string   // the file, relative to the home and to the project; "" for none
	names         []string // the object of servers; none for codex's TOML
	entry         func(words []string) any
}

// mcpInstallations are the agents that have MCP servers.
var mcpInstallations = map[string]mcpInstallation{
	"claude":  {user: ".claude.json", project: ".mcp.json", names: []string{"mcpServers"}, entry: stdioServer},
	"gemini":  {user: ".gemini/settings.json", project: ".gemini/settings.json", names: []string{"mcpServers"}, entry: stdioServer},
	"qwen":    {user: ".qwen/settings.json", project: ".qwen/settings.json", names: []string{"mcpServers"}, entry: stdioServer},
	"cursor":  {user: ".cursor/mcp.json", project: ".cursor/mcp.json", names: []string{"mcpServers"}, entry: stdioServer},
	"copilot": {user: ".copilot/mcp-config.json", names: []string{"mcpServers"}, entry: localServer},
	"opencode": {
		user: ".config/opencode/opencode.json", project: "opencode.json", names: []string{"mcp"},
		entry: func(words []string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
				Enabled bool     `json:"enabled"`
			}{"local", words, true}
		},
	},
	"codex": {user: ".codex/config.toml", project: ".codex/config.toml"},
}

type serverEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Tools   []string `json:"tools,omitempty"`
}

func stdioServer(words []string) any { return serverEntry{Command: words[0], Args: words[1:]} }

func localServer(words []string) any {
	return serverEntry{Type: "local", Command: words[0], Args: words[1:], Tools: []string{"*"}}
}

// mcpServerName is the server's in every agent's configuration.
const mcpServerName = "pinfold"

// edit returns the file's new content, with the server or, when undone, without it;
// empty when there should be no file.
func (in mcpInstallation) edit(old []byte, words []string, undo bool) ([]byte, error) {
	if in.names == nil {
		return editTOML(old, words, undo)
	}
	without, found, err := removeMember(old, in.names, mcpServerName, func(text string) bool { return strings.Contains(text, `"mcp"`) })
	switch {
	case err != nil:
		return nil, err
	case undo && found && strings.TrimSpace(string(without)) == "{}":
		return nil, nil
	case undo:
		return without, nil
	case len(bytes.TrimSpace(without)) == 0:
		without = []byte("{}\n")
	}
	return addMember(without, in.names, mcpServerName, in.entry(words))
}

// The lines around what is ours in a TOML file. A table may stand at its end whatever is
// before it.
const (
	tomlBegin = "# pinfold setup: from here\n"
	tomlEnd   = "# pinfold setup: to here\n"
)

func editTOML(old []byte, words []string, undo bool) ([]byte, error) {
	text := string(old)
	if begin := strings.Index(text, "\n"+tomlBegin); begin >= 0 || strings.HasPrefix(text, tomlBegin) {
		begin = max(begin, 0)
		n := strings.Index(text[begin:], tomlEnd)
		if n < 0 {
			return nil, errors.New("the end of what pinfold setup wrote is gone")
		}
		text = text[:begin] + text[begin+n+len(tomlEnd):]
	}
	if undo {
		return []byte(text), nil
	}
	if strings.Contains(text, "[mcp_servers."+mcpServerName+"]") {
		return nil, fmt.Errorf("there is a server %s that setup did not write", mcpServerName)
	}
	var args []string
	for _, w := range words[1:] {
		args = append(args, jsonString(w))
	}
	block := tomlBegin + "[mcp_servers." + mcpServerName + "]\ncommand = " + jsonString(words[0]) +
		"\nargs = [" + strings.Join(args, ", ") + "]\ntool_timeout_sec = 120\n" + tomlEnd
	if text != "" {
		block = "\n" + block
	}
	return []byte(text + block), nil
}

// addMember returns the JSON document with one more member at the end of the object that
// the names lead to, which is made when it is not there. All else stays byte for byte.
func addMember(doc []byte, names []string, name string, value any) ([]byte, error) {
	root, err := hujson.Parse(doc)
	if err != nil {
		return nil, err
	}
	at := &root
	for depth := 0; ; depth++ {
		o, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is no object", strings.Join(names[:depth], "."))
		}
		if depth == len(names) {
			if member(o, name) != nil {
				return nil, fmt.Errorf("there is a server %s that setup did not write", name)
			}
			err = insert(&root, at, name, value)
			return root.Pack(), err
		}
		next := member(o, names[depth])
		if next == nil {
			key := name
			for i := len(names) - 1; i >= depth; i-- {
				value, key = object{key: value}, names[i]
			}
			err = insert(&root, at, key, value)
			return root.Pack(), err
		}
		at = next
	}
}

// removeMember returns the document without that member when ours reports true for it,
// and without what holds nothing then on the way there.
func removeMember(doc []byte, names []string, name string, ours func(text string) bool) ([]byte, bool, error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		return doc, false, nil
	}
	root, err := hujson.Parse(doc)
	if err != nil {
		return nil, false, err
	}
	way, all := []*hujson.Value{&root}, append(append([]string(nil), names...), name)
	for _, n := range all {
		o, ok := way[len(way)-1].Value.(*hujson.Object)
		if !ok {
			return doc, false, nil
		}
		next := member(o, n)
		if next == nil {
			return doc, false, nil
		}
		way = append(way, next)
	}
	if !ours(way[len(way)-1].String()) {
		return doc, false, nil
	}
	for i := len(all) - 1; i >= 0; i-- {
		if i < len(all)-1 && !isEmpty(way[i+1]) {
			break
		}
		remove(way[i], indexOf(way[i].Value.(*hujson.Object), all[i]))
	}
	return root.Pack(), true, nil
}
