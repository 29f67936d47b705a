// Package pattern expands the patterns by which the image's contents are chosen and documented.
package pattern

import "strings"

// Expand returns the patterns that one with {a,b} stands for, as a shell does.
func Expand(pattern string) []string {
	before, rest, found := strings.Cut(pattern, "{")
	if !found {
		return []string{pattern}
	}
	choices, after, _ := strings.Cut(rest, "}")
	var out []string
	for choice := range strings.SplitSeq(choices, ",") {
		out = append(out, Expand(before+choice+after)...)
	}
	return out
}
