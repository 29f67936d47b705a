//go:build vm

package ha

import (
	"os"
	"testing"

	"github.com/routefence/routefence/test/shipped"
)

func TestMain(m *testing.M) { os.Exit(shipped.Main(m)) }

// eachBackend runs a test in a bench of its own per iptables backend. A guest chooses among them by their names: not
// every kernel has nft.
func eachBackend(t *testing.T, test func(t *testing.T, b *bench, backend string)) {
	t.Helper()
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) { test(t, newBench(t), backend) })
	}
}
