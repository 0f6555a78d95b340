package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pinfold/pinfold/api"
)

const (
	// maxQueue is how many bytes of events may wait for a client to read them;
	// then the command waits too.
	maxQueue = 1 << 20
	// writePiece is written at a time, within the server's write time.
	writePiece = 64 << 10
)

// errNotRead is why events are not delivered any more.
var errNotRead = errors.New("the client does not read its events")

// A stream sends the events of one run. The run puts them into a queue; a
// goroutine writes them out, so that a slow client holds up the command only
// while the queue is full, and only until it is given up.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	time time.Duration // for each piece
	done chan struct{} // the goroutine is gone

	mu       sync.Mutex
	change   sync.Cond
	queue    bytes.Buffer
	enc      *json.Encoder // into queue
	closed   bool          // nothing more will come
	hurried  bool          // nothing waits for room any more
	failed   bool          // the client is gone or given up
	sequence int64
}

func newStream(w http.ResponseWriter, writeTime time.Duration) *stream {
	s := &stream{w: w, rc: http.NewResponseController(w), time: writeTime, done: make(chan struct{})}
	s.change.L = &s.mu
	s.enc = json.NewEncoder(&s.queue)
	s.enc.SetEscapeHTML(false)
	w.Header().Set("Content-Type", api.NDJSON)
	go s.send()
	return s
}

// event queues an event. It does not block.
func (s *stream) event(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(v)
}

func (s *stream) put(v any) {
	if !s.failed {
		_ = s.enc.Encode(v) // the types of api cannot fail, nor can the buffer
		s.change.Broadcast()
	}
}

// output queues a piece of a stream, when there is room.
func (s *stream) output(e api.OutputEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue.Len() >= maxQueue && !s.failed && !s.hurried {
		s.change.Wait()
	}
	if s.failed {
		return errNotRead
	}
	s.sequence++
	e.Sequence = s.sequence
	s.put(e)
	return nil
}

// hurry says that the command is gone: what it left behind in its pipes, which is
// not much, is queued without waiting for room, so that the end is recorded.
func (s *stream) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = true
	s.change.Broadcast()
}

// close waits until what is queued has been written or the client is given up.
func (s *stream) close() {
	s.mu.Lock()
	s.closed = true
	s.change.Broadcast()
	s.mu.Unlock()
	<-s.done
}

// send writes out what is queued.
func (s *stream) send() {
	defer close(s.done)
	var batch bytes.Buffer
	for {
		s.mu.Lock()
		for s.queue.Len() == 0 && !s.closed {
			s.change.Wait()
		}
		// The encoder writes to &s.queue, so that contents are exchanged.
		batch, s.queue = s.queue, batch
		s.change.Broadcast()
		s.mu.Unlock()
		if batch.Len() == 0 {
			return
		}
		if !s.write(&batch) {
			s.mu.Lock()
			s.failed = true
			s.queue = bytes.Buffer{}
			s.change.Broadcast()
			s.mu.Unlock()
			return
		}
		batch.Reset()
	}
}

// write writes the batch piece by piece and reports whether it could.
func (s *stream) write(batch *bytes.Buffer) bool {
	for batch.Len() > 0 {
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.time))
		if _, err := s.w.Write(batch.Next(writePiece)); err != nil {
			return false
		}
		if s.rc.Flush() != nil {
			return false
		}
	}
	return true
}

// An eventWriter turns what a command writes into events of one kind.
type eventWriter struct {
	stream *stream
	kind   string
	rest   []byte // the beginning of a character that is not all there yet
	size   int64  // bytes so far
}

// Write implements [io.Writer]. A character that a piece cuts in two goes with
// the next piece.
func (w *eventWriter) Write(p []byte) (int, error) {
	n := len(p)
	w.size += int64(n)
	if len(w.rest) > 0 {
		p = append(w.rest, p...)
		w.rest = nil
	}
	if k := partial(p); k > 0 {
		w.rest = append([]byte(nil), p[len(p)-k:]...)
		p = p[:len(p)-k]
	}
	return n, w.emit(p)
}

// flush emits what was held back. It is called when nothing more comes.
func (w *eventWriter) flush() {
	_ = w.emit(w.rest) // an error has been noticed by the stream
	w.rest = nil
}

func (w *eventWriter) emit(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	e := api.OutputEvent{Event: w.kind}
	if utf8.Valid(p) {
		e.Data = string(p)
	} else {
		e.Data, e.Encoding = base64.StdEncoding.EncodeToString(p), api.Base64
	}
	return w.stream.output(e)
}
