package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Kind is what can be watched.
type Kind string

// The kinds, as --shoot writes them. An Infrastructure is watched beside its Cluster and cannot be asked for.
const (
	Cluster        Kind = "cluster"
	Shoot          Kind = "shoot"
	Infrastructure Kind = "infrastructure"
)

// resource is how the API calls a kind.
type resource struct{ group, version, plural, kind string }

var resources = map[Kind]resource{
	Cluster:        {"extensions.gardener.cloud", "v1alpha1", "clusters", "Cluster"},
	Shoot:          {"core.gardener.cloud", "v1beta1", "shoots", "Shoot"},
	Infrastructure: {"extensions.gardener.cloud", "v1alpha1", "infrastructures", "Infrastructure"},
}

// Ref is one object.
type Ref struct {
	Kind            Kind
	Namespace, Name string
}

// name is what the API server takes for the name of an object or a namespace.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// ParseRef reads cluster/NAME or shoot/NAMESPACE/NAME.
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, "/")
	for _, p := range parts[1:] {
		if !name.MatchString(p) || len(p) > 253 {
			return Ref{}, fmt.Errorf("%q is no name of a Kubernetes object", p)
		}
	}
	switch {
	case parts[0] == string(Cluster) && len(parts) == 2:
		return Ref{Kind: Cluster, Name: parts[1]}, nil
	case parts[0] == string(Shoot) && len(parts) == 3:
		return Ref{Kind: Shoot, Namespace: parts[1], Name: parts[2]}, nil
	}
	return Ref{}, errors.New("want cluster/NAME or shoot/NAMESPACE/NAME")
}

func (r Ref) String() string {
	parts := []string{string(r.Kind), r.Namespace, r.Name}
	if r.Namespace == "" {
		parts = []string{string(r.Kind), r.Name}
	}
	return strings.TrimSuffix(strings.Join(parts, "/"), "/")
}

func (r Ref) path() string {
	res := resources[r.Kind]
	path := "/apis/" + res.group + "/" + res.version
	if r.Namespace != "" {
		path += "/namespaces/" + r.Namespace
	}
	return path + "/" + res.plural
}

// query selects the one object. RBAC grants list and watch with this selector to who may read it by resourceNames, and the API
// server answers it with a read of one key.
func (r Ref) query() url.Values {
	return url.Values{"fieldSelector": {"metadata.name=" + r.Name}}
}

// key names the object in the cache. An Infrastructure has no name yet when its entry is read, and its namespace holds one only.
func (r Ref) key() string {
	if r.Kind == Infrastructure {
		r.Name = ""
	}
	return r.String()
}
