package server

import (
	"io"
	"sync"
	"time"

	"github.com/pinfold/pinfold/confine"
	"github.com/pinfold/pinfold/trace/redact"
)

// secrets takes secrets out of all that leaves the daemon.
var secrets = redact.New(redact.Options{})

// clean returns the text without its secrets.
func clean(s string) string {
	s, _ = secrets.String(s)
	return s
}

// releaseTime is how long a stream of events may hold back a word because it
// could turn out to be encoded text.
const releaseTime = 50 * time.Millisecond

// streams are the two streams of a run on their way through the redactor.
type streams [2]*redacted

// redactStreams has what the run writes redacted before it comes to stdout and
// stderr; plain also takes control sequences out. live releases what a reader
// may be waiting for.
func redactStreams(r *confine.Request, stdout, stderr io.Writer, plain, live bool) streams {
	var s streams
	for i, to := range []io.Writer{stdout, stderr} {
		s[i] = &redacted{w: secrets.Writer(to)}
		if live {
			s[i].timer = time.AfterFunc(time.Hour, s[i].release)
		}
	}
	r.Stdout, r.Stderr = s[0], s[1]
	if plain {
		r.Stdout, r.Stderr = &plainWriter{w: s[0]}, &plainWriter{w: s[1]}
	}
	return s
}

// close writes what was held back and returns what was redacted, nil for
// nothing.
func (s streams) close() map[string]int {
	var all redact.Counts
	for _, r := range s {
		all.Add(r.close())
	}
	return all
}

// A redacted is one stream. It is safe for concurrent use.
type redacted struct {
	mu    sync.Mutex
	w     *redact.Writer
	timer *time.Timer // nil when nobody waits
}

// Write implements [io.Writer].
func (r *redacted) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Reset(releaseTime)
	}
	return r.w.Write(p)
}

func (r *redacted) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.w.Release() // the next write has the error too
}

func (r *redacted) close() redact.Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	_ = r.w.Close() // an error has been noticed by the stream
	return r.w.Counts()
}

// A plainWriter takes control sequences (ECMA-48) and control characters but
// tabs and line ends out of a stream.
type plainWriter struct {
	w     io.Writer
	state plainState
	out   []byte
}

type plainState uint8

const (
	plainText   plainState = iota
	plainEscape            // after ESC
	plainCSI               // after ESC [
	plainString            // after ESC ] and its kind: to BEL or ESC \
	plainEnd               // after ESC within a string
)

// Write implements [io.Writer].
func (p *plainWriter) Write(b []byte) (int, error) {
	p.out = p.out[:0]
	for _, c := range b {
		if p.keeps(c) {
			p.out = append(p.out, c)
		}
	}
	if len(p.out) > 0 {
		if _, err := p.w.Write(p.out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// keeps takes the next byte and reports whether it is text.
func (p *plainWriter) keeps(c byte) bool {
	switch p.state {
	case plainEscape:
		switch {
		case c == '[':
			p.state = plainCSI
		case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
			p.state = plainString
		case c >= 0x30 || c < ' ':
			p.state = plainText
		}
		return c == '\n'
	case plainCSI:
		if c >= 0x40 && c <= 0x7e || c == '\n' {
			p.state = plainText
		}
		return c == '\n'
	case plainString:
		switch c {
		case 0x07, '\n':
			p.state = plainText
		case 0x1b:
			p.state = plainEnd
		}
		return c == '\n'
	case plainEnd:
		p.state = plainString
		if c == '\\' {
			p.state = plainText
		}
		return false
	}
	if c == 0x1b {
		p.state = plainEscape
		return false
	}
	return c >= ' ' && c != 0x7f || c == '\n' || c == '\t'
}
