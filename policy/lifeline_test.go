package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
)

func TestLifelines(t *testing.T) {
	lines := []policy.Lifeline{
		{Addr: netip.MustParseAddr("10.96.0.10"), Name: "DNS server"},
		{Addr: netip.MustParseAddr("10.96.0.10"), Name: "the same again"},
		{Addr: netip.MustParseAddr("10.1.178.85"), Name: "own address"},
		{Addr: netip.MustParseAddr("192.0.2.1"), Name: "API server"},
	}
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12")},
		[]netip.Prefix{netip.MustParsePrefix("10.1.178.0/24")}, nil, nil)

	kept := p.Keep(lines)
	want := []netip.Prefix{netip.MustParsePrefix("10.1.178.0/24"), netip.MustParsePrefix("10.96.0.10/32")}
	if !slices.Equal(kept.Allow, want) || len(kept.Lifelines) != 1 || kept.Lifelines[0].Name != "DNS server" {
		t.Errorf("kept %v, lifelines %v", kept.Allow, kept.Lifelines)
	}
	if !slices.Equal(p.Allow, want[:1]) {
		t.Errorf("the original changed: %v", p.Allow)
	}
	if again := kept.Keep(lines); !slices.Equal(again.Allow, want) {
		t.Errorf("again: %v", again.Allow)
	}

	rest, refused := p.Refuse(lines)
	if len(rest.Networks) != 1 || rest.Networks[0].String() != "172.16.0.0/12" || len(rest.Allow) != 0 {
		t.Errorf("left %v, allowed %v", rest.Networks, rest.Allow)
	}
	if len(refused) != 1 || !strings.Contains(refused[0].Error(), `"10.0.0.0/8": holds the pod's DNS server 10.96.0.10, the same again 10.96.0.10, own address 10.1.178.85 and`) {
		t.Errorf("refused %v", refused)
	}
}
