package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const shimUsage = `usage:
  pinfold shim install DIR   put sh, bash and zsh into DIR, which all are pinfold sh
  pinfold shim remove DIR    take them away again
Then name DIR/bash where a program lets its shell be chosen ($SHELL, CLAUDE_CODE_SHELL, shellPath),
or put DIR first in the PATH of a program that looks for bash there.
`

// shim is pinfold shim: it makes the names under which programs find a shell.
func shim(args []string) int {
	if len(args) == 1 && (args[0] == "help" || args[0] == "--help" || args[0] == "-h") {
		fmt.Print(shimUsage)
		return exitOK
	}
	if len(args) != 2 || args[0] != "install" && args[0] != "remove" {
		fmt.Fprint(os.Stderr, shimUsage)
		return exitUsage
	}
	do := installShims
	if args[0] == "remove" {
		do = removeShims
	}
	own, err := os.Executable()
	if err == nil {
		err = do(args[1], own)
	}
	if err != nil {
		complain("%s", visible(err.Error()))
		return exitFailed
	}
	return exitOK
}

// installShims makes symlinks to this program. One of its own is replaced, anything
// else is left and an error.
func installShims(dir, own string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := eachShim(dir, func(name string, ours bool) error {
		if !ours {
			return fmt.Errorf("%s is there, and not pinfold's", name)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := removeShims(dir, own); err != nil {
		return err
	}
	for _, name := range shellNames {
		if err := os.Symlink(own, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeShims removes the symlinks that are pinfold's.
func removeShims(dir, _ string) error {
	return eachShim(dir, func(name string, ours bool) error {
		if !ours {
			return nil
		}
		return os.Remove(name)
	})
}

// eachShim calls f for the names that are there, and says which are symlinks to a
// pinfold.
func eachShim(dir string, f func(name string, ours bool) error) error {
	for _, name := range shellNames {
		name = filepath.Join(dir, name)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		target, err := os.Readlink(name)
		if err := f(name, err == nil && filepath.Base(target) == "pinfold"); err != nil {
			return err
		}
	}
	return nil
}
