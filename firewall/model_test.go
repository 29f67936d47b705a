package firewall

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
)

// apply is what the kernel does with changes, for tests that need more of them than a kernel can take.
func apply(t testing.TB, s Snapshot, changes []Change) Snapshot {
	t.Helper()
	out := Snapshot{Backend: s.Backend, Tables: clone(s.Tables), Other: clone(s.Other), Sets: maps.Clone(s.Sets)}
	if out.Sets == nil {
		out.Sets = map[string][]netip.Prefix{}
	}
	for _, c := range changes {
		switch c := c.(type) {
		case Restore:
			tables := out.Tables
			if c.Backend != s.Backend {
				tables = out.Other
			}
			applyRestore(t, tables, c)
		case SetUpdate:
			if _, exists := out.Sets[c.Name]; exists == c.Create {
				t.Fatalf("set %s: exists %t, create %t", c.Name, exists, c.Create)
			}
			members := append(missing(out.Sets[c.Name], c.Delete), c.Add...)
			slices.SortFunc(members, netip.Prefix.Compare)
			out.Sets[c.Name] = members
		case SetDestroy:
			delete(out.Sets, c.Name)
		case TableDelete:
			if len(out.Tables[c.Table]) == 0 {
				delete(out.Tables, c.Table)
			}
		}
	}
	return out
}

func clone(tables Tables) Tables {
	out := Tables{}
	for table, chains := range tables {
		out[table] = map[string]Chain{}
		for name, chain := range chains {
			out[table][name] = Chain{chain.Policy, slices.Clone(chain.Rules)}
		}
	}
	return out
}

func applyRestore(t testing.TB, tables Tables, c Restore) {
	t.Helper()
	if tables[c.Table] == nil {
		tables[c.Table] = map[string]Chain{}
	}
	chains := tables[c.Table]
	for _, line := range c.Lines {
		verb, rest, _ := strings.Cut(line, " ")
		name, spec, _ := strings.Cut(rest, " ")
		chain, exists := chains[name]
		if !exists && slices.Contains([]string{"OUTPUT", "FORWARD", "PREROUTING", "POSTROUTING"}, name) {
			chain.Policy = "ACCEPT"
		} else if !exists && verb != "-N" {
			t.Fatalf("%s: no such chain", line)
		}
		at := len(chain.Rules)
		switch verb {
		case "-N", "-F":
			chain.Rules = nil
		case "-X":
			if len(chain.Rules) > 0 {
				t.Fatalf("%s: not empty", line)
			}
			delete(chains, name)
			continue
		case "-D":
			at = slices.IndexFunc(chain.Rules, func(r Rule) bool { return r.Text == rest })
			if at < 0 {
				t.Fatalf("%s: no such rule", line)
			}
			chain.Rules = slices.Delete(chain.Rules, at, at+1)
		case "-I":
			var number string
			number, spec, _ = strings.Cut(spec, " ")
			at, _ = strconv.Atoi(number)
			at--
			fallthrough
		case "-A":
			_, r, _ := parseLine(c.Table.Family, "-A "+name+" "+spec)
			chain.Rules = slices.Insert(chain.Rules, at, r)
		}
		chains[name] = chain
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func testPolicy(networks ...string) policy.Policy {
	return policy.New(prefixes(networks...), nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0", "bond0*"})
}

// save reads rules that a test writes down, in a filter table unless they say otherwise.
func save(t testing.TB, f policy.Family, text string) Tables {
	t.Helper()
	tables, err := ParseSave(f, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}
