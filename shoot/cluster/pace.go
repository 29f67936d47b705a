package cluster

import (
	"math/rand/v2"
	"time"
)

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
	// refusedPause is the longest between two questions whether an object may be read after all that nothing waits for.
	refusedPause = 5 * time.Minute
)

// pace is how long to leave the API server alone after failures in a row. Each pause is one list at most.
type pace struct{ failures int }

// failed returns the pause after one more failure, longest at most: doubling, at random between half and all of it, so that hundreds
// of agents that lost the same API server at the same moment do not come back at the same moment. The server's own wish counts too.
func (p *pace) failed(wish, longest time.Duration) time.Duration {
	full := min(firstPause<<min(p.failures, 12), longest)
	p.failures++
	pause := full/2 + rand.N(full/2)
	return max(pause, min(wish, longest))
}

// proven forgets the failures.
func (p *pace) proven() { p.failures = 0 }
