package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

func all(netip.Prefix) bool { return true }

// TestTogglingRepliesLeavesNoTrace: whatever was there before, the chain that marks comes and goes with its jumps and with the base
// chains it made, nothing passes meanwhile, and cleanup finds its way back.
func TestTogglingRepliesLeavesNoTrace(t *testing.T) {
	const base = "*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 192.0.2.0/24 -j LOG\nCOMMIT\n"
	const empty = "*mangle\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
	for name, saved := range map[string]string{"nothing": "", "a rule": base, "empty chains": empty} {
		for _, backend := range []string{NFT, Legacy} {
			off := testPolicy("10.1.0.0/16")
			start := Snapshot{Backend: backend, Tables: save(t, policy.IPv4, saved)}
			s := start
			var fenced Snapshot
			for i, p := range []policy.Policy{off, off.Answer(all), off, off.Answer(all)} {
				for _, c := range Diff(Desired(p, Options{}), s) {
					s = apply(t, s, []Change{c})
					if got := s.Passing(policy.IPv4, "eth0", ranges.Of(off.Networks...)); i > 0 && len(got) > 0 {
						t.Errorf("%s, %s: after %s passes %v", backend, name, c, got)
					}
				}
				if again := Diff(Desired(p, Options{}), s); len(again) > 0 {
					t.Errorf("%s, %s: does not come to rest: %v", backend, name, again)
				}
				switch i {
				case 0:
					fenced = s
				case 2:
					if backend == NFT && !sameRules(s.Tables, fenced.Tables) {
						t.Errorf("%s, %s: off again is\n%v\nwas\n%v", backend, name, s.Tables, fenced.Tables)
					}
				}
			}
			if left := apply(t, s, Remove(s)); backend == NFT && !sameRules(left.Tables, start.Tables) {
				t.Errorf("%s, %s: removal left\n%v\nof\n%v", backend, name, left.Tables, start.Tables)
			} else if strings.Contains(strings.Join(texts(left.Tables, nothingHidden), " "), ChainName) {
				t.Errorf("%s, %s: removal left\n%v", backend, name, left.Tables)
			}
		}
	}
}

// TestForeignRuleHoldsOneChain: a foreign rule in the chain that marks keeps that chain and its jumps, and no other.
func TestForeignRuleHoldsOneChain(t *testing.T) {
	off := testPolicy("10.1.0.0/16")
	s := apply(t, Snapshot{Backend: NFT}, Diff(Desired(off.Answer(all), Options{}), Snapshot{Backend: NFT}))
	mangle := s.Tables[Table{policy.IPv4, "mangle"}]
	_, r, _ := parseLine(policy.IPv4, "-A ROUTEFENCE-REPLY -d 192.0.2.1/32 -j LOG")
	mangle[ReplyChain] = Chain{Rules: append(mangle[ReplyChain].Rules, r)}
	s = apply(t, s, Diff(Desired(off, Options{}), s))
	if again := Diff(Desired(off, Options{}), s); len(again) > 0 {
		t.Errorf("does not come to rest: %v", again)
	}
	s = apply(t, s, Remove(s))
	want := []string{"ipv4 mangle", "OUTPUT", "OUTPUT -m comment --comment \"routefence: made table\" -j ROUTEFENCE-REPLY",
		"PREROUTING", "PREROUTING -m comment --comment \"routefence: made table\" -j ROUTEFENCE-REPLY", "ROUTEFENCE-REPLY", r.Text}
	if got := texts(s.Tables, nothingHidden); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if again := Remove(s); len(again) != 1 {
		t.Errorf("a second removal does %v", again)
	}
}

// TestAnswersAreNoLeaks: what lets only answers pass is not spoken of, what lets anything else pass is, be it in our own words.
func TestAnswersAreNoLeaks(t *testing.T) {
	p := testPolicy("10.1.0.0/16", "fd00::/16").Answer(all)
	want := Desired(p, Options{})
	s := apply(t, Snapshot{Backend: NFT}, Diff(want, Snapshot{Backend: NFT}))
	for _, f := range policy.Families {
		if got := s.Passing(f, "eth0", ranges.Of(p.Networks...)); len(got) > 0 {
			t.Errorf("%s: with the fence in place passes %v", f, got)
		}
	}
	for line, passes := range map[string]bool{
		"-A ROUTEFENCE -m conntrack --ctdir REPLY -j ACCEPT":                                        false,
		"-A ROUTEFENCE -d 10.1.0.0/16 -m connmark --mark 0x9604/0xffff -j RETURN":                   true,
		"-A ROUTEFENCE -m conntrack --ctdir ORIGINAL -j ACCEPT":                                     true,
		"-A ROUTEFENCE -p tcp -m tcp --tcp-flags SYN SYN -j ACCEPT":                                 true,
		"-A ROUTEFENCE -p tcp -m tcp ! --tcp-flags SYN SYN -m comment --comment routefence -j DROP": false,
	} {
		broken := s
		broken.Tables = clone(s.Tables)
		for _, name := range []string{"filter", "mangle"} {
			chains := broken.Tables[Table{policy.IPv4, name}]
			_, r, _ := parseLine(policy.IPv4, line)
			chains[ChainName] = Chain{Rules: slices.Insert(slices.Clone(chains[ChainName].Rules), 0, r)}
		}
		if got := broken.Passing(policy.IPv4, "eth0", ranges.Of(prefixes("10.1.0.0/16")...)); (len(got) > 0) != passes {
			t.Errorf("%s: passes %v", line, got)
		}
	}
}

// TestRepliesCompareByMeaning: what either backend prints of a chain that marks is what was wanted.
func TestRepliesCompareByMeaning(t *testing.T) {
	for _, f := range policy.Families {
		network := map[policy.Family]string{policy.IPv4: "10.0.0.0/8", policy.IPv6: "fd00::/8"}[f]
		p := policy.New(prefixes(network), nil, policy.Patterns{"*"}, policy.Patterns{"tun0"}).Answer(all)
		large := policy.New(append(manyNetworks(SetThreshold+1), prefixes(network)...), nil, policy.Patterns{"eth0"}, nil).Answer(all)
		for _, fence := range slices.Concat(Desired(p, Options{}).Fences, Desired(large, Options{}).Fences) {
			for _, r := range fence.Rules {
				if _, got, _ := parseLine(fence.Table.Family, "-A C "+r.Spec()); !got.Same(r) {
					t.Errorf("%s:\n%s", r.Spec(), cmp.Diff(r, got, compareRules))
				}
			}
		}
	}
}

// TestLackingConnmarkAnswersNobody: no means to tell answers from the rest, nothing let out, and said.
func TestLackingConnmarkAnswersNobody(t *testing.T) {
	off := testPolicy("10.1.0.0/16", "fd00::/8")
	for _, lacks := range []Lacks{{Connmark: true}, {Conntrack: true}} {
		o := Options{Lacks: map[policy.Family]Lacks{policy.IPv4: lacks}}
		got := Desired(off.Answer(all), o)
		if len(got.Degraded) != 1 || !strings.Contains(got.Degraded[0], "ipv4: no conntrack or connmark") {
			t.Errorf("%+v: degraded %q", lacks, got.Degraded)
		}
		if want := specs(Desired(testPolicy("10.1.0.0/16"), o), "filter"); !strings.HasPrefix(specs(got, "filter"), want) {
			t.Errorf("%+v: filter is\n%s", lacks, specs(got, "filter"))
		}
		if n := len(Answerable(off.Answer(all), o.Lacks).Replies); n != 1 {
			t.Errorf("%+v: %d networks answered", lacks, n)
		}
	}
}

// TestNoStepLetsOut: from one policy to another nothing that both fence passes, whichever of them answer what.
func TestNoStepLetsOut(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		s := Snapshot{Backend: NFT}
		var before policy.Policy
		for range 3 {
			p := drawPolicy(t)
			both := ranges.Of(before.Networks...).Intersect(ranges.Of(p.Networks...))
			for _, c := range Diff(Desired(p, Options{}), s) {
				s = apply(outer, s, []Change{c})
				if got := s.Passing(policy.IPv4, "eth0", both); len(got) != 0 {
					t.Fatalf("after %s: %v passes", c, got)
				}
			}
			before = p
		}
	})
}
