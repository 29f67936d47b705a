package nfnetlink

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/test/netns"
)

var filter4 = firewall.Table{Family: policy.IPv4, Name: "filter"}

func TestGenerationChangesWithTheRuleset(t *testing.T) {
	netns.Enter(t)
	generation := func() uint32 {
		g, err := Conn{}.Generation()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := generation()
	if again := generation(); again != first {
		t.Errorf("generation went from %d to %d by itself", first, again)
	}
	netns.Run(t, "nft add table ip filter")
	if after := generation(); after == first {
		t.Error("a new table did not change the generation")
	}
}

func TestTablesAreThoseOfTheKernel(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "iptables-nft -A OUTPUT -j ACCEPT")
	netns.Run(t, "nft add table ip6 mangle")
	tables, _, err := Conn{}.Tables()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tables[filter4], []string{"OUTPUT"}) {
		t.Errorf("chains of filter: %v (iptables-nft-save would print INPUT and FORWARD too)", tables[filter4])
	}
	if chains, present := tables[firewall.Table{Family: policy.IPv6, Name: "mangle"}]; !present || len(chains) > 0 {
		t.Errorf("the empty table: %v", tables)
	}
}

func TestTableDeleteSparesWhatIsInUse(t *testing.T) {
	netns.Enter(t)
	del := firewall.TableDelete{Table: filter4}
	netns.Run(t, "nft add table ip filter")
	netns.Run(t, "nft add set ip filter foreign { type ipv4_addr ; }")
	for _, want := range []bool{true, false} {
		if err := (Conn{}).Apply(del); err != nil {
			t.Fatal(err)
		}
		if tables, _, _ := (Conn{}).Tables(); len(tables) == 1 != want {
			t.Errorf("tables: %v, want one: %t", tables, want)
		}
		_, _ = netns.Try("nft delete set ip filter foreign")
	}
	if err := (Conn{}).Apply(del); err != nil {
		t.Errorf("deleting it again: %v", err)
	}
}

func TestSets(t *testing.T) {
	netns.Enter(t)
	for f, base := range map[policy.Family]string{policy.IPv4: "10.%d.0.0/16", policy.IPv6: "fd00:%d::/32"} {
		var many []netip.Prefix
		for i := range 200 {
			many = append(many, netip.MustParsePrefix(fmt.Sprintf(base, i)))
		}
		slices.SortFunc(many, netip.Prefix.Compare)
		name := firewall.SetNames[f]
		change := func(c firewall.Change) {
			t.Helper()
			if err := (Conn{}).Apply(c); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want []netip.Prefix) {
			t.Helper()
			sets, err := Conn{}.Sets()
			if err != nil || !slices.Equal(sets[name], want) {
				t.Errorf("set %s has %d members (%v), want %d", name, len(sets[name]), err, len(want))
			}
		}
		change(firewall.SetUpdate{Family: f, Name: name, Create: true, Add: many[:150]})
		expect(many[:150])
		change(firewall.SetUpdate{Family: f, Name: name, Add: many[100:], Delete: many[:50]})
		expect(many[50:])
		change(firewall.SetDestroy{Family: f, Name: name})
		change(firewall.SetDestroy{Family: f, Name: name})
		if sets, _ := (Conn{}).Sets(); len(sets) != 0 {
			t.Errorf("sets are left: %v", sets)
		}
	}
}

// TestNoMatchIsNoMember: ipset can turn a member into a hole. It is then missing, and adding it again closes the hole.
func TestNoMatchIsNoMember(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "ipset create ROUTEFENCE4 hash:net")
	netns.Run(t, "ipset add ROUTEFENCE4 10.0.0.0/8")
	netns.Run(t, "ipset add ROUTEFENCE4 10.1.0.0/16 nomatch")
	sets, err := Conn{}.Sets()
	if err != nil || len(sets["ROUTEFENCE4"]) != 1 {
		t.Errorf("members: %v %v", sets, err)
	}
	hole := netip.MustParsePrefix("10.1.0.0/16")
	if err := (Conn{}).Apply(firewall.SetUpdate{Family: policy.IPv4, Name: "ROUTEFENCE4", Add: []netip.Prefix{hole}}); err != nil {
		t.Fatal(err)
	}
	if sets, _ = (Conn{}).Sets(); len(sets["ROUTEFENCE4"]) != 2 {
		t.Errorf("the hole is still there: %s", netns.Run(t, "ipset list ROUTEFENCE4"))
	}
}

func TestForeignSetUnderOurName(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "ipset create ROUTEFENCE4 hash:ip")
	if sets, err := (Conn{}).Sets(); err != nil || len(sets) != 0 {
		t.Errorf("a set of another type was taken for ours: %v %v", sets, err)
	}
	err := Conn{}.Apply(firewall.SetUpdate{Family: policy.IPv4, Name: "ROUTEFENCE4", Create: true})
	if err == nil {
		t.Error("it was overwritten")
	}
}

// TestRunWakes: a burst larger than the socket's buffer overflows the subscription; changes after it still wake.
func TestRunWakes(t *testing.T) {
	netns.Enter(t)
	thread := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan struct{}, 1)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		started <- join(thread)
		Conn{}.Run(ctx, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
			time.Sleep(50 * time.Millisecond)
		})
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	await := func(why string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(5 * time.Second):
			t.Fatalf("not woken by %s", why)
		}
	}
	await("the subscription")
	burst := filepath.Join(t.TempDir(), "burst.nft")
	rules := "add table ip t\nadd chain ip t c\n" + strings.Repeat("add rule ip t c ip daddr 10.0.0.1 drop\n", 5000)
	if err := os.WriteFile(burst, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "nft -f "+burst)
	time.Sleep(time.Second)
	await("the burst")
	netns.Run(t, "nft add table ip late")
	await("a change after the burst")
	// drain takes the wake-ups that are on their way.
	drain := func() {
		for range 4 {
			select {
			case <-woken:
			default:
			}
			time.Sleep(60 * time.Millisecond)
		}
	}
	netns.Run(t, "ipset create ROUTEFENCE4 hash:net")
	drain()
	netns.Run(t, "ipset add ROUTEFENCE4 10.0.0.0/8")
	await("a member")
	drain()
	swap := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(swap, []byte("add ROUTEFENCE4 11.0.0.0/8\ndel ROUTEFENCE4 10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "ipset restore -f "+swap)
	await("another member in the place of one")
	drain()
	netns.Run(t, "ipset flush ROUTEFENCE4")
	await("the flush of a set")
	cancel()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("does not end with its context")
	}
}

func join(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Setns(fd, unix.CLONE_NEWNET)
}
