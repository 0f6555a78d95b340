package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
)

// The calls of this file are for a client of the control socket, see
// [ControlSocket].

// Approvals asks for what waits for approval, and what became of the latest.
func (c *Client) Approvals(ctx context.Context) ([]byte, *ApprovalList, error) {
	return get[ApprovalList](ctx, c, "GET", "/v1/approvals", nil)
}

// WatchApprovals calls f with the list, and again whenever it changes, until ctx
// ends or f returns an error.
func (c *Client) WatchApprovals(ctx context.Context, f func(*ApprovalList) error) error {
	return c.call(ctx, "GET", "/v1/approvals", NDJSON, nil, func(r *response, _ Daemon) error {
		if r.contentType != NDJSON {
			_, err := readAnswer(r, &struct{}{})
			return err
		}
		lines := bufio.NewReader(r.body)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return fmt.Errorf("the daemon's list ended: %w", err)
			}
			var list ApprovalList
			if err := json.Unmarshal(line, &list); err != nil {
				return err
			}
			if err := f(&list); err != nil {
				return err
			}
		}
	})
}

// Approval asks for one approval.
func (c *Client) Approval(ctx context.Context, id string) (*Approval, error) {
	return c.approval(ctx, "GET", id, nil)
}

// Decide says yes or no.
func (c *Client) Decide(ctx context.Context, id string, d ApprovalDecision) (*Approval, error) {
	body, err := encode(d, d.Reason)
	if err != nil {
		return nil, err
	}
	return c.approval(ctx, "POST", id, body)
}

// Revoke takes a yes back.
func (c *Client) Revoke(ctx context.Context, id string) (*Approval, error) {
	return c.approval(ctx, "DELETE", id, nil)
}

func (c *Client) approval(ctx context.Context, method, id string, body []byte) (*Approval, error) {
	if id == "" {
		return nil, errors.New("no approval is named")
	}
	_, answer, err := get[ApprovalAnswer](ctx, c, method, "/v1/approvals/"+url.PathEscape(id), body)
	if err != nil {
		return nil, err
	}
	return answer.Approval, nil
}

// Halt ends every run and lets none start.
func (c *Client) Halt(ctx context.Context) error { return c.post(ctx, "/v1/halt") }

// Resume lets runs start again.
func (c *Client) Resume(ctx context.Context) error { return c.post(ctx, "/v1/resume") }

// A ReloadAnswer says which policy is in force after it was read again.
type ReloadAnswer struct {
	Success bool      `json:"success"`  // always true
	Policy  string    `json:"policy"`   // hash of the policy in force
	Changed bool      `json:"changed"`  // it is another one than before
	LeftOut []LeftOut `json:"left_out"` // directories that no command sees as the policy says
}

// Reload has the daemon read the site's policy again. When it is wrong the
// error, INVALID_ARGUMENTS, says where, and the old one stays in force.
func (c *Client) Reload(ctx context.Context) (*ReloadAnswer, error) {
	_, answer, err := get[ReloadAnswer](ctx, c, "POST", "/v1/reload", nil)
	return answer, err
}

func (c *Client) post(ctx context.Context, target string) error {
	_, _, err := get[struct{}](ctx, c, "POST", target, nil)
	return err
}
