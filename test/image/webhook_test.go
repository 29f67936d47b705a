package image

import (
	"strings"
	"testing"
)

// TestTheWebhookRuns: the other binary of the image, as nobody and without any capability.
func TestTheWebhookRuns(t *testing.T) {
	p := newPod(t)
	c := container{entrypoint: []string{"routefence-webhook"}, args: []string{"version"}, uid: 65532}
	if out := p.exec(c); out.Exit != 0 || !strings.Contains(out.Stdout, version) {
		t.Errorf("%v\n%s%s", out.Err, out.Stdout, out.Stderr)
	}
}

// TestVersion: the agent finds all of iptables' programs, and runs nothing else.
func TestVersion(t *testing.T) {
	p := newPod(t)
	out := p.exec(container{args: []string{"version"}})
	for _, want := range []string{"routefence " + version + " (commit " + commit, "iptables-nft: iptables v", "ip6tables-nft: ip6tables v",
		"iptables-legacy: iptables v", "ip6tables-legacy: ip6tables v"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("without %q: %v\n%s%s", want, out.Err, out.Stdout, out.Stderr)
		}
	}
}
