package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pinfold/pinfold/policy/hosts"
)

// idle is how long a connection may wait for its next request.
const idle = time.Minute

// maxHead is the longest head of a request: what the client's buffer holds.
const maxHead = clientBuffer

var errBadRequest = errors.New("a malformed HTTP request")

func bad(what string) error { return fmt.Errorf("%w: %w", errBadRequest, errors.New(what)) }

// A head is the head of a request, as far as it says where that is to go and how
// long it is.
type head struct {
	method, target string
	old            bool     // HTTP/1.0
	host           []string // Host fields
	expects        bool     // a 100 Continue
}

// peekHead waits for the whole head of a request, which stays in the buffer.
func (c *client) peekHead() ([]byte, error) {
	for n := 1; n <= maxHead; n = c.r.Buffered() + 1 {
		_, err := c.r.Peek(n)
		b, _ := c.r.Peek(c.r.Buffered()) // all that came
		if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
			return b[:i+4], nil
		}
		if bytes.Contains(b, []byte("\n\n")) {
			return nil, bad("lines that end without a carriage return")
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, bad("too long")
}

// parseHead reads a head more strictly than HTTP servers do: what two of them
// could read differently is an error.
func parseHead(b []byte) (h head, err error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\r\n\r\n"), "\r\n")
	for _, line := range lines {
		for i := range len(line) {
			if line[i] < ' ' && line[i] != '\t' || line[i] == 0x7f {
				return h, bad("a control character")
			}
		}
	}
	first := strings.Split(lines[0], " ")
	if len(first) != 3 || !isToken(first[0]) || first[1] == "" || first[2] != "HTTP/1.1" && first[2] != "HTTP/1.0" {
		return h, bad("its first line")
	}
	h.method, h.target, h.old = first[0], first[1], first[2] == "HTTP/1.0"
	lengths, encodings := 0, 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return h, bad("a field's name")
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "host":
			h.host = append(h.host, value)
		case "content-length":
			if lengths++; value == "" || strings.Trim(value, "0123456789") != "" || len(value) > 18 {
				return h, bad("its length")
			}
		case "transfer-encoding":
			if encodings++; !strings.EqualFold(value, "chunked") || h.old {
				return h, bad("its transfer encoding")
			}
		case "expect":
			h.expects = strings.EqualFold(value, "100-continue")
		}
	}
	switch {
	case lengths+encodings > 1:
		return h, bad("more than one length")
	case len(h.host) > 1 || len(h.host) == 0 && !h.old:
		return h, bad("it names no host, or several")
	}
	return h, nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// where says where the request is to go. Within a tunnel that is its target.
func (h *head) where(tunnel *target) (t target, err error) {
	authority, origin := h.target, false
	switch {
	case h.method == http.MethodConnect:
		if tunnel != nil {
			return t, bad("CONNECT within a tunnel")
		}
		t.name, t.port, err = hosts.ParseAuthority(authority, 0)
	case tunnel != nil && (strings.HasPrefix(h.target, "/") || h.target == "*"):
		t, origin = *tunnel, true
	case strings.HasPrefix(h.target, "/") || h.target == "*":
		return t, bad("it names no host: this is a proxy, and the only way out")
	default:
		scheme, rest, ok := strings.Cut(h.target, "://")
		if !ok || !strings.EqualFold(scheme, "http") {
			return t, bad("neither CONNECT nor http://")
		}
		authority, _, _ = strings.Cut(rest, "/")
		if i := strings.IndexAny(authority, "?#"); i >= 0 {
			authority = authority[:i]
		}
		t.name, t.port, err = hosts.ParseAuthority(authority, 80)
	}
	if err != nil {
		return t, fmt.Errorf("a name that is none: %w", err)
	}
	if tunnel != nil && t != *tunnel {
		return t, errors.New("a request to another host than the tunnel's " + tunnel.String())
	}
	for _, text := range h.host {
		name, port, err := hosts.ParseAuthority(text, t.port)
		if err != nil || name != t.name || port != t.port {
			return t, errors.New("a request whose Host is not " + t.String())
		}
	}
	if origin && len(h.host) == 0 {
		return t, errors.New("a request without Host")
	}
	return t, nil
}

// serveHTTP serves a connection on which requests come, one after another: for a
// proxy, or within a tunnel.
func (d *Door) serveHTTP(c *client, tunnel *target, first *upstream) {
	o := &origins{door: d, first: first}
	defer o.close()
	for n := 0; ; n++ {
		if n > 0 { // the first byte of the next
			c.conn.SetReadDeadline(time.Now().Add(idle))
			if _, err := c.r.Peek(1); err != nil {
				return
			}
		}
		c.conn.SetReadDeadline(time.Now().Add(d.config.Limits.Preface))
		h, t, err := c.readHead(tunnel)
		if err != nil {
			d.refuse(c, t, err)
			return
		}
		if h.method == http.MethodConnect {
			d.serveConnect(c, t)
			return
		}
		c.conn.SetReadDeadline(time.Time{})
		if !d.forward(c, h, t, o) {
			return
		}
	}
}

// readHead reads the head of a request, which stays in the buffer but for that of
// CONNECT.
func (c *client) readHead(tunnel *target) (h head, t target, err error) {
	b, err := c.peekHead()
	if err != nil {
		return h, t, err
	}
	if h, err = parseHead(b); err != nil {
		return h, t, err
	}
	if t, err = h.where(tunnel); err == nil && h.method == http.MethodConnect {
		_, err = c.r.Discard(len(b))
	}
	return h, t, err
}

// refuse answers what was not understood, and records it.
func (d *Door) refuse(c *client, t target, err error) {
	record := Connection{Name: t.name.String(), Port: t.port, Verdict: Refused, Reason: unreadable(err)}
	d.records.add(record)
	code := http.StatusForbidden
	if errors.Is(err, errBadRequest) {
		code = http.StatusBadRequest
	}
	c.say(code, record.Reason)
}

func (d *Door) serveConnect(c *client, t target) {
	server, record, r := d.connect(d.ctx, t)
	if r != nil {
		d.records.add(record)
		c.say(r.status(), r.reason)
		return
	}
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		d.tunnel(c, server, t, &record)
	} else {
		d.drop(server)
	}
	d.records.add(record)
}

func (r *refusal) status() int {
	if r.verdict == Refused {
		return http.StatusForbidden
	}
	return http.StatusBadGateway
}

// say answers with a reason, which many programs show, and ends the connection so
// that the answer arrives.
func (c *client) say(code int, reason string) {
	body := "pinfold: " + reason + "\n"
	c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := fmt.Fprintf(c.conn, "HTTP/1.1 %d pinfold: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		code, reason, len(body), body)
	if err == nil && closeWrite(c.conn) == nil {
		// what is unread would make it a reset, which takes the answer along
		c.conn.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, c.conn, 1<<20)
	}
}

// hopByHop are fields that are for the next program on the way, besides those that
// Connection names (RFC 9110, section 7.6.1).
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Upgrade", "Expect", "Http2-Settings"}

func strip(h http.Header) {
	for _, value := range h.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
}

// forward passes one request on and its answer back, and reports whether another
// may follow.
func (d *Door) forward(c *client, h head, t target, o *origins) bool {
	req, err := http.ReadRequest(c.r)
	if err != nil {
		d.refuse(c, t, errBadRequest)
		return false
	}
	if _, r := d.permit(t); r != nil {
		d.records.add(Connection{Name: t.name.String(), Port: t.port, Verdict: r.verdict, Reason: r.reason})
		c.say(r.status(), r.reason)
		return false
	}
	keep := !req.Close && !h.old
	body := &watched{ReadCloser: req.Body}
	body.ended.Store(req.Body == http.NoBody)
	if !body.ended.Load() {
		req.Body = body
	}
	rewrite(req, t)
	if h.expects {
		if _, err := io.WriteString(c.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	resp, err := o.roundTrip(req.WithContext(d.ctx))
	if err != nil {
		r, ok := errors.AsType[*refusal](err)
		if !ok {
			r = &refusal{Failed, t.String() + " did not answer as HTTP servers do"}
		}
		c.say(r.status(), r.reason)
		return false
	}
	defer resp.Body.Close()
	keep = keep && !resp.Close
	answerAs(resp, req, h.old, keep)
	err = resp.Write(c.conn)
	// a body that is still being sent is read by another goroutine
	return err == nil && keep && !resp.Close && body.ended.Load()
}

// rewrite makes of a request that came one to be sent.
func rewrite(req *http.Request, t target) {
	strip(req.Header)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "") // none, rather than Go's
	}
	req.RequestURI, req.Close = "", false
	req.Trailer = nil
	req.URL.Scheme, req.URL.Host, req.URL.User = "http", t.String(), nil
	req.Host = t.String()
	if t.port == 80 {
		req.Host = strings.TrimSuffix(req.Host, ":80")
	}
}

// answerAs makes of a response that came one to be sent.
func answerAs(resp *http.Response, req *http.Request, old, keep bool) {
	strip(resp.Header)
	resp.Request, resp.Trailer = req, nil
	resp.ProtoMajor, resp.ProtoMinor = 1, 1
	resp.Close = !keep
	resp.TransferEncoding = nil
	if resp.ContentLength < 0 {
		if old {
			resp.Close = true
		} else {
			resp.TransferEncoding = []string{"chunked"}
		}
	}
}

// A watched body knows when it was read to its end.
type watched struct {
	io.ReadCloser
	ended atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if err == io.EOF {
		w.ended.Store(true)
	}
	return n, err
}

// origins are the servers of a connection's requests. It is one goroutine's, but
// for dial.
type origins struct {
	door      *Door
	transport *http.Transport

	mu     sync.Mutex
	first  *upstream          // of the tunnel, until it is used
	all    map[*upstream]bool // those that are open
	closed bool
}

func (o *origins) roundTrip(req *http.Request) (*http.Response, error) {
	if o.transport == nil {
		o.transport = &http.Transport{DialContext: o.dial, DisableCompression: true, MaxIdleConns: 1,
			IdleConnTimeout: idle, MaxResponseHeaderBytes: 64 << 10}
	}
	resp, err := o.transport.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, errors.New("it switched protocols, which it was not asked for")
	}
	return resp, err
}

// dial reaches the host of a request.
func (o *origins) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, port, err := hosts.ParseAuthority(address, 0)
	if err != nil {
		return nil, err
	}
	t := target{name, port}
	o.mu.Lock()
	u := o.first
	o.first = nil
	o.mu.Unlock()
	if u == nil {
		conn, record, r := o.door.connect(ctx, t)
		if r != nil {
			o.door.records.add(record)
			return nil, r
		}
		u = &upstream{Conn: conn, door: o.door, own: record}
	}
	u.gone = func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, u)
	}
	o.mu.Lock()
	closed := o.closed
	if !closed {
		if o.all == nil {
			o.all = map[*upstream]bool{}
		}
		o.all[u] = true
	}
	o.mu.Unlock()
	if closed { // the transport went on without it
		u.Close()
		return nil, net.ErrClosed
	}
	return u, nil
}

// close closes what is left of the servers' ends.
func (o *origins) close() {
	if o.transport != nil {
		o.transport.CloseIdleConnections()
	}
	o.mu.Lock()
	o.closed = true
	first, left := o.first, slices.Collect(maps.Keys(o.all))
	o.mu.Unlock()
	if first != nil {
		left = append(left, first)
	}
	for _, u := range left {
		u.Close()
	}
}
