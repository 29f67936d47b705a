// Package xtables reads and writes the rules of the fence with the iptables programs, in either of their backends.
//
// Every list is made afresh from iptables-save, and every table is written by one iptables-restore, which is atomic. What the
// programs cannot tell comes from a Netfilter.
package xtables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

// Auto lets the Kernel choose the backend.
const Auto = "auto"

// Netfilter is what iptables programs can neither tell nor do. firewall/nfnetlink has it.
type Netfilter interface {
	// Generation changes with every change of the nft ruleset.
	Generation() (uint32, error)
	// Tables returns the nft tables and chains that exist, and the tables among them that are switched off; iptables-nft-save prints more.
	Tables() (tables map[firewall.Table][]string, dormant []firewall.Table, err error)
	// Sets returns our IP sets.
	Sets() (map[string][]netip.Prefix, error)
	// Apply makes a change of a set, or deletes an empty nft table.
	Apply(firewall.Change) error
}

// Kernel is the firewall of the network namespace that the calling thread is in. It can be used by several goroutines.
type Kernel struct {
	choice    string
	netfilter Netfilter
	log       *zap.Logger

	mu sync.Mutex
	// backend is the one in use, "" as long as there is none. proven are the families in which it has taken a write, doubted
	// says that it refused the first one. proofs is what its proof showed, if it came to that, and proved when.
	backend string
	proven  map[policy.Family]bool
	doubted bool
	proofs  map[policy.Family]proof
	proved  time.Time
	// avoid is a backend that took the proof and refused the rules.
	avoid  string
	cached *cache
	warned map[string]bool

	rejected rejected
}

// rejected are the counters as last read. They have a lock of their own: who asks for them must not hold up a pass, and those
// who ask at a time get one answer.
type rejected struct {
	mu      sync.Mutex
	read    time.Time
	packets map[policy.Family]uint64
	err     error
}

// rejectedAge is for how long counters are given out again: anybody can ask, as often as they like, and reading starts programs.
const rejectedAge = time.Second

// New returns the firewall for a --firewall choice: auto, nft or legacy. It touches nothing yet.
func New(choice string, n Netfilter, log *zap.Logger) *Kernel {
	return &Kernel{choice: choice, netfilter: n, log: log,
		proven: map[policy.Family]bool{}, proofs: map[policy.Family]proof{}, warned: map[string]bool{}}
}

// Backend returns the proven backend, "" if there is none yet.
func (k *Kernel) Backend() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.backend
}

// List returns the firewall as it is. Before the first time it proves a backend, by a write that it takes back. As long as
// nothing can have changed since the last list, it starts no program; counters are those of that list then (see Refresh).
//
// A family whose rules cannot be read is in Snapshot.Unread. The error says that none can.
func (k *Kernel) List() (firewall.Snapshot, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s, ok := k.unchanged(); ok {
		return s, nil
	}
	return k.list()
}

// Refresh is List with fresh counters.
func (k *Kernel) Refresh() (firewall.Snapshot, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list()
}

// Rejected returns the packets that the fence refused, by family, as counted until now or shortly before. A family that could
// not be read is left out, and so are both as long as no backend is in use: asking chooses and proves none.
func (k *Kernel) Rejected() (map[policy.Family]uint64, error) {
	r := &k.rejected
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read.IsZero() || time.Since(r.read) >= rejectedAge {
		r.packets, r.err = k.countRejected()
		r.read = time.Now()
	}
	return maps.Clone(r.packets), r.err
}

// countRejected reads the backend in use without k.mu, as the programs may take long: it needs the counters alone, and neither
// they nor readBackend depend on what the lock guards.
func (k *Kernel) countRejected() (map[policy.Family]uint64, error) {
	backend := k.Backend()
	if backend == "" {
		return nil, nil
	}
	r := k.readBackend(backend)
	counted := firewall.Snapshot{Tables: r.tables}.Rejected()
	out := map[policy.Family]uint64{}
	for _, f := range policy.Families {
		if r.errs[f] == nil {
			out[f] = counted[f]
		}
	}
	return out, errors.Join(r.errs[policy.IPv4], r.errs[policy.IPv6])
}

// Read is List for those who must not write: it proves nothing and takes the backend that is in use.
func (k *Kernel) Read() (firewall.Snapshot, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	order, seen := k.candidates()
	c, err := k.read(order[0], seen)
	if err != nil {
		return unread(err), err
	}
	return c.snapshot, nil
}

func (k *Kernel) list() (firewall.Snapshot, error) {
	k.cached = nil
	seen, err := k.choose()
	if err != nil {
		return unread(err), err
	}
	c, err := k.read(k.backend, seen)
	if err != nil {
		return unread(err), err
	}
	if k.choice == Auto && k.backend == firewall.NFT && k.avoid == "" && hasIncompatible(c.snapshot) {
		k.log.Warn("native nft objects are in the way of iptables-nft: trying the legacy backend")
		k.avoid, k.backend = k.backend, ""
		return k.list()
	}
	k.cached = &c
	return c.snapshot, nil
}

func unread(err error) firewall.Snapshot {
	return firewall.Snapshot{Unread: map[policy.Family]error{policy.IPv4: err, policy.IPv6: err}}
}

func hasIncompatible(s firewall.Snapshot) bool {
	for _, err := range s.Unread {
		if errors.Is(err, errIncompatible) {
			return true
		}
	}
	for t := range s.Incompatible {
		if t.Name == "filter" || t.Name == "mangle" {
			return true
		}
	}
	return false
}

// Apply makes changes in their order. If one fails, the rest of its family is left out, since each change may build on the
// one before; the other family goes on.
func (k *Kernel) Apply(changes []firewall.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cached = nil
	failed := map[policy.Family]error{}
	for len(changes) > 0 {
		var restores []firewall.Restore
		for len(changes) > 0 {
			c, ok := changes[0].(firewall.Restore)
			if !ok {
				break
			}
			if failed[c.Of()] == nil {
				restores = append(restores, c)
			}
			changes = changes[1:]
		}
		k.restore(restores, failed)
		if len(changes) > 0 {
			if c := changes[0]; failed[c.Of()] == nil {
				fail(failed, c.Of(), k.apply(c))
			}
			changes = changes[1:]
		}
	}
	return errors.Join(failed[policy.IPv4], failed[policy.IPv6])
}

func fail(failed map[policy.Family]error, f policy.Family, err error) {
	if err != nil && failed[f] == nil {
		failed[f] = fmt.Errorf("%s firewall: %w", f, err)
	}
}

// restore writes tables: the families side by side, the batches of one family one after the other.
func (k *Kernel) restore(restores []firewall.Restore, failed map[policy.Family]error) {
	queues := map[policy.Family][]batch{}
	for _, b := range batches(restores) {
		f := b[0].Table.Family
		queues[f] = append(queues[f], b)
	}
	for len(queues[policy.IPv4])+len(queues[policy.IPv6]) > 0 {
		var now []batch
		for _, f := range policy.Families {
			if q := queues[f]; len(q) > 0 && failed[f] == nil {
				now = append(now, q[0])
			}
			queues[f] = queues[f][min(1, len(queues[f])):]
		}
		for i, err := range restore(now...) {
			f := now[i][0].Table.Family
			if errors.Is(err, errIncompatible) && k.choice == Auto && now[i][0].Backend == k.backend && k.avoid == "" {
				// The next list proves the other backend. It is tried once: each proof writes, and each write wakes.
				k.avoid, k.backend = k.backend, ""
			}
			if err == nil {
				k.proven[f] = true
			} else {
				k.doubt(f, err)
			}
			fail(failed, f, err)
		}
	}
}

func (k *Kernel) apply(c firewall.Change) error {
	if _, remark := c.(firewall.Kept); remark {
		return nil
	}
	err := k.netfilter.Apply(c)
	if set, ok := c.(firewall.SetUpdate); ok && set.Create && err != nil {
		// Whatever took the name or the memory: the next list says that there are no sets, and plain rules hold as well.
		p := k.proofs[set.Family]
		p.lacks.Sets = true
		k.proofs[set.Family] = p
	}
	return err
}

// warn says something once, as the same is found again at every list.
func (k *Kernel) warn(text string) {
	if !k.warned[text] {
		k.warned[text] = true
		k.log.Warn(text)
	}
}
