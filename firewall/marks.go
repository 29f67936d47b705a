package firewall

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mark is a value under a mask, as --mark and --set-xmark take it. The zero value asks and does nothing.
type Mark struct{ Value, Mask uint32 }

func (m Mark) String() string { return fmt.Sprintf("0x%x/0x%x", m.Value, m.Mask) }

// Masks are those of CONNMARK --restore-mark: the bits of the connection's mark that are taken, and those of the packet's mark that
// they replace. The zero value restores nothing.
type Masks struct{ Connection, Packet uint32 }

// TCPFlags is what -m tcp --tcp-flags asks: of the flags in Mask, those in Set are set and the others are not. Both are sorted.
type TCPFlags struct {
	Mask, Set string
	Not       bool
}

// parseMark reads VALUE and VALUE/MASK.
func parseMark(text string) (Mark, bool) {
	value, mask, found := strings.Cut(text, "/")
	if !found {
		mask = "0xffffffff"
	}
	v, err := strconv.ParseUint(value, 0, 32)
	m, err2 := strconv.ParseUint(mask, 0, 32)
	return Mark{uint32(v), uint32(m)}, err == nil && err2 == nil
}

// marks takes the options of -m connmark, -m tcp, -m icmp6 and CONNMARK, and reports whether it understood what it was given.
func (p *ruleParser) marks(name, arg string) bool {
	r := &p.rule
	switch {
	case name == "--mark" && !p.not && p.match == "connmark":
		m, ok := parseMark(arg)
		return ok && fill(&r.CtMark, m)
	case name == "--set-xmark" && !p.not && r.Target == "CONNMARK":
		m, ok := parseMark(arg)
		return ok && fill(&r.SetMark, m)
	case name == "--restore-mark" && !p.not && r.Target == "CONNMARK":
		return p.restore()
	case name == "--tcp-flags" && len(p.words) > 2:
		if fill(&r.Flags, TCPFlags{sorted(arg), sorted(p.words[2]), p.not}) {
			p.words = p.words[1:]
			return true
		}
	case name == "--icmpv6-type" && !p.not:
		return fill(&r.ICMP, arg)
	}
	return false
}

// restore reads "--restore-mark --nfmask MASK --ctmask MASK".
func (p *ruleParser) restore() bool {
	if len(p.words) < 5 || p.words[1] != "--nfmask" || p.words[3] != "--ctmask" {
		return false
	}
	packet, ok := parseMark(p.words[2])
	connection, ok2 := parseMark(p.words[4])
	if !ok || !ok2 || !fill(&p.rule.Restore, Masks{connection.Value, packet.Value}) {
		return false
	}
	p.words = p.words[3:] // the caller takes two more
	return true
}

func sorted(list string) string {
	words := strings.Split(list, ",")
	slices.Sort(words)
	return strings.Join(words, ",")
}

// marks writes what the method of ruleParser reads, but the options of the target.
func (w *specWriter) marks(r Rule) {
	if r.Flags != (TCPFlags{}) {
		option := "-m tcp --tcp-flags"
		if r.Flags.Not {
			option = "-m tcp ! --tcp-flags"
		}
		w.add(option, r.Flags.Mask+" "+r.Flags.Set)
	}
	w.add("-m icmp6 --icmpv6-type", r.ICMP)
	if r.CtMark != (Mark{}) {
		w.add("-m connmark --mark", r.CtMark.String())
	}
}

// markTarget writes the options of CONNMARK.
func (w *specWriter) markTarget(r Rule) {
	if r.SetMark != (Mark{}) {
		w.add("--set-xmark", r.SetMark.String())
	}
	if r.Restore != (Masks{}) {
		w.add("--restore-mark", fmt.Sprintf("--nfmask 0x%x --ctmask 0x%x", r.Restore.Packet, r.Restore.Connection))
	}
}
