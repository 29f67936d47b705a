package xtables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

// readAttempts bounds how often a ruleset is read again because it changed meanwhile.
const readAttempts = 5

// cache is a snapshot with the generation of the nft ruleset that it was read at.
type cache struct {
	snapshot   firewall.Snapshot
	generation uint32
}

// unchanged returns the last snapshot if nothing can have changed since: the nft ruleset has the generation it had, there are
// no legacy tables, which have no such number, and the sets, whose changes do not count in it, are listed again.
func (k *Kernel) unchanged() (firewall.Snapshot, bool) {
	if k.cached == nil {
		return firewall.Snapshot{}, false
	}
	s := k.cached.snapshot
	if len(s.Unread) > 0 && time.Since(k.proved) >= proveAgain {
		return s, false
	}
	for _, f := range policy.Families {
		if names, err := legacyTables(f); err != nil || len(names) > 0 || absent(f) != s.Absent[f] {
			return s, false
		}
	}
	generation, err := k.netfilter.Generation()
	if err != nil || generation != k.cached.generation {
		return s, false
	}
	s.Sets, err = k.netfilter.Sets()
	return s, err == nil
}

// look is a look at the rules of both backends, and the generation of the nft ruleset before it.
type look struct {
	generation uint32
	of         map[string]reading
}

func (k *Kernel) look() look {
	// A kernel without nft has no generation, and no nft rules that could change.
	generation, _ := k.netfilter.Generation()
	return look{generation, map[string]reading{firewall.NFT: k.readBackend(firewall.NFT), firewall.Legacy: k.readBackend(firewall.Legacy)}}
}

// read reads everything, again if the nft ruleset changed between two programs: the pieces must be of one ruleset. What has just been
// seen, if anything, is not looked at twice.
func (k *Kernel) read(backend string, seen *look) (cache, error) {
	for range readAttempts {
		if seen == nil {
			l := k.look()
			seen = &l
		}
		s, err := k.snapshot(backend, *seen)
		if err != nil {
			return cache{}, err
		}
		if after, _ := k.netfilter.Generation(); seen.generation == after {
			return cache{s, after}, nil
		}
		seen = nil
	}
	return cache{}, fmt.Errorf("read the rules: they changed during each of %d attempts", readAttempts)
}

func (k *Kernel) snapshot(backend string, seen look) (firewall.Snapshot, error) {
	other := firewall.NFT
	if backend == firewall.NFT {
		other = firewall.Legacy
	}
	used, unused := seen.of[backend], seen.of[other]
	s := firewall.Snapshot{
		Backend:      backend,
		Tables:       used.tables,
		Other:        unused.tables,
		Lacks:        map[policy.Family]firewall.Lacks{},
		Absent:       map[policy.Family]bool{},
		Unread:       map[policy.Family]error{},
		Blind:        map[policy.Family]error{},
		Incompatible: used.incompatible,
	}
	for _, f := range policy.Families {
		p := k.proofs[f]
		s.Lacks[f] = p.lacks
		if absent(f) {
			s.Absent[f] = true
			continue
		}
		s.Unseen = slices.Concat(s.Unseen, used.unseen(backend, f), unused.unseen(other, f))
		if err := errors.Join(p.err, used.errs[f]); err != nil {
			s.Unread[f] = err
		}
		if err := unused.errs[f]; err != nil {
			// Rules of the other backend can only stop more; but a translation there goes unseen.
			s.Blind[f] = err
			k.warn(fmt.Sprintf("the %s rules of %s cannot be read: %v", other, f, err))
		}
	}
	var err error
	s.Sets, err = k.netfilter.Sets()
	return s, err
}

// reading is what was read of one backend.
type reading struct {
	tables       firewall.Tables
	incompatible map[firewall.Table]bool
	errs         map[policy.Family]error
	// ours are the nft tables that hold chains of ours. Netlink names them, whatever the programs can show.
	ours []firewall.Table
}

// unseen says what may be ours and cannot be read or taken away. Native nft objects of others are common, and matter only where
// chains of ours stand among them.
func (r reading) unseen(backend string, f policy.Family) []error {
	var out []error
	among := false
	for _, t := range r.ours {
		if t.Family != f {
			continue
		}
		among = true
		if r.incompatible[t] {
			out = append(out, fmt.Errorf("table %s has chains of routefence's, and holds native nft objects that iptables-nft cannot handle, "+
				"or is dormant (see nft list table; put that right first)", t))
		}
	}
	if err := r.errs[f]; err != nil && (among || !errors.Is(err, errIncompatible)) {
		out = append(out, fmt.Errorf("the %s rules of %s cannot be read: %w", backend, f, err))
	}
	return out
}

func (k *Kernel) readBackend(backend string) reading {
	r := reading{tables: firewall.Tables{}, incompatible: map[firewall.Table]bool{}, errs: map[policy.Family]error{}}
	if backend == firewall.NFT {
		k.readNFT(&r)
		return r
	}
	for _, f := range policy.Families {
		if err := readLegacy(r, f); err != nil {
			r.errs[f] = err
		}
	}
	return r
}

// incompatibleLine is how iptables-nft-save says that it leaves a table out. It exits with 0 all the same.
var incompatibleLine = regexp.MustCompile("(?m)^# Table [`'](\\w+)' is incompatible")

// readNFT starts no program for a family that has nothing to read.
func (k *Kernel) readNFT(r *reading) {
	all, dormant, err := k.netfilter.Tables()
	if err != nil {
		r.errs[policy.IPv4], r.errs[policy.IPv6] = err, err
		return
	}
	for _, t := range dormant {
		r.incompatible[t] = true
	}
	r.ours = ownTables(all)
	real := map[policy.Family]map[firewall.Table][]string{}
	var families []policy.Family
	var jobs []job
	for _, f := range policy.Families {
		real[f] = of(all, f)
		if len(firewall.Tables{}.Real(real[f])) == 0 {
			continue
		}
		path, err := find(f, firewall.NFT, "save")
		if err != nil {
			r.errs[f] = err
			continue
		}
		families, jobs = append(families, f), append(jobs, job{path: path, backend: firewall.NFT, args: []string{"-c"}})
	}
	for i, o := range runAll(jobs) {
		f := families[i]
		if err := errors.Join(o.err, r.take(f, o.printed, real[f])); err != nil {
			r.errs[f] = err
		}
		if errors.Is(o.err, errIncompatible) {
			// It is not said which table holds what cannot be printed.
			r.incompatible[firewall.Table{Family: f, Name: "filter"}] = true
			r.incompatible[firewall.Table{Family: f, Name: "mangle"}] = true
		}
	}
}

// ownTables returns the tables of iptables in which chains of ours stand.
func ownTables(all map[firewall.Table][]string) []firewall.Table {
	var out []firewall.Table
	for t := range (firewall.Tables{}).Real(all) {
		if slices.ContainsFunc(all[t], func(chain string) bool { return strings.HasPrefix(chain, firewall.ChainName) }) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b firewall.Table) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func of(all map[firewall.Table][]string, f policy.Family) map[firewall.Table][]string {
	out := map[firewall.Table][]string{}
	for t, chains := range all {
		if t.Family == f {
			out[t] = chains
		}
	}
	return out
}

// take adds what iptables-nft-save printed, less the chains that are not real.
func (r reading) take(f policy.Family, saved []byte, real map[firewall.Table][]string) error {
	for _, match := range incompatibleLine.FindAllSubmatch(saved, -1) {
		r.incompatible[firewall.Table{Family: f, Name: string(match[1])}] = true
	}
	tables, err := firewall.ParseSave(f, saved)
	if err != nil {
		return err
	}
	for t, chains := range tables.Real(real) {
		r.tables[t] = chains
	}
	return nil
}

// readLegacy reads those tables that exist. Asking for one that does not would make it, and nothing but the end of the namespace
// takes it away again.
func readLegacy(r reading, f policy.Family) error {
	names, err := legacyTables(f)
	if err != nil || len(names) == 0 {
		return err
	}
	for _, name := range names {
		saved, err := save(f, firewall.Legacy, "-t", name)
		if err != nil {
			return err
		}
		tables, err := firewall.ParseSave(f, saved)
		if err != nil {
			return err
		}
		for t, chains := range tables {
			r.tables[t] = chains
		}
	}
	return nil
}

// legacyTables returns the names of the tables of the legacy backend that exist. The list is for root only; whoever else has the
// capabilities to use the tables must take them all for present, at the price of making them.
func legacyTables(f policy.Family) ([]string, error) {
	path := "/proc/thread-self/net/ip_tables_names"
	if f == policy.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return []string{"filter", "mangle", "nat"}, nil
	}
	return strings.Fields(string(data)), err
}

// absent reports whether the kernel has no stack for a family: then no packet of it can exist.
func absent(f policy.Family) bool {
	if f == policy.IPv4 {
		return false
	}
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return errors.Is(err, fs.ErrNotExist)
}
