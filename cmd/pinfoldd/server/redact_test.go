package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
)

// fakeToken is a token of nobody's.
var fakeToken = "ghp" + "_" + strings.Repeat("a1B2c3D4e", 4)

// TestSecretsDoNotLeave has a token in a command and in what it writes, cut in
// two, and looks for it in everything that leaves the daemon.
func TestSecretsDoNotLeave(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		if !strings.Contains(r.Text, fakeToken) {
			t.Error("what runs is not what was asked for")
		}
		for _, s := range []string{"token: " + fakeToken[:11], fakeToken[11:], "\nmore\n"} {
			_, _ = io.WriteString(r.Stdout, s)
			time.Sleep(3 * releaseTime / 2)
		}
		_, _ = io.WriteString(r.Stderr, "https://u:"+fakeToken+"@host/")
		return confine.Outcome{}, nil
	})
	var all bytes.Buffer
	keep := func(v any, err error) {
		if v != nil {
			_ = json.NewEncoder(&all).Encode(v)
		}
		if err != nil {
			all.WriteString(err.Error())
		}
	}
	got, err := f.exec("write " + fakeToken)
	keep(got, err)
	if err != nil || got.Stdout != "token: [REDACTED:github]\nmore\n" || got.Redactions["github"] < 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got.Provenance != (api.Provenance{Source: api.CommandOutput}) {
		t.Errorf("provenance: %+v", got.Provenance)
	}
	_, _, events := f.raw(t, "POST", "/v1/exec", `{"project":"`+f.project+`","command":"write `+fakeToken+`"}`)
	all.WriteString(events)
	_, err = f.exec("deny " + fakeToken)
	keep(nil, err)
	_, err = f.exec("'unclosed " + fakeToken)
	keep(nil, err)
	check, err := f.client.Check(context.Background(), api.CheckRequest{Project: f.project, Command: "write " + fakeToken})
	keep(check, err)
	records, err := os.ReadFile(f.records)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(records)
	all.Write(f.log.Bytes())
	if s := all.String(); strings.Contains(s, fakeToken[4:14]) || strings.Contains(s, fakeToken[12:30]) {
		t.Errorf("the token is in\n%s", s)
	}
	if !bytes.Contains(records, []byte(`"redacted":true`)) || !bytes.Contains(records, []byte(`"redactions":{"github":2`)) {
		t.Errorf("the trace does not say that something was taken out:\n%s", records)
	}
}

// TestEventsAreNotHeldBack checks that a prompt without a line's end arrives
// while the command waits.
func TestEventsAreNotHeldBack(t *testing.T) {
	f := serve(t, nil)
	arrived := make(chan struct{})
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		_, _ = io.WriteString(r.Stdout, "Continue? yes/No")
		select {
		case <-arrived:
			return confine.Outcome{}, nil
		case <-time.After(60 * time.Second):
			t.Error("the prompt did not arrive")
			return confine.Outcome{ExitCode: 1}, nil
		}
	})
	var got strings.Builder
	err := f.client.Stream(context.Background(), api.ExecRequest{Project: f.project, Command: "x"}, func(e *api.Event) error {
		if e.Event == api.EventStdout {
			got.WriteString(e.Data)
			if got.String() == "Continue? yes/No" {
				close(arrived)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPlainOutput(t *testing.T) {
	for in, want := range map[string]string{
		"\x1b[1;31mred\x1b[0m\tx\r\n":          "red\tx\n",
		"\x1b]0;title\x07text\x1b]8;;u\x1b\\l": "textl",
		"a\x07b\x00c\x7fd":                     "abcd",
		"\x1b(Bplain \x1b7x":                   "plain x",
		"ä ü \u2713\n":                         "ä ü \u2713\n",
		"\x1b]unended\nnext":                   "\nnext",
	} {
		for _, n := range []int{1, 100} {
			var b bytes.Buffer
			w := &plainWriter{w: &b}
			for rest := in; len(rest) > 0; {
				k := min(n, len(rest))
				_, _ = io.WriteString(w, rest[:k])
				rest = rest[k:]
			}
			if b.String() != want {
				t.Errorf("%q became %q, want %q", in, b.String(), want)
			}
		}
	}
}

// TestPlainComesBeforeTheRedaction: a token cut up by a colour is a token when
// the colour is taken out.
func TestPlainComesBeforeTheRedaction(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(_ context.Context, r confine.Request) (confine.Outcome, error) {
		_, _ = io.WriteString(r.Stdout, fakeToken[:9]+"\x1b[0m"+fakeToken[9:]+"\n")
		return confine.Outcome{}, nil
	})
	got, err := f.client.Exec(context.Background(), api.ExecRequest{Project: f.project, Command: "x", Plain: true})
	if err != nil || got.Stdout != "[REDACTED:github]\n" {
		t.Errorf("got %+v, %v", got, err)
	}
}
