package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/shipped"
)

// TestTenThousandNetworks: the memory that the injected container may have is enough for ten thousand networks and a change of them, with sets
// and, where there is no NET_RAW to match them by, with plain rules, which take six times as much.
func TestTenThousandNetworks(t *testing.T) {
	for _, test := range []struct {
		backend string
		caps    []string
	}{
		{"nft", []string{"NET_ADMIN"}},
		{"nft", []string{"NET_ADMIN", "NET_RAW"}},
		{"legacy", []string{"NET_ADMIN", "NET_RAW"}},
	} {
		t.Run(test.backend+" "+strings.Join(test.caps, " "), func(t *testing.T) {
			p := newPod(t)
			c := p.injected(fromConfigMap(test.backend), tenThousand(20))
			c.caps = test.caps
			r := p.start(c)
			r.AwaitReady()
			if err := os.WriteFile(filepath.Join(c.volumes["/etc/routefence"], inject.DefaultKey), []byte(tenThousand(21)), 0o644); err != nil {
				t.Fatal(err)
			}
			d := r.Await("the change is in force", func(d shipped.Document) bool {
				return d.Ready && d.Network("21.2.0.0/24").CIDR != ""
			})
			g := r.cgroup()
			t.Logf("peak %.1f of %.1f MiB; degraded: %v", mebi(g.peak(t)), mebi(c.memory), d.Firewall.Degraded)
			if n := g.kills(t); n != 0 || !r.Running() || g.limit(t) != c.memory || len(d.Networks) < 10000 {
				t.Errorf("%d processes killed for want of memory, running: %v, limit %d, %d networks\n%s",
					n, r.Running(), g.limit(t), len(d.Networks), r.Tail())
			}
		})
	}
}

// tenThousand are networks of which no two are adjacent. The first number tells two lists apart.
func tenThousand(first int) string {
	var list strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&list, "%d.%d.%d.0/24\n", first+i>>14, i>>6&0xff, i<<2&0xff)
	}
	return list.String()
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
