package trace

import (
	"slices"
	"sync"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/trace/redact"
)

// secrets takes secrets and home directories out of records. It is made when the
// first is: the client, which links this package, mostly starts for less.
var secrets = sync.OnceValue(func() *redact.Redactor { return redact.New(redact.Options{LocalPaths: true}) })

func clean(s string) string {
	s, _ = secrets().String(s)
	return s
}

// clean takes secrets and home directories out of a decision.
func (d *Decided) clean() {
	command, text := clean(d.Args.Command), clean(d.Text)
	d.Redacted = command != d.Args.Command || text != d.Text
	d.Args.Command, d.Text = command, text
	d.RiskReason, d.Project, d.Cwd = clean(d.RiskReason), clean(d.Project), clean(d.Cwd)
	d.Caller.Executable = clean(d.Caller.Executable)
	d.Reasons = slices.Clone(d.Reasons)
	for i := range d.Reasons {
		r := &d.Reasons[i]
		r.Message, r.Suggest, r.At.Text = clean(r.Message), clean(r.Suggest), clean(r.At.Text)
	}
	d.Grant = cleanGrant(d.Grant)
}

func cleanGrant(g *api.Grant) *api.Grant {
	if g == nil {
		return nil
	}
	c := *g
	c.Write, c.Protected, c.Exec = cleanAll(g.Write), cleanAll(g.Protected), cleanAll(g.Exec)
	return &c
}

func cleanAll(list []string) []string {
	out := slices.Clone(list)
	for i, s := range out {
		out[i] = clean(s)
	}
	return out
}
