package policy

import "fmt"

// InvalidNetworkError says that something given as a node network cannot be one.
type InvalidNetworkError struct {
	// Item is what was given.
	Item string
	Err  error
}

func (e *InvalidNetworkError) Error() string { return fmt.Sprintf("%s: %v", quote(e.Item), e.Err) }

// Unwrap returns what is wrong with the item.
func (e *InvalidNetworkError) Unwrap() error { return e.Err }
