package redact

import (
	"bytes"
	std "encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOrdinaryTextIsUntouched checks that text in which nothing is found comes
// out byte for byte, text or not.
func TestOrdinaryTextIsUntouched(t *testing.T) {
	r := New(Options{LocalPaths: true})
	noise := make([]byte, 300<<10)
	src := rand.New(rand.NewPCG(5, 6))
	for i := range noise {
		noise[i] = byte(src.Uint32())
	}
	for name, in := range map[string][]byte{
		"noise": noise, "zeros": make([]byte, 100<<10), "letters": bytes.Repeat([]byte("a"), 200<<10),
		"base64 of noise": []byte(std.StdEncoding.EncodeToString(noise)), "blanks": bytes.Repeat([]byte(" \n"), 50<<10),
		"source": ordinary(t)[:200<<10],
	} {
		for _, n := range []int{1 << 20, 4096, 31} {
			out, counts := pieces(r, string(in), n, n)
			if counts == nil && out != string(in) || counts != nil && name != "source" {
				t.Errorf("%s in pieces of %d: %d bytes became %d, %v", name, n, len(in), len(out), counts)
			}
		}
	}
}

// TestHeldBytesAreBounded checks that no text makes the writer hold more than
// it may, and that a secret without an end is dropped to where its word ends.
func TestHeldBytesAreBounded(t *testing.T) {
	r := New(Options{LocalPaths: true})
	for _, start := range []string{"sk-", "ghp_", "PASSWORD=", `"secret": "`, "Bearer ", "eyJ", "-----BEGIN PRIVATE" + " KEY-----\n", "https://u:", "Z2hwX", "/home/", "%20"} {
		for _, fill := range []string{"aB3x", "aB3x ", "a.b-", "%20"} {
			var b bytes.Buffer
			w := r.Writer(&b)
			_, _ = w.Write([]byte(start))
			piece := []byte(strings.Repeat(fill, 1000))
			for range 100 {
				_, _ = w.Write(piece)
				if held := len(w.buf) - w.done; held > 2*maxHeld {
					t.Fatalf("%q, %q: %d bytes are held", start, fill, held)
				}
			}
			_ = w.Close()
		}
	}
	long := "OPENAI=sk-" + strings.Repeat("aB3xK9", 50_000) + " end"
	if out, _ := pieces(r, long, 4096, 4096); out != "OPENAI=[REDACTED:openai] end" {
		t.Errorf("a long secret became %d bytes: %.80q", len(out), out)
	}
}

func TestExactValues(t *testing.T) {
	const value = `correct horse/"battery"+staple`
	r := New(Options{Values: map[string]string{"db": value, "short": "abc"}})
	for name, text := range map[string]string{
		"plain": value, "hex": hex.EncodeToString([]byte(value)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(value))),
		"query": url.QueryEscape(value), "path": url.PathEscape(value), "JSON": `correct horse/\"battery\"+staple`,
	} {
		for _, around := range []string{"", " ", "x", "="} {
			in := around + text + around
			if out, counts := pieces(r, in, 1, 2); strings.Replace(out, around, "", 2) != "[REDACTED:db]" && out != around+"[REDACTED:db]" || counts["db"] != 1 {
				t.Errorf("%s: %q became %q", name, in, out)
			}
		}
	}
	for lead := range 5 {
		in := std.StdEncoding.EncodeToString([]byte("12345"[:lead] + value + "tail of it"))
		out, _ := r.String(in)
		if piece := leaks(out, in[8:len(in)-16]); piece != "" {
			t.Errorf("base64 behind %d bytes: %q is left in %q", lead, piece, out)
		}
	}
	if out, _ := r.String("abcabc"); out != "abcabc" {
		t.Errorf("a value that is too short was redacted: %q", out)
	}
}

func TestLocalPaths(t *testing.T) {
	r := New(Options{LocalPaths: true})
	for in, want := range map[string]string{
		"/home/ada/src/x.go:1":        "[LOCAL_PATH]/src/x.go:1",
		`{"p":"/Users/ada"}`:          `{"p":"[LOCAL_PATH]"}`,
		`C:\Users\ada\x`:              `[LOCAL_PATH]\x`,
		"file:///home/ada/x":          "file:///home/ada/x",
		"cd /home/ada && ls /home/b":  "cd [LOCAL_PATH] && ls [LOCAL_PATH]",
		"/srv/home/ada":               "/srv/home/ada",
		"/home/":                      "/home/",
		"path=/home/ada:/home/bob/go": "path=[LOCAL_PATH]:[LOCAL_PATH]/go",
	} {
		if in == "file:///home/ada/x" {
			want = "file://[LOCAL_PATH]/x"
		}
		if got, _ := r.String(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestFailureWithholds makes the redactor fail in the middle of a stream.
func TestFailureWithholds(t *testing.T) {
	r := New(Options{})
	r.all = newFilter(append(builtin(), &anchor{text: "fails", judge: func(*text, int) finding { panic("it fails") }}))
	var b bytes.Buffer
	w := r.Writer(&b)
	for _, s := range []string{"before\n", "it fails here", " and after", "\n"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	if b.String() != "before\n"+Withheld || w.Counts()["failed"] != 1 {
		t.Errorf("got %q, %v", b.String(), w.Counts())
	}
}

func TestWriterPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	w := New(Options{}).Writer(writerFunc(func([]byte) (int, error) { return 0, broken }))
	if _, err := w.Write([]byte("hello, world\n")); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestRelease checks that a word that waits only because it could be encoded
// comes out when asked, and the beginning of a secret does not.
func TestRelease(t *testing.T) {
	var b bytes.Buffer
	w := New(Options{}).Writer(&b)
	_, _ = io.WriteString(w, "Continue? yes/No")
	_ = w.Release()
	if b.String() != "Continue? yes/No" {
		t.Errorf("got %q", b.String())
	}
	_, _ = io.WriteString(w, " ghp_abc123")
	_ = w.Release()
	if b.String() != "Continue? yes/No " {
		t.Errorf("the beginning of a token came out: %q", b.String())
	}
}

// FuzzCuts checks that cuts do not matter for any text.
func FuzzCuts(f *testing.F) {
	for _, s := range samples()[:40] {
		f.Add(s.text, uint8(3))
	}
	r := New(Options{LocalPaths: true, Values: map[string]string{"v": "a value of ours"}})
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		if len(s) > 4096 {
			return
		}
		want, _ := r.String(s)
		if got, _ := pieces(r, s, int(n), int(n)); got != want {
			t.Errorf("%q by %d:\n got %q\nwant %q", s, n, got, want)
		}
		if strings.Contains(want, Withheld) && !strings.Contains(s, Withheld) {
			t.Errorf("%q: the redactor failed", s)
		}
	})
}

// TestHostileTextIsNotSlow checks that text made of anchors costs in proportion
// to its length: four times the text, not sixteen times the time.
func TestHostileTextIsNotSlow(t *testing.T) {
	r := New(Options{LocalPaths: true})
	took := func(s string, size, piece int) time.Duration {
		text := strings.Repeat(s, size/len(s))
		least := time.Hour
		for range 3 {
			start := cpuTime(t)
			pieces(r, text, piece, piece)
			least = min(least, cpuTime(t)-start)
		}
		return max(least, 100*time.Microsecond)
	}
	for _, s := range []string{"sk-", "sk-a1", "eyJ-", "eyJ.", "eyJhbGciOi.", "pass", "token=", "token=\"", "PASSWORD=", "%20", "%3d", "%", "://", "a://b:", "-----BEGIN", "-----BEGIN PRIVATE" + " KEY-----",
		"bearer ", "basic ", "authorization:", "Z2hw", "/home/", ":AA", "1234567890:AA", "_key", "\\n", "\x1b[1mtoken", "hooks.slack.com/services/"} {
		for _, piece := range []int{1 << 20, 100} {
			little, much := took(s, 16<<10, piece), took(s, 64<<10, piece)
			if ratio := float64(much) / float64(little); ratio > 10 && much > 50*time.Millisecond {
				t.Errorf("%q by %d: %v for 16 KiB, %v for 64 KiB", s, piece, little, much)
			}
		}
	}
}

// cpuTime returns the time of the processor that the process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
