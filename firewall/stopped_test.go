package firewall_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

// counted is a ruleset as iptables-save -c prints it, with counters of different sizes.
const counted = `*filter
:ROUTEFENCE - [0:0]
[64:0] -A ROUTEFENCE -d 10.250.9.0/24 -m comment --comment "routefence: allowed" -j RETURN
[1:0] -A ROUTEFENCE -d 10.250.0.0/16 -o eth0 -p tcp -m comment --comment "routefence: node network" -j REJECT --reject-with tcp-reset
[2:0] -A ROUTEFENCE -d 10.250.0.0/16 -o eth0 -m comment --comment "routefence: node network" -j REJECT --reject-with icmp-admin-prohibited
[4:0] -A ROUTEFENCE -d 10.251.0.0/16 -o eth+ -m comment --comment "routefence: node network" -j DROP
[8:0] -A ROUTEFENCE -d 10.252.0.0/16 -o eth0 -j DROP
COMMIT
*mangle
:ROUTEFENCE - [0:0]
[16:0] -A ROUTEFENCE -o eth0 -m set --match-set ROUTEFENCE4 dst -m comment --comment "routefence: node network" -j DROP
[32:0] -A ROUTEFENCE -d 242.0.0.0/16 -o eth0 -m comment --comment "routefence: translated" -j DROP
COMMIT
`

func countedSnapshot(t *testing.T) firewall.Snapshot {
	t.Helper()
	tables, err := firewall.ParseSave(policy.IPv4, []byte(counted))
	if err != nil {
		t.Fatal(err)
	}
	return firewall.Snapshot{Tables: tables, Sets: map[string][]netip.Prefix{"ROUTEFENCE4": {netip.MustParsePrefix("10.250.0.0/16")}}}
}

// Stopped counts at the rule that a packet meets first in each table, and at no other.
func TestStopped(t *testing.T) {
	s := countedSnapshot(t)
	for _, c := range []struct {
		to, protocol, link string
		want               uint64
	}{
		{"10.250.0.7", "tcp", "eth0", 1 + 16},
		{"10.250.0.7", "udp", "eth0", 2 + 16},
		{"10.250.0.7", "tcp", "eth1", 0},
		{"10.251.0.7", "tcp", "eth1", 4},
		{"242.0.0.7", "tcp", "eth0", 32},
		{"192.0.2.1", "tcp", "eth0", 0},
		{"fd00:250::7", "tcp", "eth0", 0},
	} {
		if got := s.Stopped(netip.MustParseAddr(c.to), c.protocol, c.link); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestWhatTheRulesInTheKernelAreFor(t *testing.T) {
	s := countedSnapshot(t)
	if got := s.Allowed(); !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("10.250.9.0/24")}) {
		t.Errorf("allowed: %v", got)
	}
	if got := s.TranslatedTo(); !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("242.0.0.0/16")}) {
		t.Errorf("translated to: %v", got)
	}
}
