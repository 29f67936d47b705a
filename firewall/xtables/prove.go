package xtables

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"go.uber.org/zap"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

// proof is what a backend showed for one family.
type proof struct {
	err   error
	lacks firewall.Lacks
}

// proveAgain is how often a family that failed its proof gets another one. A proof writes, and a write wakes whoever listens,
// who lists, which must not lead to the next proof at once.
const proveAgain = 20 * time.Second

// prove finds a backend that takes writes. Listing proves nothing: a backend can list without the permission to write, without
// the modules to write with, and with its lock on a read-only file system.
func (k *Kernel) prove() error {
	if k.backend != "" {
		k.proveMissing()
		return nil
	}
	var errs []error
	best, most := "", 0
	for _, b := range k.candidates() {
		proofs := k.proofsOf(b)
		good := 0
		for _, f := range policy.Families {
			if p, tried := proofs[f]; tried && p.err == nil {
				good++
			} else if tried {
				errs = append(errs, fmt.Errorf("%s backend, %s: %w", b, f, p.err))
			}
		}
		if good > most {
			best, most, k.proofs = b, good, proofs
		}
		if good == len(proofs) {
			break
		}
	}
	if best == "" {
		return fmt.Errorf("no usable iptables backend: %w", errors.Join(errs...))
	}
	k.backend, k.proved = best, time.Now()
	k.log.Info("firewall backend proven", zap.String("backend", best))
	for _, err := range errs {
		k.warn(err.Error())
	}
	return nil
}

// proveMissing gives the families that failed another chance.
func (k *Kernel) proveMissing() {
	if time.Since(k.proved) < proveAgain {
		return
	}
	for _, f := range policy.Families {
		if p, tried := k.proofs[f]; !absent(f) && (!tried || p.err != nil) {
			k.proved = time.Now()
			k.proofs[f] = k.proofOf(k.backend, f)
		}
	}
}

// candidates returns the backends to try, the most wanted first.
func (k *Kernel) candidates() []string {
	if k.choice != Auto {
		return []string{k.choice}
	}
	order := []string{firewall.NFT, firewall.Legacy}
	ours, rules := map[string]bool{}, map[string]bool{}
	for _, b := range order {
		for _, chains := range k.readBackend(b).tables {
			for name, chain := range chains {
				ours[b] = ours[b] || name == firewall.ChainName
				rules[b] = rules[b] || len(chain.Rules) > 0
			}
		}
	}
	if k.avoid == firewall.NFT ||
		k.avoid == "" && !ours[firewall.NFT] && (ours[firewall.Legacy] || rules[firewall.Legacy] && !rules[firewall.NFT]) {
		slices.Reverse(order)
	}
	return order
}

func (k *Kernel) proofsOf(backend string) map[policy.Family]proof {
	proofs := map[policy.Family]proof{}
	for _, f := range policy.Families {
		if !absent(f) {
			proofs[f] = k.proofOf(backend, f)
		}
	}
	return proofs
}

// proofOf writes a chain with a rule, tries what the fence needs, and takes all of it back.
func (k *Kernel) proofOf(backend string, f policy.Family) proof {
	path, err := find(f, backend, "")
	if err != nil {
		return proof{err: err}
	}
	if backend == firewall.Legacy {
		if err := provideLock(); err != nil {
			return proof{err: err}
		}
	}
	filter := firewall.Table{Family: f, Name: "filter"}
	made := backend == firewall.NFT && !k.exists(filter)
	set := firewall.SetUpdate{Family: f, Name: firewall.ProbeChain, Create: true}
	unset := firewall.SetDestroy{Family: f, Name: firewall.ProbeChain}
	noSets := errors.Join(k.netfilter.Apply(unset), k.netfilter.Apply(set))
	p := writeAndTakeBack(path, backend, filter)
	p.lacks.Sets = p.lacks.Sets || noSets != nil
	if noSets == nil {
		p.err = errors.Join(p.err, k.netfilter.Apply(unset))
	}
	if made {
		p.err = errors.Join(p.err, k.netfilter.Apply(firewall.TableDelete{Table: filter}))
	}
	return p
}

// exists reports whether an nft table has anything in it but the remains of a proof that was killed.
func (k *Kernel) exists(t firewall.Table) bool {
	tables, err := k.netfilter.Tables()
	chains, present := tables[t]
	return err != nil || present && !slices.Equal(chains, []string{firewall.ProbeChain})
}

func writeAndTakeBack(path, backend string, table firewall.Table) (p proof) {
	family := iptables.ProtocolIPv4
	if table.Family == policy.IPv6 {
		family = iptables.ProtocolIPv6
	}
	seconds, _ := strconv.Atoi(lockWait)
	ipt, err := iptables.New(iptables.Path(path), iptables.IPFamily(family), iptables.Timeout(seconds))
	if err != nil {
		return proof{err: fmt.Errorf("%s: %w", path, err)}
	}
	if err := ipt.ClearChain(table.Name, firewall.ProbeChain); err != nil {
		return proof{err: explain(backend, err.Error(), err)}
	}
	defer func() {
		sweep := firewall.Restore{Backend: backend, Table: table, Lines: []string{"-F " + firewall.ProbeChain, "-X " + firewall.ProbeChain}}
		if restore(sweep) == nil {
			return
		}
		if err := ipt.ClearAndDeleteChain(table.Name, firewall.ProbeChain); err != nil {
			p.err = errors.Join(p.err, explain(backend, err.Error(), err))
		}
	}()
	return examine(backend, table)
}

// examine finds out what the kernel or the programs lack. A side-car cannot load modules, and images often lack extensions.
func examine(backend string, table firewall.Table) proof {
	reject := firewall.Rule{Proto: "tcp", Target: "REJECT", RejectWith: "tcp-reset"}
	comment := firewall.Rule{Comment: "routefence: probe", Target: "DROP"}
	conntrack := firewall.Rule{CtState: "DNAT", Target: "RETURN"}
	set := firewall.Rule{Set: firewall.ProbeChain, Target: "DROP"}
	try := func(rules ...firewall.Rule) error {
		var lines []string
		for _, r := range rules {
			lines = append(lines, "-A "+firewall.ProbeChain+" "+r.Spec())
		}
		return restore(firewall.Restore{Backend: backend, Table: table, Lines: lines})
	}
	if try(reject, comment, conntrack, set) == nil {
		return proof{}
	}
	if err := try(firewall.Rule{Target: "DROP"}); err != nil {
		return proof{err: err}
	}
	return proof{lacks: firewall.Lacks{
		Reject: try(reject) != nil, Comment: try(comment) != nil, Conntrack: try(conntrack) != nil, Sets: try(set) != nil,
	}}
}
