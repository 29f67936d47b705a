package main

// content are the files that the image takes from Debian's packages, as patterns. The libraries that they need are found by what the
// files say themselves. docs/image.md has the reason for each.
var content = []string{
	// Both backends, one program each, and the names under which the agent starts them.
	"usr/sbin/xtables-nft-multi",
	"usr/sbin/xtables-legacy-multi",
	"usr/sbin/ip{,6}tables-{nft,legacy}{,-restore,-save}",
	// Every extension for IPv4 and IPv6, not only those of our own rules: a table in which others have put a rule whose extension
	// is missing cannot be read at all (docs/decisions/020-every-extension.md). arptables' and ebtables' are of no use here.
	"usr/lib/*/xtables/lib{xt,ipt,ip6t}_*.so",
	// The texts to which the copyright files refer.
	"usr/share/common-licenses/{GPL-2,LGPL-2.1,Artistic}",
}

// withoutLibraries are extensions that would need a library of their own, larger than all of them together: mathematics, and connection
// labels. Nobody uses them in a pod's namespace.
var withoutLibraries = []string{"libxt_RATEEST.so", "libxt_statistic.so", "libxt_connlabel.so"}
