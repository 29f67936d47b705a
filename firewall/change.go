package firewall

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/routefence/routefence/policy"
)

// Change is one step towards a wanted firewall: Restore, SetUpdate, SetDestroy, TableDelete, or the remark Kept. String gives
// the lines that a person could paste into a shell.
type Change interface {
	fmt.Stringer
	// Of returns the family that the change belongs to.
	Of() policy.Family
}

// Restore is one run of iptables-restore --noflush for one table. The kernel takes all of its lines at once, or none.
type Restore struct {
	Backend string
	Table   Table
	Lines   []string
}

// SetUpdate makes a set hash:net, if need be, then adds members, then deletes others. In this order an address that is
// covered before and after stays covered at every moment.
type SetUpdate struct {
	Family      policy.Family
	Name        string
	Create      bool
	Add, Delete []netip.Prefix
}

// SetDestroy destroys a set that no rule refers to any more.
type SetDestroy struct {
	Family policy.Family
	Name   string
}

// TableDelete deletes an nft table that we made and that is empty. The kernel refuses if it is not.
type TableDelete struct{ Table Table }

// Kept is no change but a remark: the chain stays, because of foreign rules in it or leading to it.
type Kept struct {
	Backend string
	Table   Table
	Chain   string
	Rules   []string
}

// Of implements Change.
func (c Restore) Of() policy.Family { return c.Table.Family }

// Of implements Change.
func (c SetUpdate) Of() policy.Family { return c.Family }

// Of implements Change.
func (c SetDestroy) Of() policy.Family { return c.Family }

// Of implements Change.
func (c TableDelete) Of() policy.Family { return c.Table.Family }

// Of implements Change.
func (c Kept) Of() policy.Family { return c.Table.Family }

// Text is what iptables-restore reads.
func (c Restore) Text() string {
	return "*" + c.Table.Name + "\n" + strings.Join(c.Lines, "\n") + "\nCOMMIT\n"
}

func (c Restore) String() string {
	return Program(c.Table.Family, c.Backend, "restore") + " --noflush <<'END'\n" + c.Text() + "END"
}

func (c SetUpdate) String() string {
	var lines []string
	if c.Create {
		lines = append(lines, fmt.Sprintf("ipset create %s hash:net family %s maxelem %d", c.Name, setFamily(c.Family), SetCapacity))
	}
	for _, p := range c.Add {
		lines = append(lines, fmt.Sprintf("ipset add -exist %s %s", c.Name, p))
	}
	for _, p := range c.Delete {
		lines = append(lines, fmt.Sprintf("ipset del -exist %s %s", c.Name, p))
	}
	return strings.Join(lines, "\n")
}

func (c SetDestroy) String() string { return "ipset destroy " + c.Name }

func (c TableDelete) String() string {
	return fmt.Sprintf("nft delete table %s %s", nftFamily(c.Table.Family), c.Table.Name)
}

func (c Kept) String() string {
	return fmt.Sprintf("# kept: chain %s in %s %s, because of foreign rules:\n# %s",
		c.Chain, c.Backend, c.Table, strings.Join(c.Rules, "\n# "))
}

// Program returns the name of an iptables program that is bound to a backend, such as ip6tables-nft-save. An empty action
// gives the plain command.
func Program(f policy.Family, backend, action string) string {
	name := "iptables-" + backend
	if f == policy.IPv6 {
		name = "ip6tables-" + backend
	}
	if action != "" {
		name += "-" + action
	}
	return name
}

func nftFamily(f policy.Family) string {
	if f == policy.IPv4 {
		return "ip"
	}
	return "ip6"
}

func setFamily(f policy.Family) string {
	if f == policy.IPv4 {
		return "inet"
	}
	return "inet6"
}
