package rtnl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"golang.org/x/sys/unix"
)

func blackholes(n int) []routes.Change {
	var out []routes.Change
	for i := range n {
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)
		out = append(out, routes.Change{Op: routes.AddRoute, Route: routes.Route{Family: policy.IPv4, Table: routes.Table, Dst: dst,
			Type: routes.Blackhole, Metric: routes.MetricBlackhole, Protocol: routes.Protocol}})
	}
	return out
}

func standing(t *testing.T, k *Kernel) int {
	t.Helper()
	s, err := k.List()
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(s.Routes, func(r routes.Route) bool { return !r.Ours() }))
}

// TestOneOfManyIsRefused: a foreign route in the place of one of four hundred. That one fails, by name, and no other.
func TestOneOfManyIsRefused(t *testing.T) {
	k := pod(t)
	changes := blackholes(400)
	foreign := changes[200]
	foreign.Route.Protocol = 4
	if err := k.Apply([]routes.Change{foreign}); err != nil {
		t.Fatal(err)
	}
	err := k.Apply(changes)
	if err == nil || !strings.Contains(err.Error(), changes[200].Route.Dst.String()) || !strings.Contains(err.Error(), "foreign route has its place") {
		t.Errorf("%v", err)
	}
	if n := standing(t, k); n != 399 {
		t.Errorf("%d of 399 stand", n)
	}
}

// TestAnswersLost: where there is no room for answers the changes are made all the same, an error says so, and what comes after is not
// kept waiting by what is missing.
func TestAnswersLost(t *testing.T) {
	k := pod(t)
	room := func(bytes int) {
		if err := unix.SetsockoptInt(k.dumps.GetFd(), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes); err != nil {
			t.Fatal(err)
		}
	}
	room(2048)
	err := k.Apply(blackholes(400))
	if err == nil || !strings.Contains(err.Error(), "no answer from rtnetlink") {
		t.Errorf("%v", err)
	}
	room(1 << 18)
	if n := standing(t, k); n != 400 {
		t.Errorf("%d of 400 stand", n)
	}
	one := blackholes(401)[400:]
	if err := k.Apply(one); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := k.Apply(one); err == nil {
		t.Error(fmt.Sprint("twice the same was no error: ", one))
	}
}
