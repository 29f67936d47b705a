// Package lint checks the networks of a Shoot: whether routefence can fence its nodes without doubt, and what to set where it cannot.
package lint

// Severity says how bad a finding is.
type Severity string

const (
	// Error is what makes the fence incomplete or breaks the VPN.
	Error Severity = "error"
	// Warning is what works, with a doubt or a price.
	Warning Severity = "warning"
)

// Finding is one thing that is wrong, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	// Field is the path within the Shoot, such as "spec.networking.nodes".
	Field string `json:"field"`
	// Message says what is wrong and what to set.
	Message string `json:"message"`
}

// Shoot checks the decoded JSON of a Shoot against the Seed it runs on, which may be nil if it is not known.
func Shoot(shoot, seed map[string]any) []Finding {
	return nil
}
