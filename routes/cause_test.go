package routes

import (
	"net/netip"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// TestCauseIsOfTheAddresses: one blackhole is named; where several of ours are one answer, none of them is named for the others.
func TestCauseIsOfTheAddresses(t *testing.T) {
	networks := []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16"), netip.MustParsePrefix("10.250.0.0/16")}
	p := policy.New(networks, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"})
	var s State
	f := Desired(p, nil, s)
	s.Rules, s.Routes = f.Rules, f.Routes
	for _, c := range []struct {
		to   []netip.Prefix
		want string
	}{
		{networks, "blackhole routes of table 9604"},
		{networks[1:], "route blackhole 10.250.0.0/16 table 9604 proto 96 metric 2048"},
	} {
		paths, _ := s.Paths(policy.IPv4, ranges.Of(c.to...))
		if len(paths) != 1 || paths[0].Cause != c.want {
			t.Errorf("%v: %+v, want one path by %q", c.to, paths, c.want)
		}
	}
}
