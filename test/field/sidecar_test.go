package field

import (
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

type (
	sidecar  = shipped.Agent
	document = shipped.Document
)

// bothNetworks is the flag that names the bench's node networks.
const bothNetworks = shipped.BothNetworks

const (
	// patience is how long a test waits for what must come. It asserts nothing about speed.
	patience = 20 * time.Second
	// ample is the patience with probes that must be answered, brief that with those that must not.
	ample = 10 * time.Second
	brief = 300 * time.Millisecond
)

func start(t *testing.T, r *rig.Rig, args ...string) *sidecar {
	t.Helper()
	return shipped.Start(t, r.Pod, args...)
}

func startWith(t *testing.T, r *rig.Rig, wrap []string, args ...string) *sidecar {
	t.Helper()
	return shipped.StartWith(t, r.Pod, wrap, args...)
}

func startReady(t *testing.T, r *rig.Rig, backend string, args ...string) *sidecar {
	t.Helper()
	return shipped.StartReady(t, r.Pod, backend, args...)
}
