package fence

import (
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// before is what a namespace may hold before routefence comes.
var before = map[string]func(r *rig.Rig){
	"nothing":            func(*rig.Rig) {},
	"foreign objects":    plantForeign,
	"foreign link group": func(r *rig.Rig) { r.Pod.Run("ip link set eth0 group 7") },
	"a tunnel":           func(r *rig.Rig) { r.TunnelUp() },
	"rules of nft alone": func(r *rig.Rig) { plantRules(r, "nft") },
	"policies that refuse": func(r *rig.Rig) {
		r.Pod.Run("iptables-nft -P FORWARD DROP")
		r.Pod.Run("ip6tables-nft -P FORWARD DROP")
	},
	"a blackhole in table main": func(r *rig.Rig) {
		ip(r, []string{"route add blackhole 10.250.0.0/16", "-6 route add blackhole fd00:250::/48"})
	},
}

// TestCleanup: the namespace is what it was, byte for byte, and a second cleanup finds nothing to do.
func TestCleanup(t *testing.T) {
	for name, plant := range before {
		t.Run(name, func(t *testing.T) {
			eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
				plant(r)
				if backend == "legacy" {
					loadLegacy(r)
				}
				want := snapshot(r)
				settleIn(t, r, backend, networksOf(3)...)
				settleIn(t, r, backend, nodeNetworks...)
				if snapshot(r) == want {
					t.Fatal("the fence does not show")
				}
				for _, when := range []string{"first cleanup", "second cleanup"} {
					clean(t, r)
					expectSame(t, when, want, snapshot(r))
				}
			})
		})
	}
}

// TestCleanupOpensAgain: what the fence refused is reachable again.
func TestCleanupOpensAgain(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{Forwarding: true}, func(t *testing.T, r *rig.Rig, backend string) {
		settleIn(t, r, backend, nodeNetworks...)
		expect(t, r, "fenced", "")
		clean(t, r)
		expectOpen(t, r)
	})
}

// TestCleanupKeepsForeignRules: a foreign rule in our chain may be all that protects somebody. It stays, in reach, and the
// exit code says that the work is partial.
func TestCleanupKeepsForeignRules(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		settleIn(t, r, backend, nodeNetworks...)
		r.Pod.Run("iptables-" + backend + " -w 5 -A ROUTEFENCE -d 192.0.2.1 -j DROP")
		for range 2 {
			got := r.Exec(shipped.Binary, "cleanup")
			if got.Exit != 1 || !strings.Contains(got.Stderr, "192.0.2.1") {
				t.Errorf("cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
			}
			rules := r.Pod.Run("iptables-" + backend + "-save -t filter")
			if !strings.Contains(rules, "-A ROUTEFENCE -d 192.0.2.1/32 -j DROP") || !strings.Contains(rules, "-j ROUTEFENCE") {
				t.Errorf("the foreign rule is not in reach any more:\n%s", rules)
			}
			if strings.Contains(rules, "10.250.0.0/16") {
				t.Errorf("our rules are still there:\n%s", rules)
			}
		}
		if left := r.Pod.Run("ip rule") + r.Pod.Run("ip route show table all"); strings.Contains(left, "9604") {
			t.Errorf("the routing fence is still there:\n%s", left)
		}
	})
}
