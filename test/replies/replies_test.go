package replies

import (
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// TestAnswers: a seed node whose address lies in a node network is answered, whether the VPN is down, up or down again, while nobody
// in the pod or behind it can begin anything with that node outside of the VPN.
func TestAnswers(t *testing.T) {
	eachBackend(t, rig.Options{Forwarding: true}, func(t *testing.T, b *bench) {
		b.expectAnswers("without a fence", b.questions())
		b.expectOpen()
		if d := b.run("--replies=off"); d.Answered() != "" {
			t.Errorf("off: the state says replies for %s", d.Answered())
		}
		b.expectSilence("off", b.questions())
		if d := b.run(bothHosts); d.Answered() != "10.250.0.0/16 fd00:250::/48" {
			t.Errorf("auto with the host's address: the state says replies for %q", d.Answered())
		}
		for _, when := range []string{"VPN never up", "VPN gone again"} {
			b.agent.Await(when, func(d shipped.Document) bool { return d.Ready && d.Phase == "Blocked" && quiet(d) })
			b.expectAnswers(when, b.questions())
			b.expectFenced(when, "")
			b.TunnelUp()
			b.agent.Await("the tunnel carries", func(d shipped.Document) bool { return d.Ready && d.Phase == "Tunneled" && quiet(d) })
			b.expectAnswers("VPN up", b.questions())
			b.expectFenced("VPN up", rig.AnswerVPN)
			b.TunnelDown()
		}
	})
}

// quiet says that the state has no exceptions: rule 95 is no news while the firewall holds.
func quiet(d shipped.Document) bool {
	for _, n := range d.Networks {
		if len(n.Exceptions) > 0 {
			return false
		}
	}
	return true
}

// TestQuestionsThroughThePod: who is asked behind the pod answers, too; what begins there stays fenced, as TestAnswers shows.
func TestQuestionsThroughThePod(t *testing.T) {
	eachBackend(t, rig.Options{Forwarding: true}, func(t *testing.T, b *bench) {
		through := b.questions()
		for i := range through {
			if through[i].To.Is4() {
				through[i].To = rig.Client4
			} else {
				through[i].To = rig.Client6
			}
		}
		b.run("--replies=on")
		b.expectAnswers("on", through)
		b.run("--replies=off")
		b.expectSilence("off", through)
	})
}

// TestAuto: replies are on for exactly the networks that hold something the pod lives among.
func TestAuto(t *testing.T) {
	t.Parallel()
	b := newBench(t, rig.Options{}, "nft")
	if d := b.run(); d.Answered() != "" {
		t.Errorf("nothing in common: replies for %s", d.Answered())
	}
	for _, words := range []string{"fwmark 0x9604", "lookup 9605", "ROUTEFENCE-REPLY", "dev lo"} {
		if all := b.Pod.Run("ip rule") + b.Pod.Run("ip route show table 9604") + b.Pod.Run("iptables-nft-save"); strings.Contains(all, words) {
			t.Errorf("nothing in common: found %q in\n%s", words, all)
		}
	}
	// The pod's own address lies in a node network, and so do its neighbours.
	b.Net.IP("addr add 10.1.5.5/32 dev lo")
	b.stop()
	b.agent = shipped.Start(b.t, b.Pod, "--node-networks=10.1.0.0/16,10.250.0.0/16", "--firewall=nft", "--resync=1s")
	if d := b.agent.Await("ready", func(d shipped.Document) bool { return d.Ready }); d.Answered() != "10.1.0.0/16" {
		t.Errorf("own address: replies for %q", d.Answered())
	}
	neighbour := rig.Probe{From: b.Net, Source: node("10.1.5.5"), Protocol: rig.TCP, To: rig.Pod4, Port: question}
	b.expectAnswers("neighbour", []rig.Probe{neighbour})
	back := rig.Probe{Protocol: rig.TCP, To: node("10.1.5.5")}
	if a := b.Probe(back); a.String() != "ECONNREFUSED" || b.begun() != "0" {
		t.Errorf("%v: got %v, %s packets arrived", back, a, b.begun())
	}
	stranger := rig.Probe{From: b.Net, Source: rig.Node4, Protocol: rig.TCP, To: rig.Pod4, Port: question}
	b.expectSilence("another network", []rig.Probe{stranger})
	// The host's address comes by the environment.
	b.stop()
	b.agent = shipped.Run(b.t, b.Pod, "env", "LOCAL_NODE_IP=10.250.0.7", shipped.Binary, "run", shipped.BothNetworks, "--firewall=nft")
	if d := b.agent.Await("ready", func(d shipped.Document) bool { return d.Ready }); d.Answered() != "10.250.0.0/16" {
		t.Errorf("LOCAL_NODE_IP: replies for %q", d.Answered())
	}
}

// TestDryRun: what is printed can be pasted, and is all there is.
func TestDryRun(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, b *bench) {
		dry := []string{shipped.Binary, "init", shipped.BothNetworks, bothHosts, "--firewall=" + b.backend, "--dry-run"}
		printed := b.Exec(dry...)
		if got := b.Pod.ExecInput(printed.Stdout, "sh", "-e"); got.Exit != 0 || !strings.Contains(printed.Stdout, "ROUTEFENCE-REPLY") {
			t.Errorf("pasted: %v %s\n%s", got.Err, got.Stderr, printed.Stdout)
		}
		if again := b.Exec(dry...); !strings.Contains(again.Stdout, "nothing to write") {
			t.Errorf("left to write:\n%s%s", again.Stdout, again.Stderr)
		}
		b.expectAnswers("pasted", b.questions())
	})
}

// TestWrongFlags: a mistake is named, and nothing is written.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	b := newBench(t, rig.Options{}, "nft")
	before := b.Snapshot()
	for flag, words := range map[string]string{
		"--replies=maybe": "--replies=maybe: want one of auto, on, off",
		"--host-ip=here":  `--host-ip=here: "here" is not an IP address`,
	} {
		got := b.Exec(shipped.Binary, "init", shipped.BothNetworks, flag)
		if got.Exit != 2 || !strings.Contains(got.Stderr, words) || strings.Count(got.Stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %s", flag, got.Exit, got.Stderr)
		}
	}
	expectSame(t, "wrong flags", before, b.Snapshot())
}
