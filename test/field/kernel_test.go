package field

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// addresses are the node in every form in which it is dialled.
var addresses = []netip.Addr{rig.Node4, rig.Node6, rig.Mapped(rig.Node4)}

// program is the iptables of a family and a backend.
func program(family, backend string) string {
	return strings.Replace("ip"+family+"tables-", "4", "", 1) + backend
}

// loadLegacy makes the tables of the legacy backend. They come with their first use and stay as long as the namespace, so
// "as it was before" can only mean: with them.
func loadLegacy(r *rig.Rig) {
	for _, family := range families {
		for _, table := range []string{"filter", "mangle", "nat"} {
			r.Pod.Run(program(family, "legacy") + " -w 5 -t " + table + " -S")
		}
	}
}

// clean runs "routefence cleanup".
func clean(t *testing.T, r *rig.Rig) {
	t.Helper()
	if got := r.Exec(shipped.Binary, "cleanup"); got.Exit != 0 {
		t.Errorf("cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}

// snapshot is the bench's, without what "ip" says when namespaces of other benches go while it looks for a name.
func snapshot(r *rig.Rig) string {
	return strings.ReplaceAll(r.Snapshot(), "Error: Peer netns reference is invalid.\n", "")
}

// expectSame compares snapshots and shows the lines that only one of them has.
func expectSame(t *testing.T, when, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	var b strings.Builder
	for _, side := range []struct{ sign, text, other string }{{"-", want, got}, {"+", got, want}} {
		has := map[string]int{}
		for line := range strings.Lines(side.other) {
			has[line]++
		}
		for line := range strings.Lines(side.text) {
			if has[line]--; has[line] < 0 {
				b.WriteString(side.sign + line)
			}
		}
	}
	t.Errorf("%s: the kernel differs:\n%s", when, b.String())
}

// expectNoLeak wants that the seed network has seen nothing since the last reset.
func expectNoLeak(t *testing.T, r *rig.Rig, when string) {
	t.Helper()
	if got := r.SeedCount(); got.Total() != 0 {
		t.Errorf("%s: the seed network saw %+v", when, got)
		r.ResetCounters()
	}
}

// ways lists how the node can be dialled: by TCP and UDP, free and bound to a device.
func ways(device string, to ...netip.Addr) []rig.Probe {
	var out []rig.Probe
	for _, a := range to {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP} {
			free := rig.Probe{Protocol: protocol, To: a, Timeout: brief}
			bound := free
			bound.Device = device
			out = append(out, free, bound)
		}
	}
	return out
}

// expectFenced wants no answer on any way, and nothing to arrive at the seed network.
func expectFenced(t *testing.T, r *rig.Rig, when string, to ...netip.Addr) {
	t.Helper()
	if len(to) == 0 {
		to = addresses
	}
	all := ways("eth0", to...)
	for i, a := range r.ProbeAll(all) {
		if a.Err == nil {
			t.Errorf("%s: %v: answered by %v", when, all[i], a)
		}
	}
	expectNoLeak(t, r, when)
}

// expectAnswer connects by a free socket.
func expectAnswer(t *testing.T, r *rig.Rig, when string, to netip.Addr, want string) {
	t.Helper()
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: to, Timeout: ample}); a.From != want {
		t.Errorf("%s: connect to %v: got %v, want %s", when, to, a, want)
	}
}

// expectOpen proves that the seed network is reached without a fence: a zero later would mean nothing otherwise.
func expectOpen(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, to := range addresses {
		expectAnswer(t, r, "without a fence", to, rig.AnswerNet)
	}
	if r.SeedCount().Packets == 0 {
		t.Error("without a fence: the counter does not move")
	}
	r.ResetCounters()
}
