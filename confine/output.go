package confine

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pipeMost is the most that a pipe can hold (pipe(7), /proc/sys/fs/pipe-max-size).
const pipeMost = 1 << 20

// An output delivers one stream of a command, or what its terminal shows.
type output struct {
	file *os.File
	fd   int
	w    io.Writer
	done chan struct{}
	tail []byte // the last bytes, where they are looked at
	keep int    // how many
}

func newOutput(fd int, w io.Writer) *output {
	return &output{file: os.NewFile(uintptr(fd), "output"), fd: fd, w: w, done: make(chan struct{})}
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// deliver copies until the end of the pipe, or until finish says that the
// command is gone: then what is left in the pipe, and no more. The end of file
// may never come, since a descriptor can have left by a socket to another
// command of the session. count hears of every read, also when the writer
// failed and delivery is over: the pipe is emptied all the same, so that the
// command does not block.
func (o *output) deliver(count func(int)) {
	defer close(o.done)
	defer o.file.Close()
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := o.file.Read(buf[:])
		o.hand(buf[:n], count)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.drain(buf[:], count)
			return
		}
		if err != nil {
			return
		}
	}
}

func (o *output) hand(b []byte, count func(int)) {
	if len(b) == 0 {
		return
	}
	count(len(b))
	if o.keep > 0 {
		if o.tail = append(o.tail, b[max(0, len(b)-o.keep):]...); len(o.tail) > o.keep {
			o.tail = append(o.tail[:0], o.tail[len(o.tail)-o.keep:]...)
		}
	}
	if o.w != nil {
		if _, err := o.w.Write(b); err != nil {
			o.w = nil
		}
	}
}

// drain reads what the pipe holds, without waiting.
func (o *output) drain(buf []byte, count func(int)) {
	for left := pipeMost; left > 0; {
		n, err := unix.Read(o.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return
		}
		o.hand(buf[:n], count)
		left -= n
	}
}

// finish is called when no process of the command is left. It returns when the
// stream has been delivered.
func (o *output) finish() {
	o.file.SetReadDeadline(time.Unix(1, 0))
	<-o.done
}
