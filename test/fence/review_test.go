package fence

import (
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// TestHostBitsInAllow: one address was meant, and a hole as wide as its network must not come of it.
func TestHostBitsInAllow(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for allow, write := range map[string]string{
		"10.250.3.7/16":                "10.250.0.0/16",
		"10.250.9.0/24,fd00:250::7/64": "fd00:250::/64",
		"::ffff:10.250.3.7/112":        "10.250.0.0/16",
		"10.250.9.0/24 10.250.3.7/16":  "10.250.0.0/16",
	} {
		got := r.Exec("timeout", "5", binary, "run", bothNetworks, "--allow="+allow)
		if got.Exit != 2 || strings.Count(got.Stderr, "\n") != 1 || !strings.Contains(got.Stderr, "--allow") || !strings.Contains(got.Stderr, write) {
			t.Errorf("%s: exits with %d, want 2 and the advice to write %s: %s", allow, got.Exit, write, got.Stderr)
		}
	}
	if got := r.Exec(binary, "init", bothNetworks, "--allow=10.250.9.0/24,::ffff:10.250.3.7/128"); got.Exit != 0 {
		t.Errorf("holes without host bits: exits with %d: %s", got.Exit, got.Stderr)
	}
}

// TestHostBitsOfNodeNetworksAreSaid: they widen the fence, which is safe, but not what was written.
func TestHostBitsOfNodeNetworksAreSaid(t *testing.T) {
	r := rig.New(t, rig.Options{})
	s := start(t, r, "--node-networks=10.250.3.7/16", "--firewall=nft")
	d := s.await("ready", func(d document) bool { return d.Ready })
	const words = "10.250.3.7/16 has host bits set"
	if got := d.Sources[0].Message; !strings.Contains(got, words) || !d.Sources[0].Healthy {
		t.Errorf("the source says %q", got)
	}
	if n := strings.Count(s.Output(), words); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, s.Output())
	}
}
