package firewall

import (
	"strings"

	"go4.org/netipx"
)

// Spec returns the rule as the words that follow "-A CHAIN".
func (r Rule) Spec() string {
	var w specWriter
	w.network("-s", r.Src)
	w.network("-d", r.Dst)
	w.link("-i", r.In)
	w.link("-o", r.Out)
	w.add("-p", r.Proto)
	w.marks(r)
	w.add("-m conntrack --ctstate", r.CtState)
	w.add("-m conntrack --ctdir", r.CtDir)
	if r.Set != "" {
		w.add("-m set --match-set", r.Set+" dst")
	}
	if r.SrcSet != "" {
		w.add("-m set --match-set", r.SrcSet+" src")
	}
	if r.Comment != "" {
		w.add("-m comment --comment", `"`+r.Comment+`"`)
	}
	if r.Goto {
		w.add("-g", r.Target)
	} else {
		w.add("-j", r.Target)
	}
	w.add("--reject-with", r.RejectWith)
	if r.To != (netipx.IPRange{}) {
		w.add("--to", r.To.String())
	}
	w.markTarget(r)
	return strings.Join(w.words, " ")
}

type specWriter struct{ words []string }

func (w *specWriter) add(option, value string) {
	if value != "" {
		w.words = append(w.words, option, value)
	}
}

func (w *specWriter) network(option string, n Network) {
	if n.Not {
		option = "! " + option
	}
	if n.Prefix.IsValid() {
		w.add(option, n.Prefix.String())
	}
}

func (w *specWriter) link(option string, i Interface) {
	if i.Not {
		option = "! " + option
	}
	w.add(option, i.Name)
}
