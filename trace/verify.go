package trace

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// VerifyFiles checks a whole trace, all its segments and the heads in it, by the
// public key. Torn bytes at the end of the last segment are what a crash leaves;
// anywhere else they are a break. The error is one of reading.
func VerifyFiles(path string, key ed25519.PublicKey) (Report, error) {
	names, err := Segments(path)
	if err != nil {
		return Report{}, err
	}
	if len(names) == 0 {
		return Report{}, errors.New(path + ": there is no trace")
	}
	c := newChain()
	c.key = key
	report := Report{}
	for i, name := range names {
		c.file, c.line = filepath.Base(name), 0
		r, err := openSegment(name)
		if err != nil {
			return report, err
		}
		torn, err := eachLine(r, c.step)
		report.Records += c.line
		_ = r.Close()
		switch {
		case err != nil:
			c.line++
			c.broken("cannot be read on: " + err.Error())
		case torn > 0 && i < len(names)-1:
			c.line++
			c.broken("is cut off")
		case torn > 0:
			report.TornBytes = torn
		}
	}
	head, err := readHead(path)
	if err != nil {
		return report, err
	}
	c.end(head)
	report.Head, report.Breaks = c.prev, c.breaks
	for _, open := range c.openRuns() {
		report.Open = append(report.Open, open.Run)
	}
	return report, nil
}

// end checks the beginning and the end of what was read.
func (c *chain) end(head *Head) {
	if c.from != nil && (c.retired == nil || c.retired.LastSeq != c.from.Seq-1 || c.retired.LastHash != c.from.Prev) {
		c.broken(fmt.Sprintf("the trace begins with number %d, and no record says that what was before it was removed in order", c.from.Seq))
	}
	if c.key == nil {
		return
	}
	switch {
	case head == nil:
		c.broken("the signed head is missing")
	case !head.good(c.key):
		c.broken("the head is signed with another key")
	case head.Seq > c.seq:
		c.broken(fmt.Sprintf("ends with number %d, but %d was signed: records were cut off", c.seq, head.Seq))
	case head.Seq == c.seq && head.Hash != c.prev:
		c.broken("the last record is not the one that was signed")
	}
}

// before returns the chain as it stands at the beginning of the segment that is
// written to, read from the one before.
func (l *Log) before() (*chain, error) {
	c := newChain()
	names, err := Segments(l.path)
	if err != nil || len(names) < 2 {
		return c, err
	}
	name := names[len(names)-2]
	if info, err := os.Stat(l.path); err == nil && info.Size() == 0 {
		// The daemon died before the segment had a record: runs are open that
		// only the one before knows.
		r, err := openSegment(name)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		_, err = eachLine(r, c.step)
		c.first = 0
		return c, err
	}
	end, err := lastRecord(name)
	if err != nil {
		c.file = filepath.Base(name)
		c.broken(err.Error())
		c.file = ""
		return c, nil
	}
	c.seq, c.prev = end.Seq, end.hash
	return c, nil
}
