package door

import (
	"cmp"
	"slices"
	"sync"
)

// The verdicts on a connection.
const (
	Allowed = "allowed"
	Refused = "refused"
	Failed  = "failed" // allowed, and then not reached
)

// A Connection is what is known of one, or of Count that are alike.
type Connection struct {
	Name     string // as hosts.Parse writes it; "" when it could not be read
	Port     uint16
	Address  string // the one that was dialled; "" when none was
	Up, Down int64  // bytes from and to the run
	Verdict  string
	Rule     string // the entry of the list that holds the name
	Reason   string // why not, lower case, no full stop
	Count    int
}

// maxRecords bounds the records of a run that are kept apart.
const maxRecords = 256

// records collect connections. Those that differ in nothing but their bytes are
// one, and so are all that are beyond the bound.
type records struct {
	mu    sync.Mutex
	all   map[Connection]*totals
	order int
}

type totals struct {
	up, down     int64
	count, order int
}

func (r *records) add(c Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := key(c)
	if r.all == nil {
		r.all = map[Connection]*totals{}
	}
	t := r.all[k]
	if t == nil && len(r.all) >= maxRecords {
		k = Connection{Verdict: c.Verdict, Reason: "more than are listed"}
		t = r.all[k]
	}
	if t == nil {
		r.order++
		t = &totals{order: r.order}
		r.all[k] = t
	}
	t.up += c.Up
	t.down += c.Down
	t.count += max(c.Count, 1)
}

// list returns the records in the order in which the first of each ended.
func (r *records) list() []Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Connection
	for c, t := range r.all {
		c.Up, c.Down, c.Count = t.up, t.down, t.count
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Connection) int { return cmp.Compare(r.all[key(a)].order, r.all[key(b)].order) })
	return out
}

// key is the record without what is added up.
func key(c Connection) Connection {
	c.Up, c.Down, c.Count = 0, 0, 0
	return c
}
