package cluster

import (
	"math/rand/v2"
	"time"
)

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
)

// pace is how long to leave the API server alone after failures in a row. Each pause is one list at most.
type pace struct{ failures int }

// failed returns the pause after one more failure: doubling, at random between half and all of it, so that hundreds of agents that
// lost the same API server at the same moment do not come back at the same moment. The server's own wish counts up to a limit.
func (p *pace) failed(wish time.Duration) time.Duration {
	full := min(firstPause<<min(p.failures, 10), maxPause)
	p.failures++
	pause := full/2 + rand.N(full/2)
	return max(pause, min(wish, maxPause))
}

// proven forgets the failures.
func (p *pace) proven() { p.failures = 0 }
