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

// choose makes sure that there is a backend to work on. As long as nothing has failed it takes the most wanted one at its
// word: the fence itself is the write that proves it, sooner and better than any probe, since it is read back. Once that write
// has failed, a backend must prove itself. What was seen on the way is returned if it still counts, which it does not after a proof.
func (k *Kernel) choose() (*look, error) {
	if k.backend != "" {
		k.proveMissing()
		return nil, nil
	}
	order, seen := k.candidates()
	if b := order[0]; !k.doubted && k.complete(b) {
		k.backend = b
		return seen, nil
	}
	return nil, k.prove(order)
}

// complete reports whether the programs of a backend are there for every family.
func (k *Kernel) complete(backend string) bool {
	for _, f := range policy.Families {
		if !absent(f) && usable(f, backend) != nil {
			return false
		}
	}
	return true
}

// doubt is for a write that failed before any succeeded, or before it was ever looked for what the backend lacks, as the fence may
// come to need what it did without: the next list proves the backends.
func (k *Kernel) doubt(f policy.Family, err error) {
	if (!k.proven[f] || k.proved.IsZero()) && !errors.Is(err, errLocked) {
		k.doubted, k.backend = true, ""
	}
}

// prove finds a backend that takes writes. Listing proves nothing: a backend can list without the permission to write, without
// the modules to write with, and with its lock on a read-only file system.
func (k *Kernel) prove(candidates []string) error {
	var errs []error
	best, most := "", 0
	for _, b := range candidates {
		proofs := k.proofsOf(b, policy.Families...)
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
	k.proven = map[policy.Family]bool{policy.IPv4: true, policy.IPv6: true}
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
		if p := k.proofs[f]; !absent(f) && p.err != nil {
			k.proved = time.Now()
			k.proofs[f] = k.proofsOf(k.backend, f)[f]
		}
	}
}

// candidates returns the backends to try, the most wanted first, and what it took to look at to know.
func (k *Kernel) candidates() ([]string, *look) {
	if k.choice != Auto {
		return []string{k.choice}, nil
	}
	seen := k.look()
	order := []string{firewall.NFT, firewall.Legacy}
	ours, rules := map[string]bool{}, map[string]bool{}
	for _, b := range order {
		for _, chains := range seen.of[b].tables {
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
	return order, &seen
}

// probe is a proof under way.
type probe struct {
	family   policy.Family
	table    firewall.Table
	made     bool
	noSets   bool
	accepted bool
	proof
}

// proofsOf writes, for each family, a chain with a rule of every kind that the fence needs, and takes it back.
func (k *Kernel) proofsOf(backend string, families ...policy.Family) map[policy.Family]proof {
	var probes []*probe
	proofs := map[policy.Family]proof{}
	for _, f := range families {
		if absent(f) {
			continue
		}
		p := &probe{family: f, table: firewall.Table{Family: f, Name: "filter"}}
		if p.err = usable(f, backend); p.err != nil {
			proofs[f] = p.proof
			continue
		}
		k.begin(p, backend)
		probes = append(probes, p)
	}
	restoreEach(probes, backend, writeProbe)
	for _, p := range probes {
		if !p.accepted {
			p.proof = writeAndTakeBack(backend, p.table)
		}
	}
	restoreEach(probes, backend, removeProbe)
	for _, p := range probes {
		k.end(p)
		proofs[p.family] = p.proof
	}
	return proofs
}

func usable(f policy.Family, backend string) error {
	for _, action := range []string{"", "restore", "save"} {
		if _, err := find(f, backend, action); err != nil {
			return err
		}
	}
	if backend == firewall.Legacy {
		return provideLock()
	}
	return nil
}

// begin notes what the proof must leave as it was, and makes the set that its rule refers to.
func (k *Kernel) begin(p *probe, backend string) {
	p.made = backend == firewall.NFT && !k.exists(p.table)
	set := firewall.SetUpdate{Family: p.family, Name: probeSet(p.family), Create: true}
	unset := firewall.SetDestroy{Family: p.family, Name: probeSet(p.family)}
	p.noSets = errors.Join(k.netfilter.Apply(unset), k.netfilter.Apply(set)) != nil
	p.accepted = !p.noSets
}

// probeSet is a name of its own for each family, as a set holds one family and both are proved side by side.
func probeSet(f policy.Family) string { return firewall.ProbeSets[f] }

func (k *Kernel) end(p *probe) {
	p.lacks.Sets = p.lacks.Sets || p.noSets
	if !p.noSets {
		p.err = errors.Join(p.err, k.netfilter.Apply(firewall.SetDestroy{Family: p.family, Name: probeSet(p.family)}))
	}
	if p.made {
		p.err = errors.Join(p.err, k.netfilter.Apply(firewall.TableDelete{Table: p.table}))
	}
}

// exists reports whether an nft table has anything in it but the remains of a proof that was killed.
func (k *Kernel) exists(t firewall.Table) bool {
	tables, _, err := k.netfilter.Tables()
	chains, present := tables[t]
	return err != nil || present && !slices.Equal(chains, []string{firewall.ProbeChain})
}

// The rules that the fence needs. A side-car cannot load modules, and images often lack extensions.
var (
	rejectRule    = firewall.Rule{Proto: "tcp", Target: "REJECT", RejectWith: "tcp-reset"}
	commentRule   = firewall.Rule{Comment: "routefence: probe", Target: "DROP"}
	conntrackRule = firewall.Rule{CtState: "DNAT", Target: "RETURN"}
	connmarkRule  = firewall.Rule{CtMark: firewall.Mark{Value: policy.ReplyMark, Mask: policy.ReplyMask}, Target: "CONNMARK",
		Restore: firewall.Masks{Connection: policy.ReplyMask, Packet: policy.ReplyMask}}
)

func setRule(f policy.Family) firewall.Rule { return firewall.Rule{Set: probeSet(f), Target: "DROP"} }

// writeProbe and removeProbe are two programs, for iptables-nft-restore never sends a rule that the same input flushes.
func writeProbe(f policy.Family) []string {
	return append([]string{":" + firewall.ProbeChain + " -"}, appending(rejectRule, commentRule, conntrackRule, connmarkRule, setRule(f))...)
}

func removeProbe(policy.Family) []string {
	return []string{"-F " + firewall.ProbeChain, "-X " + firewall.ProbeChain}
}

func appending(rules ...firewall.Rule) []string {
	var lines []string
	for _, r := range rules {
		lines = append(lines, "-A "+firewall.ProbeChain+" "+r.Spec())
	}
	return lines
}

// restoreEach writes the same lines for the probes that have been accepted so far, side by side.
func restoreEach(probes []*probe, backend string, lines func(policy.Family) []string) {
	var all []batch
	var of []*probe
	for _, p := range probes {
		if p.accepted {
			all, of = append(all, batch{{Backend: backend, Table: p.table, Lines: lines(p.family)}}), append(of, p)
		}
	}
	for i, err := range restore(all...) {
		of[i].accepted = err == nil
	}
}

// writeAndTakeBack is the proof for a family that did not take everything at once: it finds out what is lacking, or why
// nothing is taken.
func writeAndTakeBack(backend string, table firewall.Table) (p proof) {
	ipt, err := program(backend, table.Family)
	if err != nil {
		return proof{err: err}
	}
	if err := ipt.ClearChain(table.Name, firewall.ProbeChain); err != nil {
		return proof{err: explain(backend, err.Error(), err)}
	}
	defer func() {
		if err := ipt.ClearAndDeleteChain(table.Name, firewall.ProbeChain); err != nil {
			p.err = errors.Join(p.err, explain(backend, err.Error(), err))
		}
	}()
	try := func(r firewall.Rule) error {
		return restore(batch{{Backend: backend, Table: table, Lines: appending(r)}})[0]
	}
	if err := try(firewall.Rule{Target: "DROP"}); err != nil {
		return proof{err: err}
	}
	return proof{lacks: firewall.Lacks{Reject: try(rejectRule) != nil, Comment: try(commentRule) != nil,
		Conntrack: try(conntrackRule) != nil, Connmark: try(connmarkRule) != nil, Sets: try(setRule(table.Family)) != nil}}
}

func program(backend string, f policy.Family) (*iptables.IPTables, error) {
	path, err := find(f, backend, "")
	if err != nil {
		return nil, err
	}
	protocol := iptables.ProtocolIPv4
	if f == policy.IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	seconds, _ := strconv.Atoi(lockWait)
	ipt, err := iptables.New(iptables.Path(path), iptables.IPFamily(protocol), iptables.Timeout(seconds))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ipt, nil
}
