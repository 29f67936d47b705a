package fence

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// The lanes are two streams of packets that the seed network tells apart by their port: from free sockets, of which none
// may ever arrive, and from sockets bound to eth0, which only the firewall stops.
const (
	freePort  = 10261
	boundPort = 10262
)

type lanes struct {
	r    *rig.Rig
	stop chan struct{}
	all  sync.WaitGroup
	sent atomic.Int64
}

// countLanes counts both ports where the seed network begins, in all protocols that have ports, and drops what it has
// counted: an answer from there would look like one of the firewall.
const countLanes = `table netdev rf_lanes {
	counter free {
	}
	counter bound {
	}
	chain in {
		type filter hook ingress device "cali0" priority -490
		th dport 10261 counter name free drop
		th dport 10262 counter name bound drop
	}
}
`

// openLanes starts the streams; they end with the test.
func openLanes(t *testing.T, r *rig.Rig) *lanes {
	t.Helper()
	r.Net.Feed(countLanes, "nft -f -")
	l := &lanes{r: r, stop: make(chan struct{})}
	for _, to := range addresses {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP} {
			free := rig.Probe{Protocol: protocol, To: to, Port: freePort, Timeout: time.Millisecond}
			bound := free
			bound.Port, bound.Device = boundPort, "eth0"
			l.all.Go(func() { l.send(free) })
			l.all.Go(func() { l.send(bound) })
		}
	}
	t.Cleanup(l.close)
	return l
}

// send sends a packet every now and then: twelve senders make about four hundred a second.
func (l *lanes) send(p rig.Probe) {
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		l.r.Probe(p) // what came of it shows at the seed network
		l.sent.Add(1)
	}
}

func (l *lanes) close() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.all.Wait()
}

// arrived returns what the seed network has seen of each lane so far.
func (l *lanes) arrived(t *testing.T) (free, bound uint64) {
	t.Helper()
	var listing struct {
		Nftables []struct {
			Counter struct {
				Name    string
				Packets uint64
			}
		}
	}
	if err := json.Unmarshal([]byte(l.r.Net.Run("nft -j list counters")), &listing); err != nil {
		t.Fatal(err)
	}
	for _, item := range listing.Nftables {
		switch item.Counter.Name {
		case "free":
			free = item.Counter.Packets
		case "bound":
			bound = item.Counter.Packets
		}
	}
	return free, bound
}
