package check

import (
	"fmt"
	"strings"
)

var signs = map[Outcome]string{Passed: "√", Failed: "×", Warned: "‼", Skipped: "-"}

// String returns the report for people: the groups with a line for each check, hints under those that need one, and the diagnosis.
func (r Report) String() string {
	var b strings.Builder
	for _, g := range Groups {
		var lines []string
		for _, c := range r.Results {
			if c.Group == g {
				lines = append(lines, c.lines()...)
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "%s\n%s\n%s\n\n", g, strings.Repeat("-", len(g)), strings.Join(lines, "\n"))
		}
	}
	fmt.Fprintf(&b, "%s: %s\n", r.Diagnosis, r.Message)
	return b.String()
}

func (r Result) lines() []string {
	line := signs[r.Outcome] + " " + r.Name
	if r.Milliseconds > 0 {
		line += fmt.Sprintf(" (%d ms)", r.Milliseconds)
	}
	out := []string{line}
	if r.Message != "" {
		out = append(out, "    "+strings.ReplaceAll(r.Message, "\n", "\n    "))
	}
	if r.Hint != "" {
		out = append(out, "    hint: "+r.Hint)
	}
	return out
}
