// Package injected starts pods as they come out of inject, in the order in which Kubernetes would, and counts at the far end: its tests
// take the commands, environment, capabilities and probes from Mutate's result, and make up nothing.
package injected

import (
	"os"
	"testing"

	"github.com/routefence/routefence/test/shipped"
)

func TestMain(m *testing.M) { os.Exit(shipped.Main(m)) }
