package trace

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxLine is the longest line that is read back: a request's command twice, all
// escaped, and the rest.
const maxLine = 16 << 20

// genesis is the prev of the first record.
var genesis = strings.Repeat("0", 2*sha256.Size)

// hashMember is what precedes the hash in a line; hashTail is how long the end
// of a line from there on is.
const (
	hashMember = `,"hash":"`
	hashTail   = len(hashMember) + 2*sha256.Size + len(`"}`)
)

// seal writes into buf the line of the record whose members after the chain's
// own are in body, which ends with a brace; it returns the line and its hash.
func seal(buf []byte, seq uint64, now time.Time, prev string, body []byte) (line []byte, hash string) {
	buf = append(buf, `{"seq":`...)
	buf = strconv.AppendUint(buf, seq, 10)
	buf = append(buf, `,"time":"`...)
	buf = now.UTC().AppendFormat(buf, "2006-01-02T15:04:05.000000Z")
	buf = append(buf, `","prev":"`...)
	buf = append(buf, prev...)
	buf = append(buf, `",`...)
	buf = append(buf, body...)
	sum := sha256.Sum256(buf)
	buf = append(buf[:len(buf)-1], hashMember...)
	start := len(buf)
	buf = hex.AppendEncode(buf, sum[:])
	hash = string(buf[start:])
	return append(buf, "\"}\n"...), hash
}

// unseal returns the hash that the line carries and the hash that it should
// carry; ok is false when it does not end as a record does.
func unseal(line []byte) (carried, computed string, ok bool) {
	cut := len(line) - hashTail
	if cut < 1 || !bytes.HasPrefix(line[cut:], []byte(hashMember)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return "", "", false
	}
	h := sha256.New()
	h.Write(line[:cut])
	h.Write([]byte("}"))
	return string(line[cut+len(hashMember) : len(line)-2]), hex.EncodeToString(h.Sum(nil)), true
}

// A Break is a place where the chain does not hold.
type Break struct {
	File string // name of the segment; "" when there is but one
	Line int    // 1-based
	What string // what is wrong there
}

// String returns "file, line 7: …".
func (b Break) String() string {
	at := "line " + strconv.Itoa(b.Line) + ": " + b.What
	if b.File != "" {
		return b.File + ", " + at
	}
	return at
}

// A Report is what Verify found.
type Report struct {
	Records   int      // whole lines
	Head      string   // hash of the last record
	TornBytes int64    // bytes after the last whole line
	Open      []string // runs that may have started and have no outcome, in order
	Breaks    []Break  // every place where the chain does not hold
}

// OK reports whether the chain holds and nothing is torn. Open runs are no
// fault: they may be running.
func (r Report) OK() bool { return len(r.Breaks) == 0 && r.TornBytes == 0 }

// Verify reads a trace and checks that every record is as it was written and
// follows the one before it. The error is one of reading.
func Verify(r io.Reader) (Report, error) {
	c := newChain()
	torn, err := eachLine(r, c.step)
	report := Report{Records: c.line, Head: c.prev, TornBytes: torn, Breaks: c.breaks}
	for _, open := range c.openRuns() {
		report.Open = append(report.Open, open.Run)
	}
	return report, err
}

// A chain is the state of reading a trace from its beginning.
type chain struct {
	file    string
	line    int
	first   uint64 // number of the file's first record
	seq     uint64
	prev    string
	retired *link             // the last record that was removed because of its age
	key     ed25519.PublicKey // nil when heads are not checked
	from    *link             // the first record, when it is not number 1
	breaks  []Break
	open    map[string]opened
}

// opened is a run that may have started and has no outcome yet.
type opened struct {
	Run    string `json:"run"`
	Caller Caller `json:"caller"`
	line   int
}

func newChain() *chain { return &chain{prev: genesis, open: map[string]opened{}} }

// link holds the members of a record that the chain is about.
type link struct {
	Seq      uint64 `json:"seq"`
	Prev     string `json:"prev"`
	Event    string `json:"event"`
	Run      string `json:"run"`
	Approved bool   `json:"approved"`
	Caller   Caller `json:"caller"`

	Open []opened `json:"open"` // of a segment record
	Head Head     `json:"head"` // of a head record

	LastSeq  uint64 `json:"last_seq"` // of a retired record
	LastHash string `json:"last_hash"`

	hash  string
	whole bool // the hash is that of the content
}

// readLink reads the line as a record.
func readLink(line []byte) (*link, bool) {
	carried, computed, ok := unseal(line)
	l := link{hash: carried, whole: carried == computed}
	return &l, ok && json.Unmarshal(line, &l) == nil
}

// step takes the next line. After a break the chain goes on from what the line
// says of itself, so that one change is one break.
func (c *chain) step(line []byte) {
	c.line++
	l, ok := readLink(line)
	if !ok {
		c.broken("is not a record")
		return
	}
	if c.seq == 0 && c.prev == genesis && l.Seq > 1 && l.Event == EventSegment && l.whole {
		c.from = l // what came before may have been removed in order: see end
		c.seq, c.prev = l.Seq-1, l.Prev
	}
	switch {
	case !l.whole:
		c.broken("its hash is not that of its content: it was changed")
	case l.Prev != c.prev:
		c.broken("does not follow the record before it: records were removed, added or moved")
	case l.Seq != c.seq+1:
		c.broken(fmt.Sprintf("has number %d after %d", l.Seq, c.seq))
	}
	c.checkHead(l)
	if c.first == 0 {
		c.first = l.Seq
	}
	c.prev, c.seq = l.hash, l.Seq
	switch {
	case l.Event == EventDecided && l.Approved:
		c.open[l.Run] = opened{l.Run, l.Caller, c.line}
	case l.Event == EventFinished:
		delete(c.open, l.Run)
	case l.Event == EventSegment:
		for _, o := range l.Open {
			o.line = c.line
			c.open[o.Run] = o
		}
	case l.Event == EventRetired:
		c.retired = l
	}
}

// checkHead checks the signature of a record that has one.
func (c *chain) checkHead(l *link) {
	if l.Event != EventHead || c.key == nil {
		return
	}
	switch h := l.Head; {
	case !h.good(c.key):
		c.broken("is signed with another key")
	case h.Seq != c.seq || h.Hash != c.prev:
		c.broken("is not the head of what stands before it")
	}
}

func (c *chain) broken(what string) { c.breaks = append(c.breaks, Break{c.file, c.line, what}) }

// openRuns returns the open runs in the order of their decisions.
func (c *chain) openRuns() []opened {
	runs := make([]opened, 0, len(c.open))
	for _, o := range c.open {
		runs = append(runs, o)
	}
	slices.SortFunc(runs, func(a, b opened) int { return a.line - b.line })
	return runs
}

// eachLine calls f for every whole line, without its end, and returns how many
// bytes follow the last one.
func eachLine(r io.Reader, f func(line []byte)) (torn int64, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 256<<10), maxLine)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF {
			torn = int64(len(data))
			return len(data), nil, nil
		}
		return 0, nil, nil
	})
	for s.Scan() {
		f(s.Bytes())
	}
	return torn, s.Err()
}
