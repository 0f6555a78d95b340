package redact

import (
	std "encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
)

const (
	leastRun = 20      // the shortest word that is tried as base64
	runBound = 8 << 10 // so much of a word is tried at a time; a multiple of four
	runStep  = runBound / 2
)

// probe is the distance of the places that are looked at: a word of leastRun
// bytes covers one.
const probe = 16

// runs judges the long words of the text: base64 of something with a secret.
func (r *Redactor) runs(t *text, take func(finding), hold func(start int)) {
	b := t.b
	for i := probe - 1; i < len(b); i += probe {
		if !base64[b[i]] {
			continue
		}
		start, end := i, i
		for start > 0 && base64[b[start-1]] && start != t.run {
			start--
		}
		for end < len(b) && base64[b[end]] {
			end++
		}
		r.run(t, start, end, take, hold)
		i = end - end%probe - 1
		for i < end {
			i += probe
		}
		i -= probe
	}
	// The last word, when no place that was looked at is in it.
	if !t.last {
		start := len(b)
		for start > 0 && base64[b[start-1]] && start != t.run && len(b)-start < leastRun {
			start--
		}
		if start < len(b) && len(b)-start < leastRun {
			hold(start)
		}
	}
}

// run judges the word in [start, end), a long one piece by piece.
func (r *Redactor) run(t *text, start, end int, take func(finding), hold func(start int)) {
	for {
		stop := min(end, start+runBound)
		if stop == len(t.b) && !t.last && stop-start < runBound { // more of the word may come
			hold(start)
			return
		}
		if stop-start < leastRun {
			return
		}
		if kind := r.inBase64(t.b[start:stop]); kind != "" {
			for stop = end; stop < len(t.b) && t.b[stop] == '=' && stop-end < 2; {
				stop++
			}
			if stop == len(t.b) && stop == end+1 && !t.last { // so may more of the padding
				hold(start)
				return
			}
			take(finding{found, start, stop, kind, end == len(t.b)})
			return
		}
		if stop == end {
			return
		}
		start += runStep
	}
}

// inBase64 returns the kind of secret in the text that is base64, or "".
func (r *Redactor) inBase64(b []byte) string {
	// What stands before may be of a diff or an escape.
	for lead := range 2 {
		if head := decode64(b[lead:], 16); len(head) >= 12 && printable(head) {
			return r.within(decode64(b[lead:], len(b)-lead))
		}
	}
	return ""
}

// within returns the kind of the first secret in decoded text.
func (r *Redactor) within(plain []byte) (kind string) {
	t := &text{b: plain, last: true}
	r.plain.each(t, func(a *anchor, at int, whole bool) {
		if kind == "" && whole {
			if f := a.judge(t, at); f.verdict == found && f.kind != localKind {
				kind = f.kind
			}
		}
	})
	return kind
}

// decode64 decodes the first n bytes of base64 of either alphabet, without its
// padding, as far as it goes.
func decode64(b []byte, n int) []byte {
	in := make([]byte, 0, n)
	for _, c := range b[:n] {
		switch c {
		case '-':
			c = '+'
		case '_':
			c = '/'
		case '=':
			continue
		}
		in = append(in, c)
	}
	if len(in)%4 == 1 {
		in = in[:len(in)-1]
	}
	out := make([]byte, std.RawStdEncoding.DecodedLen(len(in)))
	k, _ := std.RawStdEncoding.Decode(out, in) // as far as it goes
	return out[:k]
}

func printable(b []byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// percentBytes are of a URL's encoded part.
var percentBytes = setOf("A-Za-z0-9%._~+*!-")

// judgePercent judges the word around an escape of a URL: its plain text may
// hold a secret.
func (r *Redactor) judgePercent(t *text, at int) finding {
	b := t.b
	start := at
	for ; start > 0 && percentBytes[b[start-1]] && at-start < contextSize-4; start-- {
		if b[start-1] == '%' && escaped(b[start-1:]) {
			return finding{} // judged at its first escape
		}
	}
	end := at
	for end < len(b) && percentBytes[b[end]] && end-at < runBound {
		end++
	}
	if end == len(b) && !t.last && end-at < runBound {
		return t.more(at)
	}
	plain := unescape(b[start:end])
	if kind := r.within(plain); kind != "" {
		return finding{found, at, end, kind, end-at >= runBound}
	}
	return finding{}
}

// escaped reports whether b begins with an escape that judgePercent looks at.
func escaped(b []byte) bool {
	return len(b) > 2 && isHex(b[1]) && isHex(b[2]) && ('2' <= b[1] && b[1] <= '7' || b[1] == '0' && b[2]|0x20 == 'a')
}

func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '%' && i+2 < len(b) && isHex(b[i+1]) && isHex(b[i+2]):
			var c [1]byte
			_, _ = hex.Decode(c[:], b[i+1:i+3])
			out = append(out, c[0])
			i += 2
		case b[i] == '+':
			out = append(out, ' ')
		default:
			out = append(out, b[i])
		}
	}
	return out
}

// forms returns the value as it may be written: as it is, in hexadecimal, as in
// a URL or a JSON string, and the middle of its base64 wherever it begins.
func forms(value string) []string {
	all := []string{value, hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))),
		url.QueryEscape(value), url.PathEscape(value), quoted(value)}
	for lead := range 3 {
		padded := strings.Repeat("\x00", lead) + value
		for _, e := range []*std.Encoding{std.RawStdEncoding, std.RawURLEncoding} {
			s := e.EncodeToString([]byte(padded))
			// Only what no neighbour's bits are in.
			from := []int{0, 2, 3}[lead]
			to := len(padded) * 8 / 6
			all = append(all, s[from:to])
		}
	}
	return all
}

func quoted(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s)
}
