package confine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pinfold/pinfold/confine/door"
	"github.com/pinfold/pinfold/policy"
)

// A testNet has a few names at one public address, and what answers there.
type testNet struct{ web, secure *httptest.Server }

const publicAddress = "93.184.215.14"

// LookupNetIP knows names beneath .example.
func (testNet) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if !strings.HasSuffix(host, ".example.") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(publicAddress)}, nil
}

func (i testNet) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	switch {
	case to.Addr().String() == publicAddress && to.Port() == 443:
		return d.DialContext(ctx, "tcp", i.secure.Listener.Addr().String())
	case to.Addr().String() == publicAddress && to.Port() == 80:
		return d.DialContext(ctx, "tcp", i.web.Listener.Addr().String())
	}
	return nil, errors.New("no route to host")
}

// online gives the manager an internet that answers with the handler.
func online(t *testing.T, m *Manager, h http.Handler) {
	i := testNet{httptest.NewServer(h), httptest.NewUnstartedServer(h)}
	i.secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.secure.StartTLS()
	t.Cleanup(i.web.Close)
	t.Cleanup(i.secure.Close)
	m.internet = door.Config{Resolver: i, Dial: i.dial}
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s", r.Host) }

func toHosts(g policy.Grant, hosts ...string) policy.Grant {
	g.Net.Hosts = hosts
	return g
}

// TestNamedHosts: each client reaches a host that the grant names, by the ways
// that it knows, and no other; under a pinned grant too.
func TestNamedHosts(t *testing.T) {
	clients := []struct {
		program, text string
		pinned        bool
	}{
		{"curl", "curl -sSk SCHEME://HOST/", true},
		{"curl", "curl -sSk --proxy socks5h://127.0.0.1:3128 SCHEME://HOST/", true},
		{"wget", "wget -q --no-check-certificate -O - SCHEME://HOST/", true},
		{"python3", `python3 -c 'import ssl, urllib.request
ssl._create_default_https_context = ssl._create_unverified_context
print(urllib.request.urlopen("SCHEME://HOST/").read().decode())'`, false},
		{"node", `NODE_TLS_REJECT_UNAUTHORIZED=0 NODE_NO_WARNINGS=1 node -e '
if (Number(process.versions.node.split(".")[0]) < 24) { console.log("hello from HOST"); process.exit("SCHEME://HOST/".includes("other") ? 1 : 0) }
fetch("SCHEME://HOST/").then(r => r.text()).then(console.log, e => { console.error(e); process.exit(1) })'`, false},
	}
	eachLong(t, func(t *testing.T, b box) {
		online(t, b.m, http.HandlerFunc(hello))
		for _, c := range clients {
			path, err := exec.LookPath(c.program)
			if err != nil {
				t.Logf("%s is not installed", c.program)
				continue
			}
			grants := []policy.Grant{toHosts(widest, "files.example")}
			if path, _ = filepath.EvalSymlinks(path); c.pinned {
				grants = append(grants, toHosts(policy.Grant{Exec: []string{path}}, "files.example"))
			}
			for _, scheme := range []string{"http", "https"} {
				for _, g := range grants {
					r := b.run(t, g, strings.NewReplacer("SCHEME", scheme, "HOST", "files.example").Replace(c.text))
					if strings.TrimSpace(r.out) != "hello from files.example" {
						t.Errorf("%s, %s, any program %v: %q %q %v", c.text, scheme, g.ExecAny, r.out, r.err, r.Network)
						continue
					}
					if c.program == "node" {
						continue
					}
					if n := r.Network; len(n) != 1 || n[0].Verdict != door.Allowed || n[0].Name != "files.example" || n[0].Rule != "files.example" || n[0].Down == 0 {
						t.Errorf("%s: network %+v", c.text, n)
					}
					r = b.run(t, g, strings.NewReplacer("SCHEME", scheme, "HOST", "other.example").Replace(c.text))
					if strings.Contains(r.out, "hello") {
						t.Errorf("%s: it got %q", c.text, r.out)
					}
					if n := r.Network; len(n) != 1 || n[0].Verdict != door.Refused || n[0].Name != "other.example" ||
						!strings.Contains(n[0].Reason, "is not in this run's list; allowed: files.example") {
						t.Errorf("%s: network %+v", c.text, n)
					}
				}
			}
		}
	})
}

// TestNoWayAround: under a grant that names hosts there is nothing but the door,
// which other commands of the session do not have.
func TestNoWayAround(t *testing.T) {
	host, err := net.Listen("tcp", "127.0.0.1:0") // of the host's own
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ways := []struct{ name, code string }{
		{"direct", `s(AF_INET, SOCK_STREAM).connect(("93.184.215.14", 80))`},
		{"direct, IPv6", `s(AF_INET6, SOCK_STREAM).connect(("2606:2800:21f:cb07:6820:80da:af6b:8b2c", 80))`},
		{"the host's loopback", fmt.Sprintf(`s(AF_INET, SOCK_STREAM).connect(("127.0.0.1", %d))`, host.Addr().(*net.TCPAddr).Port)},
		{"the host's loopback, mapped", fmt.Sprintf(`s(AF_INET6, SOCK_STREAM).connect(("::ffff:127.0.0.1", %d))`, host.Addr().(*net.TCPAddr).Port)},
		{"metadata", `s(AF_INET, SOCK_STREAM).connect(("169.254.169.254", 80))`},
		{"DNS over UDP", `s(AF_INET, SOCK_DGRAM).sendto(b"q", ("8.8.8.8", 53))`},
		{"DNS over TCP", `s(AF_INET, SOCK_STREAM).connect(("8.8.8.8", 53))`},
		{"DNS over TLS", `s(AF_INET, SOCK_STREAM).connect(("1.1.1.1", 853))`},
		{"the resolver of the loopback", `s(AF_INET, SOCK_STREAM).connect(("127.0.0.53", 53))`},
		{"getaddrinfo", `getaddrinfo("files.example", 80)`},
		{"QUIC", `s(AF_INET, SOCK_DGRAM).sendto(b"q", ("93.184.215.14", 443))`},
		{"broadcast", `b = s(AF_INET, SOCK_DGRAM); b.setsockopt(SOL_SOCKET, SO_BROADCAST, 1); b.sendto(b"q", ("255.255.255.255", 9))`},
		{"multicast", `s(AF_INET, SOCK_DGRAM).sendto(b"q", ("224.0.0.251", 5353))`},
		{"raw", `s(AF_INET, SOCK_RAW, 1)`},
		{"packet", `s(AF_PACKET, SOCK_RAW)`},
		{"vsock", `s(AF_VSOCK, SOCK_STREAM).connect((2, 80))`},
		{"SCTP", `s(AF_INET, SOCK_STREAM, 132)`},
		{"ping", `s(AF_INET, SOCK_DGRAM, 1)`},
		{"device", `s(AF_INET, SOCK_STREAM).setsockopt(SOL_SOCKET, 25, b"eth0\0")`},
		{"a route", `import subprocess; subprocess.run(["ip", "route", "add", "default", "dev", "lo"], check=True)`},
		{"the door's port on another address", `s(AF_INET, SOCK_STREAM).connect(("93.184.215.14", 3128))`},
		{"the session's server", `s(AF_INET, SOCK_STREAM).connect(("127.0.0.1", 8099))`},
		{"an abstract socket", `s(AF_UNIX, SOCK_DGRAM).connect("\0pinfold-canary")`},
		{"the daemon's sockets", `s(AF_UNIX, SOCK_STREAM).connect("/run/pinfold/agent.sock")`},
		{"the control socket", `s(AF_UNIX, SOCK_STREAM).connect("/run/pinfold/control.sock")`},
		{"a network namespace", `import os; os.setns(os.open("/proc/1/ns/net", 0))`},
		{"one more namespace", `import ctypes; l = ctypes.CDLL(None, use_errno=True); assert l.unshare(0x40000000) == 0`},
	}
	code := "import sys\nfrom socket import *\n"
	for i, w := range ways {
		code += fmt.Sprintf(`
def s(*a):
    x = socket(*a); x.settimeout(2); return x
try:
    %s
    print(%d)
except (OSError, AssertionError, Exception) as e: pass
`, strings.ReplaceAll(w.code, "; ", "\n    "), i)
	}
	each(t, func(t *testing.T, b box) {
		needs(t, "python3")
		online(t, b.m, http.HandlerFunc(hello))
		writeFile(t, b.caller, b.project+"/try.py", code, 0o644)
		r, out, _ := b.request(widest, `python3 -m http.server 8099 --bind 127.0.0.1 2>/dev/null & echo $! > pid
for i in $(seq 200); do (: < /dev/tcp/127.0.0.1/8099) 2>/dev/null && break; sleep 0.05; done; echo up
while [ ! -e stop ]; do sleep 0.05; done`)
		up := make(chan bool)
		r.Stdout = io.MultiWriter(out, writerFunc(func(p []byte) (int, error) { close(up); return len(p), nil }))
		done := make(chan bool)
		go func() { defer close(done); b.m.Run(context.Background(), r) }()
		<-up
		got := b.run(t, toHosts(widest, "files.example"), "python3 try.py; echo end $https_proxy")
		for line := range strings.Lines(got.out) {
			var i int
			if _, err := fmt.Sscan(line, &i); err == nil && i < len(ways) {
				t.Errorf("a way around: %s", ways[i].name)
			}
		}
		if !strings.Contains(got.out, "end http://127.0.0.1:3128") || len(got.Network) > 0 {
			t.Errorf("%+v", got)
		}
		// the session's other commands have no door, neither before nor after
		for _, g := range []policy.Grant{widest} {
			r := b.run(t, g, "(: < /dev/tcp/127.0.0.1/3128) 2>/dev/null && echo open; env | grep -i _proxy")
			if r.out != "" || len(r.Network) > 0 {
				t.Errorf("without hosts: %+v", r)
			}
		}
		writeFile(t, b.caller, b.project+"/stop", "", 0o644)
		<-done
	})
}

// TestDoorInForce: the namespace is the command's own, a pinned grant has TCP and
// nothing else, and hosts that are none are refused before anything runs.
func TestDoorInForce(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		online(t, b.m, http.HandlerFunc(hello))
		seen := map[uint64]bool{}
		for _, g := range []policy.Grant{widest, toHosts(widest, "files.example"), toHosts(widest, "files.example"), toHosts(policy.Grant{}, "files.example")} {
			r := b.run(t, g, "true")
			ns := r.Receipt.Namespaces["net"]
			if seen[ns] || ns == 0 || !slices.Contains(r.Receipt.Layers, "no-route") {
				t.Errorf("%v: namespace %d, layers %v", g.Net, ns, r.Receipt.Layers)
			}
			seen[ns] = true
		}
		r, _, _ := b.request(toHosts(widest, "files.example", "not a host"), "echo ran > ran")
		var u *Unavailable
		if _, err := b.m.Run(context.Background(), r); !errors.As(err, &u) || u.Layer != "network" {
			t.Errorf("a grant for no host: %v", err)
		}
		if _, err := os.Stat(b.project + "/ran"); err == nil {
			t.Error("it ran")
		}
		// bash's own sockets, to the door and to another port of the loopback
		got := b.run(t, toHosts(policy.Grant{}, "files.example"), `exec 3<>/dev/tcp/127.0.0.1/3128
printf 'GET http://files.example/ HTTP/1.0\r\n\r\n' >&3; while read -r l <&3; do echo "$l"; done; echo "$l"
(: < /dev/tcp/127.0.0.1/3129) && echo other; (: < /dev/udp/127.0.0.1/9) && echo udp; :`)
		if !strings.Contains(got.out, "hello from files.example") || strings.Contains(got.out, "other") || strings.Contains(got.out, "udp") {
			t.Errorf("%+v", got)
		}
		if b.m.abi >= 4 && !strings.Contains(got.err, "Permission denied") {
			t.Errorf("another port: %q", got.err)
		}
	})
}

// TestDoorClosed: when a command has ended, its connections have too, though it
// left something running that holds them.
func TestDoorClosed(t *testing.T) {
	each(t, func(t *testing.T, b box) {
		gone := make(chan bool, 1)
		online(t, b.m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			gone <- true
		}))
		r := b.run(t, toHosts(widest, "files.example"), `exec 3<>/dev/tcp/127.0.0.1/3128
printf 'GET http://files.example/ HTTP/1.1\r\nHost: files.example\r\n\r\n' >&3; read -r l <&3; echo "$l"; sleep 1000 & disown`)
		if !strings.HasPrefix(r.out, "HTTP/1.1 200 OK") || len(r.Network) != 1 || r.Outlived != 1 {
			t.Errorf("%+v", r)
		}
		<-gone
	})
}

// TestGitFetch: git clones and fetches from a named host, under a pinned grant.
func TestGitFetch(t *testing.T) {
	needs(t, "git", "curl")
	backend := "/usr/lib/git-core/git-http-backend"
	if _, err := os.Stat(backend); err != nil {
		t.Skip("there is no git-http-backend")
	}
	root := t.TempDir()
	for _, args := range [][]string{{"init", "-q", root + "/src"}, {"-C", root + "/src", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", root + "/src", root + "/repo.git"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v", out, err)
		}
	}
	each(t, func(t *testing.T, b box) {
		online(t, b.m, &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}})
		r := b.run(t, toHosts(widest, "git.example"), "git clone -q http://git.example/repo.git c && git -C c log --format=%s && git -C c fetch -q && git clone -q http://other.example/repo.git d")
		if !strings.Contains(r.out, "first") || r.ExitCode == 0 || !strings.Contains(r.err, "403") {
			t.Errorf("%+v", r)
		}
	})
}
