package xtables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/test/netns"
)

// child makes the test binary install the fence with the backend it names and say how that went: capabilities and user
// are those of a process, not of a test.
const child = "ROUTEFENCE_TEST_INSTALL"

func TestMain(m *testing.M) {
	if backend := os.Getenv(child); backend != "" {
		installInChild(backend)
		return
	}
	os.Exit(m.Run())
}

func installInChild(backend string) {
	k, p := newKernel(backend), policyOf("10.1.0.0/16", "fd00:1::/32")
	s, err := k.List()
	for range 2 { // a refused first write makes the backend prove itself
		if err == nil {
			_ = k.Apply(firewall.Diff(desired(p, s), s)) // the next list tells
		}
		s, err = k.List()
	}
	if err == nil && len(firewall.Diff(desired(p, s), s)) > 0 {
		err = errors.New("does not come to rest")
	}
	fmt.Println("result:", errors.Join(err, s.Err(p)))
}

func TestCapabilities(t *testing.T) {
	const nobody = "--reuid 65532 --regid 65532 --clear-groups "
	for _, c := range []struct{ name, backend, options, want string }{
		{"root without NET_ADMIN", firewall.NFT, "--bounding-set=-net_admin --inh-caps=-net_admin", "(needs NET_ADMIN)"},
		{"root without NET_RAW", firewall.Legacy, "--bounding-set=-net_raw --inh-caps=-net_raw", "(needs NET_ADMIN and NET_RAW)"},
		{"nobody", Auto, nobody, "(needs NET_ADMIN)"},
		{"nobody with NET_ADMIN", Auto, nobody + "--inh-caps=+net_admin --ambient-caps=+net_admin", "result: <nil>"},
		{"nobody with both", firewall.Legacy,
			nobody + "--inh-caps=+net_admin,+net_raw --ambient-caps=+net_admin,+net_raw", "result: <nil>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			netns.Enter(t)
			self, err := os.Open("/proc/self/exe")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = self.Close() }()
			cmd := exec.Command("setpriv", append(strings.Fields(c.options), "/proc/self/fd/3")...)
			cmd.ExtraFiles = []*os.File{self}
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), child+"="+c.backend)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want %q in\n%s", err, c.want, out)
			}
		})
	}
}

// shim puts a program before the real one of the same name; REAL in its script is the path of the real one.
func shim(t *testing.T, program, script string) {
	t.Helper()
	real, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := "#!/bin/sh\n" + strings.ReplaceAll(script, "REAL", real) + "\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// TestMissingExtensions: images and kernels lack single extensions. The fence loses comfort, never its rules.
func TestMissingExtensions(t *testing.T) {
	for _, v := range variants() {
		for _, c := range []struct{ words, degraded string }{
			{"-j REJECT", "no REJECT target"},
			{"-m comment", "no comment match"},
			{"-j REJECT|-m set|-m comment|-m conntrack", "no ipset"},
		} {
			t.Run(v.String()+" "+c.words, func(t *testing.T) {
				netns.Enter(t)
				v.load(t)
				before := netns.Run(t, firewall.Program(v.family, v.backend, "save")+" -t mangle")
				shim(t, firewall.Program(v.family, v.backend, "restore"), `rules=$(cat)
case "$rules" in *"`+strings.ReplaceAll(c.words, "|", `"*|*"`)+`"*) echo "Extension is not supported, missing kernel module?" >&2; exit 2;; esac
printf '%s\n' "$rules" | REAL "$@"`)
				p := manyNetworks(v.family, firewall.SetThreshold+1)
				k := newKernel(v.backend)
				converge(t, k, p)
				if got := strings.Join(desired(p, list(t, k)).Degraded, "; "); !strings.Contains(got, c.degraded) {
					t.Errorf("degraded: %q", got)
				}
				v.run(t, "-D OUTPUT 1")
				converge(t, k, p)
				remove(t, k)
				after := netns.Run(t, firewall.Program(v.family, v.backend, "save"))
				if strings.Contains(after, "ROUTEFENCE") || before == "" && !strings.Contains(c.words, "comment") && after != "" {
					t.Errorf("left:\n%s", after)
				}
			})
		}
	}
}

// TestOldRestoreWithoutWait: versions before 1.6.2 know no -w.
func TestOldRestoreWithoutWait(t *testing.T) {
	netns.Enter(t)
	shim(t, "iptables-legacy-restore",
		`for a; do case $a in --noflush) ;; *) echo "iptables-restore: unrecognized option '$a'" >&2; exit 2;; esac; done; exec REAL "$@"`)
	converge(t, newKernel(firewall.Legacy), policyOf("10.1.0.0/16"))
}

func TestMissingPrograms(t *testing.T) {
	netns.Enter(t)
	dir := t.TempDir()
	for _, name := range []string{"iptables-nft", "iptables-nft-save", "iptables-nft-restore"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", dir)
	k := newKernel(Auto)
	converge(t, k, policyOf("10.1.0.0/16"))
	err := list(t, k).Err(policyOf("fd00:1::/32"))
	if err == nil || !strings.Contains(err.Error(), "ip6tables-nft not found") {
		t.Errorf("the missing program is not named: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	none := newKernel(Auto)
	if _, err := none.List(); err == nil || !strings.Contains(err.Error(), "iptables-legacy not found") {
		t.Errorf("without any program: %v", err)
	}
	t.Setenv("PATH", path)
	converge(t, none, policyOf("10.1.0.0/16", "fd00:1::/32"))
}

// TestPlainNames: some images have iptables under its plain name only, and only its version says which backend it is.
func TestPlainNames(t *testing.T) {
	netns.Enter(t)
	dir := t.TempDir()
	for _, action := range []string{"", "-save", "-restore"} {
		real, err := exec.LookPath("iptables-legacy" + action)
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", real)
		if err := os.WriteFile(filepath.Join(dir, "iptables"+action), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	k := newKernel(Auto)
	converge(t, k, policyOf("10.1.0.0/16"))
	if k.Backend() != firewall.Legacy {
		t.Errorf("backend is %q", k.Backend())
	}
}

// TestHeldLock: whoever holds the xtables lock must not hold us for ever. nft has no such lock.
func TestHeldLock(t *testing.T) {
	netns.Enter(t)
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv(lockVariable, path)
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := policyOf("10.1.0.0/16")
	k := newKernel(firewall.Legacy)
	s := list(t, k)
	changes := firewall.Diff(desired(p, s), s)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	converge(t, newKernel(firewall.NFT), p)
	start := time.Now()
	release := time.AfterFunc(7*time.Second, func() { _ = lock.Close() })
	defer release.Stop()
	if err := k.Apply(changes[:1]); !errors.Is(err, errLocked) || !strings.Contains(err.Error(), "xtables lock") {
		t.Errorf("with the lock held: %v", err)
	}
	if took := time.Since(start); took > 7*time.Second {
		t.Errorf("gave up after %s", took)
	}
	if err := k.Apply(changes); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("wrote only after %s", took)
	}
}

func TestTakenSetNameFallsBackToPlainRules(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "ipset create ROUTEFENCE4 hash:ip")
	k, p := newKernel(firewall.NFT), manyNetworks(policy.IPv4, firewall.SetThreshold+1)
	s := list(t, k)
	if err := k.Apply(firewall.Diff(desired(p, s), s)); err == nil {
		t.Error("took over a foreign set")
	}
	converge(t, k, p)
	if listed := netns.Run(t, "ipset list -t"); !strings.Contains(listed, "hash:ip\n") {
		t.Errorf("sets:\n%s", listed)
	}
}

func TestProofOfAKilledProcessIsSweptUp(t *testing.T) {
	netns.Enter(t)
	before := everything(t)
	netns.Run(t, "iptables-nft -N "+firewall.ProbeChain)
	netns.Run(t, "ipset create "+firewall.ProbeSets[policy.IPv4]+" hash:net")
	k := newKernel(Auto)
	converge(t, k, policyOf("10.1.0.0/16"))
	remove(t, k)
	if after := everything(t); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestRejectedCountsFreshly(t *testing.T) {
	netns.Enter(t)
	k, p := newKernel(firewall.NFT), policyOf("10.1.0.0/16")
	wire(t)
	converge(t, k, p)
	send(t, "10.1.2.3", unix.SOCK_DGRAM)
	got, err := k.Rejected()
	if err != nil || got[policy.IPv4] != 1 {
		t.Errorf("rejected %v, %v", got, err)
	}
	if s := list(t, k); len(s.Passing(policy.IPv4, "eth0", ranges.Of(p.Networks...))) != 0 {
		t.Error("passes")
	}
}
