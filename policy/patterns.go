package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// longestName is how long an interface name may be: IFNAMSIZ without the closing zero byte.
const longestName = 15

// ParsePatterns checks shell patterns for interface names and returns them, each once. A pattern that can never match an
// interface is an error and not a curiosity: the fence it was to name would silently not be there. No patterns are no
// error; whether a role may stay empty is for the configuration to say.
func ParsePatterns(patterns []string) (Patterns, error) {
	var out Patterns
	for _, pattern := range patterns {
		if err := checkPattern(pattern); err != nil {
			return nil, fmt.Errorf("interface pattern %s: %w", quote(pattern), err)
		}
		if !slices.Contains(out, pattern) {
			out = append(out, pattern)
		}
	}
	return out, nil
}

// Exact returns the pattern that matches one name alone. The kernel lets a link be called "d*".
func Exact(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

func checkPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("malformed: each [ needs its ], with something between them")
	}
	switch {
	case pattern == "":
		return fmt.Errorf("empty, want a name like eth0 or a pattern like bond0*")
	case strings.ContainsFunc(pattern, func(r rune) bool { return blank(r) || unicode.IsControl(r) }):
		return fmt.Errorf("holds a blank, which no interface name does")
	case strings.Contains(pattern, "/"):
		return fmt.Errorf("holds a '/', which no interface name does")
	case strings.HasSuffix(pattern, "+"):
		return fmt.Errorf("'+' is what iptables writes for the rest of a name; write %s*", strings.TrimSuffix(pattern, "+"))
	case strings.Contains(pattern, "[!"):
		return fmt.Errorf("'[!' does not exclude here; write '[^'")
	case strings.ContainsAny(pattern, `*?[\`):
		return nil
	case strings.Contains(pattern, ":"):
		name, _, _ := strings.Cut(pattern, ":")
		return fmt.Errorf("holds a ':', so it is the label of an address; write the interface, %q", name)
	case len(pattern) > longestName:
		return fmt.Errorf("longer than the %d characters an interface name can have", longestName)
	}
	return nil
}
