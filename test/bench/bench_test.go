// Package bench measures routefence beside the floor: the same work done by the tools that cannot be beaten by much, in the
// same run on the same machine. Its figures are printed, never asserted: machines are noisy.
package bench

import (
	"cmp"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/netns"
	"github.com/routefence/routefence/test/shipped"
)

func TestMain(m *testing.M) { os.Exit(shipped.Main(m)) }

// pod makes the calling thread's namespace look like a pod.
func pod(b *testing.B) {
	b.Helper()
	netns.Enter(b)
	for _, line := range []string{
		"ip link add eth0 type veth peer name far0", "ip link set far0 up", "ip link set eth0 up",
		"ip addr add 10.1.178.85/32 dev eth0", "ip route add 169.254.1.1 dev eth0", "ip route add default via 169.254.1.1",
	} {
		netns.Run(b, line)
	}
}

// many returns n networks that do not touch, half of them IPv6 if both families are asked for.
func many(n int, families ...byte) []netip.Prefix {
	out := make([]netip.Prefix, 0, n)
	for i := range n {
		if families[i%len(families)] == 4 {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(20 + i>>14), byte(i >> 6), byte(i << 2), 0}), 24))
		} else {
			out = append(out, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 2, byte(i >> 8), byte(i), 0, 0, 2}), 64))
		}
	}
	return out
}

func texts(prefixes []netip.Prefix) []string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.String()
	}
	return out
}

// run runs a command line with an input and returns how long it took as a whole process.
func run(b *testing.B, input string, args ...string) time.Duration {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", args[0], err, out)
	}
	return time.Since(start)
}

// report prints the median of a series beside that of its floor.
func report(b *testing.B, ours, floor []time.Duration) {
	o, f := median(ours), median(floor)
	b.ReportMetric(0, "ns/op") // whole processes: the harness's own clock says nothing
	b.ReportMetric(float64(o.Microseconds())/1000, "ms")
	b.ReportMetric(float64(f.Microseconds())/1000, "floor-ms")
	b.ReportMetric(float64(o)/float64(f), "times-floor")
}

func median[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}
