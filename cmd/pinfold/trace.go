package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/trace"
)

// traceTime is how long the daemon may take to read the trace.
const traceTime = 30 * time.Second

// showTrace is pinfold trace.
func showTrace(args []string) int {
	var socket, run string
	var limit int
	var asJSON bool
	flags := newFlags("trace", "", &socket)
	flags.StringVar(&run, "run", "", "show the records of one run, by its `id`")
	flags.IntVar(&limit, "limit", api.DefaultTraceLimit, fmt.Sprintf("show the latest `n` records, up to %d; a run has two", api.MaxTraceLimit))
	flags.BoolVar(&asJSON, "json", false, "print the records as they are, one a line")
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	if flags.NArg() > 0 || limit < 1 || limit > api.MaxTraceLimit {
		complain("trace takes no operands and a limit from 1 to %d, see pinfold trace --help", api.MaxTraceLimit)
		return exitUsage
	}
	client, err := connect(socket)
	var answer *api.TraceAnswer
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), traceTime)
		defer cancel()
		answer, err = client.Trace(ctx, run, limit)
	}
	var shown string
	if err == nil {
		shown, err = showRecords(answer.Records, asJSON)
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	fprint(os.Stdout, shown)
	if !answer.Complete && run == "" && !asJSON {
		complain("older records were left out, see pinfold trace --help")
	}
	return exitOK
}

// showRecords returns the records, or a line for each run that they are of.
func showRecords(records []json.RawMessage, asJSON bool) (string, error) {
	var b strings.Builder
	var order []string
	runs := map[string]*trace.Record{}
	ends := map[string]*trace.Record{}
	for _, raw := range records {
		if asJSON {
			b.Write(raw)
			b.WriteByte('\n')
			continue
		}
		var r trace.Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return "", fmt.Errorf("a record of the trace: %w", err)
		}
		if runs[r.Run] == nil {
			runs[r.Run] = &r
			order = append(order, r.Run)
		}
		if r.Event == trace.EventFinished {
			ends[r.Run] = &r
		}
	}
	for _, id := range order {
		b.WriteString(runLine(runs[id], ends[id]))
	}
	return b.String(), nil
}

// runLine returns a line on one run. The first record may be that of its end,
// when the limit cut off the other.
func runLine(first, end *trace.Record) string {
	what := visible(first.Args.Command)
	if first.Event == trace.EventFinished {
		what = "(the decision is further up)"
	}
	result := "running"
	switch {
	case end != nil:
		result = endInWords(end)
	case first.ErrorType != "":
		result = "not run"
	}
	verdict := first.PolicyDecision
	if verdict == "require_approval" {
		verdict = "ask"
	}
	return fmt.Sprintf("%s  %s  %-6s %-12s %s\n", first.Time.Local().Format("2006-01-02 15:04:05"), first.Run, verdict, result, what)
}

func endInWords(end *trace.Record) string {
	switch {
	case end.ErrorType != "":
		return strings.ReplaceAll(end.ErrorType, "_", " ")
	case end.Signal != nil:
		return *end.Signal
	case end.ExitCode != nil:
		return fmt.Sprintf("exit %d", *end.ExitCode)
	}
	return "unknown"
}
