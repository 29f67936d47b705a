package field

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// healthyAfter is how long the VPN must have been well before a refusal counts.
const healthyAfter = 2 * time.Second

// health is since when the VPN carries which node, and what became of those who dialled meanwhile.
type health struct {
	mutex   sync.Mutex
	since   map[netip.Addr]time.Time
	history []string
	// judged dialled a node that was well, failed one that was not; answers from the seed network count as refusals.
	judged, failed int
	refusals       []string
	stop           chan struct{}
	all            sync.WaitGroup
}

func newHealth() *health {
	return &health{since: map[netip.Addr]time.Time{}, stop: make(chan struct{})}
}

// lost comes before whatever changes the VPN's ways.
func (h *health) lost() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	clear(h.since)
}

// is comes after it.
func (h *health) is(to netip.Addr, carried bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if carried {
		h.since[to] = time.Now()
	}
}

func (h *health) any() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return len(h.since) > 0
}

func (h *health) tell(history []string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.history = history
}

func (h *health) of(to netip.Addr) time.Time {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.since[to]
}

// dial dials the node in every form, by TCP and UDP, until expect.
func (h *health) dial(r *rig.Rig) *sync.WaitGroup {
	for _, to := range addresses {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP} {
			h.all.Go(func() { h.dialOne(r, rig.Probe{Protocol: protocol, To: to}) })
		}
	}
	return &h.all
}

func (h *health) dialOne(r *rig.Rig, p rig.Probe) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
		}
		before, begin := h.of(p.To.Unmap()), time.Now()
		p.Timeout = brief
		if !before.IsZero() {
			p.Timeout = ample
		}
		a := r.Probe(p)
		h.note(p, a, before, begin)
	}
}

// note judges an answer: the VPN must have been well from two seconds before until now.
func (h *health) note(p rig.Probe, a rig.Answer, before, begin time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	well := !before.IsZero() && h.since[p.To.Unmap()].Equal(before)
	switch {
	case well && begin.Sub(before) > healthyAfter:
		h.judged++
		if a.From == rig.AnswerVPN {
			return
		}
	case a.From == rig.AnswerNet:
	default:
		if a.From == "" {
			h.failed++
		}
		return
	}
	h.refusals = append(h.refusals, begin.Format("05.000 ")+p.String()+": "+a.String()+" after "+a.Took.String()+
		", well for "+begin.Sub(before).String()+"; before that:\n"+strings.Join(h.history[max(0, len(h.history)-4):], "\n"))
}

// expect ends the dialing and wants that nobody was refused who should not have been, and that others were: else nothing would
// have been seen.
func (h *health) expect(t *testing.T, dialers *sync.WaitGroup) {
	t.Helper()
	close(h.stop)
	dialers.Wait()
	t.Logf("%d dialled while the VPN was well for more than %v, of whom %d were not carried; %d failed at other times", h.judged, healthyAfter, len(h.refusals), h.failed)
	if len(h.refusals) > 0 {
		t.Errorf("not carried, or by the seed network: %d, the first:\n%s", len(h.refusals), strings.Join(h.refusals[:min(3, len(h.refusals))], "\n"))
	}
	if h.judged < mixedActs || h.failed < mixedActs {
		t.Errorf("too few dialled at either time to tell anything: %d, %d", h.judged, h.failed)
	}
}
