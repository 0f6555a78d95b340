package door

import (
	"encoding/binary"
	"errors"

	"github.com/pinfold/pinfold/policy/hosts"
)

// The parts of TLS that are read (RFC 8446).
const (
	recordHandshake  = 22
	recordHead       = 5
	maxRecord        = 1 << 14
	clientHello      = 1
	extServerName    = 0
	extECH           = 0xfe0d // encrypted ClientHello (RFC 9849)
	extESNI          = 0xffce // its forerunner
	serverNameIsHost = 0
)

var (
	errNotTLS   = errors.New("not a TLS ClientHello")
	errSplit    = errors.New("a TLS ClientHello that is split over several records")
	errHello    = errors.New("a malformed TLS ClientHello")
	errNoName   = errors.New("a TLS ClientHello without server name")
	errECH      = errors.New("an encrypted TLS ClientHello")
	errNotItsIP = errors.New("a TLS ClientHello with a server name, for an IP address")
)

// helloSize returns the size of the first record, head included, from its head.
func helloSize(head []byte) (int, error) {
	n := int(binary.BigEndian.Uint16(head[3:]))
	if head[0] != recordHandshake || head[1] != 3 || head[2] > 4 || n < 4 || n > maxRecord {
		return 0, errNotTLS
	}
	return recordHead + n, nil
}

// A cursor reads what lengths frame. After a read past the end bad stays set.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return make([]byte, min(n, 4))
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) number(size int) (n int) {
	for _, b := range c.bytes(size) {
		n = n<<8 | int(b)
	}
	return n
}

// part returns what a length of size bytes is in front of.
func (c *cursor) part(size int) cursor {
	n := c.number(size)
	if c.bad {
		return cursor{bad: true}
	}
	b := c.bytes(n)
	return cursor{b, c.bad}
}

// serverName reads the record of a ClientHello and returns the server name in it,
// "" when there is none.
func serverName(record []byte) (string, error) {
	r := cursor{b: record}
	r.bytes(3)
	body := r.part(2)
	kind := body.number(1)
	if r.bad || body.bad || kind != clientHello {
		return "", errNotTLS
	}
	if length := body.number(3); length > len(body.b) {
		return "", errSplit
	} else if body.bad || length < len(body.b) || len(r.b) > 0 {
		return "", errHello
	}
	body.bytes(2 + 32)
	body.part(1) // session
	body.part(2) // ciphers
	body.part(1) // compression
	extensions := body.part(2)
	if body.bad || extensions.bad || len(body.b) > 0 {
		return "", errHello
	}
	return nameAmong(extensions)
}

// nameAmong finds the one server name among the extensions.
func nameAmong(extensions cursor) (name string, err error) {
	seen := map[int]bool{}
	for len(extensions.b) > 0 && !extensions.bad {
		kind := extensions.number(2)
		content := extensions.part(2)
		if extensions.bad || seen[kind] {
			return "", errHello
		}
		seen[kind] = true
		switch kind {
		case extECH, extESNI:
			return "", errECH
		case extServerName:
			list := content.part(2)
			what := list.number(1)
			text := list.part(2)
			if content.bad || list.bad || text.bad || what != serverNameIsHost || len(list.b)+len(content.b) > 0 || len(text.b) == 0 {
				return "", errHello
			}
			name = string(text.b)
		}
	}
	if extensions.bad {
		return "", errHello
	}
	return name, nil
}

// checkHello refuses a ClientHello that is not for the host.
func checkHello(record []byte, host hosts.Name) error {
	text, err := serverName(record)
	if err != nil {
		return err
	}
	if _, ip := host.Addr(); ip {
		if text != "" { // no address may stand there (RFC 6066)
			return errNotItsIP
		}
		return nil
	}
	if text == "" {
		return errNoName
	}
	if name, err := hosts.Parse(text); err != nil || name != host {
		return errors.New("a TLS ClientHello for another server than " + host.String())
	}
	return nil
}
