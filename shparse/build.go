package shparse

import (
	"slices"
	"strings"
)

// A builder makes the fields of a word, or one text of it. It holds what has
// been made so far for each combination of the values that stand in the word.
type builder struct {
	alts  []partial
	split bool // unquoted expansions are split into fields, patterns expanded
}

// partial is a word that is being made.
type partial struct {
	fields []Field
	cur    Value
	open   bool   // cur is a field even when it is empty
	many   bool   // something unknown in cur may be split
	meta   bool   // cur has an active pattern character
	glob   []byte // cur as a pattern, its inactive characters escaped; only with meta
}

// newBuilder returns a builder for a word, in fields or in one text.
func newBuilder(split bool) *builder { return &builder{alts: make([]partial, 1), split: split} }

// text adds known text. Quoted text is kept as it is, pattern characters in
// unquoted text are active.
func (b *builder) text(s string, quoted bool) {
	for i := range b.alts {
		b.alts[i].add(s, quoted || !b.split)
		b.alts[i].open = b.alts[i].open || quoted || s != ""
	}
}

// mark makes the field exist even when it stays empty, as quotes do.
func (b *builder) mark() {
	for i := range b.alts {
		b.alts[i].open = true
	}
}

// maxText bounds the known text of a value that is put together; more is
// unknown. Doubling a variable a few times would make it endless.
const maxText = 1 << 16

// maxFields bounds the words that one word may become; more are unknown.
const maxFields = 4096

func (p *partial) add(s string, quoted bool) {
	if len(p.cur.text)+len(s) > maxText && len(p.cur.text) > 0 {
		p.cur, p.meta, p.glob = Unknown(Any), false, nil
		p.open, p.many = true, p.many || !quoted
		return
	}
	if !quoted && !p.meta && strings.ContainsAny(s, "*?[") {
		p.meta = true
		p.glob = escapePattern(nil, p.cur.text)
	}
	if p.meta {
		if quoted {
			p.glob = escapePattern(p.glob, s)
		} else {
			p.glob = append(p.glob, s...)
		}
	}
	p.cur.text += s
}

func escapePattern(out []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(`*?[]\`, s[i]) >= 0 {
			out = append(out, '\\')
		}
		out = append(out, s[i])
	}
	return out
}

// maxHoles bounds the holes of a value; more become one.
const maxHoles = 16

func (p *partial) hole(c Class, quoted bool) {
	p.open = true
	p.many = p.many || !quoted && c == Any
	n := len(p.cur.holes)
	switch {
	case n > 0 && p.cur.holes[n-1].at == len(p.cur.text):
		c = min(c, p.cur.holes[n-1].class)
		p.cur.holes = append(slices.Clip(p.cur.holes[:n-1]), hole{len(p.cur.text), c})
	case n >= maxHoles:
		first := p.cur.holes[0].at
		p.cur = Value{text: p.cur.text[:first], holes: []hole{{first, Any}}}
	default:
		p.cur.holes = append(slices.Clip(p.cur.holes), hole{len(p.cur.text), c})
	}
}

func (p *partial) close() {
	if p.open {
		f := Field{Value: p.cur, Many: p.many}
		if p.meta = p.meta && hasActive(string(p.glob)); p.meta && len(p.cur.holes) > 0 {
			f.Many = true
		} else if p.meta {
			f.pattern = string(p.glob)
		}
		if len(p.fields) >= maxFields {
			p.fields = p.fields[:maxFields]
			p.fields[maxFields-1] = Field{Value: Unknown(Any), Many: true}
		} else {
			p.fields = append(p.fields, f)
		}
	}
	*p = partial{fields: p.fields}
}

// value adds one value to a partial. When unquoted and to be split, blanks in
// it end the field.
func (p *partial) value(v Value, quoted, split bool) {
	if quoted || !split {
		at := 0
		for _, h := range v.holes {
			p.add(v.text[at:h.at], true)
			p.hole(h.class, true)
			at = h.at
		}
		p.add(v.text[at:], true)
		p.open = p.open || quoted || len(v.text) > 0
		return
	}
	at, holes := 0, v.holes
	for at < len(v.text) || len(holes) > 0 {
		if len(holes) > 0 && holes[0].at == at {
			p.hole(holes[0].class, false)
			holes = holes[1:]
			continue
		}
		end := len(v.text)
		if len(holes) > 0 {
			end = holes[0].at
		}
		if n := strings.IndexAny(v.text[at:end], " \t\n"); n >= 0 {
			end = at + n
		}
		if end > at {
			p.add(v.text[at:end], false)
			p.open = true
			at = end
			continue
		}
		p.close()
		at++
	}
}

// values adds what is one of several values; none is the empty text.
func (b *builder) values(vs []Value, quoted bool) {
	vs = nonEmpty(vs)
	if len(vs) > 1 && len(b.alts)*len(vs) > maxValues {
		vs = []Value{widen(vs)}
	}
	if len(vs) == 1 {
		for i := range b.alts {
			b.alts[i].value(vs[0], quoted, b.split)
		}
		return
	}
	var out []partial
	for _, p := range b.alts {
		for _, v := range vs {
			q := p
			q.glob, q.fields = slices.Clip(p.glob), slices.Clip(p.fields)
			q.value(v, quoted, b.split)
			out = append(out, q)
		}
	}
	b.alts = out
}

// copies returns what has been made so far, to go on with in another way. When
// there are too many ways it is made one.
func (b *builder) copies() []partial {
	if len(b.alts)*2 > maxValues {
		b.collapse()
	}
	out := make([]partial, len(b.alts))
	for i, p := range b.alts {
		p.glob, p.fields = slices.Clip(p.glob), slices.Clip(p.fields)
		out[i] = p
	}
	return out
}

// collapse makes one partial of all, which is any number of unknown fields.
func (b *builder) collapse() {
	b.alts = b.alts[:1]
	b.alts[0] = partial{}
	b.manyUnknown()
}

// list adds the elements of "$@" or "${a[@]}": each is a field of its own, the
// first and last joined with what stands beside them.
func (b *builder) list(fields []Field, quoted bool) {
	for i := range b.alts {
		p := &b.alts[i]
		for j, f := range fields {
			if j > 0 {
				if b.split {
					p.close()
				} else {
					p.add(" ", true)
				}
			}
			p.value(f.Value, quoted, b.split)
			p.many = p.many || f.Many && b.split
		}
	}
}

// unknown adds something of which only the class is known.
func (b *builder) unknown(c Class, quoted bool) { b.values([]Value{Unknown(c)}, quoted) }

// manyUnknown adds any number of unknown fields.
func (b *builder) manyUnknown() {
	for i := range b.alts {
		b.alts[i].hole(Any, true)
		b.alts[i].many = b.split
	}
}

// finish returns the lists of fields that the word may become.
func (b *builder) finish(offset, end int) [][]Field {
	out := make([][]Field, len(b.alts))
	for i := range b.alts {
		p := &b.alts[i]
		p.close()
		for j := range p.fields {
			p.fields[j].Offset, p.fields[j].End = offset, end
		}
		out[i] = p.fields
	}
	return out
}

// single returns the texts that the word may become when it is not split.
func (b *builder) single() []Value {
	out := make([]Value, 0, len(b.alts))
	for _, p := range b.alts {
		out = append(out, p.cur)
	}
	return merge(nil, out)
}
