package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// reserved is a range that no node network may touch: fencing it would cut the pod off from itself, from its gateway
// or from everything.
type reserved struct {
	prefix netip.Prefix
	what   string
}

var reservedRanges = []reserved{
	{netip.MustParsePrefix("0.0.0.0/8"), "the unspecified addresses"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "limited broadcast"},
	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{mapped, "the IPv4-mapped addresses"},
}

// mapped holds the whole of IPv4 inside IPv6. What lies within is read as IPv4; what is wider would fence IPv4 unseen.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// ParsePrefix reads one network and returns the one value that stands for it everywhere: host bits cleared, IPv4-mapped
// IPv6 as IPv4. The warning is not empty if that changed what was written. Refused are single addresses without a length,
// zones, and every network that overlaps an address range the pod itself lives by; the error names the item and the range.
func ParsePrefix(s string) (p netip.Prefix, warning string, err error) {
	s = strings.TrimFunc(s, blank)
	written, err := parse(s)
	if err != nil {
		return netip.Prefix{}, "", &InvalidNetworkError{s, err}
	}
	p, warning = canonical(written)
	if err := refuse(p); err != nil {
		return netip.Prefix{}, "", &InvalidNetworkError{s, err}
	}
	return p, warning, nil
}

// parse is netip.ParsePrefix with errors for people, who write most of these by hand.
func parse(s string) (netip.Prefix, error) {
	address, length, slash := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(address)
	switch {
	case s == "":
		return netip.Prefix{}, fmt.Errorf("empty, want a network like 10.250.0.0/16")
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("not an IP network: %s", reason(err))
	case addr.Zone() != "":
		return netip.Prefix{}, fmt.Errorf("has the zone %q; node networks have none", addr.Zone())
	case !slash:
		one := addr.Unmap()
		return netip.Prefix{}, fmt.Errorf("has no prefix length; write %s/%d for one address", one, one.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("prefix length %s is not a number from 0 to %d without leading zeros",
			quote(length), addr.BitLen())
	}
	return p, nil
}

// reason takes the last part of a netip error, as the parts before it only repeat the input.
func reason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "): "); i >= 0 {
		return text[i+len("): "):]
	}
	return text
}

// canonical clears host bits and turns IPv4-mapped IPv6 into IPv4, with a warning if either changed anything.
func canonical(written netip.Prefix) (p netip.Prefix, warning string) {
	p = written
	if p.Addr().Is4In6() && p.Bits() >= mapped.Bits() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped.Bits())
		warning = fmt.Sprintf("%s is IPv4-mapped, read as %s", written, p.Masked())
	}
	if p != p.Masked() {
		warning = fmt.Sprintf("%s has host bits set, read as %s", written, p.Masked())
	}
	return p.Masked(), warning
}

// refuse says why p must not be fenced. It looks for overlap, not for equality: 126.0.0.0/7 holds loopback as well.
func refuse(p netip.Prefix) error {
	if p.Bits() == 0 {
		return fmt.Errorf("%s is every address there is, not a node network", p)
	}
	for _, r := range reservedRanges {
		switch {
		case !p.Overlaps(r.prefix):
		case p.Bits() < r.prefix.Bits():
			return fmt.Errorf("%s contains %s (%s), which must stay reachable", p, r.what, r.prefix)
		default:
			return fmt.Errorf("%s belongs to %s (%s), which must stay reachable", p, r.what, r.prefix)
		}
	}
	return nil
}

// quote shows an item in a message. Input may be a whole file without one separator, so it is cut.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%.*q...", most, s)
	}
	return fmt.Sprintf("%q", s)
}
