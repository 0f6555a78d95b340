package trace

import (
	"bufio"
	"bytes"
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
	Line int    // 1-based
	What string // what is wrong there
}

// String returns "line 7: …".
func (b Break) String() string { return "line " + strconv.Itoa(b.Line) + ": " + b.What }

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
	line   int
	seq    uint64
	prev   string
	breaks []Break
	open   map[string]opened
}

// opened is a run that may have started and has no outcome yet.
type opened struct {
	Run    string
	Caller Caller
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
}

// step takes the next line. After a break the chain goes on from what the line
// says of itself, so that one change is one break.
func (c *chain) step(line []byte) {
	c.line++
	carried, computed, ok := unseal(line)
	var l link
	if !ok || json.Unmarshal(line, &l) != nil {
		c.broken("is not a record")
		return
	}
	switch {
	case carried != computed:
		c.broken("its hash is not that of its content: it was changed")
	case l.Prev != c.prev:
		c.broken("does not follow the record before it: records were removed, added or moved")
	case l.Seq != c.seq+1:
		c.broken(fmt.Sprintf("has number %d after %d", l.Seq, c.seq))
	}
	c.prev, c.seq = carried, l.Seq
	switch {
	case l.Event == EventDecided && l.Approved:
		c.open[l.Run] = opened{l.Run, l.Caller, c.line}
	case l.Event == EventFinished:
		delete(c.open, l.Run)
	}
}

func (c *chain) broken(what string) { c.breaks = append(c.breaks, Break{c.line, what}) }

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
