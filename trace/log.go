package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxOutcome is the most bytes of a finished or stop record; so much is
	// allocated for each open run.
	maxOutcome = 8 << 10
	// roomChunk is how much is allocated ahead at a time, so that most records
	// need no allocation of their own.
	roomChunk = 256 << 10
	// maxDetail and maxExecutable bound what a record repeats of others' text.
	maxDetail     = 512
	maxExecutable = 1 << 10
	// syncDelay is how long after a record the file is flushed to the disk.
	syncDelay = time.Second
)

// Options say how a log is opened.
type Options struct {
	Path    string      // absolute, in a directory that only its owner can write
	Mode    os.FileMode // of a new file: 0600, or 0640 to let a group read
	Version string      // of the daemon, for the start record
	Build   string
	Setting string
}

// A Log is an open trace. It is safe for concurrent use.
type Log struct {
	file *os.File
	path string

	mu     sync.Mutex
	size   int64    // of the file; every byte below is part of a whole record
	room   int64    // the file's blocks are allocated up to here
	seq    uint64   // of the last record
	prev   string   // its hash
	open   int      // runs whose outcome is still to come
	owed   [][]byte // outcomes that could not be written yet, in order
	dead   error    // why nothing can be appended any more
	buf    []byte   // reused for lines
	dirty  bool     // written to and not yet synced
	closed bool
}

// A BusyError says that another process has the log open.
type BusyError struct{ Path string }

// Error names the file.
func (e *BusyError) Error() string { return e.Path + ": another pinfoldd writes this trace" }

// Open opens the trace, or makes it, repairs what a crash left, closes runs that
// were cut off, and writes a start record that says all that. What it reports
// was wrong is nil when nothing was. The error is a [*BusyError] when another
// process has the trace open.
func Open(o Options) (*Log, *Recovery, error) {
	l := &Log{path: o.Path}
	if err := l.openFile(o.Mode); err != nil {
		return nil, nil, err
	}
	recovery, err := l.repair()
	if err == nil {
		err = l.appendNew(start{EventStart, o.Version, o.Build, o.Setting, os.Getpid(), recovery})
	}
	if err != nil {
		_ = l.file.Close()
		return nil, nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	return l, recovery, nil
}

// openFile opens and locks the file, which must be a plain file of our own.
func (l *Log) openFile(mode os.FileMode) error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	l.file = f
	if err := l.checkFile(); err != nil {
		_ = f.Close()
		return err
	}
	return nil
}

func (l *Log) checkFile() error {
	fd := int(l.file.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s: is not a plain file that only you can write", l.path)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &BusyError{l.path}
		}
		return fmt.Errorf("lock %s: %w", l.path, err)
	}
	return nil
}

// repair reads the file from its beginning, removes a torn last line, closes
// open runs, and returns what it found, nil for nothing.
func (l *Log) repair() (*Recovery, error) {
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	c := newChain()
	torn, err := eachLine(io.NewSectionReader(l.file, 0, info.Size()), c.step)
	if err != nil {
		return nil, err
	}
	l.size, l.seq, l.prev = info.Size()-torn, c.seq, c.prev
	if torn > 0 {
		if err := l.file.Truncate(l.size); err != nil {
			return nil, err
		}
	}
	for _, run := range c.openRuns() {
		run.Caller.Executable = ""
		if err := l.appendNew(Finished{Event: EventFinished, Run: run.Run, Tool: Tool, Caller: run.Caller, ErrorType: Interrupted,
			Detail: "the daemon ended while the command ran; its exit is not known"}); err != nil {
			return nil, err
		}
	}
	r := &Recovery{TornBytes: torn, Interrupted: len(c.open)}
	for _, b := range c.breaks[:min(len(c.breaks), 5)] {
		r.Breaks = append(r.Breaks, b.String())
	}
	if torn == 0 && r.Interrupted == 0 && r.Breaks == nil {
		return nil, nil
	}
	return r, nil
}

// A Run is a decided command whose outcome is still to be recorded.
type Run struct {
	log    *Log
	id     string
	caller Caller
}

// Decide records a decision. When d.Approved, the caller must call Finish on
// the run that is returned, once. After an error nothing is recorded and the
// command must not start.
func (l *Log) Decide(d Decided) (*Run, error) {
	d.Event, d.Tool = EventDecided, Tool
	d.Caller.Executable = clip(d.Caller.Executable, maxExecutable)
	d.clean()
	body, err := encode(d)
	if err != nil {
		return nil, err
	}
	if len(body) > maxLine-512 {
		return nil, errors.New("the decision is too long to be recorded")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.flushOwed(); err != nil {
		return nil, err
	}
	pending := 0
	if d.Approved {
		pending = 1
	}
	if err := l.reserve(len(body), pending); err != nil {
		return nil, err
	}
	if err := l.write(body); err != nil {
		return nil, err
	}
	l.open += pending
	d.Caller.Executable = ""
	return &Run{l, d.Run, d.Caller}, nil
}

// Finish records how the run ended. An error means that it could not be written
// now: it is kept, and nothing new is decided before it is written.
func (r *Run) Finish(f Finished) error {
	f.Event, f.Run, f.Tool, f.Caller = EventFinished, r.id, Tool, r.caller
	f.Detail = clip(clean(f.Detail), maxDetail)
	body, err := encode(f)
	if err == nil && len(body) > maxOutcome-512 {
		f.Receipt = nil
		f.Detail = clip("the receipt was too long to be recorded; "+f.Detail, maxDetail)
		body, err = encode(f)
	}
	if err != nil {
		return err
	}
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.owed = append(l.owed, body)
	return l.flushOwed()
}

// flushOwed writes the outcomes that are still to be written, in order.
func (l *Log) flushOwed() error {
	for len(l.owed) > 0 {
		if err := l.write(l.owed[0]); err != nil {
			return err
		}
		l.owed = l.owed[1:]
	}
	return nil
}

// appendNew records v, with room for itself only.
func (l *Log) appendNew(v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reserve(len(body), 0); err != nil {
		return err
	}
	return l.write(body)
}

// reserve establishes that the file's blocks are allocated for a record with a
// body of n bytes, for the outcomes of the open runs and pending more, and for
// the stop record.
func (l *Log) reserve(n, pending int) error {
	need := l.size + int64(n) + 512 + int64(l.open+pending+1)*maxOutcome
	if need <= l.room {
		return nil
	}
	err := l.allocate(need + roomChunk)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = l.allocate(need)
	}
	if err != nil {
		return fmt.Errorf("no room can be reserved in the trace: %w", err)
	}
	return nil
}

// allocate gives the file blocks up to the offset without changing its size.
func (l *Log) allocate(upTo int64) error {
	for {
		err := unix.Fallocate(int(l.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, l.size, upTo-l.size)
		if err == nil {
			l.room = upTo
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// write appends the record with the given body by one write(2). What was
// written of it when that fails is taken back; when that fails too, the log is
// dead.
func (l *Log) write(body []byte) error {
	switch {
	case l.closed:
		return errors.New("the trace is closed")
	case l.dead != nil:
		return l.dead
	}
	line, hash := seal(l.buf[:0], l.seq+1, time.Now(), l.prev, body)
	if cap(line) <= 64<<10 {
		l.buf = line
	}
	n, err := unix.Write(int(l.file.Fd()), line)
	if n < len(line) {
		if err == nil {
			err = io.ErrShortWrite
		}
		if n > 0 {
			if cut := l.file.Truncate(l.size); cut != nil {
				l.dead = fmt.Errorf("the trace ends in half a record: %w", err)
			}
			l.room = l.size
		}
		return fmt.Errorf("write the trace: %w", err)
	}
	l.size += int64(n)
	l.room = max(l.room, l.size)
	l.seq++
	l.prev = hash
	if !l.dirty {
		l.dirty = true
		time.AfterFunc(syncDelay, l.sync)
	}
	return nil
}

// sync flushes the file to the disk.
func (l *Log) sync() {
	l.mu.Lock()
	closed := l.closed
	l.dirty = false
	l.mu.Unlock()
	if closed {
		return
	}
	if err := l.file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dead = fmt.Errorf("flush the trace to the disk: %w", err)
	}
}

// Close writes a stop record, flushes the file and closes it. Runs that are
// still open are closed as interrupted when it is next opened.
func (l *Log) Close() error {
	body, err := encode(stop{EventStop})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err = l.flushOwed()
	if err == nil {
		err = l.write(body)
	}
	l.closed = true
	return errors.Join(err, l.file.Sync(), l.file.Close())
}

// encode returns v as one line of JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	// seal puts its own members in front of these.
	return bytes.TrimPrefix(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("{")), nil
}

// clip returns s, or its beginning when it is longer than n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}
