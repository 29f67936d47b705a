package shipped

import (
	"strings"
	"time"
)

// Document is the state as the contract words it. The product's own type is not used: a renamed field must be noticed.
type Document struct {
	Phase, Reason, Message string
	Ready                  bool
	Networks               []Network
	Sources                []struct {
		Name, Ref, Message string
		Healthy            bool
		Networks           []string
	}
	Interfaces struct{ Fenced, Tunnels []string }
	Firewall   struct {
		Backend  string
		Degraded []string
	}
	VerifiedAt time.Time
	Repairs    struct{ Routes, Firewall uint64 }
}

// Network is what the state says about one network.
type Network struct {
	CIDR, State, Interface, Cause string
	Replies                       bool
	Sources, TranslatedTo         []string
	Layers                        struct{ Routes, Firewall bool }
	Exceptions                    []struct{ CIDR, State, Interface, Cause string }
}

// Network returns what is said about one network, nothing if it is not named.
func (d Document) Network(cidr string) Network {
	for _, n := range d.Networks {
		if n.CIDR == cidr {
			return n
		}
	}
	return Network{}
}

// CIDRs lists the networks, separated by blanks.
func (d Document) CIDRs() string {
	var out []string
	for _, n := range d.Networks {
		out = append(out, n.CIDR)
	}
	return strings.Join(out, " ")
}

// Answered lists the networks with replies on, separated by blanks.
func (d Document) Answered() string {
	var out []string
	for _, n := range d.Networks {
		if n.Replies {
			out = append(out, n.CIDR)
		}
	}
	return strings.Join(out, " ")
}

// Causes is all that is said about exceptions, for searching.
func (d Document) Causes() string {
	var b strings.Builder
	b.WriteString(d.Message)
	for _, n := range d.Networks {
		b.WriteString("\n" + n.CIDR + " " + n.State + ": " + n.Cause)
		for _, e := range n.Exceptions {
			b.WriteString("\n" + e.CIDR + " " + e.State + " " + e.Interface + ": " + e.Cause)
		}
	}
	return b.String()
}
