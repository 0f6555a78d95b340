package server

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/policy"
)

const (
	noGit   = "[[rule]]\nid = 'no-git'\nverdict = 'deny'\ncommand = ['git']\nreason = 'not here'\nmatch = ['git log']\n"
	noEcho  = "[[rule]]\nid = 'no-echo'\nverdict = 'deny'\ncommand = ['echo']\nreason = 'not here'\nmatch = ['echo x']\n"
	allowed = "# comment\n[[rule]]\nid = 'loose'\nverdict = 'allow'\ncommand = ['touch']\nreason = 'r'\nmatch = ['touch x']\n"
)

// serveReal serves with a real policy.
func serveReal(t *testing.T, site string) *fixture {
	t.Helper()
	return serve(t, func(c *Config) { c.Policy = loadPolicy(t, site) })
}

func loadPolicy(t *testing.T, site string) *policy.Policy {
	t.Helper()
	p, err := policy.Load(policy.Source{Name: "site.toml", Text: site})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// writeRules writes the project's policy.
func (f *fixture) writeRules(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.project, projectFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProjectTightens(t *testing.T) {
	f := serveReal(t, "")
	before, err := f.exec("echo x")
	if err != nil {
		t.Fatal(err)
	}
	f.writeRules(t, noEcho)
	_, err = f.exec("echo x")
	if e := apiError(t, err, api.PermissionDenied); e.Rule != "no-echo" || e.At == nil {
		t.Errorf("got %+v", e)
	}
	got, err := f.exec("pwd")
	if err != nil || got.Decision.Policy == before.Decision.Policy {
		t.Errorf("pwd: %+v, %v", got, err)
	}
	f.writeRules(t, noGit) // of another content at once
	if got, err := f.exec("echo x"); err != nil || !got.Success {
		t.Errorf("echo under another file: %+v, %v", got, err)
	}
	if err := os.Remove(filepath.Join(f.project, projectFile)); err != nil {
		t.Fatal(err)
	}
	if got, err := f.exec("git log"); err != nil || got.Decision.Policy != before.Decision.Policy {
		t.Errorf("git log without the file: %+v, %v", got, err)
	}
}

// TestProjectCannotLoosen: what loosens, is wrong, or cannot be read as a plain
// file beneath the project keeps everything from running, and is recorded.
func TestProjectCannotLoosen(t *testing.T) {
	f := serveReal(t, "")
	name := filepath.Join(f.project, projectFile)
	outside := filepath.Join(t.TempDir(), "elsewhere.toml")
	if err := os.WriteFile(outside, []byte(noGit), 0o644); err != nil {
		t.Fatal(err)
	}
	write := func(text string) func() error {
		return func() error { return os.WriteFile(name, []byte(text), 0o644) }
	}
	refused := 0
	for _, row := range []struct {
		what string
		make func() error
		want string
	}{
		{"allows", write(allowed), `.pinfold.toml:4:1: a project's policy can only tighten: rule "loose" allows`},
		{"profile", write("profile = 'workspace'"), ".pinfold.toml:1:1: a project's policy can only tighten"},
		{"roots", write("readable = ['/srv']"), "can only tighten"},
		{"switches off", write("[builtin]\ndisable = ['deny-rm-rf']"), "can only tighten"},
		{"syntax", write("\n= x"), ".pinfold.toml:2:"},
		{"unknown key", write("\nprofle = 'x'"), ".pinfold.toml:2:1: unknown key"},
		{"example", write(strings.Replace(noGit, "'git log'", "'ls'", 1)), "the rule does not apply"},
		{"too long", write(strings.Repeat("# comment\n", 7000)), "longer than 64 KiB"},
		{"FIFO", func() error { return unix.Mkfifo(name, 0o644) }, "must be a plain file"},
		{"directory", func() error { return os.Mkdir(name, 0o755) }, "must be a plain file"},
		{"link", func() error { return os.Symlink(outside, name) }, "must be a plain file"},
		{"dangling link", func() error { return os.Symlink("nowhere", name) }, "must be a plain file"},
	} {
		if err := row.make(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what is remembered is as good
			begin := time.Now()
			_, err := f.exec("ls")
			e := apiError(t, err, api.PermissionDenied)
			refused++
			if !strings.Contains(e.Message, row.want) || e.Rule != "project-policy" || !strings.Contains(e.RecommendedAction, "pinfold policy check") || time.Since(begin) > 20*time.Second {
				t.Errorf("%s: got %+v after %v, want %q", row.what, e, time.Since(begin), row.want)
			}
		}
		_, err := f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: "ls"})
		apiError(t, err, api.PermissionDenied)
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.confiner.ran) != 0 {
		t.Errorf("%d commands have run", len(f.confiner.ran))
	}
	records := f.trace(t)
	if len(records) != refused {
		t.Errorf("%d records of %d refusals", len(records), refused)
	}
	for _, r := range records {
		if r.Approved || r.PolicyDecision != "deny" || r.ErrorType != "permission_denied" {
			t.Fatalf("recorded as %+v", r)
		}
	}
}

// A file is read once while neither it nor the site's policy changes.
func TestProjectPolicyIsRemembered(t *testing.T) {
	site := &countingPolicy{Policy: loadPolicy(t, "")}
	var p policies
	uid := uint32(os.Getuid())
	dir := t.TempDir()
	name := filepath.Join(dir, projectFile)
	of := func() Decider {
		t.Helper()
		got, err := p.of(site, dir, uid)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if of() != Decider(site) {
		t.Error("a project without a file has another policy than the site's")
	}
	if err := os.WriteFile(name, []byte(noGit), 0o644); err != nil {
		t.Fatal(err)
	}
	of()
	of()
	if site.tightened != 2 {
		t.Errorf("a file that has just changed was read %d times, not each time", site.tightened)
	}
	time.Sleep(settleTime + 50*time.Millisecond)
	first := of()
	for range 5 {
		if of() != first {
			t.Error("another policy without a change")
		}
	}
	if site.tightened != 3 {
		t.Errorf("read %d times", site.tightened)
	}
	if _, err := p.of(site, dir, uid+1); err != nil || site.tightened != 4 {
		t.Errorf("another user's is not read for himself: %v", err)
	}
	other := loadPolicy(t, "default = 'deny'")
	if got, err := p.of(other, dir, uid); err != nil || got == first {
		t.Errorf("under another site's policy: %v", err)
	}
	for i := range 2 * maxTightened {
		p.remember(policyFileID{ino: uint64(i)}, tightened{})
	}
	if len(p.known) > maxTightened {
		t.Errorf("%d are remembered", len(p.known))
	}
}

type countingPolicy struct {
	*policy.Policy
	tightened int
}

func (c *countingPolicy) Tighten(s policy.Source) (*policy.Policy, error) {
	c.tightened++
	return c.Policy.Tighten(s)
}

// Another policy counts from the next decision; a run that was decided goes on.
func TestSetPolicy(t *testing.T) {
	f := serveReal(t, "")
	started, end := make(chan struct{}), make(chan struct{})
	f.confiner.set(func(context.Context, confine.Request) (confine.Outcome, error) {
		close(started)
		<-end
		return confine.Outcome{}, nil
	})
	done := make(chan *api.Result, 1)
	go func() {
		got, _ := f.exec("echo x")
		done <- got
	}()
	<-started
	old := f.sitePolicy().Hash()
	f.SetPolicy(loadPolicy(t, noEcho))
	_, err := f.exec("echo x")
	apiError(t, err, api.PermissionDenied)
	close(end)
	if got := <-done; got == nil || !got.Success || got.Decision.Policy != old {
		t.Errorf("the run that was decided: %+v", got)
	}
	if status, err := f.client.Status(context.Background()); err != nil || status.Policy == old {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// A project that holds the site's policy could change it.
func TestProjectHoldsPolicy(t *testing.T) {
	f := serve(t, nil)
	f.PolicyFile = filepath.Join(f.project, "pinfold", "policy.toml")
	_, err := f.exec("ls")
	if e := apiError(t, err, api.InvalidArguments); !strings.Contains(e.Message, "pinfold's own") {
		t.Errorf("got %+v", e)
	}
}

// What the site shares of the host's is followed, what commands have of their
// own is not.
func TestPrivateLeavesSharedOut(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	got := private(loadPolicy(t, "writable = ['"+shared+"']"), []string{"/var/tmp", shared})
	if joined := strings.Join(got, " "); strings.Contains(joined, shared) || !strings.Contains(joined, "/var/tmp") || !strings.Contains(joined, "/proc") {
		t.Errorf("got %q", got)
	}
}

func TestExplain(t *testing.T) {
	f := serveReal(t, "")
	got, err := f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: "echo hi && cat /etc/passwd", Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	e := got.Explanation
	if e == nil || got.Decision.Verdict != "deny" || e.Grant != "" || e.Opaque || len(e.Remedies) == 0 {
		t.Fatalf("got %+v", got)
	}
	last := e.Parts[len(e.Parts)-1]
	if last.At.Column != 16 || last.Verdict != "deny" || len(last.Effects) != 1 || last.Effects[0] != (api.Effect{Effect: "reads", Place: "outside", Detail: "/etc/passwd"}) {
		t.Errorf("got %+v", last)
	}
	got, err = f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: "python3 x.py", Explain: true})
	if err != nil || !got.Explanation.Opaque || !strings.Contains(got.Explanation.Grant, "any program that the sandbox shows") {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: "ls"}); err != nil || got.Explanation != nil {
		t.Errorf("unasked: %+v, %v", got, err)
	}
	if len(f.trace(t)) != 0 || len(f.confiner.ran) != 0 {
		t.Error("an explanation has run or recorded something")
	}
}

func TestPolicySummary(t *testing.T) {
	f := serveReal(t, noEcho)
	f.writeRules(t, noGit)
	_, got, err := f.client.PolicySummary(context.Background(), f.project)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Tightened || got.Project != f.project || len(got.Rules) < 20 || len(got.Text) > 5000 {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{"Project: " + f.project, "Denied: ", "echo", "git", "waits up to 5 minutes", ".pinfold.toml"} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("without %q:\n%s", want, got.Text)
		}
	}
	for query, want := range map[string]string{
		"": "project: is missing", "?project=x": "project: must be an absolute path", "?project=/a&project=/b": "takes one parameter",
		"?user=0": "takes one parameter", "?project=%00": "project: must be", "?project=%zz": "is not well formed",
		"?project=/nowhere": "must be a directory that exists", "?project=" + url.QueryEscape(f.project) + "&x=1": "takes one parameter",
	} {
		if status, _, body := f.raw(t, "GET", "/v1/policy/summary"+query, ""); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", query, status, body, want)
		}
	}
	f.writeRules(t, allowed)
	if status, _, body := f.raw(t, "GET", "/v1/policy/summary?project="+f.project, ""); status != 403 || !strings.Contains(body, ".pinfold.toml:4:1") {
		t.Errorf("a project that loosens: %d %s", status, body)
	}
}

func TestPolicySchema(t *testing.T) {
	f := serve(t, nil)
	status, head, body := f.raw(t, "GET", "/v1/policy/schema.json", "")
	if status != 200 || head.Get("Content-Type") != "application/schema+json" || !json.Valid([]byte(body)) || body != policy.Schema {
		t.Errorf("%d %s\n%s", status, head.Get("Content-Type"), body)
	}
}
