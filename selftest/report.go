package selftest

import (
	"fmt"
	"net/netip"
	"strings"
	"text/tabwriter"
)

// Report is what a test of the fence found.
type Report struct {
	Result Result `json:"result"`
	// Problems are failures that no attempt was needed for.
	Problems []string  `json:"problems,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Networks []Network `json:"networks"`
}

// Network is what was found about one node network.
type Network struct {
	CIDR     netip.Prefix     `json:"cidr"`
	Layers   map[Layer]Result `json:"layers"`
	Findings []Finding        `json:"attempts"`
}

// Finding is what one attempt proved.
type Finding struct {
	Address   netip.Addr `json:"address"`
	Protocol  Protocol   `json:"protocol"`
	Interface string     `json:"interface,omitempty"`
	Layer     Layer      `json:"layer"`
	Result    Result     `json:"result"`
	Evidence  string     `json:"evidence"`
}

// Find judges an attempt.
func Find(e Evidence) Finding {
	f := Finding{Address: e.Addr, Protocol: e.Protocol, Interface: e.Interface, Layer: e.Layer()}
	f.Result, f.Evidence = Judge(e)
	return f
}

// Add adds a finding about a network, and what follows from it for the layer and for the whole.
func (r *Report) Add(network netip.Prefix, f Finding) {
	if last := len(r.Networks) - 1; last < 0 || r.Networks[last].CIDR != network {
		r.Networks = append(r.Networks, Network{CIDR: network, Layers: map[Layer]Result{}})
	}
	n := &r.Networks[len(r.Networks)-1]
	n.Findings = append(n.Findings, f)
	n.Layers[f.Layer] = together(n.Layers[f.Layer], f.Result)
	r.Result = together(r.Result, f.Result)
}

// Problem adds a failure that no attempt was needed for.
func (r *Report) Problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	r.Result = Fail
}

// Note adds something to know about the test.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// together joins two results: one failure is a failure, and one proof is a proof. The zero Result is none.
func together(a, b Result) Result {
	for _, weight := range []Result{Fail, Pass} {
		if a == weight || b == weight {
			return weight
		}
	}
	return b
}

// String returns the report for people.
func (r Report) String() string {
	var b strings.Builder
	count := map[Result]int{}
	for _, n := range r.Networks {
		fmt.Fprintf(&b, "%s\n", n.CIDR)
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, f := range n.Findings {
			count[f.Result]++
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", f.Layer, f.attempt(), f.Result, f.Evidence)
		}
		_ = table.Flush() // a strings.Builder takes everything
	}
	for _, text := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", text)
	}
	for _, text := range r.Problems {
		fmt.Fprintf(&b, "problem: %s\n", text)
	}
	fmt.Fprintf(&b, "%s: %d passed, %d failed, %d inconclusive\n", r.Result, count[Pass], count[Fail], count[Inconclusive])
	return b.String()
}

func (f Finding) attempt() string {
	text := fmt.Sprintf("%s to %s", f.Protocol, f.Address)
	if f.Interface != "" {
		text += " bound to " + f.Interface
	}
	return text
}
