package door

import "net/netip"

// A reach says who may reach an address.
type reach uint8

const (
	nobody  reach = iota // whatever the list says
	private              // entries that say so
	public               // every entry that holds the name
)

// ranges are IANA's special-purpose addresses, and what clouds serve their
// machines' credentials at; of those that hold an address the first counts. IPv4
// addresses in none are public, IPv6 addresses in none only in 2000::/3.
var ranges = []struct {
	prefix string
	reach  reach
}{
	{"100.100.100.200/32", nobody}, // metadata
	{"168.63.129.16/32", nobody},   // metadata
	{"fd00:ec2::254/128", nobody},  // metadata
	{"fd20:ce::254/128", nobody},   // metadata

	{"0.0.0.0/8", nobody},
	{"10.0.0.0/8", private},
	{"100.64.0.0/10", private}, // carriers' NAT
	{"127.0.0.0/8", private},
	{"169.254.0.0/16", nobody}, // link-local, and metadata
	{"172.16.0.0/12", private},
	{"192.0.0.0/24", nobody},
	{"192.0.2.0/24", nobody}, // documentation
	{"192.88.99.0/24", nobody},
	{"192.168.0.0/16", private},
	{"198.18.0.0/15", private}, // benchmarks
	{"198.51.100.0/24", nobody},
	{"203.0.113.0/24", nobody},
	{"224.0.0.0/3", nobody}, // multicast, reserved, broadcast

	{"::1/128", private},
	{"2001::/23", nobody}, // Teredo and others that hold an IPv4 address or an identifier
	{"2001:db8::/32", nobody},
	{"2002::/16", nobody}, // 6to4, holds an IPv4 address
	{"3fff::/20", nobody},
	{"2000::/3", public},
	{"fc00::/7", private},
	{"::/0", nobody},
}

var prefixes = func() (list []netip.Prefix) {
	for _, r := range ranges {
		list = append(list, netip.MustParsePrefix(r.prefix))
	}
	return list
}()

// nat64 is where IPv6-only networks reach IPv4 addresses (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// reachOf says who may reach the address. Mapped and translated IPv4 addresses are
// what they stand for.
func reachOf(a netip.Addr) reach {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" {
		return nobody
	}
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	for i, p := range prefixes {
		if p.Contains(a) {
			return ranges[i].reach
		}
	}
	return public
}
