// Package hosts reads the names of hosts, in one way for whoever writes one:
// a policy, a command line, the configuration of a package manager, and what
// programs ask of the door.
//
// # What holds
//
//   - A name has one spelling: ASCII in lower case, labels of letters, digits and
//     inner hyphens, no dot at its end, at most 253 bytes. What is written in other
//     scripts is converted by IDNA 2008, without mapping anything: letters that
//     only look like others, of full width or not composed, are errors. So are
//     labels of mixed scripts, and labels in punycode that say something else.
//   - Nothing is decoded: a percent sign, a NUL, user information, a space or any
//     other byte is an error.
//   - What a resolver could take for an IPv4 address (its last label is a number,
//     decimal, octal or hexadecimal) is one in four plain decimal parts, or an
//     error. IPv6 addresses have no zone; one that holds an IPv4 address in its
//     mapped form is that IPv4 address.
//   - An empty list holds nothing.
package hosts

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// A Name is a host's name in ASCII, or an IP address. Its zero value is neither.
type Name struct {
	text string
	addr netip.Addr
}

// String returns the one spelling of the name; IPv6 addresses are without
// brackets.
func (n Name) String() string { return n.text }

// Addr returns the address when the name is one.
func (n Name) Addr() (netip.Addr, bool) { return n.addr, n.addr.IsValid() }

// maxName is the longest name in DNS, in bytes, without the root's dot (RFC 1035).
const maxName = 253

// converter is strict: it maps nothing (RFC 5891, section 4).
var converter = idna.Registration

// Parse reads a name, or an IP address without brackets.
func Parse(s string) (Name, error) {
	if len(s) > 4*maxName {
		return Name{}, errors.New("too long")
	}
	if strings.Contains(s, ":") {
		return parseIPv6(s)
	}
	text, err := ascii(s)
	if err != nil {
		return Name{}, err
	}
	if err := checkLabels(text); err != nil {
		return Name{}, err
	}
	if !numeric(text[strings.LastIndexByte(text, '.')+1:]) {
		return Name{text: text}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return Name{}, errors.New("a number where a name should be: an IPv4 address has four decimal parts")
	}
	return Name{text: a.String(), addr: a}, nil
}

func parseIPv6(s string) (Name, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return Name{}, errors.New("not an IPv6 address without zone")
	}
	a = a.Unmap()
	return Name{text: a.String(), addr: a}, nil
}

// ascii returns the name in lower-case ASCII.
func ascii(s string) (string, error) {
	plain, puny := true, false
	for i := range len(s) {
		plain = plain && s[i] < 0x80
	}
	lower := strings.ToLower(s)
	if plain {
		puny = strings.Contains("."+lower, ".xn--")
		if !puny {
			return lower, nil
		}
	}
	if !plain && lower != s {
		return "", errors.New("capital letters beside other scripts")
	}
	text, err := converter.ToASCII(lower)
	if err != nil {
		return "", errors.New("not a name by IDNA")
	}
	for label := range strings.SplitSeq(text, ".") {
		shown, err := converter.ToUnicode(label)
		if err != nil {
			return "", errors.New("not a name by IDNA")
		}
		back, err := converter.ToASCII(shown)
		if err != nil || back != label {
			return "", errors.New("punycode of another name")
		}
		if err := oneScript(shown); err != nil {
			return "", err
		}
	}
	return text, nil
}

// together are the scripts that are written in one word.
var together = [][]string{{"Han", "Hiragana", "Katakana"}, {"Han", "Hangul"}, {"Han", "Bopomofo"}}

// oneScript refuses labels of which a part looks like another script's.
func oneScript(label string) error {
	var found []string
	for _, r := range label {
		if unicode.In(r, unicode.Common, unicode.Inherited) {
			continue
		}
		for name, table := range unicode.Scripts {
			if unicode.Is(table, r) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	if len(found) < 2 {
		return nil
	}
	for _, set := range together {
		if !slices.ContainsFunc(found, func(s string) bool { return !slices.Contains(set, s) }) {
			return nil
		}
	}
	return errors.New("a label of mixed scripts")
}

func checkLabels(text string) error {
	if text == "" {
		return errors.New("no name")
	}
	if len(text) > maxName {
		return errors.New("too long")
	}
	for label := range strings.SplitSeq(text, ".") {
		switch {
		case label == "":
			return errors.New("an empty label, or a dot at an end")
		case len(label) > 63:
			return errors.New("a label of more than 63 bytes")
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("a hyphen at the end of a label")
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return errors.New("a byte that no name has")
			}
		}
	}
	return nil
}

// numeric reports whether resolvers take a name that ends in the label for an
// IPv4 address (inet_aton(3)).
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// ParsePort reads a port, 1 to 65535 in plain decimal.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' || s[0] == '0' {
		return 0, errors.New("a port is a number from 1 to 65535")
	}
	return uint16(n), nil
}

// ParseAuthority reads host:port as URLs have it: an IPv6 address is in brackets.
// Where there is no port it is fallback; 0 wants one.
func ParseAuthority(s string, fallback uint16) (Name, uint16, error) {
	n, port, err := parseAuthority(s)
	if port == 0 {
		port = fallback
	}
	if err == nil && port == 0 {
		err = errors.New("no port")
	}
	return n, port, err
}

// parseAuthority returns port 0 where there is none.
func parseAuthority(s string) (n Name, port uint16, err error) {
	host, rest, bracketed := s, "", strings.HasPrefix(s, "[")
	if bracketed {
		end := strings.IndexByte(s, ']')
		if end < 0 || !strings.Contains(s[:end], ":") {
			return Name{}, 0, errors.New("brackets are for IPv6 addresses")
		}
		host, rest = s[1:end], s[end+1:]
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, rest = s[:i], s[i:]
	}
	if rest != "" {
		if rest[0] != ':' {
			return Name{}, 0, errors.New("something after the bracket")
		}
		if port, err = ParsePort(rest[1:]); err != nil {
			return Name{}, 0, err
		}
	}
	n, err = Parse(host)
	return n, port, err
}

// Join writes a name and a port as ParseAuthority reads them.
func Join(n Name, port uint16) string {
	if strings.Contains(n.text, ":") {
		return fmt.Sprintf("[%s]:%d", n.text, port)
	}
	return fmt.Sprintf("%s:%d", n.text, port)
}

// An Entry is one item of a list: which names, at which port.
type Entry struct {
	Name   Name
	Suffix bool   // whatever ends in a dot and the name, and not the name itself
	Port   uint16 // 0 for 443 and 80
	// Private lets the name have an address of the machine itself or of a private
	// network.
	Private bool
}

const privateMark = " private"

// ParseEntry reads "host", "host:port", "*.suffix" or "*.suffix:port", each with
// " private" after it or not. A suffix has two labels or more.
func ParseEntry(s string) (Entry, error) {
	var e Entry
	text, private := strings.CutSuffix(s, privateMark)
	e.Private = private
	text, e.Suffix = strings.CutPrefix(text, "*.")
	var err error
	if e.Name, e.Port, err = parseAuthority(text); err != nil {
		return Entry{}, fmt.Errorf("%q: %w", s, err)
	}
	if _, ip := e.Name.Addr(); e.Suffix && (ip || !strings.Contains(e.Name.text, ".")) {
		return Entry{}, fmt.Errorf("%q: a suffix has two labels or more", s)
	}
	return e, nil
}

// String returns the entry as ParseEntry reads it.
func (e Entry) String() string {
	s := e.Name.text
	if strings.Contains(s, ":") {
		s = "[" + s + "]"
	}
	if e.Suffix {
		s = "*." + s
	}
	if e.Port != 0 {
		s += ":" + strconv.Itoa(int(e.Port))
	}
	if e.Private {
		s += privateMark
	}
	return s
}

// holds reports whether the entry is about the name at the port.
func (e Entry) holds(n Name, port uint16) bool {
	if e.Port != port && (e.Port != 0 || port != 443 && port != 80) {
		return false
	}
	if e.Suffix {
		_, ip := n.Addr()
		return !ip && strings.HasSuffix(n.text, "."+e.Name.text)
	}
	return n.text != "" && n.text == e.Name.text
}

// A List says which hosts may be reached. An empty one holds none.
type List []Entry

// ParseList reads entries. The error names the first that is none.
func ParseList(texts []string) (List, error) {
	l := make(List, 0, len(texts))
	for _, s := range texts {
		e, err := ParseEntry(s)
		if err != nil {
			return nil, err
		}
		l = append(l, e)
	}
	return l, nil
}

// Find returns the entry that holds the name at the port: of several one that
// lets it be private, else the first.
func (l List) Find(n Name, port uint16) (found Entry, ok bool) {
	for _, e := range l {
		if e.holds(n, port) && (!ok || e.Private && !found.Private) {
			found, ok = e, true
		}
	}
	return found, ok
}

// String lists the entries for people.
func (l List) String() string {
	texts := make([]string, len(l))
	for i, e := range l {
		texts[i] = e.String()
	}
	return strings.Join(texts, ", ")
}
