package image

import (
	"strings"
	"testing"
)

// TestTheWebhookRuns: the other binary of the image, as nobody and without any capability.
func TestTheWebhookRuns(t *testing.T) {
	p := newPod(t)
	c := container{entrypoint: []string{"routefence-webhook"}, args: []string{"version"}, uid: 65532}
	if out := p.exec(c); out.Exit != 0 || !strings.Contains(out.Stdout, "v0.0.0-test") {
		t.Errorf("%v\n%s%s", out.Err, out.Stdout, out.Stderr)
	}
}

// TestVersion: the agent finds all of iptables' programs, and runs nothing else.
func TestVersion(t *testing.T) {
	p := newPod(t)
	out := p.exec(container{args: []string{"version"}})
	for _, want := range []string{"routefence v0.0.0-test (commit 0123456789abcdef", "iptables-nft: iptables v", "ip6tables-nft: ip6tables v",
		"iptables-legacy: iptables v", "ip6tables-legacy: ip6tables v"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("without %q: %v\n%s%s", want, out.Err, out.Stdout, out.Stderr)
		}
	}
}
