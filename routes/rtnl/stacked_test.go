package rtnl

import (
	"testing"

	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/test/netns"
)

// TestStackedLinks: what a link sends by, whose port it is and who is at a tunnel's other end, as the kernel tells it.
func TestStackedLinks(t *testing.T) {
	k := pod(t)
	for _, line := range []string{
		"ip link add mac0 link eth0 type macvlan mode bridge",
		"ip link add br0 type bridge", "ip link set far1 master br0",
		"ip link add vx0 type vxlan id 4 dstport 4789 local 10.1.178.85 remote 10.250.3.4 dev eth0",
		"ip link add vx1 type vxlan id 5 dstport 4789 group 239.1.1.1 dev eth0",
	} {
		netns.Run(t, line)
	}
	s, err := k.List()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]routes.Link{}
	for _, l := range s.Links {
		links[l.Name] = l
	}
	eth0 := links["eth0"].Index
	if links["eth0"].Lower != 0 || links["far0"].Lower != 0 || links["lo"].Lower != 0 {
		t.Errorf("a veth sends by nothing else: %+v, %+v", links["eth0"], links["far0"])
	}
	if links["mac0"].Lower != eth0 || links["vx0"].Lower != eth0 {
		t.Errorf("stacked on eth0: %+v, %+v", links["mac0"], links["vx0"])
	}
	if links["far1"].Master != links["br0"].Index || links["br0"].Index == 0 || links["far0"].Master != 0 {
		t.Errorf("a port of br0: %+v, %+v", links["far1"], links["br0"])
	}
	if links["far1"].Twin == 0 || links["far1"].Twin != links["tun0"].Index || links["br0"].Twin != 0 {
		t.Errorf("ends of a pair: %+v, %+v", links["far1"], links["tun0"])
	}
	for name, kind := range map[string]string{"mac0": "macvlan", "br0": "bridge", "vx0": "vxlan", "eth0": "veth"} {
		if links[name].Kind != kind {
			t.Errorf("%s is a %q, want %q", name, links[name].Kind, kind)
		}
	}
	if got := links["vx0"]; got.Peer.String() != "10.250.3.4" || got.Outer.String() != "10.1.178.85" {
		t.Errorf("ends of vx0: %s and %s", got.Outer, got.Peer)
	}
	if links["vx1"].Peer.IsValid() || links["vx1"].Outer.IsValid() || links["eth0"].Peer.IsValid() {
		t.Errorf("no other end: %+v, %+v", links["vx1"], links["eth0"])
	}
}
