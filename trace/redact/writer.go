package redact

import (
	"bytes"
	"io"
)

// A Writer redacts a stream. It is not safe for concurrent use.
type Writer struct {
	r      *Redactor
	w      io.Writer
	buf    []byte // what came out last, and from done on what has not
	done   int
	run    int // where the word begins that is held back, or -1
	fresh  int // bytes that have come since the last search
	drop   dropping
	counts Counts
	failed bool
	err    error // of w
	out    []byte
}

// dropping says what is being dropped: the rest of a secret whose beginning has
// been replaced.
type dropping struct {
	kind string // "" for nothing
	tail []byte // of a key: what was dropped last
}

// Writer returns a writer that writes to w what is written to it, redacted.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{r: r, w: w, run: -1} }

// Counts returns what was redacted so far.
func (w *Writer) Counts() Counts { return w.counts }

// Write implements [io.Writer]. An error is one of the writer beneath.
func (w *Writer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), maxHeld/2)
		w.guarded(rest[:n], false)
		rest = rest[n:]
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// Close writes what was held back. It does not close the writer beneath.
func (w *Writer) Close() error {
	w.guarded(nil, true)
	return w.err
}

// guarded takes the next piece, and withholds when that fails.
func (w *Writer) guarded(p []byte, last bool) {
	if w.failed {
		return
	}
	w.guard(func() { w.take(p, last) })
}

func (w *Writer) guard(f func()) {
	defer func() {
		if recover() != nil {
			w.failed = true
			w.buf, w.done = nil, 0
			w.counts.Add(Counts{"failed": 1})
			w.put([]byte(Withheld))
		}
	}()
	f()
}

func (w *Writer) put(b []byte) {
	if len(b) > 0 && w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *Writer) take(p []byte, last bool) {
	p = w.swallow(p)
	w.buf = append(w.buf, p...)
	w.fresh += len(p)
	held := len(w.buf) - w.done
	if !last && held > 2048 && w.fresh < held/8 {
		return // searched again when enough has come, so that many small pieces cost little
	}
	w.search(last, false)
}

// Release writes what is held back only because it could be the beginning of
// encoded text: what a terminal's reader waits for.
func (w *Writer) Release() error {
	if len(w.buf) > w.done && !w.failed {
		w.guard(func() { w.search(false, true) })
	}
	return w.err
}

// search writes what is decided of the text in hand.
func (w *Writer) search(last, release bool) {
	w.fresh = 0
	t := &text{b: w.buf, last: last, run: w.run}
	secrets, hold, word := w.r.search(t, w.done)
	if !last && len(w.buf)-min(hold, word) > maxHeld {
		t.last = true // what is held back is too long: it is judged as it is
		secrets, hold, word = w.r.search(t, w.done)
	}
	w.run = -1
	if !release && word < hold {
		hold, w.run = word, word
	}
	w.out = w.out[:0]
	for _, f := range secrets {
		if f.start >= hold {
			break
		}
		if f.end <= w.done {
			continue
		}
		if f.start > w.done {
			w.out = append(w.out, w.buf[w.done:f.start]...)
		}
		w.out = append(w.out, Marker(f.kind)...)
		w.counts.Add(Counts{f.kind: 1})
		w.done = f.end
		if f.sticky {
			w.drop = dropping{kind: f.kind, tail: bytes.Clone(w.buf[max(f.start, f.end-16):f.end])}
			rest := bytes.Clone(w.buf[w.done:])
			w.put(w.out)
			w.buf, w.done, w.run = append(w.buf[:0], ' '), 1, -1
			w.take(rest, last)
			return
		}
	}
	if hold > w.done {
		w.out = append(w.out, w.buf[w.done:hold]...)
		w.done = hold
	}
	w.put(w.out)
	if cut := w.done - contextSize; cut > 0 {
		w.buf = append(w.buf[:0], w.buf[cut:]...)
		w.done -= cut
		w.run = max(w.run-cut, -1)
	}
}

// swallow drops what belongs to the secret that is being dropped and returns
// the rest.
func (w *Writer) swallow(p []byte) []byte {
	switch w.drop.kind {
	case "":
		return p
	case "private_key":
		return w.swallowKey(p)
	}
	for i, c := range p {
		if c <= ' ' || !bearer[c] {
			w.drop.kind = ""
			return p[i:]
		}
	}
	return nil
}

// swallowKey drops up to the end marker of a key, and that, or to the first byte
// that cannot be of a key.
func (w *Writer) swallowKey(p []byte) []byte {
	for i, c := range p {
		if !keyBytes[c] {
			w.drop.kind = ""
			return p[i:]
		}
		tail := append(w.drop.tail, c)
		if len(tail) > 64 {
			tail = append(tail[:0], tail[len(tail)-48:]...)
		}
		w.drop.tail = tail
		if at := bytes.LastIndex(tail, []byte("-----END")); at >= 0 && bytes.HasSuffix(tail[at+8:], []byte("-----")) {
			w.drop.kind = ""
			return p[i+1:]
		}
	}
	return nil
}
