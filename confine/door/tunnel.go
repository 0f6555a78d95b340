package door

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A client is the run's end of a connection.
type client struct {
	conn net.Conn
	r    *bufio.Reader // holds one TLS record, and the head of one request
}

const clientBuffer = recordHead + maxRecord

// serve finds out what a connection speaks, and serves it.
func (d *Door) serve(conn net.Conn) {
	c := &client{conn, bufio.NewReaderSize(conn, clientBuffer)}
	conn.SetReadDeadline(time.Now().Add(d.config.Limits.Preface))
	first, err := c.r.Peek(1)
	switch {
	case err != nil:
		d.records.add(Connection{Verdict: Refused, Reason: unreadable(err)})
	case first[0] == socksVersion:
		d.serveSOCKS(c)
	case isUpper(first[0]):
		d.serveHTTP(c, nil, nil)
	default:
		d.records.add(Connection{Verdict: Refused, Reason: "neither an HTTP proxy's request nor SOCKS version 5"})
	}
}

func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }

// tunnel carries a connection that was asked for, once it has begun as one with
// that host does: with TLS, or with plain HTTP. It closes the server's end, and
// completes the record.
func (d *Door) tunnel(c *client, server net.Conn, t target, record *Connection) {
	c.conn.SetReadDeadline(time.Now().Add(d.config.Limits.Preface))
	first, err := c.r.Peek(1)
	switch {
	case err != nil:
	case isUpper(first[0]):
		d.serveHTTP(c, &t, &upstream{Conn: server, door: d, record: record})
		return
	case first[0] != recordHandshake:
		err = errors.New("neither TLS nor HTTP: other protocols, such as SSH, are not served")
	default:
		err = c.checkHello(t)
	}
	if err != nil {
		record.Verdict, record.Reason = Refused, unreadable(err)
		d.drop(server)
		return
	}
	c.conn.SetReadDeadline(time.Time{})
	d.relay(c, server, record)
}

// checkHello looks at the first record, which stays in the buffer.
func (c *client) checkHello(t target) error {
	head, err := c.r.Peek(recordHead)
	if err != nil {
		return err
	}
	size, err := helloSize(head)
	if err != nil {
		return err
	}
	record, err := c.r.Peek(size)
	if err != nil {
		return err
	}
	return checkHello(record, t.name)
}

var errBytes = errors.New("more bytes than a run may transfer")

// leastChunk and mostChunk are how much of what is left a connection takes at a
// time: little until it has carried something, since what is taken is nobody
// else's meanwhile.
const leastChunk, mostChunk = 16 << 10, 1 << 20

// relay copies in both directions until both have ended.
func (d *Door) relay(c *client, server net.Conn, record *Connection) {
	var both sync.WaitGroup
	var full atomic.Bool
	copyAll := func(way direction, to, from net.Conn, count *int64) {
		err := d.copy(way, to, from, count)
		if err == nil {
			err = closeWrite(to)
		}
		if err != nil { // not half of a connection without its other one
			full.Store(full.Load() || errors.Is(err, errBytes))
			c.conn.Close()
			server.Close()
		}
	}
	both.Go(func() { copyAll(down, c.conn, server, &record.Down) })
	if err := d.flush(c, server, &record.Up); err != nil {
		full.Store(errors.Is(err, errBytes))
		server.Close()
	} else {
		copyAll(up, server, c.conn, &record.Up)
	}
	both.Wait()
	d.drop(server)
	if full.Load() {
		record.Reason = errBytes.Error()
	}
}

// flush sends what the client's buffer holds.
func (d *Door) flush(c *client, server net.Conn, count *int64) error {
	n := int64(c.r.Buffered())
	if got := d.take(up, n); got < n {
		d.giveBack(up, got)
		return errBytes
	}
	b, _ := c.r.Peek(int(n))
	sent, err := server.Write(b)
	*count += int64(sent)
	return err
}

// copy copies to the end of what comes, or of what the run may transfer. Between
// two TCP connections it is the kernel that copies (splice(2)).
func (d *Door) copy(way direction, to io.Writer, from io.Reader, count *int64) error {
	for chunk := int64(leastChunk); ; chunk = min(2*chunk, mostChunk) {
		most := d.take(way, chunk)
		if most == 0 {
			return errBytes
		}
		n, err := io.Copy(to, &io.LimitedReader{R: from, N: most})
		*count += n
		d.giveBack(way, most-n)
		if err != nil || n < most {
			return err
		}
	}
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// An upstream is a server's end that plain HTTP goes through. It is recorded when
// it is closed.
type upstream struct {
	net.Conn
	door   *Door
	record *Connection // of a tunnel, which records it itself
	own    Connection
	up     atomic.Int64
	down   atomic.Int64
	gone   func() // called when it is closed; may be nil
	once   sync.Once
}

func (u *upstream) Read(b []byte) (int, error) {
	most := u.door.take(down, int64(len(b)))
	if most == 0 && len(b) > 0 {
		return 0, errBytes
	}
	n, err := u.Conn.Read(b[:most])
	u.door.giveBack(down, most-int64(n))
	u.down.Add(int64(n))
	return n, err
}

func (u *upstream) Write(b []byte) (int, error) {
	if got := u.door.take(up, int64(len(b))); got < int64(len(b)) {
		u.door.giveBack(up, got)
		return 0, errBytes
	}
	n, err := u.Conn.Write(b)
	u.up.Add(int64(n))
	return n, err
}

func (u *upstream) Close() error {
	u.once.Do(func() {
		u.door.drop(u.Conn)
		r := u.record
		if r == nil {
			r = &u.own
		}
		r.Up, r.Down = u.up.Load(), u.down.Load()
		if u.record == nil {
			u.door.records.add(*r)
		}
		if u.gone != nil {
			u.gone()
		}
	})
	return nil
}
