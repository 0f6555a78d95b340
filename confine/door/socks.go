package door

import (
	"errors"
	"io"
	"net"
	"net/netip"

	"github.com/pinfold/pinfold/policy/hosts"
)

// The parts of SOCKS5 that are served (RFC 1928).
const (
	socksVersion   = 5
	socksNoAuth    = 0
	socksNoMethod  = 0xff
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksDone      = 0
	socksFailed    = 1
	socksForbidden = 2
	socksNoHost    = 4
	socksNoCommand = 7
	socksNoAddress = 8
)

// A socksError is a request that gets a reply of that code.
type socksError struct {
	code   byte
	reason string
}

func (e *socksError) Error() string { return e.reason }

// readSOCKS reads the greeting, answers it, and reads the request.
func readSOCKS(r io.Reader, w io.Writer) (target, error) {
	var b [256]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return target{}, err
	}
	if b[0] != socksVersion {
		return target{}, errors.New("not SOCKS version 5")
	}
	methods := b[:b[1]]
	if _, err := io.ReadFull(r, methods); err != nil {
		return target{}, err
	}
	answer := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksNoAuth {
			answer = socksNoAuth
		}
	}
	if _, err := w.Write([]byte{socksVersion, answer}); err != nil {
		return target{}, err
	}
	if answer == socksNoMethod {
		return target{}, errors.New("SOCKS with a password")
	}
	return readSOCKSRequest(r)
}

func readSOCKSRequest(r io.Reader) (t target, err error) {
	var b [256]byte
	if _, err := io.ReadFull(r, b[:4]); err != nil {
		return t, err
	}
	if b[0] != socksVersion || b[2] != 0 {
		return t, &socksError{socksFailed, "a malformed SOCKS request"}
	}
	if b[1] != socksConnect {
		return t, &socksError{socksNoCommand, "SOCKS for something else than a connection (UDP, or to be reached)"}
	}
	var host string
	size := 0
	switch b[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		if _, err := io.ReadFull(r, b[:1]); err != nil {
			return t, err
		}
		if size = int(b[0]); size == 0 {
			return t, &socksError{socksFailed, "a SOCKS request without a name"}
		}
	default:
		return t, &socksError{socksNoAddress, "a SOCKS request with an unknown kind of address"}
	}
	kind, part := b[3], b[:size]
	if _, err := io.ReadFull(r, part); err != nil {
		return t, err
	}
	host = string(part)
	if kind != socksName {
		a, _ := netip.AddrFromSlice(part)
		host = a.String()
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return t, err
	}
	t.port = uint16(port[0])<<8 | uint16(port[1])
	if t.name, err = hosts.Parse(host); err != nil {
		return t, &socksError{socksForbidden, "a name that is none: " + err.Error()}
	}
	if t.port == 0 {
		return t, &socksError{socksForbidden, "port 0"}
	}
	return t, nil
}

// socksReply answers a request. The address that follows the code is of no use to
// clients.
func socksReply(w io.Writer, code byte) error {
	_, err := w.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// serveSOCKS serves a connection that speaks SOCKS.
func (d *Door) serveSOCKS(c *client) {
	t, err := readSOCKS(c.r, c.conn)
	if err != nil {
		record := Connection{Verdict: Refused, Reason: unreadable(err)}
		if e, ok := errors.AsType[*socksError](err); ok {
			_ = socksReply(c.conn, e.code)
		}
		d.records.add(record)
		return
	}
	server, record, r := d.connect(d.ctx, t)
	if r != nil {
		code := byte(socksNoHost)
		if r.verdict == Refused {
			code = socksForbidden
		}
		_ = socksReply(c.conn, code)
		d.records.add(record)
		return
	}
	if socksReply(c.conn, socksDone) == nil {
		d.tunnel(c, server, t, &record)
	} else {
		d.drop(server)
	}
	d.records.add(record)
}

// unreadable says why a client was not understood.
func unreadable(err error) string {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "the client took too long to say what it wants"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the client said nothing, or not all"
	}
	return err.Error()
}
