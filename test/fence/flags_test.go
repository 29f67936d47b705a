package fence

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// mistakes are command lines and environments that must end with exit code 2, and the words that their one line on stderr
// must hold: what was set, and to which value. Words with "=" in front of the command are environment.
var mistakes = []struct{ name, line, words string }{
	{"no source", "run", "--node-networks SHOOT_NODE_NETWORKS --shoot-file"},
	{"unknown command", "walk", "walk"},
	{"unknown flag", "run --node-network=10.250.0.0/16", "--node-network"},
	{"argument", "run --node-networks=10.250.0.0/16 10.251.0.0/16", "10.251.0.0/16"},
	{"everything", "run --node-networks=0.0.0.0/0", "--node-networks 0.0.0.0/0"},
	{"everything of IPv6", "run --node-networks=::/0", "--node-networks ::/0"},
	{"half a network", "run --node-networks=10.250.0.0", "--node-networks 10.250.0.0 length"},
	{"word", "run --node-networks=nodes", "--node-networks nodes"},
	{"empty list", "run --node-networks=,", "--node-networks"},
	{"loopback", "run --node-networks=127.0.0.0/8", "--node-networks 127.0.0.0/8 loopback"},
	{"loopback of IPv6", "run --node-networks=::1/128", "--node-networks ::1/128 loopback"},
	{"around loopback", "run --node-networks=126.0.0.0/7", "--node-networks 126.0.0.0/7 loopback"},
	{"link-local", "run --node-networks=169.254.0.0/16", "--node-networks 169.254.0.0/16 link-local"},
	{"link-local of IPv6", "run --node-networks=fe80::/10", "--node-networks fe80::/10 link-local"},
	{"multicast", "run --node-networks=224.0.0.0/4", "--node-networks 224.0.0.0/4 multicast"},
	{"multicast of IPv6", "run --node-networks=ff02::/16", "--node-networks ff02::/16 multicast"},
	{"zone", "run --node-networks=fd00::1%eth0/64", "--node-networks fd00::1%eth0/64 zone"},
	{"leading zero", "run --node-networks=010.250.0.0/16", "--node-networks 010.250.0.0/16"},
	{"leading zero in the length", "run --node-networks=10.250.0.0/016", "--node-networks 016"},
	{"length too large", "run --node-networks=10.250.0.0/33", "--node-networks 33"},
	{"negative length", "run --node-networks=10.250.0.0/-1", "--node-networks -1"},
	{"octet too large", "run --node-networks=10.256.0.0/16", "--node-networks 10.256.0.0/16"},
	{"mapped and too wide", "run --node-networks=::ffff:0:0/90", "--node-networks ::ffff:0:0/90"},
	{"good and bad", "run --node-networks=10.250.0.0/16,10.300.0.0/16", "--node-networks 10.300.0.0/16"},
	{"bad allow", "run --node-networks=10.250.0.0/16 --allow=10.250.0.7", "--allow 10.250.0.7"},
	{"no fenced interface", "run --node-networks=10.250.0.0/16 --fence-interfaces=", "--fence-interfaces"},
	{"bad pattern", "run --node-networks=10.250.0.0/16 --fence-interfaces=eth[", "--fence-interfaces eth["},
	{"bad tunnel pattern", "run --node-networks=10.250.0.0/16 --tunnel-interfaces=[", "--tunnel-interfaces ["},
	{"fenced tunnel", "run --node-networks=10.250.0.0/16 --fence-interfaces=tun0", "--fence-interfaces tun0"},
	{"bad firewall", "run --node-networks=10.250.0.0/16 --firewall=ipfw", "--firewall ipfw nft"},
	{"bad translation", "run --node-networks=10.250.0.0/16 --translation=on", "--translation on off"},
	{"bad translated networks", "run --node-networks=10.250.0.0/16 --translated-networks=nowhere", "--translated-networks nowhere"},
	{"host bits in translated networks", "run --node-networks=10.250.0.0/16 --translated-networks=242.0.0.7/8", "--translated-networks 242.0.0.7/8"},
	{"bad ready-when", "run --node-networks=10.250.0.0/16 --ready-when=always", "--ready-when always tunneled"},
	{"resync without unit", "run --node-networks=10.250.0.0/16 --resync=10", "--resync 10"},
	{"resync of nothing", "run --node-networks=10.250.0.0/16 --resync=0s", "--resync 0s"},
	{"negative resync", "run --node-networks=10.250.0.0/16 --resync=-1s", "--resync -1s"},
	{"negative grace", "run --node-networks=10.250.0.0/16 --tunnel-grace=-1s", "--tunnel-grace -1s"},
	{"listen without port", "run --node-networks=10.250.0.0/16 --listen=9604", "--listen 9604"},
	{"listen on no port", "run --node-networks=10.250.0.0/16 --listen=:99999", "--listen 99999"},
	{"bad log level", "run --node-networks=10.250.0.0/16 --log-level=loud", "--log-level loud"},
	{"bad log format", "run --node-networks=10.250.0.0/16 --log-format=xml", "--log-format xml"},
	{"bad timeout", "init --node-networks=10.250.0.0/16 --timeout=0s", "--timeout 0s"},
	{"bad shoot", "run --shoot=nonsense", "--shoot nonsense"},
	{"explain nothing", "explain", "arg"},
	{"explain a name", "explain node-1", "node-1"},
	{"explain a zone", "explain fe80::1%eth0", "fe80::1%eth0"},
	{"status in a bad form", "status -o xml", "xml"},
	{"cleanup of something", "cleanup all", "all"},
	{"unknown variable", "ROUTEFENCE_NODE_NETWORK=10.250.0.0/16 run", "ROUTEFENCE_NODE_NETWORK"},
	{"bad variable", "ROUTEFENCE_RESYNC=soon run --node-networks=10.250.0.0/16", "ROUTEFENCE_RESYNC soon"},
	{"bad choice in a variable", "ROUTEFENCE_FIREWALL=ipfw run --node-networks=10.250.0.0/16", "ipfw"},
	{"bad network in a variable", "ROUTEFENCE_NODE_NETWORKS=10.300.0.0/16 run", "10.300.0.0/16"},
}

// TestMistakesAreNamed: exit code 2, one line that names what is wrong, and nothing written to the kernel.
func TestMistakesAreNamed(t *testing.T) {
	r := rig.New(t, rig.Options{})
	bare := snapshot(r)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			got := r.Exec(commandLine(m.line)...)
			if got.Exit != 2 || strings.Count(got.Stderr, "\n") != 1 {
				t.Errorf("%s: exits with %d, want 2 and one line:\n%s", m.line, got.Exit, got.Stderr)
			}
			for word := range strings.FieldsSeq(m.words) {
				if !strings.Contains(got.Stderr, word) {
					t.Errorf("%s: no %q in: %s", m.line, word, got.Stderr)
				}
			}
		})
	}
	expectSame(t, "after all mistakes", bare, snapshot(r))
}

// commandLine puts routefence behind the environment in a line. One that is wrongly taken for good must not run for ever.
func commandLine(line string) []string {
	out := []string{"timeout", "5", "env"}
	words := strings.Fields(line)
	for len(words) > 0 && strings.Contains(words[0], "=") {
		out, words = append(out, words[0]), words[1:]
	}
	return append(append(out, shipped.Binary), words...)
}

// oddities are odd and still right: the agent runs, fences the networks, and says what it made of them.
var oddities = []struct{ name, line, cidrs string }{
	{"service links", "ROUTEFENCE_PORT=tcp://10.0.0.1:9604 ROUTEFENCE_SERVICE_HOST=10.0.0.1 ROUTEFENCE_SERVICE_PORT_HTTP=9604 " +
		"ROUTEFENCE_PORT_9604_TCP_ADDR=10.0.0.1 ROUTEFENCE_WEBHOOK_SERVICE_HOST=10.0.0.2 run --node-networks=10.250.0.0/16", "10.250.0.0/16"},
	{"host bits", "run --node-networks=10.250.3.7/16", "10.250.0.0/16"},
	{"mapped", "run --node-networks=::ffff:10.250.0.0/112", "10.250.0.0/16"},
	{"twice and adjacent", "run --node-networks=10.250.0.0/17,10.250.128.0/17 --node-networks=10.250.0.0/16", "10.250.0.0/16"},
	{"blanks and empty items", "run --node-networks=,10.250.0.0/16,,", "10.250.0.0/16"},
	{"Gardener's variable", "SHOOT_NODE_NETWORKS=10.250.0.0/16,fd00:250::/48 run", "10.250.0.0/16 fd00:250::/48"},
	{"flag and both variables", "SHOOT_NODE_NETWORKS=10.252.0.0/16 ROUTEFENCE_NODE_NETWORKS=10.254.0.0/16 run --node-networks=10.250.0.0/16",
		"10.250.0.0/16 10.252.0.0/16"},
	{"empty variable", "ROUTEFENCE_ALLOW= run --node-networks=10.250.0.0/16", "10.250.0.0/16"},
	{"variable of a flag", "ROUTEFENCE_NODE_NETWORKS=10.250.0.0/16 run", "10.250.0.0/16"},
}

// TestOddities also sees to it that what runs is ready.
func TestOddities(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for _, o := range oddities {
		t.Run(o.name, func(t *testing.T) {
			s := shipped.Run(t, r.Pod, commandLine(o.line)[2:]...)
			d := s.Await("ready", func(d document) bool { return d.Ready })
			if got := d.CIDRs(); got != o.cidrs {
				t.Errorf("%s: networks %s, want %s", o.line, got, o.cidrs)
			}
			s.Stop()
		})
	}
}

// TestBadItemInGardenersVariable: what Gardener sets is no mistake of the user, so the agent runs, fences the good ones, and
// is not ready.
func TestBadItemInGardenersVariable(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for _, bad := range []string{"10.300.0.0/16", "0.0.0.0/0", "127.0.0.0/8", "fe80::/10", "010.0.0.0/8", "nodes"} {
		t.Run(bad, func(t *testing.T) {
			s := shipped.Run(t, r.Pod, "env", "SHOOT_NODE_NETWORKS=10.250.0.0/16,"+bad, shipped.Binary, "run", "--firewall=nft")
			d := s.Await("the bad item is named", func(d document) bool { return d.Reason == "InvalidNetwork" })
			if d.Ready || !strings.Contains(d.Message, bad) || d.CIDRs() != "10.250.0.0/16" {
				t.Errorf("ready %v, networks %v, message %s", d.Ready, d.CIDRs(), d.Message)
			}
			expectFenced(t, r, bad)
			s.Stop()
		})
	}
}

// expectFenced connects by a free and a bound socket.
func expectFenced(t *testing.T, r *rig.Rig, when string) {
	t.Helper()
	for _, device := range []string{"", "eth0"} {
		p := rig.Probe{Protocol: rig.TCP, To: rig.Node4, Device: device, Timeout: brief}
		if a := r.Probe(p); a.Err == nil {
			t.Errorf("%s: %v: answered by %v", when, p, a)
		}
	}
}

// TestTwoAgentsOneAddress: whoever comes second says so and leaves, and leaves the fence of the first alone.
func TestTwoAgentsOneAddress(t *testing.T) {
	r := rig.New(t, rig.Options{})
	s := startReady(t, r, "nft")
	want := snapshot(r)
	second := r.Start(shipped.Binary, "run", bothNetworks, "--firewall=nft")
	if code, err := second.Wait(patience); err != nil || code != 1 || !strings.Contains(second.Output(), "--listen") {
		t.Errorf("the second agent exits with %d, %v: %s", code, err, second.Output())
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { r.Exec(shipped.Binary, "init", bothNetworks, "--firewall=nft") })
	}
	all.Wait()
	s.Await("still ready", func(d document) bool { return d.Ready })
	time.Sleep(quiet)
	expectSame(t, "after a second agent and four inits", want, snapshot(r))
}
