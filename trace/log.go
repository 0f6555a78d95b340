package trace

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
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
	// Always has records on the disk before they count, not within a second.
	Always bool
	// Segment, Keep and KeepBytes bound the trace; 0 is the default of each.
	Segment, KeepBytes int64
	Keep               time.Duration

	now func() time.Time // in tests
}

func (o *Options) complete() {
	o.Segment, o.KeepBytes, o.Keep = cmp.Or(o.Segment, DefaultSegment), cmp.Or(o.KeepBytes, DefaultKeepBytes), cmp.Or(o.Keep, DefaultKeep)
	if o.now == nil {
		o.now = time.Now
	}
}

// A Log is an open trace. It is safe for concurrent use.
type Log struct {
	file    *os.File
	path    string
	options Options
	key     ed25519.PrivateKey

	tidyMu  sync.Mutex // held for the files beside the one that is written
	signed  uint64     // number in the head; under tidyMu
	tidying sync.WaitGroup
	syncMu  sync.Mutex // held while records are brought to the disk for Always
	synced  uint64     // number of the last record on the disk, as far as Always asked; under syncMu

	mu      sync.Mutex
	size    int64             // of the file; every byte below is part of a whole record
	room    int64             // the file's blocks are allocated up to here
	seq     uint64            // of the last record
	prev    string            // its hash
	first   uint64            // number of the segment's first record
	day     string            // on which the segment began, UTC
	retry   time.Time         // no new segment before
	problem error             // why none could be begun
	running map[string]Caller // runs whose outcome is still to come
	owed    [][]byte          // outcomes that could not be written yet, in order
	dead    error             // why nothing can be appended any more
	buf     []byte            // reused for lines
	dirty   bool              // written to and not yet synced
	since   time.Time         // and since when
	closed  bool
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
	o.complete()
	l := &Log{path: o.Path, options: o, running: map[string]Caller{}}
	if err := l.openFile(o.Mode); err != nil {
		return nil, nil, err
	}
	var err error
	if l.key, err = loadKey(o.Path); err != nil {
		_ = l.file.Close()
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
	l.tidying.Go(l.tidy)
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
	c, err := l.before()
	if err != nil {
		return nil, err
	}
	c.line = 0
	torn, err := eachLine(io.NewSectionReader(l.file, 0, info.Size()), c.step)
	if err != nil {
		return nil, err
	}
	l.size, l.seq, l.prev = info.Size()-torn, c.seq, c.prev
	l.first, l.day = c.first, info.ModTime().UTC().Format(time.DateOnly)
	if l.first == 0 {
		l.first, l.day = l.seq+1, l.options.now().UTC().Format(time.DateOnly)
	}
	head, err := readHead(l.path)
	if err != nil {
		c.broken(err.Error())
	}
	if head != nil && head.Seq > l.seq {
		c.broken(fmt.Sprintf("ends with number %d, but %d was signed: records were cut off", l.seq, head.Seq))
	}
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
	run, seq, err := l.decide(d, body)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return run, l.commit(seq)
}

// decide records the decision and returns its number.
func (l *Log) decide(d Decided, body []byte) (*Run, uint64, error) {
	if err := l.flushOwed(); err != nil {
		return nil, 0, err
	}
	l.turn()
	pending := 0
	if d.Approved {
		pending = 1
	}
	if err := l.reserve(len(body), pending); err != nil {
		return nil, 0, err
	}
	if err := l.write(body); err != nil {
		return nil, 0, err
	}
	d.Caller.Executable = ""
	if d.Approved {
		l.running[d.Run] = d.Caller
	}
	return &Run{l, d.Run, d.Caller}, l.seq, nil
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
	delete(l.running, r.id)
	l.owed = append(l.owed, body)
	err = l.flushOwed()
	seq := l.seq
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.commit(seq)
}

// commit returns when the record with the number is on the disk, if that is
// asked for. Many that wait are served by one fdatasync(2).
func (l *Log) commit(seq uint64) error {
	if !l.options.Always {
		return nil
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.synced >= seq {
		return nil
	}
	l.mu.Lock()
	upTo, fd := l.seq, -1
	var err error
	if !l.closed {
		fd, err = unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0) // a new segment may take its place
	}
	l.mu.Unlock()
	if fd >= 0 {
		err = unix.Fdatasync(fd)
		_ = unix.Close(fd)
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dead = fmt.Errorf("flush the trace to the disk: %w", err)
		return l.dead
	}
	l.synced = upTo
	return nil
}

// Lag returns for how long the oldest record has not been on the disk, 0 when all
// are, and how many outcomes could not be written yet.
func (l *Log) Lag() (age time.Duration, owed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dirty && !l.options.Always {
		age = time.Since(l.since)
	}
	return age, len(l.owed)
}

// Problem returns why no new segment can be begun, nil when nothing is wrong.
func (l *Log) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
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
	need := l.size + int64(n) + 512 + int64(len(l.running)+pending+1)*maxOutcome
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
		l.dirty, l.since = true, time.Now()
		time.AfterFunc(syncDelay, l.sync)
	}
	return nil
}

// sync flushes the file to the disk, and then says in the head what is there.
func (l *Log) sync() {
	l.mu.Lock()
	l.dirty = false
	seq, hash, closed := l.seq, l.prev, l.closed
	fd, err := -1, error(nil)
	if !closed {
		fd, err = unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	}
	l.mu.Unlock()
	if closed {
		return
	}
	if err == nil {
		err = unix.Fsync(fd)
		_ = unix.Close(fd)
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dead = fmt.Errorf("flush the trace to the disk: %w", err)
		return
	}
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	l.sign(seq, hash)
}

// sign writes the head. A full disk keeps the one before, which still holds.
func (l *Log) sign(seq uint64, hash string) {
	if seq <= l.signed {
		return
	}
	text, err := json.Marshal(signHead(l.key, seq, hash))
	if err == nil && replaceFile(headFile(l.path), text, l.options.Mode) == nil {
		l.signed = seq
	}
}

// Close writes a stop record, flushes the file and closes it. Runs that are
// still open are closed as interrupted when it is next opened.
func (l *Log) Close() error {
	body, err := encode(stop{EventStop})
	if err != nil {
		return err
	}
	l.tidying.Wait()
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
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
	err = errors.Join(err, l.file.Sync())
	if err == nil {
		l.sign(l.seq, l.prev)
	}
	return errors.Join(err, l.file.Close())
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
