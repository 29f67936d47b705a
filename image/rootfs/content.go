package main

import (
	"slices"
	"strings"
)

// content are the files that the image takes from Debian's packages, as patterns. The libraries that they need are found by what the
// files say themselves. docs/image.md has the reason for each.
var content = []string{
	// Both backends, one program each, and the names under which the agent starts them.
	"usr/sbin/xtables-nft-multi",
	"usr/sbin/xtables-legacy-multi",
	"usr/sbin/ip{,6}tables-{nft,legacy}{,-restore,-save}",
	// Extensions for IPv4 and IPv6, not only those of our own rules: a table in which others have put a rule whose extension is missing
	// cannot be read at all (docs/decisions/020-every-extension.md). arptables' and ebtables' are of no use here.
	"usr/lib/*/xtables/lib{xt,ipt,ip6t}_*.so",
	// The texts to which the copyright files refer.
	"usr/share/common-licenses/{GPL-2,LGPL-2.1,Artistic}",
}

// leftOut are extensions for which there is no room and, in a pod's namespace, no use; the decision has the reasons.
var leftOut = map[string][]string{
	"libxt_": {"RATEEST", "rateest", "statistic", "connlabel", "AUDIT", "CHECKSUM", "CONNSECMARK", "SECMARK", "HMARK", "IDLETIMER", "LED",
		"SYNPROXY", "TCPOPTSTRIP", "cluster", "cpu", "dccp", "devgroup", "esp", "ipcomp", "ipvs", "nfacct", "osf", "quota", "u32"},
	"libipt_":  {"CLUSTERIP", "ECN", "ULOG", "ah", "realm"},
	"libip6t_": {"DNPT", "SNPT", "ah", "dst", "eui64", "frag", "hbh", "ipv6header", "mh", "rt", "srh"},
}

// isLeftOut reports whether a file is one of those.
func isLeftOut(name string) bool {
	for prefix, extensions := range leftOut {
		if extension, ok := strings.CutPrefix(strings.TrimSuffix(name, ".so"), prefix); ok && slices.Contains(extensions, extension) {
			return true
		}
	}
	return false
}
