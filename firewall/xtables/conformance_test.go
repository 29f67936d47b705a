package xtables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/test/netns"
)

// wire gives the namespace an eth0 that can be counted: without ARP and IPv6, so that only what is sent leaves.
func wire(t testing.TB) {
	t.Helper()
	for _, line := range []string{
		"ip link add eth0 type veth peer name peer0",
		"ip link set eth0 arp off addrgenmode none up",
		"ip link set peer0 arp off addrgenmode none up",
		"ip addr add 192.0.2.1/32 dev eth0",
		"ip route add 10.0.0.0/8 dev eth0",
	} {
		netns.Run(t, line)
	}
}

// sent returns how many packets left by eth0.
func sent(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		if name, counters, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "eth0" {
			return strings.Fields(counters)[9]
		}
	}
	t.Fatal("no eth0")
	return ""
}

// send sends the first packet of a connection and forgets about it.
func send(t testing.TB, to string, kind int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: netip.MustParseAddr(to).As4()})
	_ = unix.Sendto(fd, []byte("x"), unix.MSG_NOSIGNAL, nil)
}

// TestPassingAgreesWithTheKernel: what the model says about random chains is what the kernel does with packets. Where a rule
// asks for a protocol the model may let more pass than there are packets; never less.
func TestPassingAgreesWithTheKernel(t *testing.T) {
	for _, backend := range []string{firewall.NFT, firewall.Legacy} {
		t.Run(backend, func(t *testing.T) {
			netns.Enter(t)
			wire(t)
			k := newKernel(backend)
			random := rand.New(rand.NewPCG(1, 2))
			for round := range 12 {
				rules, exact := randomRules(random)
				cmd := exec.Command(firewall.Program(policy.IPv4, backend, "restore"))
				cmd.Stdin = strings.NewReader(rules)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v %s\n%s", err, out, rules)
				}
				s := list(t, k)
				for host := range 16 {
					addr := fmt.Sprintf("10.0.0.%d", host)
					before := sent(t)
					send(t, addr, unix.SOCK_DGRAM)
					send(t, addr, unix.SOCK_STREAM)
					left := sent(t) != before
					passes := len(s.Passing(policy.IPv4, "eth0", ranges.Of(netip.MustParsePrefix(addr+"/32")))) > 0
					if left && !passes || exact && passes != left {
						t.Fatalf("round %d, %s: left %t, model %t\n%s", round, addr, left, passes, rules)
					}
				}
			}
		})
	}
}

func randomRules(random *rand.Rand) (text string, exact bool) {
	exact = random.IntN(2) == 0
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	for _, table := range []struct{ name, base string }{{"filter", "OUTPUT"}, {"mangle", "POSTROUTING"}} {
		text += fmt.Sprintf("*%s\n:%s %s [0:0]\n:A - [0:0]\n:B - [0:0]\n", table.name, table.base, pick("ACCEPT", "ACCEPT", "DROP"))
		if table.name == "filter" {
			// Nothing is forwarded here, though the model would think of it.
			text += ":FORWARD DROP [0:0]\n"
		}
		for _, chain := range []struct{ name, jump string }{{table.base, "A"}, {"A", "B"}, {"B", ""}} {
			for range random.IntN(5) {
				text += "-A " + chain.name + pick("", fmt.Sprintf(" -d 10.0.0.%d/%d", random.IntN(16), 28+random.IntN(5)),
					fmt.Sprintf(" ! -d 10.0.0.%d/%d", random.IntN(16), 28+random.IntN(5))) + pick("", " -o eth0", " -o eth+", " ! -o eth0", " -o tun0")
				if !exact {
					text += pick("", " -p udp", " -p tcp", " -m conntrack --ctstate NEW")
				}
				target := pick("-j ACCEPT", "-j DROP", "-j RETURN", "-j jump", "-g jump")
				if chain.jump == "" {
					target = pick("-j ACCEPT", "-j DROP", "-j RETURN")
				}
				text += " " + strings.ReplaceAll(target, "jump", chain.jump) + "\n"
			}
		}
		text += "COMMIT\n"
	}
	return text, exact
}

// BenchmarkPacket is the cost of sending one packet past the fence, by the number of networks and the form of the rules. It is
// where firewall.SetThreshold comes from.
func BenchmarkPacket(b *testing.B) {
	for _, n := range []int{1, 8, 16, 32, 64, 1000} {
		for _, lacks := range []firewall.Lacks{{}, {Sets: true}} {
			form := map[bool]string{true: "set", false: "plain"}[n > firewall.SetThreshold && !lacks.Sets]
			b.Run(fmt.Sprintf("networks=%d/%s", n, form), func(b *testing.B) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					benchmarkSend(b, manyNetworks(policy.IPv4, n), lacks)
				}()
				<-done
			})
		}
	}
}

// benchmarkSend must have a goroutine of its own, as Enter keeps its thread.
func benchmarkSend(b *testing.B, p policy.Policy, lacks firewall.Lacks) {
	netns.Enter(b)
	wire(b)
	netns.Run(b, "ip route add 192.0.2.128/25 dev eth0")
	k := newKernel(firewall.NFT)
	s := list(b, k)
	s.Lacks[policy.IPv4] = lacks
	if err := k.Apply(firewall.Diff(desired(p, s), s)); err != nil {
		b.Error(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Error(err)
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 200}}
	for b.Loop() {
		_ = unix.Sendto(fd, []byte("x"), 0, to)
	}
}
