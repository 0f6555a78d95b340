package door

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/pinfold/pinfold/policy/hosts"
)

// A server that sends what it has to whoever connects and says something.
func sender(b *testing.B, size int64) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 16<<10)); err != nil {
					return
				}
				buf := make([]byte, 64<<10)
				for left := size; left > 0; left -= int64(len(buf)) {
					if _, err := c.Write(buf[:min(left, int64(len(buf)))]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// transfer reads all that the server sends, directly or through the door.
func transfer(b *testing.B, door, server string, first []byte) {
	at := server
	if door != "" {
		at = door
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if door != "" {
		io.WriteString(c, connectTo(server))
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := c.Write(first); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// BenchmarkDoor compares a transfer through the door with a direct one: of much,
// and of a byte, which is what a connection costs.
func BenchmarkDoor(b *testing.B) {
	for _, size := range []int64{1, 256 << 20} {
		server := sender(b, size)
		list, err := hosts.ParseList([]string{server + " private"})
		if err != nil {
			b.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		d := Serve(l, Config{Hosts: list, Limits: Limits{Connections: 1 << 30, Down: 1 << 50}})
		defer d.Close()
		first := hello("")
		for _, way := range []struct{ name, door string }{{"direct", ""}, {"door", l.Addr().String()}} {
			b.Run(fmt.Sprintf("%d/%s", size, way.name), func(b *testing.B) {
				b.SetBytes(size)
				for range b.N {
					transfer(b, way.door, server, first)
				}
			})
		}
	}
}
