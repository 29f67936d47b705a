package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// promptly is how soon an operation must fail where the tunnel's device or its route is gone.
const promptly = time.Second

// recovery is how soon everything must work again once the VPN does.
const recovery = 5 * time.Second

// availability is the longest that kube-apiserver's aggregator keeps from looking at an APIService that was unavailable.
const availability = 40 * time.Second

// lostConnection is when Kubernetes' clients notice that an HTTP/2 connection has become silent: they ask after 30 s and wait 15 more.
const lostConnection = 50 * time.Second

// keptConnection bounds what waits on a connection that was kept and whose tunnel is gone: the fence ends it after --tunnel-grace, half
// a second, and a look at the kernel, which takes its time while six variants run on two cores.
const keptConnection = 5 * time.Second

// row is what was seen in one state.
type row struct {
	fence, vpn string
	results    []outcome
	// again is a second request for logs, after the first one has used up the connection that kube-apiserver had kept.
	again outcome
	// bound is what a socket gets that is bound to eth0, and so passes routes by.
	bound  outcome
	check  report
	counts counts
}

func (r row) String() string { return fmt.Sprintf("%s fence, VPN %s", r.fence, r.vpn) }

// replay is one variant's story.
type replay struct {
	*lab
	fenced bool
	rows   []row
}

// TestReplay carries out steps 5 to 9 of the issue for each variant: the VPN up, broken on either side, and back; first without the
// fence, then with it.
func TestReplay(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	tables := map[string]string{}
	t.Cleanup(func() {
		var text strings.Builder
		for _, v := range variants {
			text.WriteString(tables[v.name])
		}
		fmt.Print(text.String())
		if *table != "" {
			if err := os.WriteFile(*table, []byte(text.String()), 0o644); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			r := &replay{lab: newLab(t, v)}
			r.tell()
			mutex.Lock()
			defer mutex.Unlock()
			tables[v.name] = r.table()
		})
	}
}

func (r *replay) tell() {
	r.up()
	for _, at := range []side{seedSide, shootSide} {
		r.broken(at)
		r.back(at)
	}
	r.fence()
	r.up()
	for _, at := range []side{seedSide, shootSide} {
		server, restarts := r.server.Pid(), r.restarts()
		r.broken(at)
		r.back(at)
		if !r.server.Running() || r.server.Pid() != server || r.restarts() != restarts {
			r.t.Errorf("the VPN broken (%s) and back: something was restarted", at)
		}
	}
}

// up does everything over a VPN that works.
func (r *replay) up() {
	row := r.observe("up", func() []outcome { return r.all(r.untilItWorks) })
	r.mustWork(row)
	r.mustTakeTheVPN(row)
}

// mustTakeTheVPN: with the fence everything; without it nothing does, unless it is today's VPN, which knows the node network.
func (r *replay) mustTakeTheVPN(row row) {
	if r.fenced || r.variant.translated {
		if row.counts.leaked() > 0 || row.counts.tunneled == 0 {
			r.t.Errorf("%v: %+v: expected all packets in the tunnel", row, row.counts)
		}
	} else if row.counts.direct == 0 {
		r.t.Errorf("%v: %+v: the bug does not show, or the counter does not count", row, row.counts)
	}
}

// broken does everything over a VPN that is broken.
func (r *replay) broken(at side) {
	r.breakVPN(at)
	row := r.observe("broken, "+string(at)+" side", func() []outcome { return r.all(func(do func(*lab) outcome) outcome { return do(r.lab) }) })
	if row.results[nodeOperations].err == nil {
		r.t.Errorf("%v: top node works", row)
	}
	if leak := r.leaks("logs", at); leak != (row.counts.leaked() > 0) {
		r.t.Errorf("%v: %+v: a leak was expected: %v", row, row.counts, leak)
	}
	for i, o := range row.results[:nodeOperations] {
		r.mustFail(row, operations[i].name, at, o)
	}
	r.mustFail(row, "logs again", at, row.again)
}

// mustFail: in time, unless the bug is to show.
func (r *replay) mustFail(row row, operation string, at side, o outcome) {
	r.t.Logf("%v: %s: %v %v", row, operation, o, o.err)
	limit := patience
	switch {
	case operation == "logs" && !r.variant.translated && r.routeIsGone(at):
		limit = keptConnection
	case operation == "logs" && !r.variant.translated: // in the same pod, with a connection from before
		limit = lostConnection
	case r.routeIsGone(at):
		limit = promptly
	}
	switch leak := r.leaks(operation, at); {
	case leak && o.err != nil:
		r.t.Errorf("%v: %s: the bug does not show: %v", row, operation, o.err)
	case !leak && o.err == nil:
		r.t.Errorf("%v: %s works", row, operation)
	case !leak && o.took > limit:
		r.t.Errorf("%v: %s: expected to fail within %v, took %v: %v", row, operation, limit, o.took, o.err)
	}
}

// leaks tells what works though the VPN is broken: without the fence everything. Today's VPN, once it is up in a pod, keeps what it
// translates off the kubelet, but not the connection for logs that was there before the translation. IPv6 is never translated: routed into
// the tunnel in the middle, such a connection ends.
func (r *replay) leaks(operation string, at side) bool {
	if r.fenced {
		return false
	}
	return !r.variant.translated || at == seedSide || strings.HasPrefix(operation, "logs") && !r.variant.dualStack
}

// routeIsGone tells whether the tunnel's device and routes go with what was broken. Where they stay, nobody can tell at once.
func (r *replay) routeIsGone(at side) bool {
	return at == seedSide && (!r.variant.highlyAvailable || r.variant.translated)
}

func (r *replay) back(at side) {
	row := r.observe("back, "+string(at)+" side", func() []outcome {
		r.mendVPN(at)
		return r.all(r.untilItWorks)
	})
	r.mustWork(row)
	if r.fenced {
		r.mustTakeTheVPN(row)
	}
}

// mustWork: all at once, but the metrics API as soon as the aggregator looks at it.
func (r *replay) mustWork(row row) {
	for i, o := range row.results {
		limit := recovery
		if i == nodeOperations {
			limit = availability
		}
		if o.err != nil || o.took > limit {
			r.t.Errorf("%v: %s: expected to work within %v: %v %v", row, operations[i].name, limit, o, o.err)
		}
	}
}

func (r *replay) observe(vpn string, act func() []outcome) row {
	one := row{fence: "without", vpn: vpn}
	if r.fenced {
		one.fence = "with"
	}
	r.world.count(r.t)
	one.results = act()
	one.again = r.logs()
	one.counts = r.world.count(r.t)
	one.bound = r.dialBound()
	r.t.Logf("%v: %v, logs again: %v, bound: %v, %+v", one, one.results, one.again, one.bound, one.counts)
	past := r.world.count(r.t)
	if reached := one.bound.err == nil; reached == r.fenced || r.fenced == (past.leaked() > 0) {
		r.t.Errorf("%v: a socket bound to eth0: %v, %v, %+v", one, one.bound, one.bound.err, past)
	}
	one.check = r.check()
	if want := r.wantedDiagnosis(vpn); one.check.Diagnosis != want {
		r.t.Errorf("%v: routefence check: expected %s: %+v", one, want, one.check)
	}
	r.rows = append(r.rows, one)
	return one
}

// fence starts the sidecar in both pods of the control plane, and then lets the VPN know the node network, too.
func (r *replay) fence() {
	for _, pod := range []*rig.Namespace{r.world.apiserver, r.world.vpnServer} {
		agent := pod.Start(programs.routefence, "run", "--node-networks="+strings.Join(r.variant.nodeNetworks(), ","), "--log-format=console")
		wait(r.t, "the fence stands in "+pod.Name, 30*time.Second, func() error {
			if !agent.Running() {
				r.t.Fatalf("routefence has ended:\n%s", tail(agent.Output()))
			}
			return pod.Exec(programs.routefence, "status").Err
		})
	}
	r.learnNodes()
	r.fenced = true
}

// wantedDiagnosis: without the fence there is always another way than the VPN, unless nothing new gets to a kubelet at all.
func (r *replay) wantedDiagnosis(vpn string) string {
	switch {
	case strings.HasPrefix(vpn, "broken") && !r.leaks("port-forward", side(strings.Fields(vpn)[1])):
		return "VPNBroken"
	case !r.fenced:
		return "NotThroughVPN"
	}
	return "Healthy"
}

// table is what was seen, in Markdown.
func (r *replay) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n| fence | VPN |", r.variant.name)
	for _, o := range operations {
		fmt.Fprintf(&b, " %s |", o.name)
	}
	b.WriteString(" logs again | bound to eth0 | routefence check | seed network | tunnel |\n|" + strings.Repeat("---|", len(operations)+7) + "\n")
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s |", row.fence, row.vpn)
		for _, o := range append(row.results[:len(row.results):len(row.results)], row.again, row.bound) {
			fmt.Fprintf(&b, " %v |", o)
		}
		fmt.Fprintf(&b, " %s | %d | %d |\n", row.check.Diagnosis, row.counts.leaked(), row.counts.tunneled)
	}
	return b.String()
}
