package fence

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// lack is a place in which something is missing that the fence needs. The command line of the agent is put behind wrap.
type lack struct {
	name, backend string
	networks      string
	prepare       func(t *testing.T, r *rig.Rig)
	wrap          []string
	// ready is what the agent must become, words what the state must say if it does not.
	ready bool
	words string
}

// dropped runs what follows with these capabilities and no others.
func dropped(kept string) []string {
	set := "-all"
	if kept != "" {
		set += "," + kept
	}
	return []string{"setpriv", "--inh-caps=" + set, "--bounding-set=" + set, "--"}
}

// unprivileged is dropped for a user without rights of his own, as kube-apiserver's is.
func unprivileged(kept string) []string {
	return []string{"setpriv", "--reuid=65532", "--regid=65532", "--clear-groups",
		"--inh-caps=-all," + kept, "--ambient-caps=-all," + kept, "--bounding-set=-all," + kept, "--"}
}

// readOnlyRun hides /run and /tmp behind file systems that take no lock file.
var readOnlyRun = []string{"unshare", "-m", "sh", "-ec",
	`mount -t tmpfs none /mnt; cp "$1" /mnt/routefence; mount -t tmpfs -o ro none /run; mount -t tmpfs -o ro none /tmp
	shift; exec env -u XTABLES_LOCKFILE /mnt/routefence "$@"`, "sh"}

var lacks = []lack{
	{name: "no capability", backend: "nft", wrap: dropped(""), words: "NET_ADMIN"},
	{name: "no capability, any backend", backend: "auto", wrap: dropped(""), words: "NET_ADMIN"},
	{name: "NET_ADMIN alone with nft", backend: "nft", wrap: dropped("+net_admin"), ready: true},
	{name: "NET_ADMIN alone with legacy", backend: "legacy", wrap: dropped("+net_admin"), words: "NET_RAW"},
	{name: "both with legacy", backend: "legacy", wrap: dropped("+net_admin,+net_raw"), ready: true},
	{name: "another user with NET_ADMIN", backend: "nft", wrap: unprivileged("+net_admin"), ready: true},
	{name: "no iptables", backend: "auto", wrap: pathWith(), words: "not found in PATH"},
	{name: "no iptables for nft", backend: "nft", wrap: pathWith(), words: "iptables-nft"},
	{name: "no ip6tables", backend: "nft", wrap: pathWith("iptables-nft"), words: "ip6tables-nft"},
	{name: "no ip6tables and no network for it", backend: "nft", wrap: pathWith("iptables-nft"), networks: "10.250.0.0/16", ready: true},
	{name: "IPv6 switched off by sysctl", backend: "nft", ready: true, prepare: func(_ *testing.T, r *rig.Rig) {
		r.Pod.Sysctl("ipv6/conf/all/disable_ipv6", "1")
		r.Pod.Sysctl("ipv6/conf/default/disable_ipv6", "1")
	}},
	{name: "no such interface", backend: "nft", words: "eth0", prepare: func(_ *testing.T, r *rig.Rig) {
		r.Pod.IP("link set eth0 down", "link set eth0 name net0", "link set net0 up", "route add 169.254.1.1 dev net0",
			"route add default via 169.254.1.1 dev net0")
	}},
}

// pathWith runs what follows with a PATH that holds these iptables programs and no others.
func pathWith(programs ...string) []string {
	return []string{"sh", "-ec", `dir=$(mktemp -d -p "$(dirname "$XTABLES_LOCKFILE")"); for p in ` + strings.Join(programs, " ") +
		`; do for s in "" -save -restore; do ln -s "$(command -v $p$s)" $dir/$p$s; done; done; PATH=$dir exec "$@"`, "sh"}
}

// TestDegraded: the state names what is missing, the agent lives, and it is never ready without both layers.
func TestDegraded(t *testing.T) {
	for _, l := range lacks {
		t.Run(l.name, func(t *testing.T) { l.run(t) })
	}
}

func (l lack) run(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	if l.prepare != nil {
		l.prepare(t, r)
	}
	networks := l.networks
	if networks == "" {
		networks = strings.Join(nodeNetworks, ",")
	}
	line := append(append([]string{}, l.wrap...), reachable(t, r), "run", "--node-networks="+networks, "--firewall="+l.backend, "--resync=1s")
	s := shipped.Run(t, r.Pod, line...)
	if l.ready {
		d := s.Await("ready", func(d document) bool { return d.Ready })
		for _, n := range d.Networks {
			if !n.Layers.Routes || !n.Layers.Firewall {
				t.Errorf("ready, and %s has the layers %+v", n.CIDR, n.Layers)
			}
		}
		expectFenced(t, r, l.name)
		return
	}
	d := s.Await("the state names "+l.words, func(d document) bool { return !d.Ready && strings.Contains(d.Message, l.words) })
	if code, _ := s.Get("/healthz"); code != 200 || !s.Running() {
		t.Errorf("/healthz %d, running %v", code, s.Running())
	}
	t.Logf("%s: %s", d.Reason, d.Message)
}

// reachable copies routefence to where every user may run it.
func reachable(t *testing.T, r *rig.Rig) string {
	t.Helper()
	if err := os.Chmod(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.Dir, "routefence")
	if out, err := exec.Command("cp", shipped.Binary, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// TestLegacyWithoutLockFile: on a read-only file system the legacy backend cannot work, and the state says what would help.
// nft needs no lock.
func TestLegacyWithoutLockFile(t *testing.T) {
	for backend, words := range map[string]string{"legacy": "lock file", "nft": ""} {
		t.Run(backend, func(t *testing.T) {
			r := rig.New(t, rig.Options{})
			line := append(append([]string{}, readOnlyRun...), shipped.Binary, "run", bothNetworks, "--firewall="+backend, "--resync=1s")
			s := shipped.Run(t, r.Pod, line...)
			if words == "" {
				s.Await("ready", func(d document) bool { return d.Ready })
				return
			}
			d := s.Await("the state names the lock file", func(d document) bool { return strings.Contains(d.Message, words) })
			if d.Ready || !s.Running() {
				t.Errorf("ready %v, running %v", d.Ready, s.Running())
			}
			t.Logf("%s: %s", d.Reason, d.Message)
		})
	}
}

// TestOneFamilyBroken: the family that works is fenced although the other cannot be.
func TestOneFamilyBroken(t *testing.T) {
	r := rig.New(t, rig.Options{})
	line := append(pathWith("iptables-nft"), shipped.Binary, "run", bothNetworks, "--firewall=nft", "--resync=1s")
	s := shipped.Run(t, r.Pod, line...)
	s.Await("the state names the program", func(d document) bool { return strings.Contains(d.Message, "ip6tables-nft") })
	expectFenced(t, r, "IPv4 beside a broken IPv6")
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node6}); a.Err == nil {
		t.Errorf("the routes do not hold IPv6: answered by %v", a)
	}
	if code, body := s.Get("/readyz?verbose"); code != 503 || !strings.Contains(body, "[+]firewall-ipv4 ok") || !strings.Contains(body, "[-]firewall-ipv6 failed") {
		t.Errorf("/readyz?verbose says %d\n%s", code, body)
	}
}
