package firewall

import (
	"net/netip"
	"slices"
)

// Adopted returns the node networks that the rules in the kernel are for: what an earlier process of ours left standing.
func (s Snapshot) Adopted() []netip.Prefix {
	var out []netip.Prefix
	for table, chains := range s.Tables {
		if table.Name != "filter" {
			continue // mangle also holds what node networks are translated to
		}
		for _, r := range chains[ChainName].Rules {
			if r.Owned() && slices.Contains([]string{"REJECT", "DROP"}, r.Target) && r.Dst.Prefix.IsValid() {
				out = append(out, r.Dst.Prefix)
			}
		}
	}
	for _, members := range s.Sets {
		out = append(out, members...)
	}
	return out
}

// Allowed returns the addresses that the rules in the kernel exempt from the fence.
func (s Snapshot) Allowed() []netip.Prefix {
	var out []netip.Prefix
	for table, chains := range s.Tables {
		for _, r := range chains[ChainName].Rules {
			if table.Name == "filter" && r.Comment == commentAllowed && r.Target == "RETURN" && r.Dst.Prefix.IsValid() {
				out = append(out, r.Dst.Prefix)
			}
		}
	}
	return out
}

// TranslatedTo returns what the rules in the kernel take node networks to be translated to, or expect them to be.
func (s Snapshot) TranslatedTo() []netip.Prefix {
	var out []netip.Prefix
	for table, chains := range s.Tables {
		for _, r := range chains[ChainName].Rules {
			if table.Name == "mangle" && r.Comment == commentTranslated && r.Dst.Prefix.IsValid() {
				out = append(out, r.Dst.Prefix)
			}
		}
	}
	return out
}
