// Package shoot turns what a cluster says about itself into its node networks: bytes of a Shoot, Cluster or Infrastructure
// object, or of a plain list of networks. It reads only the few fields it needs, so newer versions and unknown fields do
// not matter, and it owns the rule when less than before may be believed.
package shoot

import (
	"net/netip"
	"slices"
	"time"
)

// Reading is what one statement of a source said.
type Reading struct {
	// Networks are the node networks named, canonical and each once, in the order in which they were named.
	Networks []netip.Prefix
	// Warnings tell of input that was understood but should be written differently.
	Warnings []string
	// Problems are bad items. The good ones stand in Networks all the same.
	Problems []error
	// Kind is what was read: "Shoot", "Cluster", "Infrastructure" or "list"; several are joined by "+".
	Kind string
	// Fields are the places that named a network.
	Fields []Field
	// Truncated is a hint that the end may be missing: block-style YAML whose last line is not closed. The format has no
	// closing mark of its own, so a cut object reads like a smaller whole one.
	Truncated bool
	// shape is what tells a whole object from one that was cut at the end of a line; see incomplete.
	shape shape
	// text is what was read, if it could have been cut without notice.
	text []byte
}

// Field is a place in an object that named a network.
type Field struct {
	// Object is kind, namespace and name, such as "Shoot garden-dev/one".
	Object string
	// Path is the field within the object, such as "status.networking.nodes".
	Path string
}

// Report is what a source says at the moment. It is a value; who holds one may keep it, but must not change its slices.
type Report struct {
	// Name is the kind of source, as in "shoot-file".
	Name string
	// Ref says which one: a path, or the name of an object.
	Ref string
	// Networks are the last good set, canonical and in order. Trouble never makes it smaller.
	Networks []netip.Prefix
	// Known reports that a good set has been read since the start.
	Known bool
	// Err is the trouble there is now, bad items included, or nil if the source is healthy.
	Err error
	// Away is why the source cannot be asked at the moment, while what it said last is Known and holds. It makes the source unhealthy
	// but leaves the fence beyond doubt; see docs/decisions. A source that is not Known says it in Err.
	Away error
	// Warnings do not make a source unhealthy.
	Warnings []string
	// LastChange is when Networks last changed.
	LastChange time.Time
}

// Same reports whether two reports of a source say the same. Errors are what they say: each try makes new ones.
func (r Report) Same(o Report) bool {
	return r.Known == o.Known && slices.Equal(r.Networks, o.Networks) && wording(r.Err) == wording(o.Err) && wording(r.Away) == wording(o.Away) &&
		slices.Equal(r.Warnings, o.Warnings)
}

func wording(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
