package xtables

import (
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/test/netns"
	"golang.org/x/sys/unix"
)

// TestLegacySizes: every kind of change that empties or fills a table shows, in both families; to look changes nothing and makes nothing.
func TestLegacySizes(t *testing.T) {
	netns.Enter(t)
	asks := map[policy.Family]int{}
	for _, f := range policy.Families {
		fd, err := unix.Socket(domain[f], unix.SOCK_DGRAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		asks[f] = fd
	}
	if got := legacySizes(asks); got != "" {
		t.Errorf("an empty namespace has %q", got)
	}
	last := ""
	for _, line := range []string{
		"iptables-legacy -A OUTPUT -d 10.250.0.7 -j DROP",
		"iptables-legacy -I OUTPUT -d 10.250.0.8 -j DROP",
		"iptables-legacy -D OUTPUT 1",
		"iptables-legacy -N OTHER",
		"iptables-legacy -F",
		"ip6tables-legacy -t mangle -A POSTROUTING -d fd00:250::7 -j DROP",
		"ip6tables-legacy -t mangle -F",
		"iptables-legacy -t nat -A OUTPUT -d 10.250.0.0/16 -j NETMAP --to 242.0.0.0/16",
	} {
		netns.Run(t, line)
		now := legacySizes(asks)
		if now == last {
			t.Errorf("%s: does not show", line)
		}
		if again := legacySizes(asks); again != now {
			t.Errorf("%s: %q, and then %q", line, now, again)
		}
		last = now
	}
}
