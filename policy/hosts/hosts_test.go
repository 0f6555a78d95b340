package hosts

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, test := range []struct{ in, want string }{
		{"example.org", "example.org"},
		{"EXAMPLE.Org", "example.org"},
		{"a-b.example", "a-b.example"},
		{"1.example", "1.example"},
		{"localhost", "localhost"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"例え.example", "xn--r8jz45g.example"},
		{"192.0.2.1", "192.0.2.1"},
		{"::1", "::1"},
		{"0:0:0:0:0:0:0:1", "::1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"::ffff:c000:201", "192.0.2.1"},
		{long + "." + long + "." + long + "." + strings.Repeat("a", 61), long + "." + long + "." + long + "." + strings.Repeat("a", 61)},
		// none of these is a name
		{"", ""}, {".", ""}, {"example.org.", ""}, {".example.org", ""}, {"a..b", ""}, {"example.org..", ""},
		{"example.org\x00.evil.example", ""}, {"\x00", ""}, {"example.org\r\n", ""}, {"example.org\n", ""}, {" example.org", ""}, {"example.org ", ""},
		{"user@example.org", ""}, {"user:pw@example.org", ""}, {"example.org/x", ""}, {"example.org?x", ""}, {"example.org#x", ""}, {`example.org\x`, ""},
		{"example%2eorg", ""}, {"%65xample.org", ""}, {"exam_ple.org", ""}, {"-a.example", ""}, {"a-.example", ""}, {"*.example.org", ""},
		{long + "a.example", ""}, {long + "." + long + "." + long + "." + strings.Repeat("a", 62), ""},
		{"\xff.example", ""}, {"a\u200b.example", ""}, {"a\u00ad.example", ""}, {"ｅxample.org", ""}, {"example。org", ""}, {"127。0。0。1", ""}, {"①.example", ""},
		{"еxample.org", ""}, {"xn--xample-2of.org", ""}, {"Bücher.example", ""}, {"bu\u0308cher.example", ""}, {"xn--a.example", ""}, {"xn--example-.org", ""},
		{"ab--cd.éxample", ""}, {"faß\u0301.\u0301", ""},
		// numbers that resolvers take for addresses
		{"127.1", ""}, {"2130706433", ""}, {"0x7f000001", ""}, {"0x7f.1", ""}, {"017700000001", ""}, {"0177.0.0.1", ""}, {"127.0.0.01", ""}, {"127.0.0.1.", ""},
		{"127.0.0.0x1", ""}, {"0x", ""}, {"1.2.3.4.5", ""}, {"256.1.1.1", ""}, {"example.1", ""}, {"example.0x1f", ""}, {"１２７.0.0.1", ""},
		{"fe80::1%eth0", ""}, {"::1%", ""}, {"[::1]", ""}, {":", ""}, {"1:2", ""}, {"::ffff:127.1", ""}, {"::0177.0.0.1", ""}, {"a:b", ""},
	} {
		n, err := Parse(test.in)
		if err == nil && test.want == "" || n.String() != test.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", test.in, n, err, test.want)
		}
	}
}

func TestParseAuthority(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"example.org:443", "example.org:443"}, {"example.org", "example.org:80"}, {"[::1]:8080", "[::1]:8080"}, {"[::1]", "[::1]:80"},
		{"example.org:", ""}, {"example.org:0", ""}, {"example.org:65536", ""}, {"example.org:+80", ""}, {"example.org:080", ""}, {"example.org:80:80", ""},
		{"example.org:80x", ""}, {"example.org:8\x000", ""}, {"[::1", ""}, {"[::1]80", ""}, {"[::1]:", ""}, {"::1", ""}, {"[example.org]", ""}, {"[192.0.2.1]", ""},
		{"[::1%25lo]:80", ""}, {"[[::1]]:80", ""}, {"u:p@example.org:80", ""}, {"u@example.org", ""}, {":80", ""}, {"example.org:80 ", ""}, {"example.org:٨٠", ""},
	} {
		n, port, err := ParseAuthority(test.in, 80)
		if got := Join(n, port); err == nil && got != test.want || err != nil && test.want != "" {
			t.Errorf("ParseAuthority(%q) = %s, %v; want %q", test.in, got, err, test.want)
		}
	}
	if _, _, err := ParseAuthority("example.org", 0); err == nil {
		t.Error("no port was enough where one is wanted")
	}
}

func TestEntries(t *testing.T) {
	for _, s := range []string{"example.org", "example.org:443", "example.org:8080", "*.example.org", "*.example.org:8443", "192.0.2.1", "192.0.2.1:80", "[::1]",
		"[::1]:80", "localhost:5432 private", "[2001:db8::443]", "[2001:db8::443]:443"} {
		e, err := ParseEntry(s)
		if err != nil || e.String() != s {
			t.Errorf("ParseEntry(%q) = %q, %v", s, e, err)
		}
	}
	for _, s := range []string{"", "*", "*.", "*.org", "*.*.org", "a*.example.org", "*.192.0.2.1", "*.[::1]", "*example.org", "https://example.org", "example.org/",
		"example.org:*", " private", "example.org  private", "example.org private private", "::1", "10.1"} {
		if e, err := ParseEntry(s); err == nil {
			t.Errorf("ParseEntry(%q) = %q, want an error", s, e)
		}
	}
}

func TestFind(t *testing.T) {
	list, err := ParseList([]string{"example.org", "*.example.com", "git.example.net:8443", "192.0.2.1", "db.example private", "db.example", "[2001:db8::1]:443"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ at, want string }{
		{"example.org:443", "example.org"}, {"example.org:80", "example.org"}, {"EXAMPLE.ORG:443", "example.org"},
		{"a.example.com:443", "*.example.com"}, {"a.b.example.com:80", "*.example.com"}, {"git.example.net:8443", "git.example.net:8443"},
		{"192.0.2.1:80", "192.0.2.1"}, {"[::ffff:192.0.2.1]:80", "192.0.2.1"}, {"db.example:80", "db.example private"}, {"[2001:db8:0::1]:443", "[2001:db8::1]:443"},
		{"example.org:8080", ""}, {"www.example.org:443", ""}, {"example.com:443", ""}, {"notexample.com:443", ""}, {"xexample.com:443", ""}, {"git.example.net:443", ""},
		{"example.org.evil.example:443", ""}, {"192.0.2.2:80", ""}, {"example:443", ""}, {"org:443", ""}, {"[2001:db8::1]:80", ""},
	} {
		n, port, err := ParseAuthority(test.at, 0)
		if err != nil {
			t.Fatal(err)
		}
		e, ok := list.Find(n, port)
		if ok != (test.want != "") || ok && e.String() != test.want {
			t.Errorf("Find(%s) = %q, %v; want %q", test.at, e, ok, test.want)
		}
		if _, ok := (List{}).Find(n, port); ok {
			t.Errorf("an empty list holds %s", test.at)
		}
	}
	if _, ok := list.Find(Name{}, 443); ok {
		t.Error("the list holds no name")
	}
	if _, err := ParseList([]string{"example.org", "exam ple.org"}); err == nil {
		t.Error("a list with something that is no host")
	}
}

// A name that is read is read again as itself, and cannot be taken for another.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"example.org", "bu\u0308cher.example", "xn--bcher-kva.example", "127.0.0.1", "::1", "a\x00b", "0x7f.1", "[::1]:80", "*.example.org:80 private"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := Parse(s); err == nil {
			again, err := Parse(n.String())
			if err != nil || again != n {
				t.Fatalf("%q is %q, which is %q, %v", s, n, again, err)
			}
			if strings.Trim(n.String(), "abcdefghijklmnopqrstuvwxyz0123456789-.:") != "" {
				t.Fatalf("%q is %q", s, n)
			}
		}
		if n, port, err := ParseAuthority(s, 443); err == nil {
			if again, p, err := ParseAuthority(Join(n, port), 0); err != nil || again != n || p != port {
				t.Fatalf("%q is %s:%d, which is %s:%d, %v", s, n, port, again, p, err)
			}
		}
		if e, err := ParseEntry(s); err == nil {
			if again, err := ParseEntry(e.String()); err != nil || again != e {
				t.Fatalf("%q is %q, which is %q, %v", s, e, again, err)
			}
		}
	})
}
