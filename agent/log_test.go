package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestExpiredLeaseIsToldOnce: the age of the last read-back grows with every pass, which is no news.
func TestExpiredLeaseIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("10.250.0.0/16")
		b.Pass()
		b.r.listErr = errors.New("the fault")
		time.Sleep(31 * time.Second)
		b.Pass()
		lines := b.logs.FilterMessage("state").Len()
		for range 3 {
			time.Sleep(40 * time.Second)
			b.Pass()
		}
		if again := b.logs.FilterMessage("state").Len(); again != lines {
			t.Errorf("told %d times more: %v", again-lines, b.logs.All())
		}
		b.r.listErr = errors.New("another fault")
		b.Pass()
		if again := b.logs.FilterMessage("state").Len(); again != lines+1 {
			t.Errorf("another fault is told %d times", again-lines)
		}
	})
}
