package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
)

// lines are the rules of a table by chain, as iptables-save prints them behind -A.
type lines map[string][]string

// fakeTables is a firewall that takes restores line by line, as iptables-restore does. It holds texts only; package firewall reads them.
type fakeTables struct {
	tables map[string]map[firewall.Table]lines
	sets   map[string][]netip.Prefix
}

func newFakeTables() *fakeTables {
	return &fakeTables{map[string]map[firewall.Table]lines{firewall.NFT: {}, firewall.Legacy: {}}, map[string][]netip.Prefix{}}
}

var baseChains = []string{"FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"}

// snapshot is what stands.
func (f *fakeTables) snapshot() firewall.Snapshot {
	return firewall.Snapshot{Backend: firewall.NFT, Tables: f.read(firewall.NFT), Other: f.read(firewall.Legacy), Sets: maps.Clone(f.sets)}
}

func (f *fakeTables) read(backend string) firewall.Tables {
	out := firewall.Tables{}
	for table, chains := range f.tables[backend] {
		heads, rules := "", ""
		for name, list := range chains {
			policy := "-"
			if slices.Contains(baseChains, name) {
				policy = "ACCEPT"
			}
			heads += ":" + name + " " + policy + " [0:0]\n"
			for _, line := range list {
				rules += "-A " + line + "\n"
			}
		}
		read, err := firewall.ParseSave(table.Family, []byte("*"+table.Name+"\n"+heads+rules+"COMMIT\n"))
		if err != nil {
			panic(err)
		}
		maps.Copy(out, read)
	}
	return out
}

// make makes one change whole, or not at all.
func (f *fakeTables) make(c firewall.Change) error {
	switch c := c.(type) {
	case firewall.Restore:
		chains := lines{}
		for name, list := range f.tables[c.Backend][c.Table] {
			chains[name] = slices.Clone(list)
		}
		for _, line := range c.Lines {
			if err := chains.take(line); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
		f.tables[c.Backend][c.Table] = chains
	case firewall.SetUpdate:
		members := slices.DeleteFunc(slices.Concat(f.sets[c.Name], c.Add), func(p netip.Prefix) bool { return slices.Contains(c.Delete, p) })
		slices.SortFunc(members, netip.Prefix.Compare)
		f.sets[c.Name] = slices.Compact(members)
	case firewall.SetDestroy:
		if strings.Contains(f.String(), "--match-set "+c.Name+" ") {
			return errors.New("in use")
		}
		delete(f.sets, c.Name)
	case firewall.TableDelete:
		delete(f.tables[firewall.NFT], c.Table)
	}
	return nil
}

// take takes one line of a restore.
func (l lines) take(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	name, spec, _ := strings.Cut(rest, " ")
	list, exists := l[name]
	switch {
	case !exists && verb != "-N" && !slices.Contains(baseChains, name):
		return errors.New("no such chain")
	case verb == "-X" && len(list) == 0:
		delete(l, name)
		return nil
	case verb == "-N" && !exists, verb == "-F":
		list = nil
	case verb == "-D":
		at := slices.Index(list, rest)
		if at < 0 {
			return errors.New("no such rule")
		}
		list = slices.Delete(list, at, at+1)
	case verb == "-I":
		number, rule, _ := strings.Cut(spec, " ")
		at, _ := strconv.Atoi(number)
		list = slices.Insert(list, at-1, name+" "+rule)
	case verb == "-A":
		list = append(list, rest)
	default:
		return errors.New("refused")
	}
	l[name] = list
	return nil
}

// String returns all rules in a fixed order.
func (f *fakeTables) String() string {
	var out []string
	for backend, tables := range f.tables {
		for table, chains := range tables {
			for _, list := range chains {
				for i, line := range list {
					out = append(out, fmt.Sprintf("%s %s %04d %s", backend, table, i, line))
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// toggle adds a rule of others, or takes it away if it is there.
func (f *fakeTables) toggle(backend, table, line string) {
	t := firewall.Table{Family: policy.IPv4, Name: table}
	if f.tables[backend][t] == nil {
		f.tables[backend][t] = lines{}
	}
	name, _, _ := strings.Cut(line, " ")
	if list := f.tables[backend][t][name]; slices.Contains(list, line) {
		f.tables[backend][t][name] = slices.DeleteFunc(list, func(l string) bool { return l == line })
	} else {
		f.tables[backend][t][name] = append(list, line)
	}
}

// foreign returns, in words, all that is not ours.
func foreign(s routes.State, f *fakeTables) string {
	var out []string
	for _, r := range s.Routes {
		if r.Protocol != routes.Protocol {
			out = append(out, "route "+s.Describe(r))
		}
	}
	slices.Sort(out)
	for _, r := range s.Rules {
		if r.Protocol != routes.Protocol {
			out = append(out, fmt.Sprintf("rule %+v", r))
		}
	}
	for _, l := range s.Links {
		if l.Name != "eth0" {
			out = append(out, fmt.Sprintf("link %s %d", l.Name, l.Group))
		}
	}
	for line := range strings.Lines(f.String()) {
		if head, rule, _ := strings.Cut(strings.TrimSpace(line), " 0"); !strings.Contains(strings.ToLower(rule), "routefence") {
			out = append(out, head+" "+rule[4:]) // without its number, which ours change
		}
	}
	return strings.Join(out, "\n")
}
