package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

func options(t testing.TB) Options {
	return Options{Path: filepath.Join(t.TempDir(), "trace.ndjson"), Mode: 0o600, Version: "v", Build: "b", Setting: "user"}
}

func open(t testing.TB, o Options) (*Log, *Recovery) {
	t.Helper()
	l, recovery, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, recovery
}

func decide(t testing.TB, l *Log, run string, uid uint32, approved bool) *Run {
	t.Helper()
	r, err := l.Decide(Decided{
		Run: run, Args: Args{"echo <hi>"}, RiskLevel: "low", Approved: approved, PolicyDecision: "allow",
		Caller: Caller{UID: uid, GID: 7, PID: 9, Executable: "/bin/x"}, Project: "/p", Cwd: ".", Text: "echo <hi>",
		Rules: []string{"r"}, Reasons: []api.Reason{{Rule: "r", Verdict: "allow"}}, Grant: &api.Grant{}, TimeoutMS: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func finish(t testing.TB, r *Run) {
	t.Helper()
	zero := 0
	if err := r.Finish(Finished{ExitCode: &zero, Usage: &api.Usage{WallMS: 1.5}}); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, o Options) []byte {
	t.Helper()
	data, err := os.ReadFile(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func verify(t testing.TB, data []byte) Report {
	t.Helper()
	r, err := Verify(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sample returns a closed trace of three runs, one of them refused.
func sample(t testing.TB, o Options) []byte {
	t.Helper()
	l, _ := open(t, o)
	a := decide(t, l, "a", 1, true)
	b := decide(t, l, "b", 2, true)
	decide(t, l, "c", 1, false)
	finish(t, b)
	finish(t, a)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return read(t, o)
}

func TestRecordsAreChained(t *testing.T) {
	o := options(t)
	data := sample(t, o)
	r := verify(t, data)
	if !r.OK() || r.Records != 7 || len(r.Open) != 0 {
		t.Fatalf("got %+v of\n%s", r, data)
	}
	var events []string
	for line := range bytes.Lines(data) {
		var rec Record
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&rec); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		events = append(events, rec.Event+rec.Run)
	}
	if want := []string{"start", "decideda", "decidedb", "decidedc", "finishedb", "finisheda", "stop"}; !slices.Equal(events, want) {
		t.Errorf("got %q, want %q", events, want)
	}
	if !bytes.Contains(data, []byte(`"command":"echo <hi>"`)) {
		t.Error("the command is not recorded as it was sent")
	}
	if info, err := os.Stat(o.Path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestVerifyFindsTampering(t *testing.T) {
	whole := sample(t, options(t))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	join := func(l ...[]byte) []byte { return bytes.Join(l, nil) }
	without := func(i int) []byte { return join(slices.Delete(slices.Clone(lines), i, i+1)...) }
	replaced := func(i int, old, new string) []byte {
		l := slices.Clone(lines)
		l[i] = bytes.Replace(l[i], []byte(old), []byte(new), 1)
		if bytes.Equal(l[i], lines[i]) {
			t.Fatalf("line %d has no %s", i, old)
		}
		return join(l...)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string // the first break
	}{
		{"a command changed", replaced(1, "echo <hi>", "echo <ho>"), "line 2: its hash is not that of its content"},
		{"a verdict changed", replaced(3, `"approved":false`, `"approved":true`), "line 4: its hash"},
		{"a hash changed", replaced(1, `"hash":"`, `"hash":"0`), "line 2: is not a record"},
		{"a time changed", replaced(2, `"time":"2`, `"time":"3`), "line 3: its hash"},
		{"one removed", without(3), "line 4: does not follow"},
		{"the first removed", without(0), "line 1: does not follow"},
		{"two exchanged", join(lines[0], lines[2], lines[1], lines[3], lines[4], lines[5], lines[6]), "line 2: does not follow"},
		{"one repeated", join(lines[0], lines[1], lines[1], lines[2]), "line 3: does not follow"},
		{"a line of another's", join(lines[0], []byte("hello\n"), lines[1]), "line 2: is not a record"},
		{"an empty line", join(lines[0], []byte("\n"), lines[1]), "line 2: is not a record"},
		{"two lines joined", join(lines[0], bytes.TrimSuffix(lines[1], []byte("\n")), lines[2]), "line 2: "},
		{"a member added", replaced(1, `"event"`, `"x":1,"event"`), "line 2: its hash"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := verify(t, c.data)
			if r.OK() || !strings.HasPrefix(r.Breaks[0].String(), c.want) {
				t.Errorf("got %v, want %s", r.Breaks, c.want)
			}
		})
	}
}

// FuzzVerify checks that nothing that stands in a file makes reading it panic,
// and that a file with anything but records in it is not called whole.
func FuzzVerify(f *testing.F) {
	whole := sample(f, options(f))
	f.Add(whole)
	f.Add(whole[:len(whole)-7])
	f.Add([]byte(`{"seq":1,"hash":""}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Verify(bytes.NewReader(data))
		if err == nil && r.OK() && len(data) > 0 && (r.Records == 0 || r.Head == genesis) {
			t.Errorf("%q: %+v", data, r)
		}
	})
}

func TestTornLastLineIsRepaired(t *testing.T) {
	for name, tail := range map[string]string{"half a record": `{"seq":8,"time":"20`, "zeros": "\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			whole := sample(t, o)
			if err := os.WriteFile(o.Path, append(slices.Clone(whole), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, read(t, o)); r.OK() || r.TornBytes != int64(len(tail)) || len(r.Breaks) != 0 {
				t.Errorf("torn: got %+v", r)
			}
			l, recovery := open(t, o)
			if recovery == nil || recovery.TornBytes != int64(len(tail)) {
				t.Errorf("got %+v", recovery)
			}
			l.Close()
			data := read(t, o)
			if r := verify(t, data); !r.OK() || !bytes.HasPrefix(data, whole) {
				t.Errorf("repaired: got %+v", r)
			}
			if !bytes.Contains(data, fmt.Appendf(nil, `"recovery":{"torn_bytes":%d}`, len(tail))) {
				t.Error("the start record does not say so")
			}
		})
	}
}

func TestOpenRunsAreClosed(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	decide(t, l, "done", 1, true)
	decide(t, l, "cut", 5, true)
	decide(t, l, "refused", 5, false)
	finish(t, &Run{l, "done", Caller{}})
	l.file.Close() // as a kill would
	if r := verify(t, read(t, o)); !slices.Equal(r.Open, []string{"cut"}) {
		t.Errorf("open: %q", r.Open)
	}
	l2, recovery := open(t, o)
	if recovery == nil || recovery.Interrupted != 1 || recovery.TornBytes != 0 {
		t.Fatalf("got %+v", recovery)
	}
	records, complete, err := l2.Read(context.Background(), Query{UID: 5, Limit: 10, Run: "cut"})
	if err != nil || !complete || len(records) != 2 {
		t.Fatalf("%d records, %v, %v", len(records), complete, err)
	}
	var end Record
	if err := json.Unmarshal(records[1], &end); err != nil {
		t.Fatal(err)
	}
	if end.Event != EventFinished || end.ErrorType != Interrupted || end.Caller.UID != 5 || end.ExitCode != nil {
		t.Errorf("got %+v", end)
	}
	if r := verify(t, read(t, o)); !r.OK() || len(r.Open) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestBrokenChainIsContinuedAloud(t *testing.T) {
	o := options(t)
	whole := sample(t, o)
	if err := os.WriteFile(o.Path, bytes.Replace(whole, []byte("echo"), []byte("ECHO"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	l, recovery := open(t, o)
	if recovery == nil || len(recovery.Breaks) != 1 || !strings.HasPrefix(recovery.Breaks[0], "line 2: ") {
		t.Fatalf("got %+v", recovery)
	}
	finish(t, decide(t, l, "next", 1, true))
	l.Close()
	data := read(t, o)
	if r := verify(t, data); len(r.Breaks) != 1 || r.Breaks[0].Line != 2 {
		t.Errorf("got %+v", r)
	}
	if !bytes.Contains(data, []byte(`"breaks":["line 2: `)) {
		t.Error("the start record does not say so")
	}
}

func TestOneWriter(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	if _, _, err := Open(o); !errors.As(err, new(*BusyError)) {
		t.Errorf("got %v", err)
	}
	l.Close()
	open(t, o)
}

func TestFileMustBePlainAndOwn(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"a symlink":        func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "other"), p) },
		"a directory":      func(p string) error { return os.Mkdir(p, 0o700) },
		"writable by all":  func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Chmod(p, 0o666)) },
		"with a hard link": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Link(p, p+"2")) },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			if err := prepare(o.Path); err != nil {
				t.Fatal(err)
			}
			if l, _, err := Open(o); err == nil {
				l.Close()
				t.Error("opened")
			}
		})
	}
}

func TestReadIsByOwner(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	for i := range 300 {
		uid := uint32(i % 3)
		finish(t, decide(t, l, fmt.Sprintf("run%03d", i), uid, true))
	}
	// A command that looks like another's record.
	if _, err := l.Decide(Decided{Run: "forged", Args: Args{`"caller":{"uid":1,`}, Caller: Caller{UID: 2}}); err != nil {
		t.Fatal(err)
	}
	records, complete, err := l.Read(context.Background(), Query{UID: 1, Limit: 1000})
	if err != nil || !complete || len(records) != 200 {
		t.Fatalf("%d records, complete %v, %v", len(records), complete, err)
	}
	last := uint64(0)
	for _, raw := range records {
		var r Record
		if err := json.Unmarshal(raw, &r); err != nil || r.Caller.UID != 1 || r.Seq <= last {
			t.Fatalf("%v in %s", err, raw)
		}
		last = r.Seq
		if carried, computed, ok := unseal(raw); !ok || carried != computed {
			t.Fatalf("not as it was written: %s", raw)
		}
	}
	records, complete, err = l.Read(context.Background(), Query{UID: 1, Limit: 3})
	if err != nil || complete || len(records) != 3 || !bytes.Contains(records[2], []byte(`"run298"`)) {
		t.Errorf("limit: %d records, complete %v, %v", len(records), complete, err)
	}
	if records, complete, err = l.Read(context.Background(), Query{UID: 1, Limit: 9, Run: "run002"}); err != nil || !complete || len(records) != 0 {
		t.Errorf("another's run: %s, %v, %v", records, complete, err)
	}
}

func TestReadCrossesBlocks(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	long := strings.Repeat("x", block+1000)
	for i := range 4 {
		if _, err := l.Decide(Decided{Run: fmt.Sprint("r", i), Args: Args{long}, Caller: Caller{UID: 1}}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Decide(Decided{Run: fmt.Sprint("s", i), Caller: Caller{UID: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	records, complete, err := l.Read(context.Background(), Query{UID: 1, Limit: 100})
	if err != nil || !complete || len(records) != 8 {
		t.Fatalf("%d records, %v, %v", len(records), complete, err)
	}
}

func TestConcurrentRuns(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				finish(t, decide(t, l, fmt.Sprintf("%d-%d", i, j), uint32(i), true))
				if _, _, err := l.Read(context.Background(), Query{UID: uint32(i), Limit: 2}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	l.Close()
	if r := verify(t, read(t, o)); !r.OK() || r.Records != 802 || len(r.Open) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestClosedLogRefuses(t *testing.T) {
	l, _ := open(t, options(t))
	run := decide(t, l, "r", 1, true)
	l.Close()
	if _, err := l.Decide(Decided{Run: "s"}); err == nil {
		t.Error("decided after Close")
	}
	if err := run.Finish(Finished{}); err == nil {
		t.Error("finished after Close")
	}
}

func TestOutcomeFitsItsRoom(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	run := decide(t, l, "r", 1, true)
	long := strings.Repeat("\x01", maxOutcome)
	if err := run.Finish(Finished{Detail: long, Receipt: &api.Receipt{Setting: long}}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	data := read(t, o)
	if r := verify(t, data); !r.OK() {
		t.Errorf("got %+v", r)
	}
	for line := range bytes.Lines(data) {
		if len(line) > maxOutcome {
			t.Errorf("a record of %d bytes", len(line))
		}
	}
	if !bytes.Contains(data, []byte("the receipt was too long")) {
		t.Error("the record does not say what is missing")
	}
}

func BenchmarkAppend(b *testing.B) {
	l, _ := open(b, options(b))
	for b.Loop() {
		finish(b, decide(b, l, "0193f7aa0193f7aa0193f7aa0193", 1, true))
	}
}

func TestUnwrittenOutcomeIsOwed(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	run := decide(t, l, "r", 1, true)
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	good := l.file
	l.file = full
	if err := run.Finish(Finished{}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("finish: %v", err)
	}
	if _, err := l.Decide(Decided{Run: "s"}); err == nil {
		t.Error("decided while an outcome is owed")
	}
	l.file = good
	decide(t, l, "t", 1, false)
	l.Close()
	data := read(t, o)
	if r := verify(t, data); !r.OK() || len(r.Open) != 0 || bytes.Contains(data, []byte(`"run":"s"`)) {
		t.Errorf("got %+v of\n%s", r, data)
	}
}

// TestFullDisk fills a small file system: decisions are refused, outcomes of
// what was decided before are not, and all goes on when there is room again.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system is needed: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	o := options(t)
	o.Path = filepath.Join(dir, "trace.ndjson")
	l, _ := open(t, o)
	first := decide(t, l, "first", 1, true)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling: %v", err)
	}
	runs := []*Run{first}
	var err error
	for range 1000 {
		var run *Run
		if run, err = l.Decide(Decided{Run: fmt.Sprint("more", len(runs)), Approved: true}); err != nil {
			break
		}
		runs = append(runs, run)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("after %d runs: %v", len(runs), err)
	}
	for i, run := range runs {
		if err := run.Finish(Finished{Detail: strings.Repeat("d", maxDetail)}); err != nil {
			t.Fatalf("outcome %d of %d: %v", i, len(runs), err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	finish(t, decide(t, l, "after", 1, true))
	l.Close()
	if r := verify(t, read(t, o)); !r.OK() || len(r.Open) != 0 || r.Records != 2*len(runs)+4 {
		t.Errorf("got %+v", r)
	}
}
