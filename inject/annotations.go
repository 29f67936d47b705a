package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What an object may say about its fence, as annotations of itself or of its pods; those of the pods win. gardenlet leaves the
// annotations of its Deployments and StatefulSets alone, and nothing else.
const (
	prefix = "routefence.io/"
	// InjectKey is "true" or "false", and may be a label as well, so that a webhook's selector can see it.
	InjectKey    = prefix + "inject"
	imageKey     = prefix + "image"
	resourcesKey = prefix + "resources"
	logLevelKey  = prefix + "log-level"
	readyWhenKey = prefix + "ready-when"
	sourceKey    = prefix + "source"
	allowKey     = prefix + "allow"
	repliesKey   = prefix + "replies"
	// MarkKey is written by Mutate to the pod's annotations. It says that the containers are ours, and what they were given, which
	// tells what somebody changed since.
	MarkKey = prefix + "injected"
)

// said returns what an object says, by key, with warnings of what means nothing.
func (w *workload) said() (out map[string]string, warnings []string) {
	out = map[string]string{}
	for _, meta := range []map[string]any{w.object, w.meta} {
		annotations, _ := meta["annotations"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if !strings.HasPrefix(key, prefix) {
				continue
			}
			switch key {
			case InjectKey, imageKey, resourcesKey, logLevelKey, readyWhenKey, sourceKey, allowKey, repliesKey:
				out[key] = text(annotations, key)
			case MarkKey:
			default:
				warnings = append(warnings, fmt.Sprintf("annotation %s means nothing to routefence", key))
			}
		}
	}
	return out, warnings
}

// asked reports whether the object asks for the fence by name, or declines it. To decline is the way out in an emergency, so it wins
// wherever it stands.
func (w *workload) asked() (wanted, declined bool, err error) {
	for _, meta := range []map[string]any{w.object, w.meta} {
		for _, in := range []string{"annotations", "labels"} {
			values, _ := meta[in].(map[string]any)
			v, ok := values[InjectKey]
			switch {
			case !ok:
			case v == "true":
				wanted = true
			case v == "false":
				declined = true
			default:
				return false, false, fmt.Errorf("%s[%s]=%v: want \"true\" or \"false\"", in, InjectKey, v)
			}
		}
	}
	return wanted, declined, nil
}

// mark is the content of MarkKey.
type mark struct {
	Image     string    `json:"image"`
	Resources resources `json:"resources"`
}

// mark returns nil if nobody has injected yet.
func (w *workload) mark() (*mark, error) {
	annotations, _ := w.meta["annotations"].(map[string]any)
	raw, ok := annotations[MarkKey]
	if !ok {
		return nil, nil
	}
	var m mark
	if err := json.Unmarshal([]byte(text(annotations, MarkKey)), &m); err != nil {
		return nil, fmt.Errorf("annotation %s=%v: is written by routefence itself, and cannot be read; remove it and the containers called %s and %s: %w",
			MarkKey, raw, containerName, initName, err)
	}
	return &m, nil
}

func (m mark) String() string {
	out, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings alone
	}
	return string(out)
}
