package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/pinfold/pinfold/api"
)

// Under systemd the sockets are the manager's: it listens before the daemon
// starts and while it is restarted, so that no connection that waits is lost
// (sd_listen_fds(3)). The daemon says when it serves and when it ends, and, every
// half of the unit's WatchdogSec, that it is not stuck (sd_notify(3)).

// takeSockets takes the sockets that systemd has handed over, nil for none. It is
// called before anything is executed that could inherit them.
func takeSockets() (listeners []*net.UnixListener, err error) {
	for _, file := range activation.Files(true) {
		l, failed := net.FileListener(file)
		_ = file.Close()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("a socket that was handed over: %w", failed))
			continue
		}
		unix, ok := l.(*net.UnixListener)
		if !ok {
			_ = l.Close()
			err = errors.Join(err, fmt.Errorf("%s: was handed over, and is no unix socket", l.Addr()))
			continue
		}
		listeners = append(listeners, unix)
	}
	return listeners, err
}

// handedOver returns the listeners at the two places, nil where there is none,
// and an error when there are others: then unit and configuration disagree.
func (o *options) handedOver(listeners []*net.UnixListener) (agent, control *net.UnixListener, err error) {
	for _, l := range listeners {
		switch at := l.Addr().String(); at {
		case o.socket:
			agent = l
		case api.ControlSocket(o.socket):
			control = l
		default:
			return nil, nil, fmt.Errorf("systemd listens at %s, but the configuration says %s; let the socket units and pinfold.toml agree", at, o.socket)
		}
	}
	return agent, control, nil
}

// listenBoth returns both sockets, those that were handed over and those that are
// made.
func (o *options) listenBoth(given []*net.UnixListener, group *uint32) (agent, control *net.UnixListener, err error) {
	agent, control, err = o.handedOver(given)
	if err == nil && agent == nil {
		agent, err = o.listen()
	}
	if err == nil && control == nil {
		control, err = o.listenControl(group)
	}
	if err != nil {
		for _, l := range slices.DeleteFunc([]*net.UnixListener{agent, control}, func(l *net.UnixListener) bool { return l == nil }) {
			_ = l.Close()
		}
		return nil, nil, err
	}
	return agent, control, nil
}

// tell tells systemd, where there is one.
func tell(state string) { _, _ = daemon.SdNotify(false, state) }

// watch tells the watchdog, as often as it wants to hear it, that the daemon is
// not stuck: alive returns when it is not. It returns when ctx ends.
func watch(ctx context.Context, alive func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		alive()
		tell(daemon.SdNotifyWatchdog)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
