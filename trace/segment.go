package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// The bounds of a trace when its options leave them open.
const (
	DefaultSegment   = 64 << 20            // bytes of a segment
	DefaultKeep      = 90 * 24 * time.Hour // after its last record
	DefaultKeepBytes = 4 << 30             // of all segments, compressed
)

// The events of segments.
const (
	EventSegment = "segment" // the first record of a segment that follows another
	EventHead    = "head"    // the last record of one that ended
	EventRetired = "retired" // segments were removed because of age or size
)

// segmentRecord is the first record of a segment.
type segmentRecord struct {
	Event string   `json:"event"`
	Open  []opened `json:"open"` // runs of earlier segments whose outcome is still to come
}

// headRecord is the last record of a segment.
type headRecord struct {
	Event string `json:"event"`
	Head  Head   `json:"head"` // of the record before
}

// retiredRecord says up to which record the trace was removed.
type retiredRecord struct {
	Event string `json:"event"`
	Seq   uint64 `json:"last_seq"`
	Hash  string `json:"last_hash"`
	Files int    `json:"files"`
}

// segmentName returns the name of an ended segment by the number of its first
// record.
func segmentName(path string, first uint64) string {
	return fmt.Sprintf("%s-%016d.ndjson", stem(path), first)
}

// Segments returns the files of a trace in the order of their records, the one
// that is written to last.
func Segments(path string) ([]string, error) {
	all, err := filepath.Glob(stem(path) + "-*.ndjson*")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		digits := strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(name, ".zst"), ".ndjson"), stem(path)+"-")
		if _, err := strconv.ParseUint(digits, 10, 64); err != nil || len(digits) != 16 {
			continue
		}
		if strings.HasSuffix(name, ".zst") && slices.Contains(all, strings.TrimSuffix(name, ".zst")) {
			continue // being made when the daemon died: the other one is whole
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if _, err := os.Lstat(path); err == nil {
		names = append(names, path)
	}
	return names, nil
}

// OpenSegment opens a segment for reading, compressed or not.
func OpenSegment(name string) (io.ReadCloser, error) { return openSegment(name) }

func openSegment(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	switch compressed := strings.HasSuffix(name, ".zst"); {
	case errors.Is(err, os.ErrNotExist) && !compressed:
		return openSegment(name + ".zst") // since it was listed
	case err != nil:
		return nil, err
	case !compressed:
		return f, nil
	}
	d, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return readClosers{d.IOReadCloser(), f}, nil
}

// readClosers reads from the first and closes both.
type readClosers struct {
	io.ReadCloser
	file *os.File
}

func (r readClosers) Close() error { return errors.Join(r.ReadCloser.Close(), r.file.Close()) }

// turn ends the segment when it is full or of another day. What keeps it from
// that is no error: the segment goes on.
func (l *Log) turn() {
	now := l.options.now()
	if l.first == 0 || l.size < l.options.Segment && now.UTC().Format(time.DateOnly) == l.day || now.Before(l.retry) {
		return
	}
	if err := l.rotate(now); err != nil {
		l.retry = now.Add(retryTime)
		l.problem = fmt.Errorf("a new segment of the trace cannot be begun: %w", err)
		return
	}
	l.problem = nil
	l.tidying.Go(l.tidy)
}

// rotate begins a new segment, with room for the outcomes of the open runs, and
// then ends the one before.
func (l *Log) rotate(now time.Time) error {
	fresh := l.path + ".new"
	_ = os.Remove(fresh) // of an attempt before
	f, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW|unix.O_CLOEXEC, l.options.Mode)
	if err != nil {
		return err
	}
	open := make([]opened, 0, len(l.running))
	for run, caller := range l.running {
		open = append(open, opened{Run: run, Caller: caller})
	}
	slices.SortFunc(open, func(a, b opened) int { return strings.Compare(a.Run, b.Run) })
	body, err := encode(segmentRecord{EventSegment, open})
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(body))+512+int64(len(l.running)+2)*maxOutcome)
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	var head []byte
	if err == nil {
		head, err = encode(headRecord{EventHead, signHead(l.key, l.seq, l.prev)})
	}
	if err == nil {
		err = l.write(head) // in the room of the stop record
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		err = os.Rename(l.path, segmentName(l.path, l.first))
	}
	if err == nil {
		err = os.Rename(fresh, l.path)
		if err != nil {
			err = errors.Join(err, os.Rename(segmentName(l.path, l.first), l.path))
		}
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(fresh)
		return err
	}
	_ = l.file.Close()
	l.file, l.size, l.room, l.first, l.day = f, 0, int64(len(body))+512+int64(len(l.running)+2)*maxOutcome, l.seq+1, now.UTC().Format(time.DateOnly)
	syncDir(filepath.Dir(l.path))
	return l.write(body)
}

func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// tidy compresses ended segments and removes those that need not be kept.
func (l *Log) tidy() {
	l.tidyMu.Lock()
	defer l.tidyMu.Unlock()
	names, err := Segments(l.path)
	if err != nil {
		return
	}
	for i, name := range names {
		if name == l.path || strings.HasSuffix(name, ".zst") {
			continue
		}
		if compress(name, l.options.Mode) == nil {
			names[i] = name + ".zst"
		}
	}
	l.retire(names)
}

// compress puts a compressed file in the segment's place.
func compress(name string, mode os.FileMode) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(name), ".zst-")
	if err != nil {
		return err
	}
	e, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err == nil {
		_, err = io.Copy(e, in)
		err = errors.Join(err, e.Close(), out.Chmod(mode), out.Sync())
	}
	err = errors.Join(err, out.Close())
	if err == nil {
		err = os.Chtimes(out.Name(), time.Time{}, info.ModTime())
	}
	if err == nil {
		err = os.Rename(out.Name(), name+".zst")
	}
	if err != nil {
		_ = os.Remove(out.Name())
		return err
	}
	return os.Remove(name)
}

// retire removes the oldest segments while they are too old, or too many bytes,
// and records up to where.
func (l *Log) retire(names []string) {
	var total int64
	infos := make([]os.FileInfo, len(names))
	for i, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return
		}
		infos[i], total = info, total+info.Size()
	}
	var last *link
	removed := 0
	for i, name := range names {
		if name == l.path || total <= l.options.KeepBytes && l.options.now().Sub(infos[i].ModTime()) < l.options.Keep {
			break
		}
		end, err := lastRecord(name)
		if err != nil || os.Remove(name) != nil {
			break
		}
		last, removed, total = end, removed+1, total-infos[i].Size()
	}
	if removed > 0 {
		_ = l.appendNew(retiredRecord{EventRetired, last.Seq, last.hash, removed}) // a full disk: Verify will say that records are missing
	}
}

// lastRecord returns the last record of a segment.
func lastRecord(name string) (*link, error) {
	r, err := openSegment(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var line []byte
	if _, err := eachLine(r, func(b []byte) { line = append(line[:0], b...) }); err != nil {
		return nil, err
	}
	l, ok := readLink(bytes.TrimSpace(line))
	if !ok {
		return nil, fmt.Errorf("%s: does not end with a record", name)
	}
	return l, nil
}
