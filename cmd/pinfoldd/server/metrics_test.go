package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
)

// scrape returns what GET /metrics on the socket answers.
func scrape(t *testing.T, socket string) (status int, text string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := client.Get("http://pinfold/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// TestMetrics: what came of commands can be read on the control socket, and
// nothing of them; not on the other socket.
func TestMetrics(t *testing.T) {
	uid := uint32(os.Geteuid())
	f := serve(t, func(c *Config) { c.OnlyUID = &uid })
	ctx := context.Background()
	if _, err := f.client.Exec(ctx, api.ExecRequest{Project: f.project, Command: "secretive ls"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Exec(ctx, api.ExecRequest{Project: f.project, Command: "deny"}); err == nil {
		t.Fatal("the fake policy denies nothing")
	}
	for i := range 2 * maxRuleLabels { // as a project's own file could
		f.metrics.denied("rule-" + strconv.Itoa(i))
	}
	f.metrics.step(stepApprove, time.Now())
	f.metrics.probed([]confine.Layer{{Name: "landlock", OK: true}, {Name: "keeper"}})
	status, text := scrape(t, api.ControlSocket(f.socket))
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	for _, want := range []string{
		`pinfold_runs_total{code="OK",verdict="allow"} 1`, `pinfold_runs_total{code="PERMISSION_DENIED",verdict="deny"} 1`,
		`pinfold_step_seconds_count{step="judge"} 2`, `pinfold_step_seconds_count{step="record"} 2`, `pinfold_step_seconds_count{step="run"} 1`,
		`pinfold_layer_missing{layer="landlock"} 0`, `pinfold_layer_missing{layer="keeper"} 1`,
		"pinfold_halted 0", "pinfold_sessions ", "pinfold_runs_active 0", "pinfold_trace_owed_records 0", "pinfold_trace_lag_seconds ", `setting="system"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secretive") || strings.Contains(text, f.project) {
		t.Error("something of a command is told")
	}
	if n := strings.Count(text, "pinfold_denials_total{"); n > maxRuleLabels+1 {
		t.Errorf("%d series of denials", n)
	}
	if status, _ := scrape(t, f.socket); status != http.StatusNotFound {
		t.Errorf("agents get status %d", status)
	}
}

// TestLatestConnections: a connection that is accepted while the server shuts down
// is answered before it has ended.
func TestLatestConnections(t *testing.T) {
	f := serve(t, nil)
	c, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for f.Server.open.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- f.Shutdown(ctx) }()
	for f.base.Err() == nil { // it has begun
		time.Sleep(time.Millisecond)
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: pinfold\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "200 OK") {
		t.Errorf("got %q, %v", answer, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
