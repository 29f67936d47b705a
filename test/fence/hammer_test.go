package fence

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// How often the policy changes and the tunnel flaps under the hammer: 500 and 200 times, most of it under nft, as a pass
// over the legacy tables takes longer.
var (
	policyChanges = map[string]int{"nft": 340, "legacy": 160}
	tunnelFlaps   = map[string]int{"nft": 136, "legacy": 64}
)

// hammerRate leaves a small machine room for the agent.
const hammerRate = 500

// TestHammer: under fire from free and bound sockets, no packet gets out while the policy changes and the tunnel flaps.
func TestHammer(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{Forwarding: true}, func(t *testing.T, r *rig.Rig, backend string) {
		expectHammerSeen(t, r)
		file := newShootFile(t, r)
		file.write(networksOf(0)...)
		s := start(t, r, "--shoot-file="+file.path, "--firewall="+backend, "--resync=1s", "--log-level=warn")
		s.Await("the agent is ready", func(d document) bool { return d.Ready })
		h := r.Hammer(hammerRate)
		changes, flaps := policyChanges[backend], 0
		for i := 1; i <= changes; i++ {
			file.write(networksOf(i)...)
			if i*tunnelFlaps[backend]/changes > flaps {
				flaps++
				r.TunnelUp()
				r.TunnelDown()
			}
			d := s.Await(fmt.Sprintf("policy %d is in force", i), func(d document) bool { return d.Ready && strings.Contains(d.CIDRs(), mark(i)) })
			// The agent slows down when it has to write in every pass.
			s.Await("a pass found nothing to do", func(later document) bool { return later.VerifiedAt.After(d.VerifiedAt) })
		}
		totals := h.Stop()
		t.Logf("%d policy changes, %d flaps: %v", changes, flaps, totals)
		if totals.Seed.Total() != 0 || totals.Attempts == 0 || totals.VPN.Packets == 0 || flaps != tunnelFlaps[backend] {
			t.Errorf("%d flaps, want %d; %v", flaps, tunnelFlaps[backend], totals)
		}
	})
}

// expectHammerSeen proves, before there is a fence, that the hammer hits and the counter counts.
func expectHammerSeen(t *testing.T, r *rig.Rig) {
	t.Helper()
	h := r.Hammer(hammerRate)
	time.Sleep(500 * time.Millisecond)
	if got := h.Stop(); got.Seed.Packets < got.Attempts/2 || got.Attempts == 0 {
		t.Fatalf("without a fence: %v", got)
	}
}

// mark is a network that policy i alone names, so that the state tells when it is in force.
func mark(i int) string { return fmt.Sprintf("172.%d.%d.0/24", 20+i%2, i%200) }

// networksOf is policy i. Every one covers the node, under another prefix; every fourth is longer than the rules can
// hold as they are, so that the firewall goes over to a set and back.
func networksOf(i int) []string {
	list := [][]string{
		{"10.250.0.0/16", "fd00:250::/48"},
		{"10.250.0.0/17", "10.250.128.0/17", "fd00:250::/49", "fd00:250:0:8000::/49"},
		{"10.250.0.0/16", "10.251.0.0/16", "fd00:250::/48", "fd00:250:1::/48"},
		{"10.250.0.0/16", "10.249.0.0/16", "fd00:250::/47"},
		{"10.248.0.0/14", "fd00:250::/40"},
	}[i%5]
	list = append(slices.Clone(list), mark(i))
	if i%4 == 3 {
		for n := range 70 {
			list = append(list, fmt.Sprintf("172.30.%d.0/24", 2*n), fmt.Sprintf("fd00:30:%x::/48", 2*n))
		}
	}
	return list
}

// shootFile is a list of networks that is replaced as a whole.
type shootFile struct {
	t    *testing.T
	path string
}

func newShootFile(t *testing.T, r *rig.Rig) shootFile {
	t.Helper()
	dir := filepath.Join(r.Dir, "shoot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return shootFile{t, filepath.Join(dir, "networks")}
}

// write names networks.
func (f shootFile) write(networks ...string) {
	f.t.Helper()
	f.put(strings.Join(networks, "\n") + "\n")
}

// put replaces the file by a text.
func (f shootFile) put(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.t.Fatal(err)
	}
}
