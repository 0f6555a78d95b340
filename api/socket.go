package api

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// SystemSocket is where the daemon of a machine listens.
const SystemSocket = "/run/pinfold/agent.sock"

// ControlSocket returns the control socket of the daemon that listens on the
// socket: control.sock beside it.
func ControlSocket(socket string) string { return filepath.Join(filepath.Dir(socket), "control.sock") }

// UserSocket returns where the daemon of the calling user listens: in
// $XDG_RUNTIME_DIR/pinfold when that directory is the user's own and nobody
// else can write to it, and else in /tmp/pinfold-UID.
func UserSocket() string {
	const name = "agent.sock"
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		var st syscall.Stat_t
		if err := syscall.Stat(dir, &st); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR &&
			int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0 {
			return filepath.Join(dir, "pinfold", name)
		}
	}
	return filepath.Join("/tmp", "pinfold-"+strconv.Itoa(os.Geteuid()), name)
}
