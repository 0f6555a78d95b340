// Package door is the only way from a run to the network: a proxy that serves
// HTTP CONNECT, HTTP requests in absolute form and SOCKS5 on one listener, for one
// run, with the list of hosts of its grant.
//
// It is part of confine because what it enforces is a layer of the confinement:
// the run's network namespace has nothing but its loopback, and the listener in
// it is this one. It knows of the policy only how hosts' names are read.
//
// # What holds
//
//   - A name is read once, by package hosts, and has to be on the list, at the
//     port. An empty list refuses everything. Nothing is resolved before that, so
//     that no name that is not on the list leaves as a question either.
//   - The daemon resolves, in absolute form, and dials an address that it has
//     looked at: the answer is not asked for twice. Addresses of the machine
//     itself and of private networks are for entries that say "private"; those
//     that are link-local, multicast, reserved or a cloud's metadata are for none.
//   - What goes through a tunnel is TLS whose ClientHello names the same host (none
//     for an IP address), in one record, without encrypted ClientHello; or plain
//     HTTP. Anything else is refused, and so is what comes too late.
//   - Plain HTTP is read request by request and written anew: each has to be for
//     the tunnel's host, or in absolute form for one on the list. What is not well
//     formed or has two lengths or two hosts is refused, and nothing is upgraded.
//   - Connections, their number at once, bytes in each direction and the time that
//     a client takes to say what it wants are bounded. What passes is in the
//     kernel's buffers, or in at most some 50 KiB for a connection.
//   - Every connection is in the records, also the refused.
//   - When it is closed, every connection of it is.
//
// # Not promised
//
// What is said inside TLS: a server that serves many names may serve another one
// than its certificate's over the same connection. The owner of a suffix sees
// which names beneath it are asked for, and when. UDP, QUIC, ICMP and other
// protocols over TCP, such as SSH, are not served.
package door
