package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/trace"
)

// traceTime is how long the daemon may take to read the trace.
const traceTime = 30 * time.Second

// showTrace is pinfold trace: ls (which need not be said), show, tail, stats and
// verify.
func showTrace(args []string) int {
	what := "ls"
	if len(args) > 0 {
		switch args[0] {
		case "verify":
			return execDaemon(append([]string{"trace"}, args...))
		case "ls", "show", "tail", "stats":
			what, args = args[0], args[1:]
		}
	}
	var socket string
	var limit int
	var asJSON, all bool
	query := url.Values{}
	flags := newFlags("trace [ls | show RUN | tail | stats | verify]", "", &socket)
	for _, f := range []struct{ name, usage string }{
		{"run", "only the records of one run, by its `id`"}, {"project", "only in this `directory`"}, {"verdict", "only with this `verdict`"},
		{"rule", "only what this `rule` decided"}, {"command", "only commands with this `text`"}, {"error", "only with this `error_type`"},
		{"since", "only from this `time` on, such as 2026-01-31T12:00:00Z or 2h"}, {"until", "only before this `time`"},
	} {
		flags.Func(f.name, f.usage, func(s string) error {
			if ago, err := time.ParseDuration(s); err == nil && (f.name == "since" || f.name == "until") {
				s = time.Now().Add(-ago).UTC().Format(time.RFC3339)
			}
			query.Set(f.name, s)
			return nil
		})
	}
	flags.IntVar(&limit, "limit", api.DefaultTraceLimit, fmt.Sprintf("the latest `n` records, up to %d; a run has two or more", api.MaxTraceLimit))
	flags.BoolVar(&asJSON, "json", false, "print the records as they are, one a line")
	flags.BoolVar(&all, "all", false, "everybody's, by the control socket")
	if status, ok := parse(flags, args, exitUsage); !ok {
		return status
	}
	operands := 0
	if what == "show" {
		operands = 1
	}
	if flags.NArg() != operands || limit < 1 || limit > api.MaxTraceLimit {
		complain("trace takes a limit from 1 to %d, and show a run, see pinfold trace --help", api.MaxTraceLimit)
		return exitUsage
	}
	if what == "show" {
		query.Set("run", flags.Arg(0))
		asJSON = true
	}
	if what == "stats" {
		limit = api.MaxTraceLimit
	}
	query.Set("limit", strconv.Itoa(limit))
	find := connect
	if all {
		find = connectControl
	}
	client, err := find(socket)
	if err == nil {
		err = printTrace(client, what, query, asJSON)
	}
	if err != nil {
		complain("%v", err)
		return exitFailed
	}
	return exitOK
}

// execDaemon executes the daemon's program, which does what needs no daemon
// that runs.
func execDaemon(args []string) int {
	program, err := findProgram("pinfoldd")
	if err == nil {
		err = syscall.Exec(program, append([]string{"pinfoldd"}, args...), os.Environ())
	}
	complain("%s: %v", args[0], err)
	return exitFailed
}

// printTrace prints what the query finds; tail goes on until it is ended.
func printTrace(client *api.Client, what string, query url.Values, asJSON bool) error {
	var last uint64
	for {
		ctx, cancel := context.WithTimeout(context.Background(), traceTime)
		answer, err := client.TraceQuery(ctx, query)
		cancel()
		if err != nil {
			return err
		}
		fresh, err := after(answer.Records, &last)
		if err != nil {
			return err
		}
		var shown string
		if what == "stats" {
			shown, err = traceStats(fresh)
		} else {
			shown, err = showRecords(fresh, asJSON)
		}
		if err != nil {
			return err
		}
		fprint(os.Stdout, shown)
		if what != "tail" {
			if !answer.Complete && query.Get("run") == "" && !asJSON {
				complain("older records were left out, see pinfold trace --help")
			}
			return nil
		}
		time.Sleep(tailTime)
	}
}

// tailTime is between two looks of pinfold trace tail.
const tailTime = time.Second

// after returns the records after number last, and makes last the latest.
func after(records []json.RawMessage, last *uint64) ([]json.RawMessage, error) {
	var fresh []json.RawMessage
	latest := *last
	for _, raw := range records {
		var r struct{ Seq uint64 }
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("a record of the trace: %w", err)
		}
		if r.Seq > *last {
			fresh = append(fresh, raw)
		}
		latest = max(latest, r.Seq)
	}
	*last = latest
	return fresh, nil
}

// traceStats counts verdicts, rules and errors of the records.
func traceStats(records []json.RawMessage) (string, error) {
	counts := map[string]int{}
	for _, raw := range records {
		var r trace.Record
		if err := json.Unmarshal(raw, &r); err != nil {
			return "", fmt.Errorf("a record of the trace: %w", err)
		}
		if r.Event == trace.EventDecided {
			counts["verdict "+r.PolicyDecision]++
			for _, rule := range r.Rules {
				counts["rule "+rule]++
			}
		}
		if r.ErrorType != "" {
			counts["error "+r.ErrorType]++
		}
		for kind, n := range r.Redactions {
			counts["redacted "+kind] += n
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%6d  %s\n", counts[name], name)
	}
	return b.String(), nil
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
