package door

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/pinfold/pinfold/policy/hosts"
)

// A target is where a client wants to.
type target struct {
	name hosts.Name
	port uint16
}

func (t target) String() string { return hosts.Join(t.name, t.port) }

// A refusal is a target that is not let through, or not reached.
type refusal struct {
	verdict string // Refused or Failed
	reason  string // for people
}

func (r *refusal) Error() string { return r.reason }

func refused(format string, args ...any) *refusal {
	return &refusal{Refused, fmt.Sprintf(format, args...)}
}

// maxTried is how many addresses of a name are looked at.
const maxTried = 16

// permit finds the entry that lets the target through.
func (d *Door) permit(t target) (hosts.Entry, *refusal) {
	e, ok := d.config.Hosts.Find(t.name, t.port)
	if !ok {
		return e, refused("%s is not in this run's list; allowed: %s", t, d.allowed())
	}
	return e, nil
}

// allowed lists the hosts for a message, the first ones when they are many.
func (d *Door) allowed() string {
	const most = 10
	list := d.config.Hosts
	switch {
	case len(list) == 0:
		return "none"
	case len(list) > most:
		return fmt.Sprintf("%s and %d more", list[:most], len(list)-most)
	}
	return list.String()
}

// connect reaches the target: it is on the list, and so is the address that is
// dialled. The record says how far that came, also beside an error.
func (d *Door) connect(ctx context.Context, t target) (net.Conn, Connection, *refusal) {
	record := Connection{Name: t.name.String(), Port: t.port, Verdict: Allowed}
	fail := func(r *refusal) (net.Conn, Connection, *refusal) {
		record.Verdict, record.Reason = r.verdict, r.reason
		return nil, record, r
	}
	e, r := d.permit(t)
	if r != nil {
		return fail(r)
	}
	record.Rule = e.String()
	// a client's connection may carry requests to many servers
	if d.reached.Add(1) > int64(d.config.Limits.Connections) {
		return fail(&refusal{Refused, tooMany})
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.Limits.Dial)
	defer cancel()
	addresses, err := d.resolve(ctx, t.name)
	if err != nil {
		return fail(&refusal{Failed, fmt.Sprintf("%s: the name was not found", t.name)})
	}
	good := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !mayReach(e, a) })
	if len(good) == 0 {
		return fail(d.refuseAddress(t, addresses))
	}
	for _, a := range good {
		to := netip.AddrPortFrom(a, t.port)
		record.Address = to.String()
		var c net.Conn
		if c, err = d.config.Dial(ctx, to); err == nil {
			if !d.keep(c) {
				c.Close()
				err = net.ErrClosed
				break
			}
			return c, record, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return fail(&refusal{Failed, fmt.Sprintf("%s was not reached: %s", t, plainly(err))})
}

func (d *Door) refuseAddress(t target, addresses []netip.Addr) *refusal {
	if len(addresses) == 0 {
		return &refusal{Failed, fmt.Sprintf("%s has no address", t.name)}
	}
	if reachOf(addresses[0]) == nobody {
		return refused("%s has the address %s, which no run may reach", t.name, addresses[0])
	}
	return refused("%s has the address %s of this machine or a private network, which the policy does not open for it", t.name, addresses[0])
}

// resolve returns the addresses of a name. It is absolute: no domain of the
// machine's own is searched.
func (d *Door) resolve(ctx context.Context, n hosts.Name) ([]netip.Addr, error) {
	if a, ok := n.Addr(); ok {
		return []netip.Addr{a}, nil
	}
	list, err := d.config.Resolver.LookupNetIP(ctx, "ip", n.String()+".")
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list[:min(len(list), maxTried)], err
}

// mayReach reports whether the entry's names may be at the address. The machine's
// own addresses are as its loopback is, whatever range they are of.
func mayReach(e hosts.Entry, a netip.Addr) bool {
	switch reachOf(a) {
	case public:
		return e.Private || !own(a)
	case private:
		return e.Private
	default:
		return false
	}
}

// own reports whether the address is the machine's; it is when that cannot be
// told.
func own(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(list, func(i net.Addr) bool {
		n, ok := i.(*net.IPNet)
		if !ok {
			return false
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		return ok && ip.Unmap() == a
	})
}

// plainly says what a dial failed of, without the machine's own addresses.
func plainly(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Timeout() {
			return "no answer in time"
		}
		err = op.Err
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}
