package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"github.com/routefence/routefence/test/shipped"
)

// BenchmarkStart is from the start of the process to a fence that was read back, each time in a new namespace.
func BenchmarkStart(b *testing.B) {
	b.Run("1-network-of-each-family", func(b *testing.B) { start(b, 2) })
	b.Run("10000-networks", func(b *testing.B) { start(b, 10000) })
}

func start(b *testing.B, n int) {
	networks := many(n, 4, 6)
	list := filepath.Join(b.TempDir(), "networks")
	if err := os.WriteFile(list, []byte(strings.Join(texts(networks), "\n")+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	var ours, floors []time.Duration
	for b.Loop() {
		inPod(b, func() { floors = append(floors, floor(b, networks)) })
		inPod(b, func() {
			ours = append(ours, run(b, "", shipped.Binary, "init", "--shoot-file", list, "--log-level", "error"))
		})
	}
	report(b, ours, floors)
}

// BenchmarkAppendUnique is what one call of go-iptables' AppendUnique per rule costs, for comparison; times 30,000 for
// what BenchmarkStart/10000-networks writes.
func BenchmarkAppendUnique(b *testing.B) {
	inPod(b, func() {
		tables, err := iptables.New(iptables.Path("iptables-nft"), iptables.Timeout(5))
		if err != nil {
			b.Fatal(err)
		}
		if err := tables.NewChain("filter", "F"); err != nil {
			b.Fatal(err)
		}
		networks := many(10000, 4)
		i := 0
		for b.Loop() {
			if err := tables.AppendUnique("filter", "F", "-d", networks[i%len(networks)].String(), "-o", "eth0", "-j", "DROP"); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// inPod runs f in a namespace of its own that ends with it.
func inPod(b *testing.B, f func()) {
	b.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pod(b)
		f()
	}()
	<-done
	if b.Failed() {
		b.FailNow()
	}
}
