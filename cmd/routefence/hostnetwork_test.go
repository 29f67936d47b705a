package main

import (
	"net/netip"
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	for name, test := range map[string]struct {
		at  whereabouts
		why string
	}{
		"a pod":                                      {at: whereabouts{hosts: addrs("192.0.2.1"), pods: addrs("10.1.2.3")}},
		"a namespace made by hand":                   {},
		"a pod with a kernel to itself":              {at: whereabouts{hosts: addrs("192.0.2.1"), pods: addrs("10.1.2.3"), first: true}},
		"a pod whose host is not known":              {at: whereabouts{pods: addrs("10.1.2.3")}},
		"a pod with hostNetwork":                     {at: whereabouts{hosts: addrs("192.0.2.1"), pods: addrs("192.0.2.1"), first: true}, why: "both 192.0.2.1"},
		"hostNetwork on a node that is a container":  {at: whereabouts{hosts: addrs("192.0.2.1"), pods: addrs("192.0.2.1")}, why: "both 192.0.2.1"},
		"hostNetwork with both families":             {at: whereabouts{hosts: addrs("192.0.2.1", "2001:db8::1"), pods: addrs("2001:db8::1")}, why: "both 2001:db8::1"},
		"a shell on a node":                          {at: whereabouts{first: true}, why: "first network namespace"},
		"hostNetwork, and only one address is known": {at: whereabouts{hosts: addrs("192.0.2.1"), first: true}, why: "first network namespace"},
	} {
		if why := test.at.host(); why != "" && test.why == "" || !strings.Contains(why, test.why) {
			t.Errorf("%s: %q, want %q", name, why, test.why)
		}
	}
}
