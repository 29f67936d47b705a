package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

func (b *bench) live(after time.Duration) bool {
	return b.State().Live(time.Now().Add(after))[0].Err == nil
}

// TestLiveBeforeTheFirstPass: a first pass that hangs must be found.
func TestLiveBeforeTheFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("10.250.0.0/16")
		if !b.live(60 * time.Second) {
			t.Error("the first pass gets no minute")
		}
		if b.live(61 * time.Second) {
			t.Error("live after a minute without a pass")
		}
	})
}

// TestLiveThroughASlowKernel: a short resync asks for frequent looks, not for a restart while the programs take their time.
func TestLiveThroughASlowKernel(t *testing.T) {
	for _, c := range []struct{ resync, lease time.Duration }{
		{100 * time.Millisecond, time.Minute}, {10 * time.Second, time.Minute}, {30 * time.Second, 90 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench("10.250.0.0/16")
			b.Resync = c.resync
			b.Pass()
			if !b.live(c.lease) || b.live(c.lease+1) {
				t.Errorf("--resync=%s: the lease is not %s", c.resync, c.lease)
			}
		})
	}
}
