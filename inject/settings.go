package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/routefence/routefence/policy"
)

// settings are all that decides what the containers look like.
type settings struct {
	Options
	known     known
	role      role
	resources resources
	// mark is what goes to MarkKey, and image what the container gets: somebody may have changed it since.
	mark  mark
	image string
	port  int
	// raw says that legacy iptables is read or written.
	raw bool
	// allow and replies are the agent's flags of these names, empty for its defaults.
	allow, replies string
	// configMap and key are empty unless Source is a ConfigMap.
	configMap, key string
	warnings       []string
}

func (s *settings) warn(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// settle joins options, annotations and what the pod has.
func (w *workload) settle(o Options) (*settings, error) {
	s := &settings{Options: o, role: w.role(), known: w.learn(o)}
	s.warnings = append(s.warnings, s.known.warnings...)
	said, warnings := w.said()
	s.warnings = append(s.warnings, warnings...)
	s.hear(said)
	if err := s.check(said); err != nil {
		return nil, err
	}
	if err := s.follow(w, said); err != nil {
		return nil, err
	}
	if err := s.fill(w, said); err != nil {
		return nil, err
	}
	s.raw = s.Firewall == "legacy" || s.Firewall != "nft" && w.translated()
	s.port = w.freePort()
	if s.port != defaultPort {
		s.warn("port %d is another container's, so routefence listens on %d", defaultPort, s.port)
	}
	return s, nil
}

// hear takes over what annotations say.
func (s *settings) hear(said map[string]string) {
	for key, to := range map[string]*string{imageKey: &s.Image, logLevelKey: &s.LogLevel, readyWhenKey: &s.ReadyWhen, sourceKey: (*string)(&s.Source),
		allowKey: &s.allow, repliesKey: &s.replies} {
		if v, ok := said[key]; ok {
			*to = v
		}
	}
}

// OptionError says which option cannot be: by its name, or that of the annotation that it comes from.
type OptionError struct {
	Option, Value string
	Err           error
}

func (e *OptionError) Error() string { return fmt.Sprintf("%s=%s: %v", e.Option, e.Value, e.Err) }

// Unwrap returns what is wrong.
func (e *OptionError) Unwrap() error { return e.Err }

// Check reports what is wrong with options by themselves, before there is an object, as an OptionError.
func Check(o Options) error {
	s := &settings{Options: o}
	if err := s.check(nil); err != nil {
		return err
	}
	if err := s.follow(&workload{namespace: "any"}, nil); err != nil {
		return err
	}
	_, err := o.Resources.tree().over(DefaultResources.tree()).canonical()
	return err
}

// bad returns the error for an option of that name, or for the annotation that stands for it.
func bad(said map[string]string, name, value, format string, args ...any) error {
	if _, ok := said[prefix+name]; ok {
		name = "annotation " + prefix + name
	}
	return &OptionError{name, value, fmt.Errorf(format, args...)}
}

// check refuses what the agent would refuse: better here than in a container that never starts.
func (s *settings) check(said map[string]string) error {
	for _, c := range []struct {
		name, value string
		choices     []string
	}{
		{"log-level", s.LogLevel, []string{"debug", "info", "warn", "error"}},
		{"ready-when", s.ReadyWhen, []string{"fenced", "tunneled"}},
		{"replies", s.replies, []string{"auto", "on", "off"}},
		{"firewall", s.Firewall, []string{"auto", "nft", "legacy"}},
		{"form", string(s.Form), []string{string(NativeSidecar), string(Pair)}},
		{"image-pull-policy", s.PullPolicy, []string{"Always", "IfNotPresent", "Never"}},
	} {
		if c.value != "" && !slices.Contains(c.choices, c.value) {
			return bad(said, c.name, c.value, "want one of %s", strings.Join(c.choices, ", "))
		}
	}
	if s.Image == "" || strings.ContainsFunc(s.Image, unicode.IsSpace) {
		return bad(said, "image", s.Image, "want the reference of routefence's image")
	}
	if _, err := policy.ParseAllow(s.allow); err != nil {
		return bad(said, "allow", s.allow, "%w", err)
	}
	if s.ReadyWhen == "tunneled" && s.role == apiServer {
		s.ReadyWhen = ""
		s.warn("a kube-apiserver is ready when fenced: the VPN's other end starts through it, and waiting for it would be a deadlock")
	}
	return nil
}

// follow checks the source.
func (s *settings) follow(w *workload, said map[string]string) error {
	name, isMap := strings.CutPrefix(string(s.Source), ConfigMapSource)
	switch {
	case s.Source == "" || s.Source == PodSource:
		s.Source = PodSource
	case s.Source == APISource:
		if s.Cluster == "" {
			s.Cluster = w.namespace
		}
		if s.Cluster == "" {
			return bad(said, "source", string(s.Source), "it is not known which Cluster to watch, as the object names no namespace")
		}
		s.warn("source api: the pod's ServiceAccount %s needs get, list and watch on Cluster %s (manifests/api-source.yaml)", w.account(), s.Cluster)
	case isMap:
		s.configMap, s.key, isMap = strings.Cut(name, "/")
		if !isMap {
			s.key = DefaultKey
		}
		if s.configMap == "" || s.key == "" || strings.Contains(s.key, "/") {
			return bad(said, "source", string(s.Source), "want %sNAME or %sNAME/KEY", ConfigMapSource, ConfigMapSource)
		}
	default:
		return bad(said, "source", string(s.Source), "want %s, %s, %sNAME or %sNAME/KEY", PodSource, APISource, ConfigMapSource, ConfigMapSource)
	}
	return nil
}

// fill decides image and resources: annotations first, then what somebody changed in the container, then the options.
func (s *settings) fill(w *workload, said map[string]string) error {
	var asked resources
	var err error
	if value, ok := said[resourcesKey]; ok {
		if asked, err = parseResources(value); err != nil {
			return &OptionError{"annotation " + resourcesKey, value, err}
		}
	}
	s.mark = mark{Image: s.Image, Resources: asked.over(s.Options.Resources.tree()).over(DefaultResources.tree())}
	if s.mark.Resources, err = s.mark.Resources.canonical(); err != nil {
		if value, ok := said[resourcesKey]; ok {
			return &OptionError{"annotation " + resourcesKey, value, err}
		}
		return err
	}
	s.image, s.resources = s.mark.Image, s.mark.Resources
	before, err := w.mark()
	if before == nil || err != nil {
		return err
	}
	current := w.current()
	if image := text(current, "image"); said[imageKey] == "" && image != "" && image != before.Image {
		s.image = image
	}
	theirs := resourcesOf(current).changed(before.Resources)
	if s.resources, err = asked.over(theirs).over(s.mark.Resources).canonical(); err != nil {
		return fmt.Errorf("resources of container %s: %w", containerName, err)
	}
	return nil
}

// resourcesOf reads a container's; what is no quantity is passed over.
func resourcesOf(container map[string]any) (out resources) {
	data, err := json.Marshal(container["resources"])
	if err != nil || json.Unmarshal(data, &out) != nil {
		return resources{}
	}
	return out
}

// strict reads JSON of which every field must be known.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more behind the object")
	}
	return nil
}

// account is the pod's ServiceAccount.
func (w *workload) account() string {
	if name := text(w.spec, "serviceAccountName"); name != "" {
		return name
	}
	return "default"
}
