package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// The bounds of one Read.
const (
	maxSearch = 256 << 20 // bytes of the file that are searched, from its end
	maxRead   = 8 << 20   // bytes of records that are returned
	block     = 256 << 10 // bytes read at a time
)

// A Query says which records to read.
type Query struct {
	UID   uint32 // whose
	All   bool   // everybody's instead
	Run   string // of one run only; "" for all
	Limit int    // at most so many, the latest
}

// Read returns the records of commands that match, the oldest first, each as its
// line in the file. Complete is false when older ones may exist, because the
// limit or a bound was reached: 256 MiB are searched and 8 MiB returned.
func (l *Log) Read(ctx context.Context, q Query) (records []json.RawMessage, complete bool, err error) {
	l.mu.Lock()
	end := l.size
	l.mu.Unlock()
	total := 0
	complete = true
	err = backwards(ctx, l.file, end, func(line []byte) bool {
		if !q.match(line) {
			return true
		}
		if len(records) >= q.Limit || total+len(line) > maxRead {
			complete = false
			return false
		}
		total += len(line)
		records = append(records, slices.Clone(line))
		return true
	})
	if end > maxSearch {
		complete = false
	}
	slices.Reverse(records)
	return records, complete, err
}

// match reports whether the record is one of those asked for.
func (q Query) match(line []byte) bool {
	// Cheap and necessary, before what is sufficient.
	if !q.All && !bytes.Contains(line, fmt.Appendf(nil, `"uid":%d,`, q.UID)) || !bytes.Contains(line, []byte(q.Run)) {
		return false
	}
	var r struct {
		Event  string
		Run    string
		Caller *Caller
	}
	if json.Unmarshal(line, &r) != nil || r.Caller == nil {
		return false
	}
	return (r.Event == EventDecided || r.Event == EventFinished || r.Event == EventApproval) &&
		(q.All || r.Caller.UID == q.UID) && (q.Run == "" || r.Run == q.Run)
}

// backwards calls f for each whole line of the file's first end bytes, the last
// one first, until f returns false or maxSearch bytes have been read.
func backwards(ctx context.Context, f *os.File, end int64, visit func(line []byte) bool) error {
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
