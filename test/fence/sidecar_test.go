package fence

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

// patience is how long a test waits for what must come. It asserts nothing about speed.
const patience = 15 * time.Second

func start(t *testing.T, r *rig.Rig, args ...string) *sidecar {
	t.Helper()
	return shipped.Start(t, r.Pod, args...)
}

func startReady(t *testing.T, r *rig.Rig, backend string, args ...string) *sidecar {
	t.Helper()
	return shipped.StartReady(t, r.Pod, backend, args...)
}
