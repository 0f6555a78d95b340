package redact

import (
	"slices"
	"strings"
)

const (
	// LocalPath stands for a home directory.
	LocalPath = "[LOCAL_PATH]"
	// Withheld stands for text that could not be searched.
	Withheld = "[WITHHELD: the redaction failed]"
	// MinValue is the fewest bytes of an exact value: shorter ones are in
	// ordinary text.
	MinValue = 6

	maxHeld     = 64 << 10 // bytes that are held back
	contextSize = 256      // bytes of what came out that are kept, to judge what follows
)

// Marker returns what stands for a secret of the kind.
func Marker(kind string) string {
	if kind == localKind {
		return LocalPath
	}
	return "[REDACTED:" + kind + "]"
}

// HasMarker reports whether the text holds what stands for a secret.
func HasMarker(s string) bool {
	return strings.Contains(s, "[REDACTED") || strings.Contains(s, LocalPath)
}

// Counts says how much of each kind was redacted; "failed" counts failures.
type Counts map[string]int

// Add adds the counts of another.
func (c *Counts) Add(other Counts) {
	if len(other) > 0 && *c == nil {
		*c = Counts{}
	}
	for kind, n := range other {
		(*c)[kind] += n
	}
}

// Options say what is redacted besides what always is.
type Options struct {
	LocalPaths bool              // home directories too
	Values     map[string]string // exact values, by the name that their markers show; shorter than MinValue they are not taken
}

// A Redactor takes secrets out of text. It is immutable and safe for concurrent
// use.
type Redactor struct {
	all   *filter
	plain *filter // for decoded text
}

// New returns a redactor.
func New(o Options) *Redactor {
	r := &Redactor{}
	inner := builtin()
	for name, v := range o.Values {
		if len(v) < MinValue {
			continue
		}
		seen := map[string]bool{}
		for _, form := range forms(v) {
			if len(form) >= MinValue && !seen[form] {
				seen[form] = true
				inner = append(inner, exact(form, name))
			}
		}
	}
	r.plain = newFilter(inner)
	outer := slices.Clone(inner)
	for _, c := range "0123456789aAbBcCdDeEfF" {
		for _, first := range "234567" {
			outer = append(outer, &anchor{text: "%" + string(first) + string(c), judge: r.judgePercent})
		}
	}
	outer = append(outer, &anchor{text: "%0a", fold: true, judge: r.judgePercent})
	if o.LocalPaths {
		outer = append(outer, homes()...)
	}
	r.all = newFilter(outer)
	return r
}

func exact(form, name string) *anchor {
	return &anchor{text: form, ahead: true, judge: func(_ *text, at int) finding {
		return finding{found, at, at + len(form), name, false}
	}}
}

func homes() []*anchor {
	var list []*anchor
	for _, prefix := range []string{"/home/", "/Users/", `C:\Users\`, `c:\Users\`, `C:\\Users\\`, "C:/Users/"} {
		list = append(list, &anchor{text: prefix, ahead: true, judge: judgeHome(prefix)})
	}
	return list
}

// builtin returns the anchors of what is always redacted.
func builtin() []*anchor {
	var list []*anchor
	for _, s := range shapes {
		list = append(list, s.anchor())
	}
	for _, c := range "0123456789abcdef" {
		list = append(list, shape{"twilio", "SK" + string(c), hexLow, 31, 31, 30}.anchor())
	}
	for _, name := range nameAnchors {
		list = append(list, &anchor{text: name, fold: true, judge: judgeName})
	}
	list = append(list,
		&anchor{text: "authorization", fold: true, judge: judgeAuthorization},
		&anchor{text: "bearer", fold: true, judge: judgeScheme("bearer")},
		&anchor{text: "basic", fold: true, judge: judgeScheme("basic")},
		&anchor{text: "-----BEGIN", ahead: true, judge: judgeKey},
		&anchor{text: "://", judge: judgeURL},
		&anchor{text: "eyJ", ahead: true, judge: judgeJWT})
	for _, prefix := range []string{"hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"} {
		list = append(list, &anchor{text: prefix, judge: judgeWebhook(prefix)})
	}
	return list
}

// String returns the text without its secrets, and how many they were.
func (r *Redactor) String(s string) (string, Counts) {
	if len(s) < 3 {
		return s, nil
	}
	var b strings.Builder
	w := r.Writer(&b)
	_, _ = w.Write([]byte(s)) // a Builder does not fail
	_ = w.Close()
	if len(w.counts) == 0 {
		return s, nil
	}
	return b.String(), w.counts
}

// general kinds say less than others of the same text.
var general = map[string]int{"value": 1, "authorization": 1, "bearer": 1, "basic": 1, "url_password": 1}

// search returns the secrets in the text, in order and apart, where what must be
// held back begins, and where a word does that may turn out to be base64.
func (r *Redactor) search(t *text, done int) (secrets []finding, hold, word int) {
	hold, word = len(t.b), len(t.b)
	take := func(f finding) {
		switch f.verdict {
		case open:
			hold = min(hold, f.start)
		case found:
			if f.end > done {
				secrets = append(secrets, f)
			}
		}
	}
	r.all.each(t, func(a *anchor, at int, whole bool) {
		switch {
		case at >= hold:
			// It does not come out now, and is seen again.
		case whole:
			take(a.judge(t, at))
		case a.ahead && len(t.b)-at < 3:
			word = min(word, at) // so little tells nothing
		case a.ahead:
			take(t.more(at))
		default:
			// Its text is no secret, and is seen again when more has come.
		}
	})
	r.runs(t, take, func(start int) { word = min(word, start) })
	slices.SortStableFunc(secrets, func(a, b finding) int {
		if a.start != b.start {
			return a.start - b.start
		}
		if a.end != b.end {
			return b.end - a.end
		}
		return general[a.kind] - general[b.kind]
	})
	apart := secrets[:0]
	for _, f := range secrets {
		if n := len(apart); n > 0 && f.start < apart[n-1].end {
			if f.end > apart[n-1].end {
				apart[n-1].end, apart[n-1].sticky = f.end, f.sticky
			}
			continue
		}
		apart = append(apart, f)
	}
	for _, f := range apart {
		if f.start < hold && hold < f.end {
			hold = f.start
		}
		if f.start < word && word < f.end {
			word = f.start
		}
	}
	return apart, hold, word
}
