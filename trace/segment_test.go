package trace

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// segmented returns the options of a trace with small segments.
func segmented(t testing.TB) Options {
	o := options(t)
	o.Segment = 4 << 10
	return o
}

func publicKey(t testing.TB, o Options) ed25519.PublicKey {
	t.Helper()
	key, err := ReadPublicKey(PublicKeyFile(o.Path))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func verifyFiles(t testing.TB, o Options) Report {
	t.Helper()
	r, err := VerifyFiles(o.Path, publicKey(t, o))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fill makes a trace of n runs and closes it.
func fill(t testing.TB, o Options, n int) {
	t.Helper()
	l, _ := open(t, o)
	for i := range n {
		finish(t, decide(t, l, fmt.Sprintf("run%04d", i), 1, true))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSegmentsAreOneChain(t *testing.T) {
	o := segmented(t)
	l, _ := open(t, o)
	long := decide(t, l, "long", 1, true)
	for i := range 60 {
		finish(t, decide(t, l, fmt.Sprintf("run%04d", i), 1, true))
	}
	records, complete, err := l.Read(context.Background(), Query{UID: 1, Limit: 1000})
	if err != nil || !complete || len(records) != 121 {
		t.Errorf("%d records over all segments, complete %v, %v", len(records), complete, err)
	}
	finish(t, long)
	l.Close()
	names, err := Segments(o.Path)
	if err != nil || len(names) < 5 {
		t.Fatalf("segments: %q, %v", names, err)
	}
	for _, name := range names[:len(names)-1] {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if r := verifyFiles(t, o); !r.OK() || len(r.Open) != 0 {
		t.Errorf("got %+v", r)
	}
	// Some are compressed at the next start at the latest.
	fill(t, o, 1)
	names, _ = Segments(o.Path)
	for _, name := range names[:len(names)-1] {
		if !strings.HasSuffix(name, ".zst") {
			t.Errorf("%s is not compressed", name)
		}
	}
	if r := verifyFiles(t, o); !r.OK() || r.Records < 124 {
		t.Errorf("compressed: got %+v", r)
	}
}

func TestADayEndsTheSegment(t *testing.T) {
	o := options(t)
	var now atomic.Pointer[time.Time] // what retires segments reads it beside the test
	set := func(at time.Time) { now.Store(&at) }
	set(time.Now())
	o.now = func() time.Time { return *now.Load() }
	l, _ := open(t, o)
	finish(t, decide(t, l, "a", 1, true))
	for _, step := range []time.Duration{24 * time.Hour, -48 * time.Hour, 0} { // the clock may be set back
		set(now.Load().Add(step))
		finish(t, decide(t, l, fmt.Sprint("b", step), 1, true))
	}
	l.Close()
	if names, _ := Segments(o.Path); len(names) != 3 {
		t.Errorf("segments: %q", names)
	}
	if r := verifyFiles(t, o); !r.OK() {
		t.Errorf("got %+v", r)
	}
}

func TestRetention(t *testing.T) {
	o := segmented(t)
	o.KeepBytes = 8 << 10
	fill(t, o, 200)
	fill(t, o, 1) // what was ended last is compressed and retired now
	var total int64
	names, _ := Segments(o.Path)
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > o.KeepBytes+2*o.Segment {
		t.Errorf("%d bytes are kept in %q", total, names)
	}
	if r := verifyFiles(t, o); !r.OK() {
		t.Errorf("got %+v", r)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	if r := verifyFiles(t, o); r.OK() {
		t.Error("a segment that was removed by somebody else is not missed")
	}
}

// TestTamperingWithFilesIsFound changes the files of a trace in each of many
// ways.
func TestTamperingWithFilesIsFound(t *testing.T) {
	write := func(t *testing.T, name string, data []byte) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(t *testing.T, name string) [][]byte {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		l := bytes.SplitAfter(data, []byte("\n"))
		return l[:len(l)-1]
	}
	type tampering struct {
		name string
		do   func(t *testing.T, o Options, segments []string)
	}
	list := []tampering{
		{"the head removed", func(t *testing.T, o Options, _ []string) { os.Remove(headFile(o.Path)) }},
		{"the head of another key", func(t *testing.T, o Options, _ []string) {
			other := options(t)
			fill(t, other, 99)
			b, _ := os.ReadFile(headFile(other.Path))
			write(t, headFile(o.Path), b)
		}},
		{"the head is no head", func(t *testing.T, o Options, _ []string) { write(t, headFile(o.Path), []byte("{}")) }},
		{"the key exchanged and the chain made anew", func(t *testing.T, o Options, s []string) {
			other := options(t)
			fill(t, other, 3)
			for _, name := range s[:len(s)-1] {
				os.Remove(name)
			}
			for _, f := range []func(string) string{headFile, keyFile} {
				b, _ := os.ReadFile(f(other.Path))
				write(t, f(o.Path), b)
			}
			write(t, o.Path, read(t, other))
		}},
		{"the last segment emptied", func(t *testing.T, o Options, _ []string) { write(t, o.Path, nil) }},
		{"the last segment removed", func(t *testing.T, o Options, _ []string) { os.Remove(o.Path) }},
		{"two segments exchanged", func(t *testing.T, o Options, s []string) {
			os.Rename(s[0], s[0]+".x")
			os.Rename(s[1], s[0])
			os.Rename(s[0]+".x", s[1])
		}},
		{"a segment twice", func(t *testing.T, o Options, s []string) {
			write(t, segmentName(o.Path, 9999), bytes.Join(lines(t, s[1]), nil))
		}},
		{"a segment torn", func(t *testing.T, o Options, s []string) {
			b := bytes.Join(lines(t, s[1]), nil)
			write(t, s[1], b[:len(b)-9])
		}},
		{"a segment replaced by noise", func(t *testing.T, o Options, s []string) {
			os.Remove(s[1])
			write(t, s[1]+".zst", []byte("noise"))
		}},
	}
	for _, n := range []int{1, 2, 3, 5} { // cut off at the end, with whole records
		list = append(list, tampering{fmt.Sprintf("%d records cut off the end", n), func(t *testing.T, o Options, _ []string) {
			l := lines(t, o.Path)
			write(t, o.Path, bytes.Join(l[:max(len(l)-n, 0)], nil))
		}})
	}
	for k := range 3 { // in the first, a middle and the last segment
		at := func(o Options, s []string) string { return s[k*(len(s)-1)/2] }
		where := []string{"first", "middle", "last"}[k]
		change := func(what string, f func(l [][]byte) [][]byte) {
			list = append(list, tampering{what + " in the " + where + " segment", func(t *testing.T, o Options, s []string) {
				name := at(o, s)
				l := lines(t, name)
				if len(l) < 4 {
					t.Fatalf("%s has %d records", name, len(l))
				}
				write(t, name, bytes.Join(f(l), nil))
			}})
		}
		replace := func(what, from, to string) {
			change(what, func(l [][]byte) [][]byte {
				for i := range l {
					if b := bytes.Replace(l[i], []byte(from), []byte(to), 1); !bytes.Equal(b, l[i]) {
						l[i] = b
						return l
					}
				}
				panic("nothing has " + from)
			})
		}
		change("one removed", func(l [][]byte) [][]byte { return slices.Delete(l, 1, 2) })
		change("the first removed", func(l [][]byte) [][]byte { return l[1:] })
		change("two exchanged", func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l })
		change("one repeated", func(l [][]byte) [][]byte { return slices.Insert(l, 2, l[1]) })
		change("an empty line", func(l [][]byte) [][]byte { return slices.Insert(l, 2, []byte("\n")) })
		change("another's line", func(l [][]byte) [][]byte { return slices.Insert(l, 2, []byte("{}\n")) })
		change("two joined", func(l [][]byte) [][]byte { l[1] = bytes.TrimSuffix(l[1], []byte("\n")); return l })
		replace("a hash changed", `"hash":"`, `"hash":"0`)
		replace("a time changed", `"time":"2`, `"time":"3`)
		replace("a record changed", `"tool":"run_shell"`, `"tool":"run_shelI"`)
		replace("a caller changed", `"uid":1`, `"uid":2`)
	}
	if len(list) < 40 {
		t.Errorf("%d kinds of tampering", len(list))
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			o := segmented(t)
			l, _ := open(t, o)
			l.tidyMu.Lock() // nothing is compressed, so that it can be changed here
			for i := range 14 {
				finish(t, decide(t, l, fmt.Sprintf("run%04d", i), 1, true))
			}
			l.tidyMu.Unlock()
			l.file.Sync()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			segments := plainSegments(t, o)
			key := publicKey(t, o)
			if r, err := VerifyFiles(o.Path, key); err != nil || !r.OK() {
				t.Fatalf("before: %+v, %v", r, err)
			}
			c.do(t, o, segments)
			r, err := VerifyFiles(o.Path, key)
			if err == nil && len(r.Breaks) == 0 {
				t.Errorf("not found: %+v", r)
			}
		})
	}
}

// plainSegments makes all segments uncompressed and returns them.
func plainSegments(t *testing.T, o Options) []string {
	t.Helper()
	names, err := Segments(o.Path)
	if err != nil || len(names) < 3 {
		t.Fatalf("%q, %v", names, err)
	}
	for i, name := range names {
		if !strings.HasSuffix(name, ".zst") {
			continue
		}
		r, err := openSegment(name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		names[i] = strings.TrimSuffix(name, ".zst")
		if err := os.WriteFile(names[i], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(name)
	}
	return names
}

// TestCrashAtEveryBoundary cuts a trace after every byte of its last records,
// as a crash may, and checks that what was acknowledged before is still there,
// that the tail is called torn and not tampered with, and that it is repaired.
func TestCrashAtEveryBoundary(t *testing.T) {
	o := options(t)
	l, _ := open(t, o)
	for i := range 3 {
		finish(t, decide(t, l, fmt.Sprint("run", i), 1, true))
	}
	acknowledged := l.size
	finish(t, decide(t, l, "last", 1, true))
	l.file.Close() // as a kill would; no head was signed yet
	whole := read(t, o)
	for n := acknowledged; n <= int64(len(whole)); n += 7 {
		p := options(t)
		key, _ := os.ReadFile(keyFile(o.Path))
		_ = os.WriteFile(keyFile(p.Path), key, 0o600)
		if err := os.WriteFile(p.Path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, whole[:n]); len(r.Breaks) != 0 {
			t.Fatalf("cut at %d: %v", n, r.Breaks)
		}
		after, _, err := Open(p)
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		after.Close()
		data := read(t, p)
		if r := verifyFiles(t, p); !r.OK() || len(r.Open) != 0 || !bytes.HasPrefix(data, whole[:acknowledged]) {
			t.Fatalf("cut at %d: %+v", n, r)
		}
	}
}

// TestCrashWhileASegmentEnds leaves the files as a crash leaves them between the
// steps of ending a segment.
func TestCrashWhileASegmentEnds(t *testing.T) {
	for _, step := range []string{"the new one was made", "the old one has its name", "the new one has its name", "half compressed"} {
		t.Run(step, func(t *testing.T) {
			o := options(t)
			l, _ := open(t, o)
			finish(t, decide(t, l, "done", 1, true))
			decide(t, l, "cut", 1, true)
			l.file.Close()
			switch step {
			case "the new one was made":
				_ = os.WriteFile(o.Path+".new", nil, 0o600)
			case "the old one has its name":
				_ = os.Rename(o.Path, segmentName(o.Path, 1))
			case "the new one has its name":
				_ = os.Rename(o.Path, segmentName(o.Path, 1))
				_ = os.WriteFile(o.Path, nil, 0o600)
			case "half compressed":
				_ = os.Rename(o.Path, segmentName(o.Path, 1))
				_ = os.WriteFile(segmentName(o.Path, 1)+".zst", []byte("half"), 0o600)
			}
			_, recovery := open(t, o)
			if recovery == nil || recovery.Interrupted != 1 || recovery.Breaks != nil {
				t.Errorf("got %+v", recovery)
			}
			if r, err := VerifyFiles(o.Path, nil); err != nil || len(r.Breaks) != 0 || len(r.Open) != 0 {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

func TestCutOffEndIsSaidAtTheStart(t *testing.T) {
	o := options(t)
	whole := sample(t, o)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	if err := os.WriteFile(o.Path, bytes.Join(lines[:len(lines)-3], nil), 0o600); err != nil {
		t.Fatal(err)
	}
	_, recovery := open(t, o)
	if recovery == nil || len(recovery.Breaks) != 1 || !strings.Contains(recovery.Breaks[0], "cut off") {
		t.Errorf("got %+v", recovery)
	}
}

func TestKeyIsSecret(t *testing.T) {
	o := options(t)
	fill(t, o, 1)
	if info, err := os.Stat(keyFile(o.Path)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	before := publicKey(t, o)
	fill(t, o, 1)
	if !before.Equal(publicKey(t, o)) {
		t.Error("another key was made at the second start")
	}
}

// TestAlways checks with many writers that nothing returns before it was
// synced, and that one sync serves many.
func TestAlways(t *testing.T) {
	o := segmented(t)
	o.Always = true
	l, _ := open(t, o)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				r := decide(t, l, fmt.Sprintf("%d-%d", i, j), 1, true)
				l.mu.Lock()
				seq := l.seq
				l.mu.Unlock()
				l.syncMu.Lock()
				if l.synced == 0 || l.synced > seq+100 {
					t.Errorf("synced %d of %d", l.synced, seq)
				}
				l.syncMu.Unlock()
				finish(t, r)
			}
		})
	}
	wg.Wait()
	l.Close()
	if r := verifyFiles(t, o); !r.OK() || len(r.Open) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestReadFilters(t *testing.T) {
	l, _ := open(t, segmented(t))
	for i := range 40 {
		run, err := l.Decide(Decided{Run: fmt.Sprint("r", i), Args: Args{fmt.Sprint("cmd", i%4)}, Approved: i%2 == 0, PolicyDecision: []string{"allow", "deny"}[i%2],
			Caller: Caller{UID: 1}, Project: []string{"/p/a", "/p/b"}[i/20], Rules: []string{fmt.Sprint("rule", i%5)}})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := run.Finish(Finished{ErrorType: []string{"", "timeout"}[i/2%2]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		q    Query
		want int
	}{
		{Query{Verdict: "deny"}, 20}, {Query{Verdict: "allow"}, 40}, {Query{Project: "/p/a"}, 30}, {Query{Project: "/p"}, 60}, {Query{Project: "/"}, 0},
		{Query{Rule: "rule2"}, 12}, {Query{Command: "cmd3"}, 10}, {Query{Error: "timeout"}, 20}, {Query{Since: time.Now().Add(time.Hour)}, 0},
		{Query{Until: time.Now().Add(time.Hour)}, 60}, {Query{Verdict: "deny", Command: "cmd2"}, 0}, {Query{Run: "r2"}, 2},
	} {
		c.q.UID, c.q.Limit = 1, 1000
		records, complete, err := l.Read(context.Background(), c.q)
		if err != nil || !complete || len(records) != c.want {
			t.Errorf("%+v: %d records, want %d, %v, %v", c.q, len(records), c.want, complete, err)
		}
	}
}

func BenchmarkAppendAlways(b *testing.B) {
	o := options(b)
	o.Path = filepath.Join("/var/tmp", fmt.Sprint("pinfold-bench-", os.Getpid()), "trace.ndjson")
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(o.Path))
	o.Always = true
	l, _ := open(b, o)
	for b.Loop() {
		finish(b, decide(b, l, "0193f7aa0193f7aa0193f7aa0193", 1, true))
	}
	l.Close()
}
