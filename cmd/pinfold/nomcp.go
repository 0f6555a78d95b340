//go:build !mcp

package main

import (
	"os"
	"syscall"
)

// mcpCommand is pinfold mcp: it executes pinfold-mcp, which is this program with
// the server in it. What that links (HTTP, TLS) would make every start of this
// one several times slower.
func mcpCommand(args []string) int {
	program, err := findProgram("pinfold-mcp")
	if err == nil {
		err = syscall.Exec(program, append([]string{program, "mcp"}, args...), os.Environ())
	}
	complain("%v", err)
	return exitFailed
}
