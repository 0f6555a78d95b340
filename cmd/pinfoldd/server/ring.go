package server

import (
	"sync"

	"github.com/pinfold/pinfold/api"
)

// maxPart is the most bytes of output in one answer about a run.
const maxPart = 256 << 10

// maxPieces bounds what small pieces cost beside their bytes.
const maxPieces = 8 << 10

// A ring keeps the latest output of a run in the background.
type ring struct {
	mu     sync.Mutex
	change chan struct{} // closed and made anew when anything changes
	pieces []piece
	first  int64 // offset of the first piece that is kept
	next   int64 // offset of what comes next
	ended  bool
}

// A piece is what came at once on one stream.
type piece struct {
	stream string
	data   []byte
}

func newRing() *ring { return &ring{change: make(chan struct{})} }

// put appends to a stream and drops what is too old. data is kept.
func (r *ring) put(stream string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// a program that writes byte by byte makes few pieces
	if n := len(r.pieces); n > 0 && r.pieces[n-1].stream == stream && len(r.pieces[n-1].data)+len(data) <= 4<<10 {
		r.pieces[n-1].data = append(r.pieces[n-1].data, data...)
	} else {
		r.pieces = append(r.pieces, piece{stream, data})
	}
	r.next += int64(len(data))
	drop := 0
	for r.next-r.first > api.RingBytes || len(r.pieces)-drop > maxPieces {
		r.first += int64(len(r.pieces[drop].data))
		r.pieces[drop] = piece{}
		drop++
	}
	r.pieces = r.pieces[drop:]
	r.changed()
}

func (r *ring) changed() {
	close(r.change)
	r.change = make(chan struct{})
}

func (r *ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.changed()
}

// from returns the output from the offset on, at most about maxPart, the offset
// after it and how much before it is lost. When there is none yet, it returns
// what to wait for.
func (r *ring) from(cursor int64) (out []api.Piece, next, dropped int64, wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out = []api.Piece{}
	at := r.first
	next = min(max(cursor, at), r.next)
	dropped = max(0, at-cursor)
	for _, p := range r.pieces {
		end := at + int64(len(p.data))
		if end > next && len(out) > 0 && next-cursor-dropped >= maxPart {
			break
		}
		if end > next {
			data := p.data[next-at:]
			text, encoding := api.EncodeData(data)
			out = append(out, api.Piece{Stream: p.stream, Data: text, Encoding: encoding})
			next = end
		}
		at = end
	}
	if len(out) == 0 && !r.ended {
		wait = r.change
	}
	return out, next, dropped, wait
}

// A ringWriter puts one stream into a ring. A character that a piece cuts in two
// goes with the next piece.
type ringWriter struct {
	ring *ring
	name string
	rest []byte
	size int64
}

// Write implements [io.Writer]. It does not fail.
func (w *ringWriter) Write(p []byte) (int, error) {
	w.size += int64(len(p))
	data := append(w.rest, p...)
	w.rest = nil
	if k := partial(data); k > 0 {
		w.rest = append([]byte(nil), data[len(data)-k:]...)
		data = data[:len(data)-k]
	}
	if len(data) > 0 {
		w.ring.put(w.name, append([]byte(nil), data...))
	}
	return len(p), nil
}

// flush puts in what was held back.
func (w *ringWriter) flush() {
	if len(w.rest) > 0 {
		w.ring.put(w.name, w.rest)
		w.rest = nil
	}
}
