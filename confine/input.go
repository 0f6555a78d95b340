package confine

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// endOfFile is the character that ends a terminal's input (termios(3), VEOF).
const endOfFile = 4

// An input carries what a command reads.
type input struct {
	file *os.File // of the pipe or the terminal
	from io.Reader
}

func newInput(fd int, from io.Reader) *input {
	return &input{os.NewFile(uintptr(fd), "input"), from}
}

// feed copies until the end of the input, or of the command, which closes the
// file. At the input's end it writes last, or closes the file when that is nil.
func (in *input) feed(last []byte) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	// not io.Copy: that would splice, and wait in the kernel
	for {
		n, err := in.from.Read(buf[:])
		if n > 0 {
			if _, werr := in.file.Write(buf[:n]); werr != nil {
				break // the command reads no more
			}
		}
		if err != nil {
			break
		}
	}
	if last == nil {
		in.file.Close()
		return
	}
	in.file.SetWriteDeadline(time.Now().Add(time.Second))
	in.file.Write(last)
}

// isTerminal reports whether the descriptor is the master of a pseudo-terminal,
// where neither reading nor writing waits for anybody's file system.
func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	return err == nil
}

// isProc reports whether the descriptor is on a proc file system.
func isProc(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}
