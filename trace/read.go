package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The bounds of one Read.
const (
	maxSearch = 256 << 20 // bytes of the file that are searched, from its end
	maxRead   = 8 << 20   // bytes of records that are returned
	block     = 256 << 10 // bytes read at a time
)

// A Query says which records to read. What is "" or zero does not matter; all
// but UID, All and Limit are about the decision, and bring a run's outcome and
// approvals with them.
type Query struct {
	UID   uint32 // whose
	All   bool   // everybody's instead
	Limit int    // at most so many records, the latest

	Run, Project, Verdict, Rule, Command string // Command is a part of it
	Error                                string // error_type of decision or outcome
	Since, Until                         time.Time
}

// maxEnds is how many outcomes a search remembers for decisions further up.
const maxEnds = 4096

// Read returns the records of commands that match, the oldest first, each as its
// line in the file. Complete is false when older ones may exist, because the
// limit or a bound was reached: 256 MiB are searched and 8 MiB returned.
func (l *Log) Read(ctx context.Context, q Query) (records []json.RawMessage, complete bool, err error) {
	q.Project, q.Command = clean(q.Project), clean(q.Command)
	l.mu.Lock()
	end := l.size
	fd, err := unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	older, err2 := Segments(l.path)
	l.mu.Unlock()
	if err = errors.Join(err, err2); err != nil {
		return nil, false, err
	}
	f := os.NewFile(uintptr(fd), l.path)
	defer f.Close()
	s := &search{q: q, ends: map[string][]json.RawMessage{}}
	if err := backwards(ctx, f, end, s.visit); err != nil {
		return nil, false, err
	}
	searched := end
	for i := len(older) - 2; i >= 0 && !s.full && searched < maxSearch; i-- {
		n, err := s.segment(ctx, older[i])
		if err != nil {
			return nil, false, err
		}
		searched += n
		if searched >= maxSearch && i > 0 {
			s.full = true
		}
	}
	slices.Reverse(s.found)
	return s.found, !s.full && searched <= maxSearch, nil
}

// A search collects records from the last to the first.
type search struct {
	q     Query
	found []json.RawMessage
	bytes int
	full  bool
	ends  map[string][]json.RawMessage // what followed a decision, by run
	order []string                     // of the runs in ends
}

// segment searches an ended segment, and returns its bytes.
func (s *search) segment(ctx context.Context, name string) (size int64, err error) {
	r, err := openSegment(name)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // its time was over
	}
	if err != nil {
		return 0, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxSearch))
	if err != nil {
		return 0, err
	}
	return int64(len(text)), backwards(ctx, bytes.NewReader(text), int64(len(text)), s.visit)
}

// visit looks at one record and reports whether to go on.
func (s *search) visit(line []byte) bool {
	if !s.q.mayMatch(line) {
		return true
	}
	var r Record
	if json.Unmarshal(line, &r) != nil || r.Run == "" || !s.q.All && r.Caller.UID != s.q.UID || s.q.Run != "" && r.Run != s.q.Run {
		return true
	}
	switch {
	case r.Event != EventDecided && r.Event != EventFinished && r.Event != EventApproval:
		return true
	case !s.q.filters():
		return s.take(line)
	case r.Event != EventDecided:
		s.keep(r.Run, line)
		return true
	case !s.q.match(&r, s.ends[r.Run]):
		return true
	}
	for _, end := range s.ends[r.Run] {
		if !s.take(end) {
			return false
		}
	}
	return s.take(line)
}

// keep remembers what followed a decision that is still to be met.
func (s *search) keep(run string, line []byte) {
	if s.ends[run] == nil {
		s.order = append(s.order, run)
	}
	s.ends[run] = append(s.ends[run], slices.Clone(line))
	if len(s.order) > maxEnds {
		delete(s.ends, s.order[0])
		s.order = s.order[1:]
	}
}

func (s *search) take(line []byte) bool {
	if len(s.found) >= s.q.Limit || s.bytes+len(line) > maxRead {
		s.full = true
		return false
	}
	s.bytes += len(line)
	s.found = append(s.found, slices.Clone(line))
	return true
}

// filters reports whether the decision's content matters.
func (q *Query) filters() bool {
	return q.Project != "" || q.Verdict != "" || q.Rule != "" || q.Command != "" || q.Error != "" || !q.Since.IsZero() || !q.Until.IsZero()
}

// mayMatch is cheap and necessary, before what is sufficient.
func (q *Query) mayMatch(line []byte) bool {
	return (q.All || bytes.Contains(line, fmt.Appendf(nil, `"uid":%d,`, q.UID))) && bytes.Contains(line, []byte(q.Run))
}

// match reports whether the decision is one of those asked for; ends are the
// later records of its run.
func (q *Query) match(r *Record, ends []json.RawMessage) bool {
	switch {
	case q.Project != "" && r.Project != q.Project && !strings.HasPrefix(r.Project, q.Project+"/"),
		q.Verdict != "" && r.PolicyDecision != q.Verdict,
		q.Rule != "" && !slices.Contains(r.Rules, q.Rule),
		q.Command != "" && !strings.Contains(r.Args.Command, q.Command),
		!q.Since.IsZero() && r.Time.Before(q.Since),
		!q.Until.IsZero() && !r.Time.Before(q.Until):
		return false
	case q.Error == "" || r.ErrorType == q.Error:
		return true
	}
	for _, end := range ends {
		var e Record
		if json.Unmarshal(end, &e) == nil && e.ErrorType == q.Error {
			return true
		}
	}
	return false
}

// backwards calls f for each whole line of the file's first end bytes, the last
// one first, until f returns false or maxSearch bytes have been read.
func backwards(ctx context.Context, f io.ReaderAt, end int64, visit func(line []byte) bool) error {
	var rest []byte // what is known of the line that begins before pos
	for pos := end; pos > 0 && end-pos < maxSearch; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(block, pos)
		pos -= n
		data := make([]byte, n, int(n)+len(rest))
		if _, err := f.ReadAt(data, pos); err != nil {
			return err
		}
		data = append(data, rest...)
		for {
			i := bytes.LastIndexByte(bytes.TrimSuffix(data, []byte("\n")), '\n')
			if i < 0 {
				break
			}
			if !visit(bytes.TrimSuffix(data[i+1:], []byte("\n"))) {
				return nil
			}
			data = data[:i+1]
		}
		rest = data
		if pos == 0 && len(rest) > 0 {
			visit(bytes.TrimSuffix(rest, []byte("\n")))
		}
	}
	return nil
}
