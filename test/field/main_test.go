package field

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

var (
	backends = []string{"nft", "legacy"}
	families = []string{"4", "6"}
)

func TestMain(m *testing.M) {
	// These tests wait more than they work.
	if err := flag.Set("test.parallel", "5"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(shipped.Main(m))
}

// eachBackend runs a test in a bench of its own per iptables backend, side by side: most of the time is spent waiting.
func eachBackend(t *testing.T, test func(t *testing.T, r *rig.Rig, backend string)) {
	t.Helper()
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, rig.New(t, rig.Options{}), backend)
		})
	}
}

// bench is for tests that need one bench only.
func bench(t *testing.T) *rig.Rig {
	t.Helper()
	t.Parallel()
	return rig.New(t, rig.Options{})
}
