package fence

import (
	"os"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// backends are the iptables backends that everything must work with.
var backends = []string{"nft", "legacy"}

func TestMain(m *testing.M) { os.Exit(shipped.Main(m)) }

// eachBackend runs a test in a bench of its own per backend.
func eachBackend(t *testing.T, o rig.Options, test func(t *testing.T, r *rig.Rig, backend string)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) { test(t, rig.New(t, o), backend) })
	}
}

// eachBackendAtOnce is eachBackend for tests that measure no times: both run side by side.
func eachBackendAtOnce(t *testing.T, o rig.Options, test func(t *testing.T, r *rig.Rig, backend string)) {
	t.Helper()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, rig.New(t, o), backend)
		})
	}
}
