package inject

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultResources hold ten thousand node networks and a change of all of them, even as plain rules, which is what there is without NET_RAW
// (TestTenThousandNetworks in test/image: up to 250 MiB; with sets 69 MiB).
var DefaultResources = Resources{CPURequest: "10m", CPULimit: "1", MemoryRequest: "32Mi", MemoryLimit: "384Mi"}

// resources are requests and limits in the form in which Kubernetes writes them.
type resources struct {
	Limits   quantities `json:"limits"`
	Requests quantities `json:"requests"`
}

type quantities struct {
	CPU    quantity `json:"cpu"`
	Memory quantity `json:"memory"`
}

// quantity is a number with a unit, empty for none. Kubernetes takes bare numbers as well.
type quantity string

// UnmarshalJSON implements json.Unmarshaler.
func (q *quantity) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		s = string(data)
	}
	*q = quantity(s)
	return nil
}

func (r Resources) tree() resources {
	return resources{
		Requests: quantities{quantity(r.CPURequest), quantity(r.MemoryRequest)},
		Limits:   quantities{quantity(r.CPULimit), quantity(r.MemoryLimit)},
	}
}

// values are the four, with their paths for messages.
func (r *resources) values() map[string]*quantity {
	return map[string]*quantity{
		"limits.cpu": &r.Limits.CPU, "limits.memory": &r.Limits.Memory,
		"requests.cpu": &r.Requests.CPU, "requests.memory": &r.Requests.Memory,
	}
}

// paths are in the order in which they are looked at, so that of two mistakes the same one is told each time.
var paths = []string{"limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}

// over returns r, and what o has for what r leaves open.
func (r resources) over(o resources) resources {
	below := o.values()
	for path, v := range r.values() {
		if *v == "" {
			*v = *below[path]
		}
	}
	return r
}

// canonical returns the values as Kubernetes writes them, so that equal ones are equal texts.
func (r resources) canonical() (resources, error) {
	parsed := map[string]resource.Quantity{}
	for _, path := range paths {
		v := r.values()[path]
		q, err := resource.ParseQuantity(string(*v))
		if err != nil || q.Sign() < 0 {
			return r, &OptionError{path, string(*v), errors.New("is not a quantity such as 100m or 64Mi")}
		}
		*v, parsed[path] = quantity(q.String()), q
	}
	for _, name := range []string{"cpu", "memory"} {
		request, limit := parsed["requests."+name], parsed["limits."+name]
		if request.Cmp(limit) > 0 {
			return r, &OptionError{"requests." + name, request.String(), fmt.Errorf("is more than limits.%s=%s; give both", name, &limit)}
		}
	}
	return r, nil
}

// changed returns those values of r that somebody set to something else than what was written.
func (r resources) changed(written resources) resources {
	before := written.values()
	for path, v := range r.values() {
		a, errA := resource.ParseQuantity(string(*v))
		b, errB := resource.ParseQuantity(string(*before[path]))
		if errA != nil || errB == nil && a.Cmp(b) == 0 {
			*v = ""
		}
	}
	return r
}

// parseResources reads the value of an annotation: what stands under "resources" of a container.
func parseResources(value string) (resources, error) {
	var r resources
	err := strict([]byte(value), &r)
	if err != nil {
		err = fmt.Errorf(`want JSON such as {"limits":{"memory":"64Mi"}}: %w`, err)
	}
	return r, err
}
