package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

// inputPiece is read of the own stdin, and sent, at a time.
const inputPiece = 64 << 10

// An input is the own stdin, as far as it is passed on.
type input struct {
	stream bool // more may come than is in the request
	tty    bool
	state  *unix.Termios // of the terminal before it was made raw
}

// takeInput puts what there is of the own stdin into the request. It is passed on
// when it is a pipe or a file: a terminal, a device or a socket is nothing that
// somebody has filled for the command. Sockets are when the caller says so.
func takeInput(req *api.ExecRequest, none, sockets bool) (*input, error) {
	in := &input{tty: req.TTY}
	if req.TTY {
		return in, in.terminal(req)
	}
	var st unix.Stat_t
	if none || unix.Fstat(0, &st) != nil {
		return in, nil
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFREG && !(sockets && kind == unix.S_IFSOCK) {
		return in, nil
	}
	// What is there already goes with the request.
	var first []byte
	buf := make([]byte, inputPiece)
	for len(first)+len(buf) <= api.MaxInput/2 {
		fds := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n == 0 || err != nil {
			break
		}
		n, err := os.Stdin.Read(buf)
		first = append(first, buf[:n]...)
		if err != nil {
			req.Stdin, req.StdinEncoding = api.EncodeData(first)
			return in, nil
		}
	}
	req.Stdin, req.StdinEncoding = api.EncodeData(first)
	req.StdinStream, in.stream = true, true
	return in, nil
}

// terminal says how large the own terminal is and makes it raw, so that every key
// goes to the command's.
func (in *input) terminal(req *api.ExecRequest) error {
	state, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return errors.New("--tty needs a terminal for its own stdin")
	}
	if size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		req.Columns, req.Rows = windowSize(size)
	}
	req.StdinStream, in.stream, in.state = true, true, state
	return nil
}

func windowSize(w *unix.Winsize) (columns, rows int64) {
	return min(max(int64(w.Col), 1), api.MaxTerminal), min(max(int64(w.Row), 1), api.MaxTerminal)
}

// makeRaw is cfmakeraw(3).
func (in *input) makeRaw() {
	if in.state == nil {
		return
	}
	raw := *in.state
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	_ = unix.IoctlSetTermios(0, unix.TCSETS, &raw)
}

// restore gives the terminal back as it was.
func (in *input) restore() {
	if in.state != nil {
		_ = unix.IoctlSetTermios(0, unix.TCSETS, in.state)
	}
}

// pump sends the own stdin to the run until either ends, and the terminal's size
// whenever it changes.
func (in *input) pump(ctx context.Context, client *api.Client, run string) {
	if in.tty {
		go resizes(ctx, client, run)
	}
	buf := make([]byte, inputPiece)
	for {
		n, err := os.Stdin.Read(buf)
		if n > 0 || err != nil {
			last := errors.Is(err, io.EOF) || err != nil
			if client.WriteStdin(ctx, run, buf[:n], last) != nil || last {
				return // the run has ended, or reads no more
			}
		}
	}
}

func resizes(ctx context.Context, client *api.Client, run string) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	for range changes {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			continue
		}
		columns, rows := windowSize(size)
		if client.Resize(ctx, run, columns, rows) != nil {
			return
		}
	}
}
