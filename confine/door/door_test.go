package door

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pinfold/pinfold/policy/hosts"
)

// A world is an internet of a few names, with a door to it.
type world struct {
	t       *testing.T
	door    *Door
	address string
	web     *httptest.Server // example.org:80, and every other name's
	secure  *httptest.Server // example.org:443
	names   map[string][]string

	mu      sync.Mutex
	asked   []string // names that were resolved
	dialled []string
	got     []*http.Request // by the web
}

// publicAddress stands for a server of the world: what is dialled there leads to
// the test's servers.
const publicAddress = "93.184.215.14"

func newWorld(t *testing.T, limits Limits, list ...string) *world {
	w := &world{t: t, names: map[string][]string{
		"example.org.": {publicAddress}, "files.example.com.": {"2606:2800:21f:cb07:6820:80da:af6b:8b2c", publicAddress},
		"evil.example.": {publicAddress}, "loop.example.": {"127.0.0.1"}, "metadata.example.": {"169.254.169.254"},
		"mixed.example.": {"10.0.0.1", publicAddress}, "mapped.example.": {"::ffff:127.0.0.1"}, "down.example.": {publicAddress},
	}}
	handler := http.HandlerFunc(w.serve)
	w.web = httptest.NewServer(handler)
	w.secure = httptest.NewUnstartedServer(handler)
	w.secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.secure.StartTLS()
	t.Cleanup(w.web.Close)
	t.Cleanup(w.secure.Close)
	parsed, err := hosts.ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	w.door = Serve(l, Config{Hosts: parsed, Limits: limits, Resolver: w, Dial: w.dial})
	t.Cleanup(func() { w.door.Close() })
	return w
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.got = append(w.got, r)
	w.mu.Unlock()
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(rw, r, "http://127.0.0.1/", http.StatusFound)
	case "/stream":
		rw.(http.Flusher).Flush() // of unknown length
		io.WriteString(rw, "streamed")
	default:
		fmt.Fprintf(rw, "%s %s %s %s", r.Method, r.Host, r.URL.Path, body)
	}
}

func (w *world) LookupNetIP(_ context.Context, network, host string) (list []netip.Addr, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	for _, a := range w.names[host] {
		list = append(list, netip.MustParseAddr(a))
	}
	if list == nil {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return list, err
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	w.mu.Unlock()
	var d net.Dialer
	switch {
	case to.Addr().Is6():
		return nil, &net.OpError{Op: "dial", Err: errors.New("network is unreachable")}
	case to.Port() == 443:
		return d.DialContext(ctx, "tcp", w.secure.Listener.Addr().String())
	case to.Port() == 80 || to.Port() == 8080:
		return d.DialContext(ctx, "tcp", w.web.Listener.Addr().String())
	}
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// client returns an HTTP client that uses the door under the scheme.
func (w *world) client(scheme string) *http.Client {
	proxy := &url.URL{Scheme: scheme, Host: w.address}
	config := w.secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.InsecureSkipVerify = true // the names are the test's
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: config}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func (w *world) get(c *http.Client, url string) (int, string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestServes(t *testing.T) {
	for _, scheme := range []string{"http", "socks5", "socks5h"} {
		t.Run(scheme, func(t *testing.T) {
			w := newWorld(t, Limits{}, "example.org", "*.example.com")
			c := w.client(scheme)
			for url, want := range map[string]string{
				"https://example.org/a":       "GET example.org /a ",
				"http://example.org/b":        "GET example.org /b ",
				"https://files.example.com/c": "GET files.example.com /c ",
				"http://EXAMPLE.org:80/d":     "GET example.org /d ",
				"http://example.org/stream":   "streamed",
			} {
				code, body, err := w.get(c, url)
				if scheme != "http" { // a tunnel: the host is as it was written
					body = strings.Replace(strings.ToLower(body), "get ", "GET ", 1)
					body = strings.Replace(body, "example.org:80 ", "example.org ", 1)
				}
				if err != nil || code != 200 || body != want {
					t.Errorf("%s: %d %q %v, want %q", url, code, body, err, want)
				}
			}
			resp, err := c.Post("http://example.org/post", "text/plain", io.MultiReader(strings.NewReader("two "), strings.NewReader("parts")))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != "POST example.org /post two parts" {
				t.Errorf("a chunked body came as %q", body)
			}
			c.CloseIdleConnections()
			var seen, bytesDown int64
			for _, r := range w.door.Close() {
				if r.Verdict != Allowed || r.Rule == "" || r.Address != publicAddress+fmt.Sprintf(":%d", r.Port) {
					t.Errorf("record %+v", r)
				}
				seen += int64(r.Count)
				bytesDown += r.Down
			}
			if seen < 3 || bytesDown < 500 {
				t.Errorf("%d connections with %d bytes are in the records", seen, bytesDown)
			}
		})
	}
}

// One connection to the proxy, and requests to several hosts on it.
func TestKeptAlive(t *testing.T) {
	w := newWorld(t, Limits{}, "example.org", "files.example.com")
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for i, host := range []string{"example.org", "files.example.com", "example.org", "evil.example"} {
		fmt.Fprintf(c, "POST http://%s/%d HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\nProxy-Authorization: x\r\nConnection: X-Mine\r\nX-Mine: 1\r\nUpgrade: websocket\r\n\r\nhi", host, i, host)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if want := fmt.Sprintf("POST %s /%d hi", host, i); i < 3 && string(body) != want {
			t.Errorf("%d: %q, want %q", i, body, want)
		}
		if i == 3 && (resp.StatusCode != 403 || !strings.Contains(string(body), "evil.example:80 is not in this run's list; allowed: example.org, files.example.com")) {
			t.Errorf("another host: %d %q", resp.StatusCode, body)
		}
	}
	for _, req := range w.got {
		for _, name := range []string{"Proxy-Authorization", "X-Mine", "Upgrade", "Via", "X-Forwarded-For", "User-Agent"} {
			if req.Header.Get(name) != "" {
				t.Errorf("%s came through", name)
			}
		}
	}
}

// TestManyServersOfOneConnection: requests to one server after another on a
// connection hold few of them open, and count.
func TestManyServersOfOneConnection(t *testing.T) {
	const servers = 60
	w := newWorld(t, Limits{Connections: servers}, "*.example.com")
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for i := range servers + 1 {
		host := fmt.Sprintf("s%d.example.com", i)
		w.mu.Lock()
		w.names[host+"."] = []string{publicAddress}
		w.mu.Unlock()
		fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", host, host)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if refused := resp.StatusCode == 403 && strings.Contains(string(body), tooMany); refused != (i == servers) {
			t.Errorf("%d: %d %q", i, resp.StatusCode, body)
		}
		w.door.mu.Lock()
		open := len(w.door.open)
		w.door.mu.Unlock()
		if open > 4 { // the client, a server, and two that are being closed
			t.Fatalf("%d: %d connections are open", i, open)
		}
	}
}

// TestIdleConnectionsTakeLittle: connections that carry nothing leave what a run
// may transfer to those that do.
func TestIdleConnectionsTakeLittle(t *testing.T) {
	w := newWorld(t, Limits{Up: 4 << 20, Down: 4 << 20}, "example.org")
	for range 50 {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, connectTo("example.org:443"))
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		c.Write(hello("example.org"))
	}
	if code, body, err := w.get(w.client("http"), "https://example.org/"); err != nil || code != 200 {
		t.Errorf("%d %q %v", code, body, err)
	}
}

func hello(name string) []byte { return helloWith(&tls.Config{ServerName: name}) }

// helloWith returns the first record of a client.
func helloWith(c *tls.Config) []byte {
	a, b := net.Pipe()
	c.InsecureSkipVerify = true
	go func() { _ = tls.Client(a, c).Handshake() }()
	head := make([]byte, recordHead)
	_, _ = io.ReadFull(b, head)
	size, _ := helloSize(head)
	rest := make([]byte, size-recordHead)
	_, _ = io.ReadFull(b, rest)
	b.Close()
	return append(head, rest...)
}

// splitHello is the same message in two records.
func splitHello(name string) []byte {
	b := hello(name)
	first, rest := b[recordHead:recordHead+40], b[recordHead+40:]
	out := append([]byte{recordHandshake, 3, 1, 0, 40}, first...)
	return append(append(out, recordHandshake, 3, 1, byte(len(rest)>>8), byte(len(rest))), rest...)
}

// withExtension adds an extension to a ClientHello.
func withExtension(b []byte, kind int, content string) []byte {
	b = slices.Clone(b)
	extra := append([]byte{byte(kind >> 8), byte(kind), byte(len(content) >> 8), byte(len(content))}, content...)
	at := recordHead + 4 + 34
	at += 1 + int(b[at])
	at += 2 + int(b[at])<<8 + int(b[at+1])
	at += 1 + int(b[at])
	grow := func(i int) { n := int(b[i])<<8 + int(b[i+1]) + len(extra); b[i], b[i+1] = byte(n>>8), byte(n) }
	grow(at)
	grow(recordHead + 2)
	grow(3)
	return append(b, extra...)
}

func socksTo(host string, port uint16) string {
	return "\x05\x01\x00" + "\x05\x01\x00\x03" + string(rune(len(host))) + host + string([]byte{byte(port >> 8), byte(port)})
}

func connectTo(authority string) string {
	return "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"
}

// Each row is what a program might say to get where it may not. What the list has
// is example.org at 443 and 80, and a few names whose addresses are not for it.
var attacks = []struct {
	name, send string
	// reason is part of what the record says.
	reason string
	// after says that it comes beyond the answer to CONNECT: an address of the
	// world was dialled, and no byte sent there.
	after string
}{
	// another host
	{"connect", connectTo("evil.example:443"), "is not in this run's list", ""},
	{"connect, other port", connectTo("example.org:22"), "is not in this run's list", ""},
	{"connect, sub-name", connectTo("a.example.org:443"), "is not in this run's list", ""},
	{"connect, longer name", connectTo("example.org.evil.example:443"), "is not in this run's list", ""},
	{"connect, name before", connectTo("notexample.org:443"), "is not in this run's list", ""},
	{"absolute form", "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "is not in this run's list", ""},
	{"socks name", socksTo("evil.example", 443), "is not in this run's list", ""},
	{"name that is a question", connectTo("secret-in-a-name.evil.example:443"), "is not in this run's list", ""},
	// names that are read differently
	{"NUL", connectTo("example.org\x00.evil.example:443"), "control character", ""},
	{"NUL, absolute", "GET http://example.org\x00.evil.example/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "control character", ""},
	{"NUL, socks", socksTo("example.org\x00.evil.example", 443), "a byte that no name has", ""},
	{"NUL after, socks", socksTo("example.org\x00", 443), "a byte that no name has", ""},
	{"newline, socks", socksTo("example.org\n", 443), "a byte that no name has", ""},
	{"carriage return, socks", socksTo("evil.example\r\nexample.org", 443), "a byte that no name has", ""},
	{"user", connectTo("example.org@evil.example:443"), "a byte that no name has", ""},
	{"user and password", "GET http://example.org:80@evil.example/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "a port is a number", ""},
	{"trailing dot", connectTo("example.org.:443"), "a dot at an end", ""},
	{"leading dot", connectTo(".example.org:443"), "a dot at an end", ""},
	{"two dots", connectTo("example..org:443"), "a dot at an end", ""},
	{"percent", connectTo("example%2eorg:443"), "a byte that no name has", ""},
	{"percent NUL", connectTo("example.org%00.evil.example:443"), "a byte that no name has", ""},
	{"mixed scripts", connectTo("ex\u0430mple.org:443"), "mixed scripts", ""},
	{"full width", connectTo("ｅxample.org:443"), "IDNA", ""},
	{"ideographic dot", connectTo("example\u3002org:443"), "IDNA", ""},
	{"zero width", connectTo("example\u200b.org:443"), "IDNA", ""},
	{"backslash", connectTo(`example.org\.evil.example:443`), "a byte that no name has", ""},
	{"space", "CONNECT example.org evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", "first line", ""},
	{"tab", connectTo("example.org\t:443"), "a byte that no name has", ""},
	{"underscore", connectTo("_example.org:443"), "a byte that no name has", ""},
	{"empty name", connectTo(":443"), "no name", ""},
	{"no port", connectTo("example.org"), "no port", ""},
	{"port 0", connectTo("example.org:0"), "a port is a number", ""},
	{"port of five and more", connectTo("example.org:65979"), "a port is a number", ""},
	{"port with a sign", connectTo("example.org:+443"), "a port is a number", ""},
	{"two ports", connectTo("example.org:443:443"), "a port is a number", ""},
	{"asterisk", connectTo("*.example.org:443"), "a byte that no name has", ""},
	{"long name", connectTo(strings.Repeat("a.", 140) + "example.org:443"), "too long", ""},
	// addresses
	{"loopback", connectTo("127.0.0.1:443"), "is not in this run's list", ""},
	{"of the listed name", connectTo(publicAddress + ":443"), "is not in this run's list", ""},
	{"localhost", connectTo("localhost:443"), "is not in this run's list", ""},
	{"short", connectTo("127.1:443"), "four decimal parts", ""},
	{"decimal", connectTo("2130706433:443"), "four decimal parts", ""},
	{"octal", connectTo("0177.0.0.1:443"), "four decimal parts", ""},
	{"hexadecimal", connectTo("0x7f.0.0.1:443"), "four decimal parts", ""},
	{"hexadecimal in one", "GET http://0x7f000001/ HTTP/1.1\r\nHost: 0x7f000001\r\n\r\n", "four decimal parts", ""},
	{"metadata", connectTo("169.254.169.254:80"), "is not in this run's list", ""},
	{"metadata, decimal", connectTo("2852039166:80"), "four decimal parts", ""},
	{"IPv6 loopback", connectTo("[::1]:443"), "is not in this run's list", ""},
	{"IPv4 in IPv6", connectTo("[::ffff:127.0.0.1]:443"), "is not in this run's list", ""},
	{"IPv6 zone", connectTo("[fe80::1%25eth0]:443"), "IPv6 address without zone", ""},
	{"IPv6 without brackets", connectTo("::1:443"), "a port is a number", ""},
	{"socks IPv4", "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "is not in this run's list", ""},
	{"socks IPv6", "\x05\x01\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x50", "is not in this run's list", ""},
	{"socks mapped", "\x05\x01\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x7f\x00\x00\x01\x00\x50", "127.0.0.1:80 is not in this run's list", ""},
	// listed names with addresses that are not for them
	{"resolves to loopback", connectTo("loop.example:443"), "127.0.0.1 of this machine or a private network", ""},
	{"resolves to metadata", connectTo("metadata.example:443"), "169.254.169.254, which no run may reach", ""},
	{"resolves to mapped loopback", connectTo("mapped.example:443"), "127.0.0.1 of this machine or a private network", ""},
	// SOCKS
	{"socks 4", "\x04\x01\x01\xbb\x7f\x00\x00\x01u\x00", "neither an HTTP proxy's request nor SOCKS", ""},
	{"socks without methods", "\x05\x00", "SOCKS with a password", ""},
	{"socks password", "\x05\x01\x02", "SOCKS with a password", ""},
	{"socks length beyond", "\x05\x01\x00\x05\x01\x00\x03\xffexample.org\x01\xbb", "took too long", ""},
	{"socks length short", "\x05\x01\x00\x05\x01\x00\x03\x07example.org\x01\xbb", "is not in this run's list", ""},
	{"socks no name", "\x05\x01\x00\x05\x01\x00\x03\x00\x01\xbb", "without a name", ""},
	{"socks bind", "\x05\x01\x00\x05\x02\x00\x03\x0bexample.org\x01\xbb", "to be reached", ""},
	{"socks UDP", "\x05\x01\x00\x05\x03\x00\x03\x0bexample.org\x01\xbb", "UDP", ""},
	{"socks other kind", "\x05\x01\x00\x05\x01\x00\x02\x0bexample.org\x01\xbb", "unknown kind of address", ""},
	{"socks reserved", "\x05\x01\x00\x05\x01\x01\x03\x0bexample.org\x01\xbb", "malformed", ""},
	{"socks port 0", socksTo("example.org", 0), "port 0", ""},
	// HTTP that two readers read differently
	{"other Host", "GET http://example.org/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "whose Host is not example.org:80", ""},
	{"two Hosts", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nHost: evil.example\r\n\r\n", "no host, or several", ""},
	{"no Host", "GET http://example.org/ HTTP/1.1\r\n\r\n", "no host, or several", ""},
	{"connect, other Host", "CONNECT example.org:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "whose Host is not example.org:443", ""},
	{"two lengths", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "more than one length", ""},
	{"length and chunks", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "more than one length", ""},
	{"odd encoding", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: xchunked\r\n\r\n", "transfer encoding", ""},
	{"two encodings", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: identity, chunked\r\n\r\n", "transfer encoding", ""},
	{"signed length", "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: +3\r\n\r\nabc", "its length", ""},
	{"space before colon", "GET http://example.org/ HTTP/1.1\r\nHost : evil.example\r\nHost: example.org\r\n\r\n", "a field's name", ""},
	{"folded line", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n X: y\r\n\r\n", "a field's name", ""},
	{"bare newline", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\nHost: evil.example\r\n\r\n", "control character", ""},
	{"newlines alone", "GET http://example.org/ HTTP/1.1\nHost: example.org\n\n", "carriage return", ""},
	{"bare carriage return", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\rX: y\r\n\r\n", "control character", ""},
	{"request to the proxy", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "it names no host", ""},
	{"https in absolute form", "GET https://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "neither CONNECT nor http", ""},
	{"ftp", "GET ftp://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "neither CONNECT nor http", ""},
	{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "first line", ""},
	{"long head", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nX: " + strings.Repeat("x", maxHead), "too long", ""},
	{"no end", "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n", "took too long", ""},
	{"nothing", "", "took too long", ""},
	{"TLS to the proxy", string(hello("example.org")), "neither an HTTP proxy's request nor SOCKS", ""},
	// in the tunnel
	{"another server name", connectTo("example.org:443"), "for another server", string(hello("evil.example"))},
	{"server name with a dot", connectTo("example.org:443"), "for another server", string(bytes.Replace(hello("example_org"), []byte("example_org"), []byte("example.or."), 1))},
	{"NUL in the server name", connectTo("example.org:443"), "for another server", string(bytes.Replace(hello("example.org0x"), []byte("example.org0x"), []byte("example.org\x00x"), 1))},
	{"no server name", connectTo("example.org:443"), "without server name", string(hello(""))},
	{"address as server name", connectTo("example.org:443"), "without server name", string(hello("127.0.0.1"))},
	{"split ClientHello", connectTo("example.org:443"), "split", string(splitHello("example.org"))},
	{"late ClientHello", connectTo("example.org:443"), "took too long", string(hello("example.org")[:100])},
	{"encrypted ClientHello", connectTo("example.org:443"), "encrypted", string(withExtension(hello("example.org"), extECH, "\x00\x00\x01\x00\x01\x00\x00\x00\x00\x00"))},
	{"encrypted server name", connectTo("example.org:443"), "encrypted", string(withExtension(hello("example.org"), extESNI, "x"))},
	{"second server name", connectTo("example.org:443"), "malformed", string(withExtension(hello("example.org"), extServerName, "\x00\x0f\x00\x00\x0cevil.example"))},
	{"two names in one", connectTo("example.org:443"), "malformed", string(withExtension(hello(""), extServerName, "\x00\x1d\x00\x00\x0bexample.org\x00\x00\x0cevil.example"))},
	{"old ClientHello", connectTo("example.org:443"), "neither TLS nor HTTP", "\x80\x2e\x01\x03\x01" + strings.Repeat("\x00", 40)},
	{"SSH", connectTo("example.org:443"), "neither TLS nor HTTP", "\x00SSH"},
	{"SSH by its first letter", connectTo("example.org:443"), "took too long", "SSH-2.0-OpenSSH_9\r\n"},
	{"TLS alert first", connectTo("example.org:443"), "neither TLS nor HTTP", "\x15\x03\x01\x00\x02\x01\x00"},
	{"record of no length", connectTo("example.org:443"), "not a TLS ClientHello", "\x16\x03\x01\x00\x00"},
	{"record too long", connectTo("example.org:443"), "not a TLS ClientHello", "\x16\x03\x01\xff\xff"},
	{"tunnel to 80, other Host", connectTo("example.org:80"), "whose Host is not example.org:80", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
	{"tunnel to 80, absolute form", connectTo("example.org:80"), "another host than the tunnel's", "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
	{"tunnel in a tunnel", connectTo("example.org:80"), "CONNECT within a tunnel", connectTo("evil.example:443")},
	{"socks, another server name", socksTo("example.org", 443), "for another server", string(hello("evil.example"))},
	{"socks, other Host", socksTo("example.org", 80), "whose Host is not example.org:80", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"},
}

func TestAttacks(t *testing.T) {
	for _, test := range attacks {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, Limits{Preface: 300 * time.Millisecond}, "example.org", "loop.example", "metadata.example", "mapped.example")
			c, err := net.Dial("tcp", w.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			io.WriteString(c, test.send)
			if test.after != "" {
				if test.send[0] == socksVersion {
					io.ReadFull(c, make([]byte, 12))
				} else if resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
					t.Fatalf("CONNECT: %v %v", resp, err)
				}
				io.WriteString(c, test.after)
			}
			io.ReadAll(c) // to its end
			records := w.door.Close()
			if !slices.ContainsFunc(records, func(r Connection) bool { return r.Verdict == Refused && strings.Contains(r.Reason, test.reason) }) {
				t.Errorf("records %+v, want one refused because of %q", records, test.reason)
			}
			for _, r := range records {
				if r.Up > 0 {
					t.Errorf("%d bytes were sent: %+v", r.Up, r)
				}
			}
			if test.after == "" && len(w.dialled) > 0 {
				t.Errorf("it dialled %q", w.dialled)
			}
			if len(w.got) > 0 {
				t.Error("a request came through")
			}
			for _, name := range w.asked {
				if !slices.Contains([]string{"example.org.", "loop.example.", "metadata.example.", "mapped.example."}, name) {
					t.Errorf("it asked for %s", name)
				}
			}
		})
	}
	if len(attacks) < 60 {
		t.Errorf("%d rows", len(attacks))
	}
}

// An empty list refuses everything.
func TestEmptyList(t *testing.T) {
	w := newWorld(t, Limits{})
	for _, scheme := range []string{"http", "socks5"} {
		for _, url := range []string{"http://example.org/", "https://example.org/", "http://127.0.0.1/"} {
			if code, body, err := w.get(w.client(scheme), url); err == nil && code != 403 {
				t.Errorf("%s: %d %q", url, code, body)
			}
		}
	}
	if len(w.asked)+len(w.dialled) > 0 {
		t.Errorf("it asked for %q and dialled %q", w.asked, w.dialled)
	}
}

// What the list lets be private is reached, and nothing that nobody may.
func TestPrivate(t *testing.T) {
	w := newWorld(t, Limits{}, "loop.example private", "127.0.0.1:8080 private", "metadata.example private", "169.254.169.254 private", "mixed.example")
	for url, want := range map[string]int{"http://loop.example/": 200, "http://127.0.0.1:8080/": 200, "http://127.0.0.1/": 403, "http://metadata.example/": 403,
		"http://169.254.169.254/": 403, "http://mixed.example/": 200} {
		if code, body, err := w.get(w.client("http"), url); err != nil || code != want {
			t.Errorf("%s: %d %q %v, want %d", url, code, body, err, want)
		}
	}
	if slices.ContainsFunc(w.dialled, func(a string) bool { return strings.HasPrefix(a, "169.") || strings.HasPrefix(a, "10.") }) {
		t.Errorf("it dialled %q", w.dialled)
	}
}

// rebinding answers with another address each time.
type rebinding struct{ n atomic.Int32 }

func (r *rebinding) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	if r.n.Add(1)%2 == 1 {
		return []netip.Addr{netip.MustParseAddr(publicAddress)}, nil
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// A name whose address changes between the look and the dial: there is one
// question for each connection, and what it said is dialled.
func TestRebinding(t *testing.T) {
	w := newWorld(t, Limits{}, "example.org")
	resolver := &rebinding{}
	w.door.config.Resolver = resolver
	ok := 0
	for range 10 {
		c := w.client("http")
		c.Transport.(*http.Transport).DisableKeepAlives = true
		if code, _, err := w.get(c, "http://example.org/"); err == nil && code == 200 {
			ok++
		}
	}
	if ok != 5 || resolver.n.Load() != 10 {
		t.Errorf("%d of 10 were let through, with %d questions", ok, resolver.n.Load())
	}
	for _, a := range w.dialled {
		if a != publicAddress+":80" {
			t.Errorf("it dialled %s", a)
		}
	}
}

func TestRedirectToPrivate(t *testing.T) {
	w := newWorld(t, Limits{}, "example.org")
	code, body, err := w.get(w.client("http"), "http://example.org/redirect")
	if err != nil || code != 403 || !strings.Contains(body, "127.0.0.1:80 is not in this run's list; allowed: example.org") {
		t.Errorf("%d %q %v", code, body, err)
	}
}

// Requests that are sent before the answers: each is looked at.
func TestPipelined(t *testing.T) {
	w := newWorld(t, Limits{}, "example.org")
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, connectTo("example.org:80"))
	r := bufio.NewReader(c)
	if resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	for _, host := range []string{"example.org", "example.org", "evil.example", "example.org"} {
		fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	}
	var codes []int
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			break
		}
		io.Copy(io.Discard, resp.Body)
		codes = append(codes, resp.StatusCode)
	}
	if fmt.Sprint(codes) != "[200 200 403]" || len(w.got) != 2 {
		t.Errorf("answers %v, %d requests came through", codes, len(w.got))
	}
}

// A name that is listed and not reached is said to be so.
func TestNotReached(t *testing.T) {
	w := newWorld(t, Limits{}, "gone.example", "down.example:9")
	for url, want := range map[string]string{"http://gone.example/": "the name was not found", "http://down.example:9/": "was not reached: connection refused"} {
		if code, body, err := w.get(w.client("http"), url); err != nil || code != 502 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q %v", url, code, body, err)
		}
	}
	for _, r := range w.door.Close() {
		if r.Verdict != Failed {
			t.Errorf("record %+v", r)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Run("bytes up", func(t *testing.T) {
		w := newWorld(t, Limits{Up: 4000}, "example.org")
		if _, err := w.client("http").Post("http://example.org/", "", strings.NewReader(strings.Repeat("x", 5000))); err == nil {
			if got := w.door.Close(); got[0].Up > 4000 {
				t.Errorf("%+v", got)
			}
		}
		if got := w.door.Close(); len(got) != 1 || got[0].Up > 4000 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("bytes up in a tunnel", func(t *testing.T) {
		w := newWorld(t, Limits{Up: 4000}, "example.org")
		if _, err := w.client("http").Post("https://example.org/", "", strings.NewReader(strings.Repeat("x", 5000))); err == nil {
			t.Error("they were sent")
		}
		if got := w.door.Close(); len(got) != 1 || got[0].Up > 4000 || !strings.Contains(got[0].Reason, "more bytes") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("bytes down in a tunnel", func(t *testing.T) {
		w := newWorld(t, Limits{Down: 100}, "example.org")
		if _, _, err := w.get(w.client("http"), "https://example.org/"); err == nil {
			t.Error("they were received")
		}
		if got := w.door.Close(); len(got) != 1 || got[0].Down > 100 || !strings.Contains(got[0].Reason, "more bytes") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("connections", func(t *testing.T) {
		w := newWorld(t, Limits{Connections: 3}, "example.org")
		ok := 0
		for range 5 {
			c := w.client("http")
			c.Transport.(*http.Transport).DisableKeepAlives = true
			if code, _, err := w.get(c, "http://example.org/"); err == nil && code == 200 {
				ok++
			}
		}
		if ok != 3 {
			t.Errorf("%d of 5 with a limit of 3", ok)
		}
	})
	t.Run("records", func(t *testing.T) {
		w := newWorld(t, Limits{}, "example.org")
		for i := range 2 * maxRecords {
			w.door.records.add(Connection{Name: fmt.Sprintf("n%d.example", i), Verdict: Refused})
		}
		got := w.door.Close()
		if last := got[len(got)-1]; len(got) > maxRecords+1 || last.Count != maxRecords {
			t.Errorf("%d records, the last %+v", len(got), last)
		}
	})
	t.Run("slow client", func(t *testing.T) {
		w := newWorld(t, Limits{Preface: 200 * time.Millisecond}, "example.org")
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() { // a byte at a time
			for {
				if _, err := c.Write([]byte("G")); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
			t.Error("it was served for ever")
		}
	})
}

// 500 connections at once, and what they cost; the next ones wait for a slot.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, Limits{AtOnce: 500}, "example.org")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var conns []net.Conn
	for range 500 {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, connectTo("example.org:80"))
		conns = append(conns, c)
	}
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 500*(64<<10) {
		t.Errorf("500 connections hold %d bytes", grown)
	}
	waiting, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	io.WriteString(waiting, connectTo("evil.example:443"))
	waiting.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := waiting.Read(make([]byte, 1)); err == nil {
		t.Error("one more than there are slots was served")
	}
	conns[0].Close()
	waiting.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := waiting.Read(make([]byte, 1)); err != nil {
		t.Errorf("it was not served when a slot was free: %v", err)
	}
}

// Nothing is left when the door is closed, also in the middle of a transfer.
func TestClose(t *testing.T) {
	w := newWorld(t, Limits{}, "example.org")
	var conns []net.Conn
	for _, say := range []string{"", "GET http://exam", connectTo("example.org:443"), socksTo("example.org", 80), "\x05"} {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, say)
		conns = append(conns, c)
	}
	time.Sleep(50 * time.Millisecond)
	closed := make(chan bool)
	go func() { w.door.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	for i, c := range conns {
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("connection %d is open", i)
		}
	}
	if c, err := net.Dial("tcp", w.address); err == nil {
		c.Close()
		t.Error("it listens")
	}
	if len(w.door.open) > 0 {
		t.Errorf("%d connections are kept", len(w.door.open))
	}
}

func TestReachOf(t *testing.T) {
	for text, want := range map[string]reach{
		"8.8.8.8": public, "93.184.215.14": public, "2606:4700::1111": public, "172.32.0.1": public, "100.128.0.1": public, "64:ff9b::808:808": public,
		"10.1.2.3": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "127.0.0.1": private, "127.255.0.1": private,
		"100.64.0.1": private, "::1": private, "fd00::1": private, "::ffff:10.0.0.1": private, "64:ff9b::a00:1": private, "198.18.0.1": private,
		"0.0.0.0": nobody, "0.1.2.3": nobody, "169.254.169.254": nobody, "100.100.100.200": nobody, "168.63.129.16": nobody, "192.0.0.192": nobody,
		"224.0.0.1": nobody, "255.255.255.255": nobody, "240.0.0.1": nobody, "192.0.2.1": nobody, "::": nobody, "fe80::1": nobody, "fec0::1": nobody,
		"ff02::1": nobody, "fd00:ec2::254": nobody, "2001:db8::1": nobody, "2002:7f00:1::": nobody, "2001:0:1::": nobody, "::127.0.0.1": nobody,
		"64:ff9b::a9fe:a9fe": nobody, "64:ff9b:1::1": nobody, "::ffff:169.254.169.254": nobody, "4000::1": nobody, "fe80::1%eth0": nobody,
	} {
		if got := reachOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("reachOf(%s) = %d, want %d", text, got, want)
		}
	}
	if reachOf(netip.Addr{}) != nobody {
		t.Error("no address may be reached")
	}
}

// The machine's own addresses are private, whatever they are.
func TestOwnAddress(t *testing.T) {
	if !own(netip.MustParseAddr("127.0.0.1")) {
		t.Error("the loopback is not this machine's")
	}
	list, _ := net.InterfaceAddrs()
	for _, i := range list {
		a, _ := netip.AddrFromSlice(i.(*net.IPNet).IP)
		if a = a.Unmap(); !a.IsLinkLocalUnicast() && (mayReach(hosts.Entry{}, a) || !own(a)) {
			t.Errorf("%s may be reached", a)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello("example.org"))
	f.Add(splitHello("example.org"))
	f.Add(withExtension(hello("example.org"), extECH, "x"))
	f.Add(hello(""))
	name, _ := hosts.Parse("example.org")
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkHello(b, name) == nil && !bytes.Contains(bytes.ToLower(b), []byte("example.org")) {
			t.Fatalf("%x was taken for example.org's", b)
		}
	})
}

// What passes is what Go's own server reads the same way.
func FuzzHead(f *testing.F) {
	for _, a := range attacks {
		f.Add([]byte(a.send))
	}
	f.Add([]byte("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil || !bytes.HasSuffix(b, []byte("\r\n\r\n")) || bytes.Count(b, []byte("\r\n\r\n")) > 1 {
			return
		}
		to, err := h.where(nil)
		if err != nil {
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		name, port, err := hosts.ParseAuthority(req.Host, 80)
		if err != nil || name != to.name || port != to.port {
			t.Fatalf("%q is for %s, and Go reads %q", b, to, req.Host)
		}
	})
}

func FuzzSOCKS(f *testing.F) {
	for _, a := range attacks {
		f.Add([]byte(a.send))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		to, err := readSOCKS(bytes.NewReader(b), io.Discard)
		if err == nil && (to.port == 0 || to.name.String() == "") {
			t.Fatalf("%q leads to %s", b, to)
		}
	})
}
