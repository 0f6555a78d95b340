package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pinfold/pinfold/api"
)

const approvalsUsage = `usage:
  pinfold approvals [flags]                   list what waits for approval
  pinfold approvals watch [flags]             show what waits, whenever that changes
  pinfold approvals show [flags] ID           show one: what would run, why it is asked about, what it could do
  pinfold approvals allow [flags] ID          say yes: --session for exactly this command until it expires; --keep lets it
                                              see what earlier commands left in /tmp and caches; --end-beside ends the
                                              background runs in the project first
  pinfold approvals deny [flags] ID           say no: --reason reaches the agent
  pinfold approvals revoke [flags] ID         take a yes back
an ID may be cut short, as long as it is clear
`

// approvalsCommand is pinfold approvals.
func approvalsCommand(args []string) int {
	name := "list"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	if name == "help" || len(args) > 0 && (args[0] == "--help" || args[0] == "-h") && name == "list" {
		fmt.Print(approvalsUsage)
		return exitOK
	}
	var a approvalsClient
	a.flags = newFlags("approvals "+name, "", &a.socket)
	var run func() error
	operands := 1
	switch name {
	case "list", "watch":
		a.flags.BoolVar(&a.all, "all", false, "those too that are over")
		a.flags.BoolVar(&a.json, "json", false, "print the list as JSON")
		run, operands = a.list, 0
		if name == "watch" {
			run = a.watch
		}
	case "show":
		run = a.show
	case "allow":
		a.flags.BoolVar(&a.session, "session", false, "exactly this command, by this user in this project, for 8 hours")
		a.flags.BoolVar(&a.keep, "keep", false, "give it the /tmp, network and caches that earlier commands used")
		a.flags.BoolVar(&a.endBeside, "end-beside", false, "end the background runs in the project first")
		run = func() error { return a.decide(api.DecideAllow) }
	case "deny":
		a.flags.StringVar(&a.reason, "reason", "", "`text` that the agent gets to read")
		run = func() error { return a.decide(api.DecideDeny) }
	case "revoke":
		run = a.revoke
	default:
		complain("%s is nothing that pinfold approvals does", visible(name))
		fmt.Fprint(os.Stderr, approvalsUsage)
		return exitUsage
	}
	if status, ok := parse(a.flags, args, exitUsage); !ok {
		return status
	}
	if a.flags.NArg() != operands {
		fmt.Fprint(os.Stderr, approvalsUsage)
		return exitUsage
	}
	return a.do(run)
}

// haltCommand is pinfold halt and pinfold resume.
func haltCommand(name string, args []string) int {
	var a approvalsClient
	a.flags = newFlags(name, "", &a.socket)
	if status, ok := parse(a.flags, args, exitUsage); !ok {
		return status
	}
	return a.do(func() error {
		if name == "halt" {
			return a.client.Halt(a.ctx)
		}
		return a.client.Resume(a.ctx)
	})
}

// An approvalsClient calls the control socket.
type approvalsClient struct {
	flags              *flag.FlagSet
	socket, reason     string
	session, all, json bool
	keep, endBeside    bool

	ctx    context.Context
	client *api.Client
}

// do connects and runs.
func (a *approvalsClient) do(run func() error) int {
	a.ctx = cancelOnSignal()
	var err error
	if a.client, err = connectControl(a.socket); err == nil {
		defer a.client.Close()
		err = run()
	}
	if canceled, ok := errors.AsType[*signalError](context.Cause(a.ctx)); ok {
		return exitBySignal + int(canceled.signal)
	}
	if refused, ok := errors.AsType[*api.Error](err); ok {
		fprint(os.Stderr, "pinfold: "+explain(refused, ""))
		return exitFailed
	}
	if err != nil {
		complain("%s", visible(err.Error()))
		return exitFailed
	}
	return exitOK
}

// connectControl finds the daemon's control socket: beside the agents' socket
// that is named, else the machine's, else the user's.
func connectControl(socket string) (*api.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	if socket == "" {
		socket = os.Getenv("PINFOLD_SOCKET")
	}
	if socket != "" {
		return named(ctx, api.ControlSocket(socket))
	}
	client, err := named(ctx, api.ControlSocket(api.SystemSocket))
	if !isAbsent(err) {
		return client, err
	}
	client, err = named(ctx, api.ControlSocket(api.UserSocket()))
	if isAbsent(err) {
		return nil, errors.New("no daemon is running")
	}
	return client, err
}

func (a *approvalsClient) list() error {
	raw, list, err := a.client.Approvals(a.ctx)
	if err != nil {
		return err
	}
	if a.json {
		fprint(os.Stdout, string(raw))
		return nil
	}
	fprint(os.Stdout, a.table(list))
	return nil
}

// table returns the list for a person.
func (a *approvalsClient) table(list *api.ApprovalList) string {
	var b strings.Builder
	for _, p := range list.Approvals {
		if p.State != api.StatePending && !a.all && !(p.State == api.StateAllowed && p.Scope == api.ScopeSession) {
			continue
		}
		left := time.Until(p.Expires).Round(time.Second)
		state := p.State
		if p.State == api.StatePending || p.State == api.StateAllowed {
			state = fmt.Sprintf("%s, %v left", p.State, max(left, 0))
		}
		fmt.Fprintf(&b, "%s  %s  %s in %s\n    %s\n", p.ID, state, visible(p.Caller.User), visible(p.Project), visible(p.Decision.Text))
	}
	if b.Len() == 0 {
		return "nothing waits for approval\n"
	}
	return b.String()
}

func (a *approvalsClient) watch() error {
	return a.client.WatchApprovals(a.ctx, func(list *api.ApprovalList) error {
		fmt.Printf("%s\n%s\n", time.Now().Format(time.TimeOnly), a.table(list))
		return nil
	})
}

// find returns the approval whose id begins with the operand.
func (a *approvalsClient) find() (*api.Approval, error) {
	_, list, err := a.client.Approvals(a.ctx)
	if err != nil {
		return nil, err
	}
	var found *api.Approval
	for _, p := range list.Approvals {
		if !strings.HasPrefix(p.ID, a.flags.Arg(0)) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s stands for more than one; pinfold approvals lists them", a.flags.Arg(0))
		}
		found = p
	}
	if found == nil {
		return nil, fmt.Errorf("there is no approval %s; pinfold approvals lists them", a.flags.Arg(0))
	}
	return found, nil
}

func (a *approvalsClient) show() error {
	p, err := a.find()
	if err != nil {
		return err
	}
	fprint(os.Stdout, describeApproval(p))
	return nil
}

// describeApproval shows what an approver has to know: what would run, and not
// what somebody says of it.
func describeApproval(p *api.Approval) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", p.ID, p.State)
	fmt.Fprintf(&b, "asked by:  %s (uid %d), process %d, %s\n", visible(p.Caller.User), p.Caller.UID, p.Caller.PID, visible(p.Caller.Executable))
	fmt.Fprintf(&b, "since:     %s, until %s\n", p.Created.Format(time.TimeOnly), p.Expires.Format(time.TimeOnly))
	fmt.Fprintf(&b, "project:   %s, in %s\n", visible(p.Project), visible(p.Cwd))
	if p.Session != "" {
		fmt.Fprintf(&b, "session:   %s\n", p.Session)
	}
	for _, e := range p.Env {
		fmt.Fprintf(&b, "env:       %s\n", visible(e))
	}
	if p.Stdin != "" {
		fmt.Fprintf(&b, "stdin:     %s\n", visible(p.Stdin))
	}
	b.WriteString("would run:\n")
	for line := range strings.SplitSeq(strings.TrimSuffix(p.Decision.Text, "\n"), "\n") {
		b.WriteString("  | " + visible(line) + "\n")
	}
	fmt.Fprintf(&b, "risk:      %s\n", p.Decision.Risk)
	for _, r := range p.Decision.Reasons {
		if r.Verdict != "allow" {
			fmt.Fprintf(&b, "- %s: %s\n", visible(r.At.Text), visible(r.Message))
		}
	}
	b.WriteString(grantInWords(p.Grant))
	if p.Explanation != nil && p.Explanation.Opaque {
		b.WriteString("it runs code that was not read, and may load files of the project: what binds it is the above, not the text\n")
		if p.Unbound {
			b.WriteString("the project has too many files to look through all: one that changes until it runs may go unnoticed\n")
		} else {
			b.WriteString("a file of the project that changes until it runs ends this approval\n")
		}
	}
	for i, c := range p.Changed {
		b.WriteString(map[bool]string{true: "changed:   ", false: "           "}[i == 0] + c.At.Local().Format(time.DateTime) + "  " + visible(c.Path) + "\n")
	}
	for _, r := range p.Beside {
		fmt.Fprintf(&b, "beside it: %s  %s\n", r.Run, visible(r.Command))
	}
	if p.Approver != nil {
		fmt.Fprintf(&b, "decided:   by %s (uid %d)", visible(p.Approver.User), p.Approver.UID)
		if p.Approver.SameUID {
			b.WriteString(", who is the user who asked: this proves no second person")
		}
		if p.Reason != "" {
			b.WriteString(": " + visible(p.Reason))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// decide says yes or no to what the approval is now: one that changed meanwhile
// is refused.
func (a *approvalsClient) decide(decision string) error {
	p, err := a.find()
	if err != nil {
		return err
	}
	d := api.ApprovalDecision{Decision: decision, Reason: a.reason, Binding: p.Binding, Keep: a.keep, EndBeside: a.endBeside}
	if a.session {
		d.Scope = api.ScopeSession
	}
	if p, err = a.client.Decide(a.ctx, p.ID, d); err != nil {
		return err
	}
	fprint(os.Stdout, describeApproval(p))
	return nil
}

func (a *approvalsClient) revoke() error {
	p, err := a.find()
	if err == nil {
		p, err = a.client.Revoke(a.ctx, p.ID)
	}
	if err != nil {
		return err
	}
	fprint(os.Stdout, describeApproval(p))
	return nil
}
