// Command table writes RESULTS.md of the rows that the VM suite leaves: one
// column for each kernel, one row for each check.
//
//	table RESULTS KERNEL...
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A key names a row.
type key struct{ group, name string }

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: table RESULTS KERNEL...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func write(dir string, kernels []string) error {
	var order []key
	cells := map[key]map[string]string{}
	for _, k := range kernels {
		log, err := os.ReadFile(filepath.Join(dir, k))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(bytes.ReplaceAll(log, []byte("\r"), nil))) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(fields) != 4 || fields[0] != "row" {
				continue
			}
			row := key{fields[1], fields[2]}
			if cells[row] == nil {
				cells[row] = map[string]string{}
				order = append(order, row)
			}
			cells[row][k] = fields[3]
		}
	}
	fmt.Print("# What the virtual machines showed\n\nWritten by testdata/vm/run, not by hand. Each column is one kernel's last run; \"run\" says\n" +
		"when it began and which command made it. A cell says what was found, or FAILED. A dash:\n" +
		"the run did not get there, or left it out (smoke, main), or nothing runs on the kernel.\n")
	for _, group := range groups(order) {
		fmt.Printf("\n## %s\n\n| | %s |\n|---%s|\n", group, strings.Join(kernels, " | "), strings.Repeat("|---", len(kernels)))
		for _, row := range order {
			if row.group != group {
				continue
			}
			fmt.Printf("| %s |", row.name)
			for _, k := range kernels {
				found := cells[row][k]
				if found == "" {
					found = "–"
				}
				fmt.Printf(" %s |", strings.ReplaceAll(found, "|", `\|`))
			}
			fmt.Println()
		}
	}
	return nil
}

// groups are the groups, the machine first, then in the order in which they were
// met.
func groups(order []key) []string {
	found := []string{"machine"}
	for _, row := range order {
		if !slices.Contains(found, row.group) {
			found = append(found, row.group)
		}
	}
	return found
}
