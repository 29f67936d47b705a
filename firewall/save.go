package firewall

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/routefence/routefence/policy"
)

// ParseSave reads the output of iptables-save -c. Foreign rules come in every shape, and newer versions print what older
// ones cannot read, so nothing in a line makes it fail: what is not understood is kept in Rule.Unknown. Only output that
// ends inside a table is refused, since half a list must never be taken for the whole.
func ParseSave(f policy.Family, saved []byte) (Tables, error) {
	tables := Tables{}
	open := Table{}
	for line := range strings.Lines(string(saved)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '*':
			open = Table{f, line[1:]}
			tables[open] = map[string]Chain{}
		case line == "COMMIT":
			open = Table{}
		case open == Table{}:
		case line[0] == ':':
			words := strings.Fields(line[1:])
			if len(words) > 0 {
				tables[open][words[0]] = Chain{Policy: savedPolicy(words)}
			}
		default:
			name, rule, ok := parseLine(f, line)
			if ok {
				chain := tables[open][name]
				chain.Rules = append(chain.Rules, rule)
				tables[open][name] = chain
			}
		}
	}
	if open != (Table{}) {
		return nil, fmt.Errorf("the saved rules end inside table %s, before its COMMIT", open)
	}
	return tables, nil
}

func savedPolicy(words []string) string {
	if len(words) < 2 || words[1] == "-" {
		return ""
	}
	return words[1]
}

// parseLine reads "[packets:bytes] -A CHAIN words".
func parseLine(f policy.Family, line string) (chain string, rule Rule, ok bool) {
	var packets uint64
	if counters, rest, found := strings.Cut(line, "] "); found && strings.HasPrefix(counters, "[") {
		number, _, _ := strings.Cut(counters[1:], ":")
		packets, _ = strconv.ParseUint(number, 10, 64)
		line = rest
	}
	text, found := strings.CutPrefix(line, "-A ")
	if !found {
		return "", Rule{}, false
	}
	words := splitWords(text)
	if len(words) == 0 {
		return "", Rule{}, false
	}
	p := ruleParser{family: f, words: words[1:]}
	p.parse()
	p.rule.Packets, p.rule.Text = packets, text
	return words[0], p.rule, true
}

// splitWords splits at blanks as iptables-restore does: double quotes hold a word together, a backslash inside them takes
// the next character as it is.
func splitWords(text string) []string {
	var words []string
	var word strings.Builder
	quoted, escaped, some := false, false, false
	for _, c := range text {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted, some = !quoted, true
		case !quoted && (c == ' ' || c == '\t'):
			if some {
				words = append(words, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(c)
			some = true
		}
	}
	if some {
		words = append(words, word.String())
	}
	return words
}

// ruleParser turns the words of one rule into its fields.
type ruleParser struct {
	family policy.Family
	words  []string
	not    bool   // the option at hand was preceded by "!"
	match  string // the argument of the last -m
	rule   Rule
}

func (p *ruleParser) parse() {
	var unknown []string
	for len(p.words) > 0 {
		before := p.words
		p.not = before[0] == "!"
		if p.not {
			p.words = p.words[1:]
		}
		if len(p.words) < 2 || !p.option(p.words[0], p.words[1]) {
			taken := 1
			if p.not && len(before) > 1 {
				taken = 2
			}
			unknown = append(unknown, before[:taken]...)
			p.words = before[taken:]
		}
	}
	p.rule.Unknown = strings.Join(unknown, " ")
}

// option takes one option with its argument and reports whether it understood both.
func (p *ruleParser) option(name, arg string) bool {
	r, ok := &p.rule, false
	switch name {
	case "-i":
		ok = fill(&r.In, Interface{arg, p.not})
	case "-o":
		ok = fill(&r.Out, Interface{arg, p.not})
	case "-s":
		ok = p.network(&r.Src, arg)
	case "-d":
		ok = p.network(&r.Dst, arg)
	case "-p":
		ok = !p.not && fill(&r.Proto, arg)
	case "-m":
		ok = !p.not && slices.Contains(plainMatches, arg)
		p.match = arg
	case "--comment":
		ok = !p.not && fill(&r.Comment, arg)
	case "--ctstate":
		states := strings.Split(arg, ",")
		slices.Sort(states)
		ok = !p.not && fill(&r.CtState, strings.Join(states, ","))
	case "--ctdir":
		ok = !p.not && fill(&r.CtDir, arg)
	case "--match-set":
		ok = !p.not && len(p.words) > 2 && (p.words[2] == "dst" && fill(&r.Set, arg) ||
			p.words[2] == "src" && arg == SetNames[p.family] && fill(&r.SrcSet, arg))
		if ok {
			p.words = p.words[1:]
		}
	default:
		ok = !p.not && p.target(name, arg) || p.marks(name, arg)
	}
	if ok {
		p.words = p.words[2:]
	}
	return ok
}

// plainMatches are the matches that ask nothing but what their options say, and whose options are either understood here or
// end up as unknown words. Other matches can ask something without any option, as -m socket does.
var plainMatches = []string{"comment", "connmark", "conntrack", "icmp6", "set", "tcp", "udp"}

// target takes the target and the options of targets.
func (p *ruleParser) target(name, arg string) bool {
	r := &p.rule
	switch {
	case name == "-j":
		return fill(&r.Target, arg)
	case name == "-g":
		r.Goto = fill(&r.Target, arg)
		return r.Goto
	case name == "--reject-with" && r.Target == "REJECT":
		return fill(&r.RejectWith, arg)
	case name == "--to" && r.Target == "NETMAP":
		return fill(&r.To, parseDestination(arg))
	case name == "--to-destination" && r.Target == "DNAT":
		return fill(&r.To, parseDestination(arg))
	}
	return false
}

// fill sets a field that is not set yet. A rule may ask twice of the same thing, and the second time is not understood here.
func fill[T comparable](field *T, value T) bool {
	var zero T
	if *field != zero || value == zero {
		return false
	}
	*field = value
	return true
}

func (p *ruleParser) network(field *Network, arg string) bool {
	prefix, ok := parsePrefix(arg)
	if !ok || policy.FamilyOf(prefix) != p.family {
		return false
	}
	if prefix.Bits() == 0 && !p.not {
		return true
	}
	return fill(field, Network{prefix, p.not})
}

// parsePrefix reads ADDR, ADDR/BITS and ADDR/NETMASK.
func parsePrefix(text string) (netip.Prefix, bool) {
	host, mask, found := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Prefix{}, false
	}
	bits := addr.BitLen()
	if found {
		if bits, err = strconv.Atoi(mask); err != nil {
			bits, found = netmaskBits(mask)
			if !found {
				return netip.Prefix{}, false
			}
		}
	}
	prefix, err := addr.Prefix(bits)
	return prefix, err == nil
}

func netmaskBits(mask string) (int, bool) {
	addr, err := netip.ParseAddr(mask)
	if err != nil {
		return 0, false
	}
	bits := 0
	ended := false
	for _, b := range addr.AsSlice() {
		for i := 7; i >= 0; i-- {
			one := b>>i&1 == 1
			if one && ended {
				return 0, false
			}
			ended = ended || !one
			if one {
				bits++
			}
		}
	}
	return bits, true
}

// parseDestination reads the argument of NETMAP and DNAT: PREFIX, ADDR, ADDR-ADDR, each with :PORTS, and [ADDR] for IPv6.
func parseDestination(text string) netipx.IPRange {
	if inner, found := strings.CutPrefix(text, "["); found {
		text, _, _ = strings.Cut(inner, "]")
	} else if strings.Count(text, ":") == 1 {
		text, _, _ = strings.Cut(text, ":")
	}
	if prefix, ok := parsePrefix(text); ok {
		return netipx.RangeOfPrefix(prefix)
	}
	if span, err := netipx.ParseIPRange(text); err == nil {
		return span
	}
	return netipx.IPRange{}
}

// Real returns the tables without what the kernel does not have. iptables-nft-save prints every built-in chain of a table
// that it finds; real holds the chains that are there, with an entry for each table, even an empty one. A table that is
// there but was not printed is kept without chains.
func (t Tables) Real(real map[Table][]string) Tables {
	out := Tables{}
	for table, names := range real {
		out[table] = map[string]Chain{}
		for name, chain := range t[table] {
			if slices.Contains(names, name) {
				out[table][name] = Chain{chain.Policy, slices.Clone(chain.Rules)}
			}
		}
	}
	maps.DeleteFunc(out, func(table Table, _ map[string]Chain) bool {
		return !slices.Contains(builtinTables, table.Name)
	})
	return out
}

var builtinTables = []string{"filter", "mangle", "nat", "raw", "security"}
