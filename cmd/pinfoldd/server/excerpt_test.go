package server

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pinfold/pinfold/api"
)

func TestExcerpt(t *testing.T) {
	for _, c := range []struct {
		name, in       string
		limit          int
		want, encoding string
		cut            int64
	}{
		{name: "nothing", limit: 4},
		{name: "all", in: "abcd", limit: 4, want: "abcd"},
		{name: "one too many", in: "abcde", limit: 4, want: "abde", cut: 1},
		{name: "odd limit", in: "abcdefg", limit: 3, want: "abg", cut: 4},
		{name: "limit of one", in: "abc", limit: 1, want: "a", cut: 2},
		{name: "no output wanted", in: "abc", limit: 0, want: "", cut: 3},
		{name: "characters, not bytes", in: "äöü€😀", limit: 4, want: "äö€😀", cut: 1},
		{name: "wide characters that fit", in: "😀😀😀😀", limit: 4, want: "😀😀😀😀"},
		{name: "long", in: "<" + strings.Repeat("x", 100000) + ">", limit: 2, want: "<>", cut: 100000},
		{name: "bytes", in: "a\xffb", limit: 4, want: "a\xffb", encoding: api.Base64},
		{name: "bytes cut", in: "ab\xffcd", limit: 2, want: "ad", encoding: api.Base64, cut: 3},
		{name: "half a character at the end", in: "a\xe2\x82", limit: 8, want: "a\xe2\x82", encoding: api.Base64},
		{name: "NUL is text", in: "a\x00b", limit: 4, want: "a\x00b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newExcerpt(c.limit)
			for rest := c.in; rest != ""; { // in pieces that cut characters
				n := min(len(rest), 1+rand.IntN(5))
				if got, err := e.Write([]byte(rest[:n])); got != n || err != nil {
					t.Fatal(got, err)
				}
				rest = rest[n:]
			}
			if e.size != int64(len(c.in)) {
				t.Errorf("size %d", e.size)
			}
			data, encoding, cut := e.result()
			if encoding == api.Base64 {
				raw, err := base64.StdEncoding.DecodeString(data)
				if err != nil {
					t.Fatal(err)
				}
				data = string(raw)
			}
			if data != c.want || encoding != c.encoding || cut != c.cut {
				t.Errorf("got %.60q, %q, %d cut; want %.60q, %q, %d", data, encoding, cut, c.want, c.encoding, c.cut)
			}
		})
	}
}

// TestExcerptAgainstTheWhole compares with the plain way: all in memory.
func TestExcerptAgainstTheWhole(t *testing.T) {
	alphabet := []string{"a", "é", "€", "😀"}
	for range 500 {
		var in strings.Builder
		for range rand.IntN(200) {
			in.WriteString(alphabet[rand.IntN(len(alphabet))])
		}
		limit := rand.IntN(60)
		e := newExcerpt(limit)
		for rest := in.String(); rest != ""; {
			n := min(len(rest), 1+rand.IntN(90))
			_, _ = e.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		want, cut := []rune(in.String()), int64(0)
		if len(want) > limit {
			cut = int64(len(want) - limit)
			want = append(append([]rune(nil), want[:(limit+1)/2]...), want[len(want)-limit/2:]...)
		}
		if got, encoding, n := e.result(); got != string(want) || encoding != "" || n != cut {
			t.Fatalf("limit %d of %q: got %q, %d cut; want %q, %d", limit, in.String(), got, n, string(want), cut)
		}
		if held := cap(e.first) + cap(e.last); held > 64+12*utf8.UTFMax*limit {
			t.Fatalf("holds %d bytes for a limit of %d", held, limit)
		}
	}
}
