package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pinfold/pinfold/trace"
)

// traceCommand is pinfoldd trace verify, which pinfold trace verify executes. It
// exits with 0 when the trace is whole, 1 when a crash tore its end, 3 when it
// was tampered with, 2 when it cannot be read.
func traceCommand(args []string) int {
	const whole, torn, failed, broken = 0, 1, 2, 3
	flags := flag.NewFlagSet("pinfold trace verify", flag.ContinueOnError)
	state := flags.String("state", "", "the daemon's state, a `directory` (default "+systemState+", or the user's when there is none)")
	key := flags.String("key", "", "the public key, a `file` kept elsewhere (default the one beside the trace)")
	if len(args) == 0 || args[0] != "verify" {
		fmt.Fprintln(os.Stderr, "usage: pinfold trace verify [flags]")
		return failed
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return whole
	case err != nil || flags.NArg() > 0:
		return failed
	}
	report, err := verifyTrace(*state, *key)
	if err != nil {
		fmt.Fprintf(os.Stderr, "pinfold trace verify: %v\n", err)
		return failed
	}
	fmt.Printf("%d records, the last with hash %s\n", report.Records, report.Head)
	for _, run := range report.Open {
		fmt.Printf("run %s has no outcome: it is running, or the daemon was killed\n", run)
	}
	for _, b := range report.Breaks {
		fmt.Println(b)
	}
	if report.TornBytes > 0 {
		fmt.Printf("%d bytes after the last record: a crash tore a record; the next start repairs it\n", report.TornBytes)
	}
	switch {
	case len(report.Breaks) > 0:
		return broken
	case report.TornBytes > 0:
		return torn
	}
	fmt.Println("the chain is whole and signed")
	return whole
}

func verifyTrace(state, keyFile string) (trace.Report, error) {
	if state == "" {
		state = systemState
		if _, err := os.Stat(filepath.Join(state, traceFile)); errors.Is(err, os.ErrNotExist) {
			if state, err = userState(); err != nil {
				return trace.Report{}, err
			}
		}
	}
	path := filepath.Join(state, traceFile)
	if keyFile == "" {
		keyFile = trace.PublicKeyFile(path)
	}
	key, err := trace.ReadPublicKey(keyFile)
	if err != nil {
		return trace.Report{}, err
	}
	return trace.VerifyFiles(path, key)
}
