package selftest

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// few is what a selftest may send to a network through a hole in the fence: a datagram and a connection that comes about and ends
// for each attempt, with the requests for the neighbour.
const few = 12

// report is the document as scripts read it. The product's own type is not used: a renamed field must be noticed.
type report struct {
	Result          string
	Problems, Notes []string
	Networks        []struct {
		CIDR     string
		Layers   struct{ Routes, Firewall string }
		Attempts []struct{ Address, Protocol, Interface, Layer, Result, Evidence string }
	}
}

func (r report) evidence() string {
	var b strings.Builder
	for _, n := range r.Networks {
		for _, a := range n.Attempts {
			fmt.Fprintln(&b, a.Layer, a.Protocol, a.Address, a.Interface, a.Result, a.Evidence)
		}
	}
	return b.String() + strings.Join(append(r.Problems, r.Notes...), "\n")
}

// selftest runs the command and reads its report. The code must be the one that goes with the result.
func selftest(t *testing.T, r *rig.Rig, args ...string) (got report) {
	t.Helper()
	r.ResetCounters()
	out := r.Exec(append([]string{shipped.Binary, "selftest", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out.Stdout), &got); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", out.Exit, err, out.Stdout, out.Stderr)
	}
	if want := map[string]int{"pass": 0, "fail": 1}[got.Result]; out.Exit != want {
		t.Errorf("result %s exits with %d, want %d", got.Result, out.Exit, want)
	}
	return got
}

// expect runs a selftest of both networks and wants the same of both.
func expect(t *testing.T, r *rig.Rig, routes, firewall, word string, args ...string) {
	t.Helper()
	got := selftest(t, r, args...)
	want := "pass"
	if routes == "fail" || firewall == "fail" {
		want = "fail"
	}
	if got.Result != want || len(got.Networks) != 2 || len(got.Problems) != 0 {
		t.Errorf("result %s, want %s of 2 networks: %s", got.Result, want, got.evidence())
	}
	for _, n := range got.Networks {
		if n.Layers.Routes != routes || n.Layers.Firewall != firewall {
			t.Errorf("%s: routes %s, firewall %s, want %s and %s", n.CIDR, n.Layers.Routes, n.Layers.Firewall, routes, firewall)
		}
	}
	if !strings.Contains(got.evidence(), word) {
		t.Errorf("no evidence says %q:\n%s", word, got.evidence())
	}
	seed, leaks := r.SeedCount().Total(), strings.Contains(got.evidence(), "LEAK")
	if leaks && (seed == 0 || seed > 2*few) || !leaks && seed != 0 {
		t.Errorf("the seed network saw %d packets (leaks: %v)\n%s", seed, leaks, got.evidence())
	}
	if far := r.VPNCount().Total(); far > 2*few {
		t.Errorf("the VPN's far end saw %d packets", far)
	}
}

// fenced runs the agent until the fence stands.
func fenced(t *testing.T, r *rig.Rig, args ...string) *rig.Process {
	t.Helper()
	agent := r.Start(append([]string{shipped.Binary, "run", "--resync=1s"}, args...)...)
	await(t, "the agent is ready", func() bool { return r.Exec(shipped.Binary, "status").Exit == 0 })
	return agent
}

// TestLayers takes away one layer, the other, both, while the agent cannot repair them.
func TestLayers(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		flushFirewall := func() {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				for _, table := range []string{"filter", "mangle"} {
					r.Pod.Run(program + backend + " -t " + table + " -F ROUTEFENCE")
				}
			}
		}
		deleteRules := func() {
			for _, family := range []string{"-4", "-6"} {
				r.Pod.Run("ip " + family + " rule del pref 97")
				r.Pod.Run("ip " + family + " rule del pref 96")
			}
		}
		agent := fenced(t, r, bothNetworks, "--firewall="+backend)
		expect(t, r, "pass", "pass", "EINVAL")
		expect(t, r, "pass", "pass", "EINVAL", bothNetworks)
		r.TunnelUp()
		expect(t, r, "pass", "pass", "left by the tunnel tun0, and was answered")
		r.Mute()
		expect(t, r, "pass", "pass", "left by the tunnel tun0 (what came of it there, no answer")
		r.TunnelDown()

		agent.Signal(syscall.SIGSTOP)
		flushFirewall()
		expect(t, r, "pass", "fail", "LEAK: it left by eth0")
		deleteRules()
		expect(t, r, "fail", "fail", "LEAK: routing sent it to eth0")
		agent.Signal(syscall.SIGCONT)
		await(t, "the fence is repaired", func() bool { return r.Exec(shipped.Binary, "selftest").Exit == 0 })
		agent.Signal(syscall.SIGSTOP)
		deleteRules()
		r.Pod.Run("ip route flush table 9604")
		r.Pod.Run("ip -6 route flush table 9604")
		expect(t, r, "fail", "pass", "routing sent it to eth0; the firewall stopped it (ECONNREFUSED)")
	})
}

// TestNoFence: nothing is sent, as it would all arrive.
func TestNoFence(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for _, args := range [][]string{nil, {bothNetworks}, {bothNetworks, "10.250.0.7"}} {
		got := selftest(t, r, args...)
		if got.Result != "fail" || len(got.Networks) != 0 || !strings.Contains(got.evidence(), "there is no fence") {
			t.Errorf("%v: %+v", args, got)
		}
		if seed := r.SeedCount(); seed.Total() != 0 {
			t.Errorf("%v: the seed network saw %+v", args, seed)
		}
	}
}

// TestPartOfANetwork: a hole of a few addresses is found, though the middle of the network is well.
func TestPartOfANetwork(t *testing.T) {
	r := rig.New(t, rig.Options{})
	install(t, r, bothNetworks, "--firewall=nft", "--allow=10.250.128.0/24")
	r.Pod.IP("rule add pref 50 to 10.250.7.0/24 lookup 50", "route add 10.250.7.0/24 via 169.254.1.1 dev eth0 table 50")
	got := selftest(t, r)
	text := got.evidence()
	for _, want := range []string{
		"routes tcp 10.250.129.0  pass",
		"routes tcp 10.250.7.129  fail routing sent it to eth0; the firewall stopped it",
		"firewall udp 10.250.7.129 eth0 pass",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if seed := r.SeedCount(); seed.Total() != 0 {
		t.Errorf("the seed network saw %+v", seed)
	}
}

// TestTranslated: what nat OUTPUT rewrites is judged by where the rewritten packet goes.
func TestTranslated(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		r.Pod.Run("iptables-" + backend + " -t nat -A OUTPUT -d 10.250.0.0/16 -j NETMAP --to 242.0.0.0/16")
		install(t, r, bothNetworks, "--firewall="+backend)
		expect(t, r, "pass", "pass", "translated to 242.0.128.1")
		r.TunnelUp(rig.Translated, rig.Network6)
		expect(t, r, "pass", "pass", "left by the tunnel tun0, translated to 242.0.128.1, and was answered")
		r.TunnelDown()
		r.Pod.Run("iptables-" + backend + " -t nat -F OUTPUT")
		expect(t, r, "pass", "pass", "led to lo and refused there")
	})
}

// TestManyNetworks: the test stays short, and says what it left out.
func TestManyNetworks(t *testing.T) {
	r := rig.New(t, rig.Options{})
	install(t, r, "--node-networks="+manyNetworks(200), "--firewall=nft")
	got := selftest(t, r)
	if got.Result != "pass" || len(got.Networks) != 16 || !strings.Contains(got.evidence(), "16 of 200 node networks") {
		t.Errorf("result %s of %d networks: %s", got.Result, len(got.Networks), got.evidence())
	}
	first, last := got.Networks[0].CIDR, got.Networks[len(got.Networks)-1].CIDR
	if first != "10.1.0.0/24" || last != "10.200.0.0/24" {
		t.Errorf("tried %s to %s", first, last)
	}
}

// TestAddressesGiven: those, and nothing else.
func TestAddressesGiven(t *testing.T) {
	r := rig.New(t, rig.Options{})
	install(t, r, bothNetworks, "--allow=10.250.9.0/24")
	got := r.Exec(shipped.Binary, "selftest", "10.250.0.7", "::ffff:10.250.0.8", "fd00:250::7")
	if got.Exit != 0 || !strings.HasSuffix(got.Stdout, "pass: 12 passed, 0 failed, 0 inconclusive\n") {
		t.Errorf("exit code %d:\n%s%s", got.Exit, got.Stdout, got.Stderr)
	}
	for arg, word := range map[string]string{
		"10.251.0.7": "10.251.0.7: lies in no node network",
		"10.250.9.1": "10.250.9.1: is exempt from the fence",
		"node-1":     `"node-1" is not an IP address`,
		"--output=x": "--output=x",
	} {
		got := r.Exec(shipped.Binary, "selftest", arg)
		if got.Exit != 2 || got.Stdout != "" || strings.Count(got.Stderr, "\n") != 1 || !strings.Contains(got.Stderr, word) {
			t.Errorf("%s: exit code %d, want 2 and %q: %s%s", arg, got.Exit, word, got.Stdout, got.Stderr)
		}
	}
	r.Pod.IP("link set eth0 down")
	if got := r.Exec(shipped.Binary, "selftest"); got.Exit != 1 || !strings.Contains(got.Stdout, "no interface that is up") {
		t.Errorf("no interface to bind to: exit code %d: %s", got.Exit, got.Stdout)
	}
	if r.SeedCount().Total() != 0 {
		t.Errorf("the seed network saw %+v", r.SeedCount())
	}
}
