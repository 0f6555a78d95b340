package door

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinfold/pinfold/policy/hosts"
)

// Limits bound what a run does through its door. Zero fields are the defaults.
type Limits struct {
	AtOnce      int           // connections at once; 600
	Connections int           // in all; 20,000
	Up, Down    int64         // bytes from and to the run, of all connections together; 1 GiB and 16 GiB
	Preface     time.Duration // what a client may take to say where it wants to, and to begin; 10 s
	Dial        time.Duration // to resolve a name and reach it; 10 s
}

func (l Limits) orDefaults() Limits {
	set := func(n *int, most int) {
		if *n == 0 {
			*n = most
		}
	}
	set(&l.AtOnce, 600)
	set(&l.Connections, 20_000)
	if l.Up == 0 {
		l.Up = 1 << 30
	}
	if l.Down == 0 {
		l.Down = 16 << 30
	}
	if l.Preface == 0 {
		l.Preface = 10 * time.Second
	}
	if l.Dial == 0 {
		l.Dial = 10 * time.Second
	}
	return l
}

// A Resolver finds the addresses of a name that ends in a dot, as
// [net.Resolver.LookupNetIP] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is what a door lets through.
type Config struct {
	Hosts  hosts.List
	Limits Limits
	// Resolver and Dial are the machine's own when they are nil. Dial gets an
	// address and nothing to resolve.
	Resolver Resolver
	Dial     func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// A Door serves one listener.
type Door struct {
	config   Config
	listener net.Listener
	ctx      context.Context // ends when the door is closed
	cancel   context.CancelFunc
	left     [2]atomic.Int64 // bytes, by direction
	reached  atomic.Int64    // servers dialled
	slots    chan struct{}   // one for each connection at once
	records  records
	done     sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool // both ends of all connections
	closed bool
}

// Serve serves the listener, which it takes over, until the door is closed.
func Serve(l net.Listener, c Config) *Door {
	c.Limits = c.Limits.orDefaults()
	if c.Resolver == nil {
		c.Resolver = &net.Resolver{PreferGo: true}
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to.String())
		}
	}
	d := &Door{config: c, listener: l, open: map[net.Conn]bool{}, slots: make(chan struct{}, c.Limits.AtOnce)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.left[up].Store(c.Limits.Up)
	d.left[down].Store(c.Limits.Down)
	d.done.Go(d.accept)
	return d
}

// Close closes the listener and every connection, waits until nothing is left of
// them, and returns what there was.
func (d *Door) Close() []Connection {
	d.cancel()
	d.listener.Close()
	d.mu.Lock()
	d.closed = true
	for c := range d.open {
		c.Close()
	}
	d.mu.Unlock()
	d.done.Wait()
	return d.records.list()
}

const tooMany = "too many connections"

// accept takes connections, no more at once than there are slots: the others wait
// in the kernel's queue, which is bounded too.
func (d *Door) accept() {
	for n := 0; ; n++ {
		select {
		case d.slots <- struct{}{}:
		case <-d.ctx.Done():
			return
		}
		c, err := d.listener.Accept()
		if err != nil {
			<-d.slots
			if d.ctx.Err() != nil {
				return
			}
			n--
			time.Sleep(10 * time.Millisecond) // no descriptor is free, say
			continue
		}
		if n >= d.config.Limits.Connections {
			d.records.add(Connection{Verdict: Refused, Reason: tooMany})
			c.Close()
			<-d.slots
			continue
		}
		d.done.Go(func() {
			defer func() { <-d.slots }()
			if d.keep(c) {
				d.serve(c)
			}
			d.drop(c)
		})
	}
}

// keep notes an open connection, so that it is closed with the door. It reports
// whether that is open.
func (d *Door) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.open[c] = true
	}
	return !d.closed
}

func (d *Door) drop(c net.Conn) {
	c.Close()
	d.mu.Lock()
	delete(d.open, c)
	d.mu.Unlock()
}

// A direction is one of the two of a connection, as seen from the run.
type direction uint8

const (
	up direction = iota
	down
)

// take takes up to n bytes of what a direction has left, and returns how many
// there were.
func (d *Door) take(way direction, n int64) int64 {
	for {
		left := d.left[way].Load()
		n = min(n, left)
		if n <= 0 {
			return 0
		}
		if d.left[way].CompareAndSwap(left, left-n) {
			return n
		}
	}
}

// giveBack returns what was taken and not used.
func (d *Door) giveBack(way direction, n int64) { d.left[way].Add(n) }
