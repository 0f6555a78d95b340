package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/tailscale/hujson"
)

//go:embed agents/opencode.js
var opencodePlugin string

//go:embed agents/pi.ts
var piExtension string

// An installation is what setup changes for an agent: one file, in which the
// hook is an entry of an array, or which is all the hook's.
type installation struct {
	user, project string // the file, relative to the home and to the project; "" for none
	names         []string
	empty         string // what the file holds when it is made, default {}
	entry         func(command string) any
	whole         func(command string) string
	// after is what the user still has to do or to know.
	after string
}

// installations are the agents that setup knows.
var installations = map[string]installation{
	"claude": {
		user: ".claude/settings.json", project: ".claude/settings.json", names: []string{"hooks", "PreToolUse"},
		entry: func(command string) any {
			return matched{Matcher: "Bash|Monitor", Hooks: []handler{{Type: "command", Command: command, Timeout: 30, OnFailure: "block"}}}
		},
		after: "sessions that run already need a restart",
	},
	"codex": {
		user: ".codex/hooks.json", project: ".codex/hooks.json", names: []string{"hooks", "PreToolUse"},
		entry: func(command string) any {
			return matched{Matcher: "Bash", Hooks: []handler{{Type: "command", Command: command, Timeout: 30}}}
		},
		after: "codex runs no hook that is not trusted, and says nothing of it: start codex, enter /hooks, and trust this one",
	},
	"gemini": {
		user: ".gemini/settings.json", project: ".gemini/settings.json", names: []string{"hooks", "BeforeTool"},
		entry: func(command string) any {
			return matched{Matcher: "run_shell_command", Hooks: []handler{{Type: "command", Name: "pinfold", Command: command, Timeout: 30_000}}}
		},
	},
	"qwen": {
		user: ".qwen/settings.json", project: ".qwen/settings.json", names: []string{"hooks", "PreToolUse"},
		entry: func(command string) any {
			return matched{Matcher: "run_shell_command", Hooks: []handler{{Type: "command", Name: "pinfold", Command: command, Timeout: 30_000}}}
		},
	},
	"cursor": {
		user: ".cursor/hooks.json", project: ".cursor/hooks.json", names: []string{"hooks", "beforeShellExecution"}, empty: `{"version": 1}`,
		entry: func(command string) any {
			return struct {
				Command    string `json:"command"`
				FailClosed bool   `json:"failClosed"`
			}{command, true}
		},
	},
	"copilot": {
		user: ".copilot/hooks/pinfold.json", project: ".github/hooks/pinfold.json",
		whole: func(command string) string {
			return fmt.Sprintf(`{"version":1,"hooks":{"preToolUse":[{"type":"command","bash":%s,"timeoutSec":30}]}}`+"\n", jsonString(command))
		},
	},
	"opencode": {
		user: ".config/opencode/plugin/pinfold.js", project: ".opencode/plugin/pinfold.js",
		whole: func(command string) string {
			return strings.Replace(opencodePlugin, `"pinfold hook opencode"`, jsonString(command), 1)
		},
	},
	"pi": {
		user: ".pi/agent/extensions/pinfold.ts",
		whole: func(command string) string {
			return strings.Replace(piExtension, `"pinfold hook pi"`, jsonString(command), 1)
		},
	},
}

// matched is an entry of a hook's array in the form that Claude Code made
// common.
type matched struct {
	Matcher string    `json:"matcher"`
	Hooks   []handler `json:"hooks"`
}

type handler struct {
	Type      string `json:"type"`
	Name      string `json:"name,omitempty"`
	Command   string `json:"command"`
	Timeout   int    `json:"timeout"` // in seconds, for gemini and qwen in milliseconds
	OnFailure string `json:"onFailure,omitempty"`
}

// setup is pinfold setup: it shows, makes or undoes the change to an agent's
// configuration that has Pinfold judge and run its shell commands.
func setup(args []string) int {
	var socket, scope string
	var write, undo, useMCP bool
	flags := newFlags("setup", " "+strings.Join(slices.Sorted(maps.Keys(installations)), "|"), &socket)
	flags.StringVar(&scope, "scope", "user", "whose configuration: `user`, or project for that of the current directory")
	flags.BoolVar(&write, "write", false, "make the change; without it, it is only shown")
	flags.BoolVar(&undo, "undo", false, "take the change back; with --write")
	flags.BoolVar(&useMCP, "mcp", false, "give the agent Pinfold's MCP server in place of its own shell, which is denied then")
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	agent, known := installations[flags.Arg(0)]
	if !known || flags.NArg() != 1 || scope != "user" && scope != "project" {
		flags.SetOutput(os.Stderr)
		flags.Usage()
		return exitUsage
	}
	ch := change{agent: flags.Arg(0), socket: socket, scope: scope, undo: undo, mcp: useMCP || dialects[flags.Arg(0)].instead != ""}
	if err := ch.all(agent, write); err != nil {
		complain("%s", visible(err.Error()))
		return exitFailed
	}
	return exitOK
}

// A change is what setup was asked for.
type change struct {
	agent, socket, scope string
	undo, mcp            bool
	files                []*changedFile
}

// A changedFile is a file before and after.
type changedFile struct {
	name     string
	old, new []byte
}

// all shows or makes the change, and says what it leaves to do.
func (c *change) all(in installation, write bool) error {
	if err := c.plan(in); err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	shown := false
	for _, f := range c.files {
		switch {
		case bytes.Equal(f.old, f.new):
			fmt.Printf("%s is already so\n", visible(f.name))
		case !write:
			fprint(os.Stdout, string(diff.Diff(f.name, f.old, f.name, f.new)))
			shown = true
		default:
			if err := replaceFile(f.name, f.new); err != nil {
				return err
			}
			fmt.Printf("changed %s\n", visible(f.name))
		}
	}
	if shown {
		fmt.Printf("\nto make this change, add --write\n")
	}
	if in.after != "" && !c.undo {
		fmt.Println("what is left to do: " + in.after)
	}
	if !c.undo {
		fmt.Println("the agent's own tools that edit files are not confined by this")
	}
	return nil
}

// plan finds what the files will hold. Undoing takes the MCP server away too, whether
// that was asked for or not.
func (c *change) plan(in installation) error {
	words, err := ownWords(c.socket, "hook")
	if err != nil {
		return err
	}
	if c.mcp {
		words = append(words, "--mcp")
	}
	hook := quoteAll(append(words, c.agent))
	if err := c.edit(in.user, in.project, func(old []byte) ([]byte, error) { return in.edit(c.agent, old, hook, c.undo) }); err != nil {
		return err
	}
	server, known := mcpInstallations[c.agent]
	switch {
	case c.mcp && !known:
		return fmt.Errorf("%s has no MCP servers that setup knows of", c.agent)
	case !known || !c.mcp && !c.undo || c.placeOf(server.user, server.project) == "" && c.undo:
		return nil
	}
	words, err = ownWords(c.socket, "mcp")
	if err != nil {
		return err
	}
	return c.edit(server.user, server.project, func(old []byte) ([]byte, error) { return server.edit(old, words, c.undo) })
}

func (c *change) placeOf(user, project string) string {
	if c.scope == "project" {
		return project
	}
	return user
}

// edit has f change a file, which may be one that is changed already.
func (c *change) edit(user, project string, f func(old []byte) ([]byte, error)) error {
	name, err := configFile(c.scope, c.placeOf(user, project))
	if err != nil {
		return err
	}
	var file *changedFile
	for _, other := range c.files {
		if other.name == name {
			file = other
		}
	}
	if file == nil {
		file = &changedFile{name: name}
		if file.old, err = os.ReadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		file.new = file.old
		c.files = append(c.files, file)
	}
	if file.new, err = f(file.new); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// configFile returns the absolute path of a file to change, symlinks followed.
func configFile(scope, rel string) (string, error) {
	base, err := os.UserHomeDir()
	if scope == "project" {
		if base, err = currentDir(); err == nil {
			base, err = projectOf("", base)
		}
	}
	if err != nil {
		return "", err
	}
	if rel == "" {
		return "", fmt.Errorf("this agent has no such file per %s", scope)
	}
	file := filepath.Join(base, rel)
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	return file, nil
}

// edit returns the file's new content, empty when there should be none.
func (in installation) edit(name string, old []byte, command string, undo bool) ([]byte, error) {
	ours := func(text string) bool {
		return strings.Contains(text, "pinfold") && strings.Contains(text, "hook") && strings.Contains(text, name)
	}
	if in.whole != nil {
		switch {
		case len(old) > 0 && !ours(string(old)):
			return nil, errors.New("this file is not pinfold's")
		case undo:
			return nil, nil
		}
		return []byte(in.whole(command)), nil
	}
	empty := cmp.Or(in.empty, "{}")
	without, found, err := removeFromArray(old, in.names, ours)
	switch {
	case err != nil:
		return nil, err
	case undo && found && strings.TrimSpace(string(without)) == empty:
		return nil, nil
	case undo:
		return without, nil
	case len(bytes.TrimSpace(without)) == 0:
		without = []byte(empty + "\n")
	}
	return addToArray(without, in.names, in.entry(command))
}

// ownWords returns the words that call a command of this program.
func ownWords(socket, command string) ([]string, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	words := []string{own, command}
	if socket != "" {
		if socket, err = filepath.Abs(socket); err != nil {
			return nil, err
		}
		words = append(words, "--socket", socket)
	}
	return words, nil
}

// replaceFile gives the file the content in one step, or removes it when the
// content is empty. Its mode stays.
func replaceFile(file string, content []byte) error {
	if len(content) == 0 {
		return os.Remove(file)
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, ".pinfold-setup-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(content)
	if err == nil {
		err = temp.Chmod(mode)
	}
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}

func jsonString(s string) string { return string(hujson.String(s)) }
