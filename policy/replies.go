package policy

import "net/netip"

// ReplyMark, in the bits of ReplyMask, marks connections that came in over a fenced interface, and the packets that answer
// them. The firewall sets it, the routing follows it.
const (
	ReplyMark uint32 = 0x9604
	ReplyMask uint32 = 0xffff
)

// Answer returns the policy in which connections that come in from an address of certain networks are answered: of those that
// the function says.
func (p Policy) Answer(needed func(network netip.Prefix) bool) Policy {
	p.Replies = nil
	for _, n := range p.Networks {
		if needed(n) {
			p.Replies = append(p.Replies, n)
		}
	}
	return p
}
