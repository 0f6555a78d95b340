package api

import (
	"context"
	"net/url"
)

// sessions is where the sessions are.
const sessions = "/v1/sessions"

// OpenSession opens a session.
func (c *Client) OpenSession(ctx context.Context, req SessionRequest) (raw []byte, s *Session, err error) {
	texts := append([]string{req.Project}, req.Disabled...)
	for name, value := range req.Env {
		texts = append(texts, name, value)
	}
	body, err := encode(req, texts...)
	if err != nil {
		return nil, nil, err
	}
	return c.session(ctx, "POST", sessions, body)
}

// Session asks for one of the caller's sessions.
func (c *Client) Session(ctx context.Context, id string) (raw []byte, s *Session, err error) {
	return c.session(ctx, "GET", sessions+"/"+url.PathEscape(id), nil)
}

// CloseSession ends a session, with every run in it, and returns it as it was in
// the end.
func (c *Client) CloseSession(ctx context.Context, id string) (raw []byte, s *Session, err error) {
	return c.session(ctx, "DELETE", sessions+"/"+url.PathEscape(id), nil)
}

// Sessions lists the caller's sessions.
func (c *Client) Sessions(ctx context.Context) ([]byte, *SessionList, error) {
	return get[SessionList](ctx, c, "GET", sessions, nil)
}

func (c *Client) session(ctx context.Context, method, target string, body []byte) ([]byte, *Session, error) {
	raw, answer, err := get[SessionAnswer](ctx, c, method, target, body)
	if err != nil {
		return raw, nil, err
	}
	return raw, answer.Session, nil
}

// Batch runs several commands of a session. When ctx is canceled those that run
// are canceled too.
func (c *Client) Batch(ctx context.Context, id string, req BatchRequest) ([]byte, *BatchAnswer, error) {
	var texts []string
	for _, one := range req.Commands {
		texts = append(texts, one.Command, one.Cwd)
	}
	body, err := encode(req, texts...)
	if err != nil {
		return nil, nil, err
	}
	return get[BatchAnswer](ctx, c, "POST", sessions+"/"+url.PathEscape(id)+"/batch", body)
}
