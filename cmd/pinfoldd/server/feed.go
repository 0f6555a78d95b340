package server

import (
	"context"
	"errors"
	"io"
	"sync"
)

// maxFeed is how many bytes of a run's stdin may wait to be read.
const maxFeed = 1 << 20

var (
	errFeedClosed = errors.New("stdin was closed")
	errFeedEnded  = errors.New("the run has ended")
)

// A feed is the stdin of a run: requests put in, the run takes out.
type feed struct {
	mu     sync.Mutex
	change chan struct{} // closed and made anew when anything changes
	buf    []byte
	closed bool // nothing more comes
	ended  bool // nobody reads any more
}

func newFeed(begin []byte, last bool) *feed {
	return &feed{change: make(chan struct{}), buf: begin, closed: last}
}

func (f *feed) changed() {
	close(f.change)
	f.change = make(chan struct{})
}

// put adds data, all of it or nothing, when there is room for it.
func (f *feed) put(ctx context.Context, data []byte, last bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.ended:
			return errFeedEnded
		case f.closed:
			return errFeedClosed
		case len(f.buf) == 0 || len(f.buf)+len(data) <= maxFeed:
			f.buf = append(f.buf, data...)
			f.closed = last
			f.changed()
			return nil
		}
		change := f.change
		f.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Read implements [io.Reader].
func (f *feed) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.ended:
			return 0, errFeedEnded
		case len(f.buf) > 0:
			n := copy(p, f.buf)
			if f.buf = f.buf[n:]; len(f.buf) == 0 {
				f.buf = nil
			}
			f.changed()
			return n, nil
		case f.closed:
			return 0, io.EOF
		}
		change := f.change
		f.mu.Unlock()
		<-change
		f.mu.Lock()
	}
}

// end says that the run is over.
func (f *feed) end() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended, f.buf = true, nil
	f.changed()
}

// open reports whether more may be put in.
func (f *feed) open() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && !f.ended
}
