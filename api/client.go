package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// CancelGrace is how long a canceled call waits for the daemon to say how the
// run ended before it closes the connection and gives up.
const CancelGrace = 5 * time.Second

// maxAnswer is the most bytes of one answer, or of one event, that the client
// reads.
const maxAnswer = 64 << 20

// A Client calls a daemon. It is safe for concurrent use: every call has a
// connection of its own while it lasts, and connections are kept for the next.
type Client struct {
	socket string

	mu   sync.Mutex
	idle []*conn
}

// NewClient returns a client of the daemon that listens on the Unix socket. It
// does not connect yet.
func NewClient(socket string) *Client { return &Client{socket: socket} }

// Close closes the connections that are not in use.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.close()
	}
	c.idle = nil
}

// A Daemon is what a client knows of the daemon from a connection.
type Daemon struct {
	PID      int    // process that listens, as the kernel says
	UID      uint32 // its user
	Build    string // id of its build
	OnDemand bool   // a client started it
}

// Health asks whether the daemon serves, and which it is.
func (c *Client) Health(ctx context.Context) (Daemon, error) {
	var d Daemon
	err := c.call(ctx, "GET", "/healthz", JSON, nil, func(r *response, peer Daemon) error {
		d = peer
		d.Build, d.OnDemand = r.build, r.onDemand
		_, err := readAnswer(r, &struct{}{})
		return err
	})
	return d, err
}

// Connect makes sure that somebody who may be trusted listens, and returns what
// is known of him without asking: process and user. The connection is kept for
// the next call.
func (c *Client) Connect(ctx context.Context) (Daemon, error) {
	conn, err := c.take(ctx)
	if err != nil {
		return Daemon{}, err
	}
	c.put(conn)
	return conn.peer, nil
}

// Exec runs a command and returns how it ended. When ctx is canceled the run is
// canceled too. The error is an [*Error] when the daemon answered; the result
// is then there too if the command had been started (TIMEOUT, LIMIT_EXCEEDED,
// INTERRUPTED).
func (c *Client) Exec(ctx context.Context, req ExecRequest) (*Result, error) {
	_, result, err := c.ExecJSON(ctx, req)
	return result, err
}

// ExecJSON is Exec, and returns besides the answer as it came, nil when there
// was none.
func (c *Client) ExecJSON(ctx context.Context, req ExecRequest) ([]byte, *Result, error) {
	return c.ExecStdin(ctx, req, nil)
}

// ExecStdin is ExecJSON for a run whose stdin is still to come (StdinStream):
// started is called, in a goroutine of its own, with the run's id as soon as that
// is known.
func (c *Client) ExecStdin(ctx context.Context, req ExecRequest, started func(run string)) ([]byte, *Result, error) {
	body, err := encode(req, req.Project, req.Command, req.Cwd, req.Stdin)
	if err != nil {
		return nil, nil, err
	}
	var answer []byte
	var result Result
	err = c.call(ctx, "POST", "/v1/exec", JSON, body, func(r *response, _ Daemon) (err error) {
		if started != nil && r.run != "" {
			go started(r.run)
		}
		answer, err = readAnswer(r, &result)
		return err
	})
	if result.Usage == nil {
		return answer, nil, err
	}
	return answer, &result, err
}

// Stream runs a command and calls f for each event, with Data decoded. The
// error is an [*Error] when the command did not start; how a started one ended
// is in the finished event. An error of f ends the run and is returned.
func (c *Client) Stream(ctx context.Context, req ExecRequest, f func(*Event) error) error {
	body, err := encode(req, req.Project, req.Command, req.Cwd, req.Stdin)
	if err != nil {
		return err
	}
	return c.call(ctx, "POST", "/v1/exec", NDJSON, body, func(r *response, _ Daemon) error {
		if r.contentType != NDJSON {
			_, err := readAnswer(r, &struct{}{})
			return err
		}
		dec := json.NewDecoder(r.body)
		for {
			var e Event
			if err := dec.Decode(&e); err != nil {
				return fmt.Errorf("the daemon's events ended early: %w", err)
			}
			if e.Encoding == Base64 {
				data, err := base64.StdEncoding.DecodeString(e.Data)
				if err != nil {
					return fmt.Errorf("event %d: %w", e.Sequence, err)
				}
				e.Data = string(data)
			}
			if err := f(&e); err != nil {
				return err
			}
			if e.Event == EventFinished {
				_, err := io.Copy(io.Discard, r.body)
				return err
			}
		}
	})
}

// Check asks how a command would be decided. The error is an [*Error] when the
// daemon answered with one.
func (c *Client) Check(ctx context.Context, req CheckRequest) (*CheckAnswer, error) {
	_, answer, err := c.CheckJSON(ctx, req)
	return answer, err
}

// CheckJSON is Check, and returns besides the answer as it came, nil when there
// was none.
func (c *Client) CheckJSON(ctx context.Context, req CheckRequest) ([]byte, *CheckAnswer, error) {
	body, err := encode(req, req.Project, req.Command, req.Cwd)
	if err != nil {
		return nil, nil, err
	}
	return get[CheckAnswer](ctx, c, "POST", "/v1/check", body)
}

// Status asks what the daemon is and what this machine enforces.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	_, answer, err := get[Status](ctx, c, "GET", "/v1/status", nil)
	return answer, err
}

// PolicySummary asks what commands may do in the project.
func (c *Client) PolicySummary(ctx context.Context, project string) ([]byte, *PolicySummary, error) {
	target := "/v1/policy/summary?" + url.Values{"project": {project}}.Encode()
	return get[PolicySummary](ctx, c, "GET", target, nil)
}

// Trace asks for the caller's own records: those of one run, or of all when run
// is ""; the latest limit of them, 0 for [DefaultTraceLimit].
func (c *Client) Trace(ctx context.Context, run string, limit int) (*TraceAnswer, error) {
	query := url.Values{}
	if run != "" {
		query.Set("run", run)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return c.TraceQuery(ctx, query)
}

// TraceQuery asks for the records that match; openapi.yaml has the parameters.
// On the control socket they are everybody's.
func (c *Client) TraceQuery(ctx context.Context, query url.Values) (*TraceAnswer, error) {
	target := "/v1/trace"
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	_, answer, err := get[TraceAnswer](ctx, c, "GET", target, nil)
	return answer, err
}

// encode returns the request as JSON, which can hold its texts only when they
// are valid UTF-8: other bytes would be replaced.
func encode(req any, texts ...string) ([]byte, error) {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return nil, InvalidField("body", "must be valid UTF-8")
		}
	}
	return json.Marshal(req)
}

// get makes one call whose answer is a T, and returns it as it came too.
func get[T any](ctx context.Context, c *Client, method, target string, body []byte) (raw []byte, answer *T, err error) {
	answer = new(T)
	err = c.call(ctx, method, target, JSON, body, func(r *response, _ Daemon) (err error) {
		raw, err = readAnswer(r, answer)
		return err
	})
	if err != nil {
		return raw, nil, err
	}
	return raw, answer, nil
}

// readAnswer reads the whole answer into v and returns it as it came, and the
// error that it carries.
func readAnswer(r *response, v any) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r.body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxAnswer {
		return nil, errors.New("the daemon's answer is too long")
	}
	var failed ErrorAnswer
	if r.status != 200 || bytes.HasPrefix(data, []byte(`{"success":false`)) {
		if err := json.Unmarshal(data, &failed); err != nil || failed.Error == nil {
			return data, fmt.Errorf("the daemon answered with status %d and no error of its own", r.status)
		}
	}
	if r.status == 200 {
		if err := json.Unmarshal(data, v); err != nil {
			return data, fmt.Errorf("the daemon's answer: %w", err)
		}
	}
	if failed.Error != nil {
		return data, failed.Error
	}
	return data, nil
}

// call sends one request and gives the answer's head to f, which reads the
// body. When ctx ends, the daemon is told by half-closing the connection, which
// cancels a run, and its answer is still waited for, up to CancelGrace.
func (c *Client) call(ctx context.Context, method, target, accept string, body []byte, f func(*response, Daemon) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := c.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, conn.cancel)
	err = conn.roundTrip(method, target, accept, body, f)
	if !stop() {
		conn.close()
		if _, answered := errors.AsType[*Error](err); err != nil && !answered {
			return context.Cause(ctx)
		}
		return err
	}
	if conn.reusable {
		c.put(conn)
	} else {
		conn.close()
	}
	return err
}

// take returns an idle connection that is still open, or a new one.
func (c *Client) take(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	for n := len(c.idle); n > 0; n = len(c.idle) {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if conn.alive() {
			c.mu.Unlock()
			return conn, nil
		}
		conn.close()
	}
	c.mu.Unlock()
	return dial(ctx, c.socket)
}

func (c *Client) put(conn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, conn)
}
