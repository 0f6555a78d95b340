package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/api"
)

const (
	connectTime = 5 * time.Second  // for a daemon that is there to answer
	startTime   = 20 * time.Second // for a daemon to start, or to end
)

// connect finds the daemon: the one at the socket that is named by flag or
// environment, else the machine's, else the user's own, which it starts when
// it is not there, and replaces when an older build of pinfold started it.
func connect(socket string) (*api.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	if socket == "" {
		socket = os.Getenv("PINFOLD_SOCKET")
	}
	if socket != "" {
		return named(ctx, socket)
	}
	client := api.NewClient(api.SystemSocket)
	_, err := client.Connect(ctx)
	if err == nil {
		return client, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		// The machine has a daemon. That it does not answer is no reason to be
		// served by a lesser one unawares.
		return nil, fmt.Errorf("the daemon of this machine does not serve: %w; start it, or name another with --socket", err)
	}
	client = api.NewClient(api.UserSocket())
	daemon, err := client.Health(ctx)
	if err == nil && daemon.OnDemand && isOlder(daemon.Build, build) && daemon.UID == uint32(os.Geteuid()) {
		client.Close()
		if err = end(daemon.PID); err != nil {
			return nil, fmt.Errorf("the daemon of an older build does not end: %w", err)
		}
		err = fs.ErrNotExist
	}
	if err == nil {
		return client, nil
	}
	if !isAbsent(err) {
		return nil, err
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("no daemon is running, and none could be started: %w", err)
	}
	_, err = client.Connect(ctx)
	return client, err
}

func named(ctx context.Context, socket string) (*api.Client, error) {
	client := api.NewClient(socket)
	_, err := client.Connect(ctx)
	return client, err
}

// isAbsent reports whether the error means that no daemon listens there.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// isOlder reports whether the daemon's build is another than this one's and not
// later. A build's id begins with the time of its source in seconds.
func isOlder(daemon, own string) bool {
	if daemon == own {
		return false
	}
	return buildTime(daemon) <= buildTime(own)
}

func buildTime(id string) int64 {
	digits, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// end asks the process to end and waits until it has.
func end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for deadline := time.Now().Add(startTime); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return errors.New("it still runs after " + startTime.String())
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// start starts a daemon for the user, apart from this terminal, and returns when
// it serves.
func start() error {
	program, err := findProgram("pinfoldd")
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	ready, other, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	process, err := os.StartProcess(program, []string{program, "--user", "--ready-fd=3"}, &os.ProcAttr{
		Dir:   "/",
		Files: []*os.File{null, null, null, other},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	_ = other.Close()
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	_ = ready.SetReadDeadline(time.Now().Add(startTime))
	line, err := bufio.NewReader(ready).ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case line == "ready":
		return nil
	case line != "":
		return errors.New(visible(line))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: does not serve after %v", program, startTime)
	}
	return fmt.Errorf("%s: ended before it served", program)
}

// findProgram returns another program of Pinfold: beside this one, else in PATH.
func findProgram(name string) (string, error) {
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	program, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside pinfold nor in PATH; install it there", name)
	}
	return filepath.Abs(program)
}
