package xtables

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/test/netns"
)

// TestRejectedChoosesNothing: whoever scrapes must not bring about the choice of a backend, let alone the writes that prove one.
func TestRejectedChoosesNothing(t *testing.T) {
	netns.Enter(t)
	k := newKernel(Auto)
	k.doubted = true
	got, err := k.Rejected()
	if err != nil || got[policy.IPv4] != 0 || got[policy.IPv6] != 0 {
		t.Errorf("rejected %v, %v", got, err)
	}
	if k.Backend() != "" || !k.proved.IsZero() {
		t.Errorf("backend %q, proved %s", k.Backend(), k.proved)
	}
}

// TestRejectedIsBounded: any number of scrapes at a time start the programs once.
func TestRejectedIsBounded(t *testing.T) {
	netns.Enter(t)
	wire(t)
	k := newKernel(firewall.NFT)
	converge(t, k, policyOf("10.1.0.0/16"))
	send(t, "10.1.2.3", unix.SOCK_DGRAM)
	started := filepath.Join(t.TempDir(), "started")
	shim(t, "iptables-nft-save", "echo once >> "+started+"\nsleep 0.2\nexec REAL \"$@\"")
	if _, err := k.Rejected(); err != nil { // by this goroutine, which alone is in the namespace
		t.Fatal(err)
	}
	var scrapes sync.WaitGroup
	for range 50 {
		scrapes.Go(func() {
			if got, err := k.Rejected(); err != nil || got[policy.IPv4] != 1 {
				t.Errorf("rejected %v, %v", got, err)
			}
		})
	}
	scrapes.Wait()
	if lines, _ := os.ReadFile(started); string(lines) != "once\n" {
		t.Errorf("the program was started: %q", lines)
	}
}
