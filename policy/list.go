package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// mostComplaints bounds what a list can complain about. A binary file taken for a list has a million bad items, and the
// first hundred say it all.
const mostComplaints = 100

// ParseList reads networks separated by commas, semicolons, blanks or line ends, with comments from '#' to the end of the
// line. Empty items are fine and repeated networks are given once, in the order in which they came first. A bad item is
// named in problems and costs nothing but itself.
func ParseList(text string) (prefixes []netip.Prefix, warnings []string, problems []error) {
	seen := make(map[netip.Prefix]bool)
	warned := make(map[string]bool)
	bad := 0
	for item := range strings.FieldsFuncSeq(withoutComments(text), separator) {
		p, warning, err := ParsePrefix(item)
		if err != nil {
			if bad++; bad <= mostComplaints {
				problems = append(problems, err)
			}
			continue
		}
		if warning != "" && !warned[warning] && len(warned) < mostComplaints {
			warned[warning] = true
			warnings = append(warnings, warning)
		}
		if !seen[p] {
			seen[p] = true
			prefixes = append(prefixes, p)
		}
	}
	if bad > mostComplaints {
		problems = append(problems, fmt.Errorf("and %d more items that are no networks", bad-mostComplaints))
	}
	return prefixes, warnings, problems
}

// ParseAllow reads the networks that stay reachable, a list as for ParseList in which every item must be good. Host bits are a mistake
// here: most likely one address was meant, and to clear them, as is done where that widens the fence, would open its whole network.
func ParseAllow(text string) ([]netip.Prefix, error) {
	prefixes, _, problems := ParseList(text)
	if len(problems) > 0 {
		return nil, problems[0]
	}
	for item := range strings.FieldsFuncSeq(withoutComments(text), separator) {
		written, err := netip.ParsePrefix(item)
		if err != nil || written == written.Masked() {
			continue
		}
		all, _ := canonical(written)
		one := written.Addr().Unmap()
		return nil, &InvalidNetworkError{item, fmt.Errorf("has host bits set; write %s to open all of it, or %s/%d to open that address alone",
			all, one, one.BitLen())}
	}
	return prefixes, nil
}

func withoutComments(text string) string {
	if !strings.Contains(text, "#") {
		return text
	}
	var out strings.Builder
	for text != "" {
		kept, comment, _ := strings.Cut(text, "#")
		out.WriteString(kept)
		end := strings.IndexAny(comment, "\r\n")
		if end < 0 {
			break
		}
		text = comment[end:]
	}
	return out.String()
}

func separator(r rune) bool { return r == ',' || r == ';' || blank(r) }

// blank knows the invisible characters that come along when networks are pasted from a web page or an editor on Windows:
// the byte order mark and the zero-width space besides what Unicode calls space, such as the non-breaking space.
func blank(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' || r == '\u200B' }
