package firewall

import (
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Pass is a set of addresses for which some packet may leave, and what lets it.
type Pass struct {
	Addrs ranges.Set
	Cause string
}

// Passing returns the part of `to` for which some packet, locally made or forwarded, may leave by interface out.
func (s Snapshot) Passing(f policy.Family, out string, to ranges.Set) []Pass { return nil }

// Translations returns the rewritings of node addresses in nat OUTPUT, of both backends.
func (s Snapshot) Translations(p policy.Policy) []policy.Translation { return nil }
