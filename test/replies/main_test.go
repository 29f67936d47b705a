// Package replies tests, on the bench, that connections which come in from node networks are answered while those that begin in the
// pod stay fenced.
package replies

import (
	"os"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

func TestMain(m *testing.M) { os.Exit(shipped.Main(m)) }

// eachBackend runs a test in a bench of its own per iptables backend, side by side.
func eachBackend(t *testing.T, o rig.Options, test func(t *testing.T, b *bench)) {
	t.Helper()
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, o, backend))
		})
	}
}
