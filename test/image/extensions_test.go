package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// needed are the extensions without which the fence, or the reading of what the VPN and others write, is not complete. Each backend can
// do without some that the other needs.
var needed = map[string][]string{
	"": {"libipt_REJECT", "libip6t_REJECT", "libxt_comment", "libxt_conntrack", "libxt_set", "libxt_connmark",
		"libxt_CONNMARK", "libxt_tcp", "libip6t_icmp6", "libipt_NETMAP", "libxt_owner", "libxt_NAT", "libxt_MARK"},
	"nft":    {"libxt_standard"},
	"legacy": {"libxt_udp", "libxt_mark"},
}

// TestEachExtensionIsNeeded takes one extension after the other out of the image, and sees each time that the agent is no longer content.
func TestEachExtensionIsNeeded(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			for _, family := range []string{"iptables", "ip6tables"} {
				p.Pod.Feed(vpnRules(family), family+"-"+backend+"-restore --noflush")
			}
			root := filepath.Join(t.TempDir(), "root")
			if err := os.CopyFS(root, os.DirFS(host(t).root)); err != nil {
				t.Fatal(err)
			}
			c := p.everything(backend, root)
			if trouble := p.trouble(c); trouble != "" {
				t.Fatalf("with every extension: %s", trouble)
			}
			for _, name := range slices.Concat(needed[""], needed[backend]) {
				p.without(t, c, name)
			}
		})
	}
}

func (p pod) without(t *testing.T, c container, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.root, "usr/lib/*/xtables", name+".so"))
	if err != nil || len(found) != 1 {
		t.Errorf("%s: %v, %v", name, found, err)
		return
	}
	away := filepath.Join(filepath.Dir(c.root), name)
	if err := os.Rename(found[0], away); err != nil {
		t.Fatal(err)
	}
	if trouble := p.trouble(c); trouble == "" {
		t.Errorf("without %s the agent finds nothing wrong", name)
	} else {
		t.Logf("without %s: %.200s", name, trouble)
	}
	if err := os.Rename(away, found[0]); err != nil {
		t.Fatal(err)
	}
}

// everything is a container whose fence has rules of every kind: sets, as the networks are many, and answers for connections that come in.
func (p pod) everything(backend, root string) container {
	var list strings.Builder
	list.WriteString(networks)
	for i := range 20 {
		fmt.Fprintf(&list, "10.251.%d.0/24\nfd00:251:%x::/64\n", 2*i, 2*i)
	}
	c := p.injected(fromConfigMap(backend), list.String())
	if !slices.Contains(c.caps, "NET_RAW") {
		c.caps = append(c.caps, "NET_RAW")
	}
	c.root, c.memory = root, 0
	c.env = append(c.env, "ROUTEFENCE_REPLIES=on")
	return c
}

// vpnRules are rules as the VPN has them in a kube-apiserver pod, and such as stand for what others may have.
func vpnRules(family string) string {
	nat := "-A OUTPUT -d 10.250.0.0/16 -m owner --gid-owner 31415 -j NETMAP --to 242.0.0.0/16\n" +
		"-A POSTROUTING -o tun0 -j MASQUERADE\n"
	if family == "ip6tables" {
		nat = ""
	}
	return "*nat\n" + nat + "-A OUTPUT -p udp -m udp --dport 5353 -j DNAT --to-destination :53\nCOMMIT\n" +
		"*filter\n-A INPUT -i bond0+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -i bond0+ -m mark --mark 0x7 -j DROP\nCOMMIT\n" +
		"*mangle\n-A PREROUTING -i bond0+ -j MARK --set-mark 0x7\nCOMMIT\n"
}

// trouble installs the fence and takes it away again. It returns what is wrong with it, or nothing.
func (p pod) trouble(c container) string {
	p.t.Helper()
	r := p.start(c)
	defer func() {
		r.Kill()
		_ = p.runtime("delete", "--force", r.id).Run()
		whole := c
		whole.root, whole.args = host(p.t).root, []string{"cleanup"}
		if out := p.exec(whole); out.Exit != 0 {
			p.t.Errorf("cleanup: %v\n%s", out.Err, out.Stderr)
		}
	}()
	d := r.Await("the agent has looked", func(d shipped.Document) bool { return d.Ready || len(d.Networks) > 0 })
	if !d.Ready {
		return d.Message
	}
	if len(d.Firewall.Degraded) > 0 {
		return strings.Join(d.Firewall.Degraded, "; ")
	}
	for _, n := range d.Networks {
		if translated := n.CIDR == rig.Network4.String(); !n.Layers.Firewall || !n.Layers.Routes || !n.Replies || translated && len(n.TranslatedTo) != 1 {
			return fmt.Sprintf("%+v", n)
		}
	}
	return ""
}
