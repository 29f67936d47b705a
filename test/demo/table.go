package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// row is what was measured in one step.
type row struct {
	name             string
	free, bound      reply
	slowest          time.Duration
	direct, tunneled rig.Count
	phase            string
}

// table prints all steps.
func (st *story) table() {
	fmt.Printf("\nThe pod asks the kubelet at %s, %d times in each state, and %d times more by a socket bound to eth0.\n"+
		"Packets are counted where they arrive: in the seed network, and at the node's end of the VPN.\n\n", nodeAddress, requests, requests)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STATE\tKUBELET\tBOUND TO ETH0\tSLOWEST\tSEED NETWORK\tVPN\tSTATUS")
	for _, r := range st.rows {
		fmt.Fprintf(w, "%s\t%v\t%v\t%v\t%d packets\t%d packets\t%s\n", r.name, r.free, r.bound,
			r.slowest.Round(100*time.Microsecond), r.direct.Total(), r.tunneled.Packets, r.phase)
	}
	w.Flush()
	fmt.Print("\n\"invalid argument\" is what the kernel says at once where a route leads into a blackhole, which is the first layer of\n" +
		"the fence; \"connection refused\" is the second, the firewall: only sockets that evade the routes get that far.\n")
}
