package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The headers with which the daemon says which it is.
const (
	HeaderBuild    = "Pinfold-Build"     // id of the daemon's build
	HeaderOnDemand = "Pinfold-On-Demand" // "1" when a client started it
	// HeaderRun is the id of the run that an answer is about, when its stdin is
	// still to come.
	HeaderRun = "Pinfold-Run"
)

// The bounds of an answer's head.
const (
	maxHeaderLine = 8 << 10
	maxHeaders    = 64
)

// A PeerError is the refusal to talk to a socket whose listener is neither root
// nor the user himself.
type PeerError struct {
	Socket string
	UID    uint32 // who listens
}

// Error says whose socket it is.
func (e *PeerError) Error() string {
	return fmt.Sprintf("%s: is served by uid %d, which is neither root nor you; not used", e.Socket, e.UID)
}

// A conn is one connection to the daemon, on which calls follow one another.
type conn struct {
	net      *net.UnixConn
	in       *bufio.Reader
	peer     Daemon
	reusable bool // the last answer was read to its end and another may follow
}

// dial connects and looks at who listens.
func dial(ctx context.Context, socket string) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &conn{net: nc.(*net.UnixConn)}
	if err := c.checkPeer(socket); err != nil {
		c.close()
		return nil, err
	}
	c.in = bufio.NewReaderSize(c.net, maxHeaderLine)
	return c, nil
}

// checkPeer establishes that root or the user himself listens.
func (c *conn) checkPeer(socket string) error {
	raw, err := c.net.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return fmt.Errorf("%s: who listens is not known: %w", socket, credErr)
	}
	if cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()) {
		return &PeerError{Socket: socket, UID: cred.Uid}
	}
	c.peer = Daemon{PID: int(cred.Pid), UID: cred.Uid}
	return nil
}

// alive reports whether the daemon has left the idle connection open.
func (c *conn) alive() bool {
	raw, err := c.net.SyscallConn()
	if err != nil || c.in.Buffered() > 0 {
		return false
	}
	open := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && open
}

// cancel tells the daemon that nobody wants the answer any more, and bounds
// what is left of the call.
func (c *conn) cancel() {
	_ = c.net.CloseWrite()
	_ = c.net.SetDeadline(time.Now().Add(CancelGrace))
}

func (c *conn) close() { _ = c.net.Close() }

// A response is an answer whose body is still to be read.
type response struct {
	status      int
	contentType string
	build       string
	onDemand    bool
	run         string // HeaderRun
	body        io.Reader
	keepAlive   bool
}

// roundTrip sends a request, reads the answer's head and gives it to f.
func (c *conn) roundTrip(method, target, accept string, body []byte, f func(*response, Daemon) error) error {
	c.reusable = false
	head := make([]byte, 0, 256+len(body))
	head = append(head, method+" "+target+" HTTP/1.1\r\nHost: pinfold\r\nAccept: "+accept+"\r\n"...)
	if body != nil {
		head = append(head, "Content-Type: "+JSON+"\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n"...)
	}
	head = append(append(head, "\r\n"...), body...)
	// A daemon that refuses a large body answers before it has read all of it:
	// what it said is worth more than that writing failed.
	_, writeErr := c.net.Write(head)
	r, err := c.readHead()
	if err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return fmt.Errorf("no answer from the daemon: %w", err)
	}
	if err := f(r, c.peer); err != nil {
		_, answered := errors.AsType[*Error](err)
		c.reusable = answered && r.keepAlive && writeErr == nil
		return err
	}
	c.reusable = r.keepAlive && writeErr == nil
	return nil
}

// readHead reads the status line and the headers.
func (c *conn) readHead() (*response, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if version != "HTTP/1.1" || err != nil {
		return nil, errors.New("it does not speak HTTP/1.1")
	}
	r := &response{status: status, keepAlive: true, body: c.in}
	framed := false
	for range maxHeaders {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if line == "" {
			if !framed {
				r.keepAlive = false // the body ends with the connection
			}
			return r, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.EqualFold(name, "Content-Length"):
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return nil, errors.New("its answer has no sound length")
			}
			r.body, framed = &exactReader{in: c.in, left: n}, true
		case strings.EqualFold(name, "Transfer-Encoding"):
			r.body, framed = &chunkReader{c: c}, true
		case strings.EqualFold(name, "Content-Type"):
			r.contentType = value
		case strings.EqualFold(name, "Connection"):
			r.keepAlive = !strings.EqualFold(value, "close")
		case strings.EqualFold(name, HeaderBuild):
			r.build = value
		case strings.EqualFold(name, HeaderRun):
			r.run = value
		case strings.EqualFold(name, HeaderOnDemand):
			r.onDemand = value == "1"
		}
	}
	return nil, errors.New("its answer has too many headers")
}

// line reads one line of a head, without its end.
func (c *conn) line() (string, error) {
	b, err := c.in.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// An exactReader reads a body of known length.
type exactReader struct {
	in   *bufio.Reader
	left int64
}

func (r *exactReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.in.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// A chunkReader reads a body in chunks (RFC 9112, section 7.1). The daemon
// sends no trailers.
type chunkReader struct {
	c    *conn
	left int64 // of the current chunk
	more bool  // a chunk has been read, so that its end of line comes next
	done bool
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if r.done {
		return 0, io.EOF
	}
	if r.left == 0 {
		if err := r.nextChunk(); err != nil {
			return 0, err
		}
		if r.done {
			return 0, io.EOF
		}
	}
	n, err := r.c.in.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// nextChunk reads up to the next chunk's data.
func (r *chunkReader) nextChunk() error {
	if r.more {
		if line, err := r.c.line(); err != nil || line != "" {
			return cmpErr(err, "a chunk of its answer does not end where it should")
		}
	}
	line, err := r.c.line()
	if err != nil {
		return err
	}
	r.left, err = strconv.ParseInt(line, 16, 64)
	if err != nil || r.left < 0 {
		return errors.New("a chunk of its answer has no sound length")
	}
	r.more = true
	if r.left == 0 {
		r.done = true
		_, err = r.c.line()
	}
	return err
}

// cmpErr returns err, or an error with the message when there is none.
func cmpErr(err error, message string) error {
	if err != nil {
		return err
	}
	return errors.New(message)
}
