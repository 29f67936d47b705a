package inject

import (
	"fmt"
	"slices"
	"strings"
)

// role is what a pod is to the VPN.
type role int

const (
	// stranger pods have nothing to do with it, as far as can be seen.
	stranger role = iota
	apiServer
	vpnServer
)

// workload is an object, and the pod that it makes.
type workload struct {
	kind, name, namespace string
	// object and meta are the metadata of the object and of its pods; those of a Pod are the same.
	object, meta map[string]any
	spec         map[string]any
	// at is the path of spec, for messages.
	at string
	// inits, containers and volumes are the lists of spec; mutate sets them there again.
	inits, containers, volumes []map[string]any
}

// kinds are what pods are found in, with the API group.
var kinds = map[string]string{"Deployment": "apps/", "StatefulSet": "apps/", "Pod": "v1"}

// supported reports whether the object is of a kind that can be fenced.
func supported(object map[string]any) bool {
	group, ok := kinds[text(object, "kind")]
	return ok && strings.HasPrefix(text(object, "apiVersion"), group)
}

// open finds the pod in an object of a supported kind.
func open(object map[string]any, namespace string) (*workload, error) {
	w := &workload{kind: text(object, "kind"), at: "spec"}
	pod, at := object, ""
	if w.kind != "Pod" {
		outer, err := field(object, "", "spec")
		if err != nil {
			return nil, err
		}
		if pod, err = field(outer, "spec", "template"); err != nil {
			return nil, err
		}
		at, w.at = "spec.template", "spec.template.spec"
	}
	var err error
	if w.spec, err = field(pod, at, "spec"); err != nil {
		return nil, err
	}
	if w.spec == nil {
		return nil, fmt.Errorf("%s: is missing", w.at)
	}
	if w.object, err = metadata(object, ""); err != nil {
		return nil, err
	}
	if w.meta, err = metadata(pod, at); err != nil {
		return nil, err
	}
	w.name, w.namespace = text(w.object, "name"), text(w.object, "namespace")
	if w.name == "" {
		w.name = text(w.object, "generateName")
	}
	if w.namespace == "" {
		w.namespace = namespace
	}
	return w, w.lists()
}

// metadata returns an object's, made if it is absent.
func metadata(of map[string]any, at string) (map[string]any, error) {
	meta, err := field(of, at, "metadata")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"annotations", "labels"} {
		if _, err := field(meta, "metadata", name); err != nil {
			return nil, err
		}
	}
	return child(of, "metadata"), nil
}

func (w *workload) lists() (err error) {
	if w.inits, err = objects(w.spec, w.at, "initContainers"); err != nil {
		return err
	}
	if w.containers, err = objects(w.spec, w.at, "containers"); err != nil {
		return err
	}
	w.volumes, err = objects(w.spec, w.at, "volumes")
	return err
}

// close puts the lists back.
func (w *workload) close() {
	put := func(name string, all []map[string]any) {
		if _, had := w.spec[name]; had || len(all) > 0 {
			w.spec[name] = list(all)
		}
	}
	put("initContainers", w.inits)
	put("containers", w.containers)
	put("volumes", w.volumes)
}

// label returns a label of the pods.
func (w *workload) label(name string) string {
	labels, _ := w.meta["labels"].(map[string]any)
	return text(labels, name)
}

// everybody returns all containers but ours.
func (w *workload) everybody() []map[string]any {
	return slices.DeleteFunc(slices.Concat(w.inits, w.containers), func(c map[string]any) bool { return ourContainer(c) })
}

// role is told by the labels that gardenlet's own selectors use.
func (w *workload) role() role {
	switch {
	case w.label("app") == "kubernetes" && w.label("role") == "apiserver":
		return apiServer
	case w.label("app") == "vpn-seed-server":
		return vpnServer
	}
	return stranger
}

// vpn reports whether a kube-apiserver has a VPN: through a proxy that an egress selector names, or by containers of its own.
func (w *workload) vpn() bool {
	return slices.ContainsFunc(w.everybody(), func(c map[string]any) bool {
		name := text(c, "name")
		return strings.HasPrefix(name, "vpn-client") || name == "vpn-path-controller" ||
			slices.ContainsFunc(slices.Concat(words(c, "command"), words(c, "args")), func(arg string) bool {
				return strings.HasPrefix(arg, "--egress-selector-config-file")
			})
	})
}

// translated reports whether the VPN in this pod rewrites node addresses in nat OUTPUT: only envoy's are.
func (w *workload) translated() bool {
	return slices.ContainsFunc(w.everybody(), func(c map[string]any) bool { return c["name"] == "envoy-proxy" })
}

// why returns the reason to leave the pod alone, empty if there is none. wanted says that somebody asks for the fence by name.
func (w *workload) why(wanted bool) Reason {
	if w.object["deletionTimestamp"] != nil {
		return Deleted
	}
	if !wanted {
		if why := w.whyNot(); why != "" {
			return why
		}
	}
	if w.spec["hostNetwork"] == true {
		return HostNetwork
	}
	return ""
}

// whyNot is why for pods that nobody asks to fence.
func (w *workload) whyNot() Reason {
	switch w.role() {
	case vpnServer:
		return ""
	case apiServer:
		return w.whyNotAPIServer()
	}
	return NotControlPlane
}

func (w *workload) whyNotAPIServer() Reason {
	switch {
	case strings.HasPrefix(w.name, "virtual-garden-"), w.namespace == "garden":
		return VirtualGarden
	case w.namespace == "kube-system", w.static():
		return SelfHosted
	case !w.vpn():
		return NoVPN
	}
	return ""
}

// static reports whether a kubelet made the pod of a file.
func (w *workload) static() bool {
	annotations, _ := w.meta["annotations"].(map[string]any)
	source := text(annotations, "kubernetes.io/config.source")
	return annotations["kubernetes.io/config.mirror"] != nil || source != "" && source != "api"
}
