package shoot

import (
	"fmt"
	"strings"
)

// joined makes one error of several, or nil of none. Unlike errors.Join it keeps to one line and to the first few, as the
// text ends up in a log line and in the state.
func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return problems(errs)
}

type problems []error

func (p problems) Error() string {
	const most = 5
	var parts []string
	for i, err := range p {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(p)-most))
			break
		}
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, "; ")
}

func (p problems) Unwrap() []error { return p }
