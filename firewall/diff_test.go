package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

const foreignSaved = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" +
	"-A OUTPUT -d 192.0.2.0/24 -j DROP\n-A FORWARD -j LOG\nCOMMIT\n"

func TestDiffComesToRest(t *testing.T) {
	p := testPolicy("10.1.0.0/16", "fd00::/8")
	want := Desired(p, Options{})
	for _, start := range []Snapshot{{Backend: NFT}, {Backend: NFT, Tables: save(t, policy.IPv4, foreignSaved)}} {
		s := apply(t, start, Diff(want, start))
		if again := Diff(want, s); len(again) != 0 {
			t.Errorf("second diff is not empty:\n%v", again)
		}
		for _, f := range policy.Families {
			if got := s.Passing(f, "eth0", ranges.Of(p.Networks...)); len(got) != 0 {
				t.Errorf("%s passes: %v", f, got)
			}
		}
		if left := apply(t, s, Remove(s)); !sameRules(left.Tables, clone(start.Tables)) {
			t.Errorf("removal left\n%v\nof\n%v", left.Tables, start.Tables)
		}
	}
}

// TestMovedJumpRemembers: what a jump knows about its chain must survive the repair that sets it anew.
func TestMovedJumpRemembers(t *testing.T) {
	start := Snapshot{Backend: NFT, Tables: save(t, policy.IPv4, "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n")}
	want := Desired(testPolicy("10.1.0.0/16"), Options{})
	s := apply(t, start, Diff(want, start))
	filter := s.Tables[Table{policy.IPv4, "filter"}]
	_, foreign, _ := parseLine(policy.IPv4, "-A FORWARD -j LOG")
	filter["FORWARD"] = Chain{"ACCEPT", []Rule{foreign, filter["FORWARD"].Rules[0]}}
	s = apply(t, s, Diff(want, s))
	s.Tables[Table{policy.IPv4, "filter"}]["FORWARD"] = Chain{"ACCEPT", s.Tables[Table{policy.IPv4, "filter"}]["FORWARD"].Rules[:1]}
	if left := apply(t, s, Remove(s)); !sameRules(left.Tables, start.Tables) {
		t.Errorf("left: %v", left.Tables)
	}
}

func sameRules(a, b Tables) bool {
	return slices.Equal(texts(a, nothingHidden), texts(b, nothingHidden))
}

func nothingHidden(Rule) bool { return false }

// texts returns all rules that are not hidden, in the order of their chains, and the names of the chains.
func texts(tables Tables, hidden func(Rule) bool) []string {
	var out []string
	for _, table := range tables.sorted() {
		out = append(out, table.String())
		for _, name := range sortedChains(tables[table]) {
			out = append(out, name)
			for _, r := range tables[table][name].Rules {
				if !hidden(r) {
					out = append(out, r.Text)
				}
			}
		}
	}
	return out
}

// TestDiffHealsAnything: whatever was done to the rules, one diff restores them and leaves each foreign rule where it was.
func TestDiffHealsAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		options := Options{Lacks: map[policy.Family]Lacks{policy.IPv4: {Comment: rapid.Bool().Draw(rt, "uncommented")}}}
		old := Desired(drawPolicy(rt), options)
		want := Desired(drawPolicy(rt), options)
		s := Snapshot{Backend: NFT, Tables: save(t, policy.IPv4, foreignSaved)}
		s = apply(t, s, Diff(old, s))
		tamper(rt, s)
		foreign := func(r Rule) bool { return isJump(r) || r.Owned() || ownForm(r) }
		before := ruleTexts(s.Tables, foreign)
		healed := apply(t, s, Diff(want, s))
		if again := Diff(want, healed); len(again) != 0 {
			rt.Fatalf("does not come to rest: %v", again)
		}
		for _, fence := range want.Fences {
			for _, base := range fence.Bases {
				rules := healed.Tables[fence.Table][base].Rules
				if !isJump(rules[0]) || rules[0].Target != fence.Chain || slices.ContainsFunc(rules[1:], isJump) {
					rt.Fatalf("%s %s: %v", fence.Table, base, rules)
				}
			}
		}
		if after := ruleTexts(healed.Tables, foreign); !slices.Equal(before, after) {
			rt.Fatalf("foreign rules were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
	})
}

func ruleTexts(tables Tables, hidden func(Rule) bool) []string {
	return slices.DeleteFunc(texts(tables, hidden), func(s string) bool { return !strings.Contains(s, " -") })
}

func drawPolicy(t *rapid.T) policy.Policy {
	all := []string{"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/24", "10.4.0.0/15"}
	p := testPolicy(rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID).Draw(t, "networks")...)
	return p.Answer(func(n netip.Prefix) bool { return rapid.Bool().Draw(t, "answers "+n.String()) })
}

// tamper does what other programs do: delete, insert and double rules, empty chains, drop them.
func tamper(t *rapid.T, s Snapshot) {
	for range rapid.IntRange(0, 4).Draw(t, "acts") {
		chains := s.Tables[Table{policy.IPv4, rapid.SampledFrom([]string{"filter", "mangle"}).Draw(t, "table")}]
		name := rapid.SampledFrom(sortedChains(chains)).Draw(t, "chain")
		chain := chains[name]
		at := 0
		if len(chain.Rules) > 0 {
			at = rapid.IntRange(0, len(chain.Rules)-1).Draw(t, "at")
		}
		switch act := rapid.IntRange(0, 4).Draw(t, "act"); {
		case act == 0:
			chain.Rules = nil
		case act == 1 && len(chain.Rules) > 0:
			chain.Rules = slices.Delete(chain.Rules, at, at+1)
		case act == 2 && len(chain.Rules) > 0 && !slices.ContainsFunc(chain.Rules[at:at+1], ownForm):
			chain.Rules = append(chain.Rules, chain.Rules[at])
		case act == 3:
			_, r, _ := parseLine(policy.IPv4, "-A "+name+" -s 172.16.0.0/12 -j ACCEPT")
			chain.Rules = slices.Insert(chain.Rules, at, r)
		}
		chains[name] = chain
	}
}

// TestNoStepUncovers: on the way from one policy to another, in whatever form each of them is held, every address that both
// fence is fenced after every single change.
func TestNoStepUncovers(t *testing.T) {
	small, large := manyNetworks(3), manyNetworks(SetThreshold+3)
	larger := append(manyNetworks(SetThreshold + 9)[5:], netip.MustParsePrefix("172.16.0.0/12"))
	steps := [][]netip.Prefix{small, large, larger, large, small, larger, small}
	s := Snapshot{Backend: NFT}
	for i, networks := range steps {
		p := policy.New(networks, nil, policy.Patterns{"eth0"}, nil)
		var both ranges.Set
		if i > 0 {
			both = ranges.Of(steps[i-1]...).Intersect(ranges.Of(networks...))
		}
		for _, c := range Diff(Desired(p, Options{}), s) {
			s = apply(t, s, []Change{c})
			if got := s.Passing(policy.IPv4, "eth0", both); len(got) != 0 {
				t.Fatalf("step %d, after %s: %v passes", i, c, got)
			}
		}
		if again := Diff(Desired(p, Options{}), s); len(again) != 0 {
			t.Errorf("step %d does not come to rest: %v", i, again)
		}
	}
}

func TestBackendChangeRemovesTheOldCopyLast(t *testing.T) {
	want := Desired(testPolicy("10.1.0.0/16"), Options{})
	old := apply(t, Snapshot{Backend: Legacy}, Diff(want, Snapshot{Backend: Legacy}))
	moved := Snapshot{Backend: NFT, Tables: Tables{}, Other: old.Tables}
	for _, c := range Diff(want, moved) {
		moved = apply(t, moved, []Change{c})
		if got := moved.Passing(policy.IPv4, "eth0", ranges.Of(prefixes("10.1.0.0/16")...)); len(got) != 0 {
			t.Fatalf("after %s: %v", c, got)
		}
	}
	for table, chains := range moved.Other {
		if _, left := chains[ChainName]; left {
			t.Errorf("legacy %s still has our chain", table)
		}
	}
}

func TestForeignRulesInOurChain(t *testing.T) {
	want := Desired(testPolicy("10.1.0.0/16"), Options{})
	s := apply(t, Snapshot{Backend: NFT}, Diff(want, Snapshot{Backend: NFT}))
	filter := s.Tables[Table{policy.IPv4, "filter"}]
	_, r, _ := parseLine(policy.IPv4, "-A ROUTEFENCE -d 10.1.0.0/16 -j ACCEPT")
	filter[ChainName] = Chain{Rules: slices.Insert(filter[ChainName].Rules, 0, r)}
	s = apply(t, s, Diff(want, s))
	rules := s.Tables[Table{policy.IPv4, "filter"}][ChainName].Rules
	if last := rules[len(rules)-1]; last.Text != r.Text {
		t.Errorf("the foreign rule is not last: %v", rules)
	}
	changes := Remove(s)
	if !slices.ContainsFunc(changes, func(c Change) bool { _, kept := c.(Kept); return kept }) {
		t.Error("removal does not report what it kept")
	}
	s = apply(t, s, changes)
	if rules := s.Tables[Table{policy.IPv4, "filter"}][ChainName].Rules; len(rules) != 1 || rules[0].Text != r.Text {
		t.Errorf("of our chain is left: %v", rules)
	}
	if len(s.Tables[Table{policy.IPv4, "filter"}]["OUTPUT"].Rules) != 1 {
		t.Error("the kept chain lost its jump")
	}
	if again := Remove(s); len(again) != 1 {
		t.Errorf("a second removal does %v", again)
	}
}

func TestUnknownFamiliesAreLeftAlone(t *testing.T) {
	want := Desired(testPolicy("10.1.0.0/16", "fd00::/8"), Options{})
	s := Snapshot{Backend: NFT, Absent: map[policy.Family]bool{policy.IPv6: true}}
	for _, c := range Diff(want, s) {
		if c.Of() == policy.IPv6 {
			t.Errorf("writes to an absent family: %s", c)
		}
	}
}
