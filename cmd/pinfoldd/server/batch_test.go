package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pinfold/pinfold/api"
	"github.com/pinfold/pinfold/confine"
)

// batch runs the commands in the session.
func (f *fixture) batch(t *testing.T, s *api.Session, stop bool, commands ...string) []api.BatchResult {
	t.Helper()
	req := api.BatchRequest{StopOnError: stop}
	for _, text := range commands {
		req.Commands = append(req.Commands, api.BatchCommand{Command: text})
	}
	_, answer, err := f.client.Batch(context.Background(), s.ID, req)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Results) != len(commands) {
		t.Fatalf("%d results of %d commands", len(answer.Results), len(commands))
	}
	return answer.Results
}

// TestBatch proves that those that only read run side by side, but never too many;
// that one that writes runs alone, after all before it and before all after it;
// and that the results come in the order asked.
func TestBatch(t *testing.T) {
	f := serve(t, nil)
	var mu sync.Mutex
	now, most, ended := map[string]int{}, 0, []string{}
	full := make(chan struct{})
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		kind, name, _ := strings.Cut(r.Text, " ")
		mu.Lock()
		if kind == "write" && (now["read"] > 0 || now["write"] > 0) || now["write"] > 0 {
			t.Errorf("%s runs beside %v", r.Text, now)
		}
		now[kind]++
		if most = max(most, now["read"]); now["read"] == maxAbreast {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		if kind == "read" && strings.HasPrefix(name, "first") {
			select { // as many as may are there together
			case <-full:
			case <-time.After(20 * time.Second):
				t.Error("they do not run side by side")
			}
		}
		mu.Lock()
		defer mu.Unlock()
		now[kind]--
		ended = append(ended, name)
		_, _ = fmt.Fprint(r.Stdout, name)
		return confine.Outcome{}, nil
	})
	s := f.open(t, api.SessionRequest{})
	commands := []string{}
	for i := range 7 {
		commands = append(commands, fmt.Sprintf("read first%d", i))
	}
	commands = append(commands, "write a", "write b", "deny c", "read d", "write e")
	results := f.batch(t, s, false, commands...)
	for i, r := range results {
		_, name, _ := strings.Cut(commands[i], " ")
		if name == "c" {
			if r.Refused == nil || r.Refused.Error.Code != api.PermissionDenied || r.Result != nil {
				t.Errorf("%s: %+v", commands[i], r)
			}
			continue
		}
		if r.Result == nil || r.Result.Stdout != name {
			t.Errorf("%s: %+v", commands[i], r)
		}
	}
	if most != maxAbreast {
		t.Errorf("%d ran side by side, want %d", most, maxAbreast)
	}
	if want := []string{"a", "b", "d", "e"}; !slices.Equal(ended[7:], want) {
		t.Errorf("ended %q", ended)
	}
	if _, now, err := f.client.Session(context.Background(), s.ID); err != nil || now.Spent.Runs != 11 || now.Active != 0 {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestBatchStops proves that after a failure nothing starts when that was asked
// for, that everything does otherwise, and that a closed session ends a batch.
func TestBatchStops(t *testing.T) {
	f := serve(t, nil)
	f.confiner.set(func(ctx context.Context, r confine.Request) (confine.Outcome, error) {
		if r.Text == "write long" {
			<-ctx.Done()
			return confine.Outcome{ExitCode: -1, Ended: confine.EndedCaller}, nil
		}
		return confine.Outcome{ExitCode: strings.Count(r.Text, "false")}, nil
	})
	s := f.open(t, api.SessionRequest{})
	for _, failing := range []string{"write false", "deny it"} {
		for _, stop := range []bool{false, true} {
			before := len(f.confiner.ran)
			results := f.batch(t, s, stop, "write true", failing, "write true", "read it")
			ran := len(f.confiner.ran) - before
			if failing == "deny it" {
				ran++
			}
			if want := map[bool]int{true: 2, false: 4}[stop]; ran != want {
				t.Errorf("%s, stop %v: %d started, want %d", failing, stop, ran, want)
			}
			if last := results[3]; stop == (last.Result != nil) || stop && last.Refused.Error.Code != api.Interrupted {
				t.Errorf("%s, stop %v: the last one: %+v", failing, stop, last)
			}
		}
	}
	answers := make(chan []api.BatchResult, 1)
	go func() { answers <- f.batch(t, s, false, "write long", "write true") }()
	eventually(t, func() bool {
		_, now, err := f.client.Session(context.Background(), s.ID)
		return err == nil && now.Active == 1 && len(f.registryOf()) == 1
	})
	client := api.NewClient(f.socket)
	defer client.Close()
	if _, _, err := client.CloseSession(context.Background(), s.ID); err != nil {
		t.Error(err)
	}
	for i, r := range <-answers {
		if failed := r.Failed(); failed == nil || failed.Code != api.Interrupted && failed.Code != api.Busy {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

func (f *fixture) registryOf() []*running {
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	var list []*running
	for _, r := range f.registry.runs {
		list = append(list, r)
	}
	return list
}
