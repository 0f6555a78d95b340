package redact

// An anchor is a few bytes by which a secret is found.
type anchor struct {
	text string // three bytes or more
	fold bool   // capitals are the same; text is in small letters
	// ahead says that what is redacted begins with the anchor, so that an
	// anchor of which only the beginning is there is held back.
	ahead bool
	judge func(t *text, at int) finding
}

// A finding is what became of an anchor.
type finding struct {
	verdict    verdict
	start, end int // of what is redacted; of an open one only the start counts
	kind       string
	sticky     bool // it goes on with every byte of its word when it was cut by a bound
}

type verdict uint8

const (
	nothing verdict = iota
	found           // a secret
	open            // more text is needed; nothing before start is concerned
)

// text is what is searched. With last nothing more will come.
type text struct {
	b    []byte
	last bool
	run  int // where a long word is taken to begin, of which more came out before; or -1
	ends map[*set]span
}

// A span is a stretch of text, [from, to).
type span struct{ from, to int }

// end returns where the bytes of the set end that begin at from, at most so many
// on. A stretch is measured once, however many anchors are in it.
func (t *text) end(s *set, from, most int) int {
	known := t.ends[s]
	if from < known.from || from >= known.to {
		known = span{from, from}
		for known.to < len(t.b) && s[t.b[known.to]] {
			known.to++
		}
		if t.ends == nil {
			t.ends = map[*set]span{}
		}
		t.ends[s] = known
	}
	return min(known.to, from+most)
}

// more returns an open finding, or nothing when nothing will come.
func (t *text) more(start int) finding {
	if t.last {
		return finding{}
	}
	return finding{verdict: open, start: start}
}

// A ref says that the window at an offset of -1, 0 or 1 in an anchor was seen.
// Windows are looked at in every second place, so each anchor has two; one of
// three bytes begins in the second with any byte, and few begin alike.
type ref struct {
	anchor *anchor
	offset int
}

// A filter finds anchors.
type filter struct {
	bits    [1 << 10]uint64 // by hash: a window of some anchor, perhaps
	lists   [1 << 16]uint16 // by hash: one more than the index in refs
	refs    [][]ref
	anchors []*anchor
	first   [256][]*anchor // those ahead, by their first byte
}

// folded makes capitals small in a window. Other bytes become what nothing
// depends on: what is found is compared in full.
const folded = 0x202020

func hash(window uint32) uint32 { return window * 0x9e3779b1 >> 16 }

func newFilter(anchors []*anchor) *filter {
	f := &filter{anchors: anchors}
	for _, a := range anchors {
		f.enter(a.text[:3], ref{a, 0})
		if len(a.text) > 3 {
			f.enter(a.text[1:4], ref{a, 1})
		} else {
			for c := range 256 {
				if byte(c)|0x20 == byte(c) { // the others fold to one of these
					f.enter(string([]byte{byte(c)})+a.text[:2], ref{a, -1})
				}
			}
		}
		if a.ahead {
			c := a.text[0]
			f.first[c] = append(f.first[c], a)
			if a.fold && 'a' <= c && c <= 'z' {
				f.first[c-32] = append(f.first[c-32], a)
			}
		}
	}
	return f
}

func (f *filter) enter(s string, r ref) {
	w := (uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16) | folded
	h := hash(w)
	f.bits[h>>6] |= 1 << (h & 63)
	if f.lists[h] == 0 {
		f.refs = append(f.refs, nil)
		f.lists[h] = uint16(len(f.refs))
	}
	f.refs[f.lists[h]-1] = append(f.refs[f.lists[h]-1], r)
}

// starts reports whether b has the anchor at i; part, that b ends within it.
func (a *anchor) starts(b []byte, i int) (whole, part bool) {
	if i < 0 {
		return false, false
	}
	n := min(len(a.text), len(b)-i)
	for k := range n {
		c := b[i+k]
		if a.fold && 'A' <= c && c <= 'Z' {
			c += 32
		}
		if c != a.text[k] {
			return false, false
		}
	}
	return n == len(a.text), n < len(a.text)
}

// each calls visit for every anchor in the text, in the order of the text but
// for one place.
func (f *filter) each(t *text, visit func(a *anchor, at int, whole bool)) {
	b := t.b
	n := len(b)
	i := 0
	for ; i+8 <= n; i += 6 {
		// The compiler makes one load of this.
		v := uint64(b[i]) | uint64(b[i+1])<<8 | uint64(b[i+2])<<16 | uint64(b[i+3])<<24 |
			uint64(b[i+4])<<32 | uint64(b[i+5])<<40 | uint64(b[i+6])<<48 | uint64(b[i+7])<<56
		v |= 0x2020202020202020
		w0, w1, w2 := uint32(v)&0xffffff, uint32(v>>16)&0xffffff, uint32(v>>32)&0xffffff
		h0, h1, h2 := hash(w0), hash(w1), hash(w2)
		hit := f.bits[h0>>6&1023]>>(h0&63) | f.bits[h1>>6&1023]>>(h1&63) | f.bits[h2>>6&1023]>>(h2&63)
		if hit&1 != 0 {
			f.look(b, i, w0, visit)
			f.look(b, i+2, w1, visit)
			f.look(b, i+4, w2, visit)
		}
	}
	for ; i+3 <= n; i += 2 {
		f.look(b, i, (uint32(b[i])|uint32(b[i+1])<<8|uint32(b[i+2])<<16)|folded, visit)
	}
	if t.last {
		return
	}
	// Anchors of which less than a window and a place is there.
	for i := max(n-3, 0); i < n; i++ {
		for _, a := range f.first[b[i]] {
			if _, part := a.starts(b, i); part {
				visit(a, i, false)
			}
		}
	}
}

// look visits the anchors of which the window at i is one.
func (f *filter) look(b []byte, i int, window uint32, visit func(a *anchor, at int, whole bool)) {
	h := hash(window)
	if f.bits[h>>6&1023]>>(h&63)&1 == 0 {
		return
	}
	for _, r := range f.refs[f.lists[h]-1] {
		if whole, part := r.anchor.starts(b, i-r.offset); whole || part {
			visit(r.anchor, i-r.offset, whole)
		}
	}
}
