package pattern

import (
	"slices"
	"testing"
)

func TestExpand(t *testing.T) {
	for in, want := range map[string][]string{
		"usr/bin/a":             {"usr/bin/a"},
		"ip{,6}t-{nft,legacy}*": {"ipt-nft*", "ipt-legacy*", "ip6t-nft*", "ip6t-legacy*"},
		"lib{,64}/ld":           {"lib/ld", "lib64/ld"},
	} {
		if got := Expand(in); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}
