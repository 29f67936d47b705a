package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
)

func TestExpect(t *testing.T) {
	p := policy.New(prefixes("10.250.0.0/16"), nil, nil, nil)
	for _, c := range []struct{ translated, allow, lifeline, want, spared string }{
		{"242.0.0.0/8", "", "10.1.0.1", "242.0.0.0/8", ""},
		{"", "", "242.0.0.1", "", ""},
		{"242.0.0.0/8", "", "242.9.9.9", "", "ipv4: 242.0.0.0/8 holds the pod's gateway 242.9.9.9,"},
		{"242.0.0.0/9 242.128.0.0/9", "", "242.9.9.9", "242.128.0.0/9", "242.0.0.0/9 holds"},
		{"242.0.0.0/30", "242.0.0.1/32", "10.1.0.1", "242.0.0.0/32 242.0.0.2/31", ""},
		{"242.0.0.0/8 fd00:242::/32", "", "fd00:242::1", "242.0.0.0/8", ""}, // no IPv6 network is fenced
	} {
		got, spared := p.Expect(prefixes(strings.Fields(c.translated)...), prefixes(strings.Fields(c.allow)...),
			[]policy.Lifeline{{Addr: netip.MustParseAddr(c.lifeline), Name: "gateway"}})
		if !slices.Equal(got.Translated, prefixes(strings.Fields(c.want)...)) || !strings.Contains(strings.Join(spared, ";"), c.spared) || len(spared) > 0 && c.spared == "" {
			t.Errorf("%+v: %v, spared %q", c, got.Translated, spared)
		}
	}
	if p.Translated != nil {
		t.Errorf("the original changed: %v", p.Translated)
	}
	whole, _ := p.Expect(prefixes(policy.DefaultTranslated), nil, nil)
	if got := whole.Less(policy.IPv4); len(got.Translated) != 0 {
		t.Errorf("without IPv4: %v", got.Translated)
	}
}
