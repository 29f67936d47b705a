package inject

import "errors"

// Mutate returns the object with the fence in it, or as it was where it has one or is to be left alone. The object is the decoded JSON
// of a Deployment, StatefulSet or Pod; it is not modified. An error means that the object must not be used: it cannot be fenced as
// it stands, or says something about the fence that cannot be understood.
func Mutate(object map[string]any, o Options) (Result, error) {
	return Result{}, errors.New("not written yet")
}
