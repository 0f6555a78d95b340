package api

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// Background starts a run in the background and returns when it has started.
func (c *Client) Background(ctx context.Context, req ExecRequest) ([]byte, *BackgroundAnswer, error) {
	req.Background = true
	body, err := encode(req, req.Project, req.Command, req.Cwd, req.Stdin)
	if err != nil {
		return nil, nil, err
	}
	return get[BackgroundAnswer](ctx, c, "POST", "/v1/exec", body)
}

// ExecNoWait is Exec, but when somebody has to approve the command it returns at
// once, with the run that waits and no result.
func (c *Client) ExecNoWait(ctx context.Context, req ExecRequest) (*Result, *WaitingAnswer, error) {
	wait := false
	req.Wait = &wait
	raw, result, err := c.ExecJSON(ctx, req)
	if err != nil || result != nil {
		return result, nil, err
	}
	waiting := &WaitingAnswer{}
	return nil, waiting, json.Unmarshal(raw, waiting)
}

// Runs lists the caller's runs under way, and those in the background that have
// ended a short while ago.
func (c *Client) Runs(ctx context.Context) ([]byte, *RunsAnswer, error) {
	return get[RunsAnswer](ctx, c, "GET", "/v1/runs", nil)
}

// Run asks for a run and its output from the cursor on. When there is none yet it
// waits up to wait, at most [MaxWait] milliseconds, or until the run ends.
func (c *Client) Run(ctx context.Context, run string, cursor int64, wait time.Duration) ([]byte, *RunAnswer, error) {
	query := url.Values{}
	if cursor > 0 {
		query.Set("cursor", strconv.FormatInt(cursor, 10))
	}
	if wait > 0 {
		query.Set("wait_ms", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	target := "/v1/runs/" + url.PathEscape(run)
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return get[RunAnswer](ctx, c, "GET", target, nil)
}

// Signal sends a signal, one of [SignalNames], to every process of a run.
func (c *Client) Signal(ctx context.Context, run, signal string) error {
	return c.about(ctx, run, "signal", SignalRequest{signal})
}

// WriteStdin writes to the stdin of a run, and closes it after that when last is
// true. It waits while the command does not read.
func (c *Client) WriteStdin(ctx context.Context, run string, data []byte, last bool) error {
	r := StdinRequest{Close: last}
	r.Data, r.Encoding = EncodeData(data)
	return c.about(ctx, run, "stdin", r)
}

// Resize changes the size of a run's terminal.
func (c *Client) Resize(ctx context.Context, run string, columns, rows int64) error {
	return c.about(ctx, run, "resize", ResizeRequest{columns, rows})
}

func (c *Client) about(ctx context.Context, run, what string, req any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	_, _, err = get[DoneAnswer](ctx, c, "POST", "/v1/runs/"+url.PathEscape(run)+"/"+what, body)
	return err
}
