package xtables

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/test/netns"
)

func TestBothFamiliesAndChangeOfBackend(t *testing.T) {
	netns.Enter(t)
	p := policyOf("10.1.0.0/16", "fd00:1::/32")
	for _, b := range []string{firewall.NFT, firewall.Legacy, firewall.NFT} {
		k := newKernel(b)
		for range 3 {
			converge(t, k, p)
		}
		for _, v := range variants() {
			saved := netns.Run(t, firewall.Program(v.family, v.backend, "save"))
			if got := strings.Count(saved, "-A ROUTEFENCE"); got != 3 && v.backend == b || got != 0 && v.backend != b {
				t.Errorf("with %s, %s has %d rules:\n%s", b, v, got, saved)
			}
		}
	}
}

func TestAutoStaysWhereItIs(t *testing.T) {
	netns.Enter(t)
	first := newKernel(Auto)
	if list(t, first); first.Backend() != firewall.NFT {
		t.Errorf("in an empty namespace auto is %s", first.Backend())
	}
	variant{firewall.Legacy, policy.IPv4}.run(t, "-A INPUT -j ACCEPT")
	second := newKernel(Auto)
	if list(t, second); second.Backend() != firewall.Legacy {
		t.Errorf("where all rules are legacy, auto is %s", second.Backend())
	}
	converge(t, newKernel(firewall.NFT), policyOf("10.1.0.0/16"))
	third := newKernel(Auto)
	if list(t, third); third.Backend() != firewall.NFT {
		t.Errorf("where our chain is in nft, auto is %s", third.Backend())
	}
}

// TestForeignNativeChain: a native nft chain that took the name OUTPUT for another priority makes every rule in OUTPUT fail,
// though listing and even the proof work.
func TestForeignNativeChain(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "nft add table ip filter")
	netns.Run(t, "nft add chain ip filter OUTPUT { type filter hook output priority 10 ; }")
	before := netns.Run(t, "nft list ruleset")
	p := policyOf("10.1.0.0/16")
	fixed := newKernel(firewall.NFT)
	s := list(t, fixed)
	if err := fixed.Apply(firewall.Diff(desired(p, s), s)); !errors.Is(err, errIncompatible) {
		t.Errorf("nft: %v", err)
	}
	remove(t, fixed)
	k := newKernel(Auto)
	s = list(t, k)
	if err := k.Apply(firewall.Diff(desired(p, s), s)); err == nil {
		t.Error("nft took the rules")
	}
	converge(t, k, p)
	if k.Backend() != firewall.Legacy {
		t.Errorf("backend is %s", k.Backend())
	}
	if after := netns.Run(t, "nft list ruleset"); after != before {
		t.Errorf("the foreign table was\n%s\nand is\n%s", before, after)
	}
}

// TestForeignNativeRule: one native rule hides its whole table from iptables-nft-save, or makes it fail.
func TestForeignNativeRule(t *testing.T) {
	for _, rule := range []string{"ct mark 1 accept", "meta skuid 5 accept"} {
		t.Run(rule, func(t *testing.T) {
			netns.Enter(t)
			netns.Run(t, "nft add table ip filter")
			netns.Run(t, "nft add chain ip filter OUTPUT { type filter hook output priority 0 ; }")
			netns.Run(t, "nft add rule ip filter OUTPUT "+rule)
			before := netns.Run(t, "nft list ruleset")
			p := policyOf("10.1.0.0/16")
			fixed := newKernel(firewall.NFT)
			s := list(t, fixed)
			if s.Err(p) == nil || len(s.Passing(policy.IPv4, "eth0", ranges.Of(p.Networks...))) == 0 {
				t.Error("a table that cannot be read is taken for a fence")
			}
			for _, c := range firewall.Diff(desired(p, s), s) {
				if r, ok := c.(firewall.Restore); ok && r.Table.Name == "filter" {
					t.Errorf("writes, unseeing, %s", c)
				}
			}
			k := newKernel(Auto)
			converge(t, k, p)
			if k.Backend() != firewall.Legacy {
				t.Errorf("auto is %s", k.Backend())
			}
			if after := netns.Run(t, "nft list ruleset"); after != before {
				t.Errorf("the foreign table was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

func TestForeignNativeChainInLowerCase(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "nft add table ip filter")
	netns.Run(t, "nft add chain ip filter output { type filter hook output priority 0 ; }")
	before := everything(t)
	k := newKernel(Auto)
	converge(t, k, policyOf("10.1.0.0/16"))
	if k.Backend() != firewall.NFT {
		t.Errorf("auto is %s", k.Backend())
	}
	remove(t, k)
	if after := everything(t); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// TestUnchangedStartsNoProgram: with nothing on PATH, a list can only come from what is known.
func TestUnchangedStartsNoProgram(t *testing.T) {
	netns.Enter(t)
	k := newKernel(firewall.NFT)
	many := manyNetworks(policy.IPv4, 100)
	converge(t, k, many)
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	settled(t, k, many)
	t.Setenv("PATH", path)
	netns.Run(t, "ipset del ROUTEFENCE4 10.0.0.0/24")
	t.Setenv("PATH", "")
	if s := list(t, k); len(s.Passing(policy.IPv4, "eth0", ranges.Of(many.Networks...))) == 0 {
		t.Error("a change of the set goes unseen")
	}
	t.Setenv("PATH", path)
	converge(t, k, many)
	netns.Run(t, "nft flush ruleset")
	t.Setenv("PATH", "")
	if s := list(t, k); len(s.Passing(policy.IPv4, "eth0", ranges.Of(many.Networks...))) == 0 {
		t.Error("a change of the rules goes unseen")
	}
	t.Setenv("PATH", path)
	list(t, k)
	netns.Run(t, "iptables-legacy -t nat -A OUTPUT -j ACCEPT")
	if s := list(t, k); len(s.Other) == 0 {
		t.Error("a change in the other backend goes unseen")
	}
}

// moving is a ruleset that changes as often as its generation is asked for, for a while.
type moving struct {
	nfnetlink.Conn
	generation *uint32
	until      uint32
}

func (m moving) Generation() (uint32, error) {
	*m.generation = min(*m.generation+1, m.until)
	return *m.generation, nil
}

func TestReadIsOfOneRuleset(t *testing.T) {
	netns.Enter(t)
	generation := uint32(0)
	if _, err := New(firewall.NFT, moving{nfnetlink.Conn{}, &generation, 5}, zap.NewNop()).Read(); err != nil || generation != 5 {
		t.Errorf("read at generation %d: %v", generation, err)
	}
	for _, choice := range []string{firewall.NFT, Auto} {
		if _, err := New(choice, moving{nfnetlink.Conn{}, &generation, 1000}, zap.NewNop()).Read(); err == nil {
			t.Errorf("%s: took pieces of several rulesets for one", choice)
		}
	}
}

// counting counts the looks at the nft tables, and changes the rules after the first.
type counting struct {
	nfnetlink.Conn
	looks  *int
	change func()
}

func (c counting) Tables() (map[firewall.Table][]string, []firewall.Table, error) {
	tables, dormant, err := c.Conn.Tables()
	if *c.looks++; *c.looks == 1 {
		c.change()
	}
	return tables, dormant, err
}

// TestChoosingLooksOnce: what the choice of a backend has seen is what the first list says, unless the rules have changed since.
func TestChoosingLooksOnce(t *testing.T) {
	netns.Enter(t)
	for _, v := range []struct {
		change string
		looks  int
	}{{"", 1}, {"iptables-nft -t filter -A FORWARD -j ACCEPT", 2}} {
		looks := 0
		k := New(Auto, counting{nfnetlink.Conn{}, &looks, func() {
			if v.change != "" {
				netns.Run(t, v.change)
			}
		}}, zap.NewNop())
		s := list(t, k)
		if looks != v.looks {
			t.Errorf("change %q: %d looks, want %d", v.change, looks, v.looks)
		}
		if v.change != "" && len(s.Tables[firewall.Table{Family: policy.IPv4, Name: "filter"}]["FORWARD"].Rules) != 1 {
			t.Errorf("the change goes unseen: %v", s.Tables)
		}
	}
}

// TestTranslation: the VPN may keep its NETMAP rules in either backend, whatever holds the fence.
func TestTranslation(t *testing.T) {
	for _, v := range variants()[1:3] {
		v.family = policy.IPv4
		for _, vpn := range []string{firewall.NFT, firewall.Legacy} {
			t.Run(v.backend+" with the VPN in "+vpn, func(t *testing.T) {
				netns.Enter(t)
				k := newKernel(v.backend)
				converge(t, k, v.policy())
				netmap := " OUTPUT -d 10.1.0.0/16 -m owner --gid-owner 31415 -j NETMAP --to 242.1.0.0/16"
				variant{vpn, policy.IPv4}.run(t, "-t nat -A"+netmap)
				if len(converge(t, k, v.policy())) == 0 {
					t.Fatal("the translation goes unseen")
				}
				if got := list(t, k).Passing(policy.IPv4, "eth0", ranges.Of(netip.MustParsePrefix("242.1.0.0/16"))); len(got) > 0 {
					t.Errorf("translated packets pass: %s", got[0].Cause)
				}
				variant{vpn, policy.IPv4}.run(t, "-t nat -D"+netmap)
				converge(t, k, v.policy())
				if saved := netns.Run(t, firewall.Program(policy.IPv4, v.backend, "save")); strings.Contains(saved, "242.1.") {
					t.Errorf("left:\n%s", saved)
				}
			})
		}
	}
}

// BenchmarkList is the cost of a pass with nothing to do.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{1, 10000} {
		b.Run(fmt.Sprintf("networks=%d", n), func(b *testing.B) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				netns.Enter(b)
				k, p := newKernel(firewall.NFT), manyNetworks(policy.IPv4, n)
				converge(b, k, p)
				for b.Loop() {
					list(b, k)
				}
			}()
			<-done
		})
	}
}

func TestReadWritesNothing(t *testing.T) {
	netns.Enter(t)
	generation, _ := nfnetlink.Conn{}.Generation()
	if _, err := newKernel(Auto).Read(); err != nil {
		t.Fatal(err)
	}
	if after, _ := (nfnetlink.Conn{}).Generation(); after != generation {
		t.Error("reading changed the ruleset")
	}
	if names, _ := legacyTables(policy.IPv4); len(names) > 0 {
		t.Errorf("reading made legacy tables %v", names)
	}
}

// TestDormantTable: nft can switch a table off as a whole. Its chains and rules are listed as before and stop nothing.
func TestDormantTable(t *testing.T) {
	netns.Enter(t)
	p := policyOf("10.1.0.0/16")
	fixed, k := newKernel(firewall.NFT), newKernel(Auto)
	converge(t, fixed, p)
	converge(t, k, p)
	netns.Run(t, "nft add table ip mangle { flags dormant ; }")
	s := list(t, fixed)
	if err := s.Err(p); err == nil || !strings.Contains(err.Error(), "mangle") || !strings.Contains(err.Error(), "dormant") {
		t.Errorf("nft: %v", err)
	}
	converge(t, k, p)
	if k.Backend() != firewall.Legacy {
		t.Errorf("auto stays with %s", k.Backend())
	}
}
