package confine

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pinfold/pinfold/confine/door"
	"github.com/pinfold/pinfold/policy"
	"github.com/pinfold/pinfold/policy/hosts"
)

// #include "keeper.h"
import "C"

// A run whose grant names hosts has a network namespace of its own, never its
// session's: what other commands of the session may do is not what this one may.
// The init makes it, with its loopback and nothing else, and a socket that listens
// there; the daemon serves a door on that, see package door.

// named reads the hosts of a grant; nil when it names none.
func named(g policy.Grant) (hosts.List, error) {
	if len(g.Net.Hosts) == 0 {
		return nil, nil
	}
	list, err := hosts.ParseList(g.Net.Hosts)
	if err != nil {
		return nil, &Unavailable{Layer: "network", Err: fmt.Errorf("the grant names what is no host: %w", err)}
	}
	return list, nil
}

var doorAddress = fmt.Sprintf("127.0.0.1:%d", C.DOOR_PORT)

// offline are variables that say to programs that there is no network.
var offline = []string{"GOPROXY", "CARGO_NET_OFFLINE", "npm_config_offline", "PIP_NO_INDEX"}

// doorEnvironment tells programs of the door, each in the way that it looks for.
// What ignores that has no network.
func doorEnvironment(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(offline, name)
	})
	const local = "localhost,127.0.0.1,::1"
	url := "http://" + doorAddress
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		env = append(env, name+"="+url, strings.ToUpper(name)+"="+url)
	}
	host, port, _ := net.SplitHostPort(doorAddress)
	return append(env, "no_proxy="+local, "NO_PROXY="+local, "npm_config_proxy="+url, "npm_config_https_proxy="+url, "npm_config_noproxy="+local,
		"PIP_PROXY="+url, "CARGO_HTTP_PROXY="+url, "NODE_USE_ENV_PROXY=1",
		fmt.Sprintf("JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=%s -Dhttp.proxyPort=%s -Dhttps.proxyHost=%s -Dhttps.proxyPort=%s -Dhttp.nonProxyHosts=localhost|127.*|[::1]",
			host, port, host, port))
}

// isListener reports whether the descriptor is a TCP socket that listens.
func isListener(fd int) bool {
	for option, want := range map[int]int{unix.SO_ACCEPTCONN: 1, unix.SO_DOMAIN: unix.AF_INET, unix.SO_TYPE: unix.SOCK_STREAM, unix.SO_PROTOCOL: unix.IPPROTO_TCP} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil || got != want {
			return false
		}
	}
	return true
}

// networkOf returns the inode of the network namespace that a socket is in.
func networkOf(fd int) (uint64, error) {
	ns, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
	if err != nil {
		return 0, err
	}
	defer unix.Close(ns)
	var st unix.Stat_t
	err = unix.Fstat(ns, &st)
	return st.Ino, err
}

// openDoor serves the socket that the init has sent, once it is known where the
// command is: the door is in the same namespace, or there is none.
func (c *command) openDoor(list hosts.List, inode uint64) error {
	fail := func(err error) error { return &Unavailable{Layer: "network namespace", Err: err} }
	if c.listener == nil {
		return fail(errors.New("no socket for the door came"))
	}
	defer c.listener.Close()
	at, err := networkOf(int(c.listener.Fd()))
	if err != nil {
		return fail(err)
	}
	if at != inode {
		return fail(errors.New("the door's socket is not in the command's own"))
	}
	l, err := net.FileListener(c.listener)
	if err != nil {
		return fail(err)
	}
	c.door = door.Serve(l, door.Config{Hosts: list, Resolver: c.s.m.internet.Resolver, Dial: c.s.m.internet.Dial})
	return nil
}

// closeDoor ends every connection, and returns what there was.
func (c *command) closeDoor() []door.Connection {
	if c.listener != nil {
		c.listener.Close()
	}
	if c.door == nil {
		return nil
	}
	return c.door.Close()
}
