package inject

import (
	"fmt"
	"maps"
	"slices"
)

// Mutate returns the object with the fence in it, or as it was where it has one or is to be left alone. The object is the decoded JSON
// of a Deployment, StatefulSet or Pod; it is not modified. An error means that the object must not be used: it cannot be fenced as
// it stands, or says something about the fence that cannot be understood.
func Mutate(object map[string]any, o Options) (Result, error) {
	if !supported(object) {
		return alone(object, OtherKind, fmt.Sprintf("%s is neither Deployment, StatefulSet nor Pod", text(object, "kind"))), nil
	}
	copied := clone(object).(map[string]any)
	w, err := open(copied, o.Namespace)
	if err != nil {
		return Result{}, err
	}
	result, err := w.mutate(o)
	if err != nil {
		return Result{}, fmt.Errorf("%s %s: %w", w.kind, w.name, err)
	}
	if result.Outcome == LeftAlone {
		result.Object = clone(object).(map[string]any)
		return result, nil
	}
	w.close()
	result.Object = copied
	if same(copied, object) {
		result.Outcome, result.Message = Unchanged, "has the fence already"
	}
	return result, nil
}

func alone(object map[string]any, why Reason, message string) Result {
	r := Result{Outcome: LeftAlone, Reason: why, Message: message}
	if object != nil {
		r.Object = clone(object).(map[string]any)
	}
	return r
}

func (w *workload) mutate(o Options) (Result, error) {
	wanted, declined, err := w.asked()
	if err != nil {
		return Result{}, err
	}
	why := w.why(wanted)
	if declined && why == "" {
		why = OptedOut
	}
	if why != "" {
		return w.refrain(why, wanted), nil
	}
	before, err := w.mark()
	if err != nil {
		return Result{}, err
	}
	if names := w.clash(); before == nil && names != "" {
		return Result{}, fmt.Errorf("%s: has a name that routefence needs, and was not made by it (no annotation %s on the pod): "+
			"rename or remove it, or set %s: \"false\"", names, MarkKey, InjectKey)
	}
	s, err := w.settle(o)
	if err != nil {
		return Result{}, err
	}
	if !s.known.any && s.Source == PodSource {
		r := w.refrain(NoNetworks, wanted)
		r.Warnings = append(s.warnings, r.Warnings...)
		return r, nil
	}
	s.doubts()
	w.fence(s)
	return Result{Outcome: Injected, Message: "fenced from before its first other container", Warnings: s.warnings}, nil
}

// fence puts containers, volumes and marks into the pod.
func (w *workload) fence(s *settings) {
	first, beside := s.agent(), map[string]any(nil)
	if s.Form == Pair {
		first, beside = s.installer(), first
	}
	w.inits = slices.Concat([]map[string]any{merge(w.inits, first)}, theirs(w.inits))
	w.containers = w.place(beside)
	w.volumes = mergeVolumes(w.volumes, s.volumes())
	if s.Source == APISource {
		w.allow()
	}
	child(w.meta, "annotations")[MarkKey] = s.mark.String()
}

// theirs returns the containers that are not ours.
func theirs(all []map[string]any) []map[string]any {
	return slices.DeleteFunc(slices.Clone(all), ourContainer)
}

// place returns the containers with ours where it is already, else at the end: others index the first. Nil takes it out.
func (w *workload) place(ours map[string]any) []map[string]any {
	out := slices.Clone(w.containers)
	if i := named(out, containerName); ours != nil && i >= 0 {
		out[i] = merge(out, ours)
		return out
	}
	out = theirs(out)
	if ours != nil {
		out = append(out, ours)
	}
	return out
}

// merge returns our container with what others have put into the one that is there: fields that we know nothing of, variables
// and mounts.
func merge(all []map[string]any, ours map[string]any) map[string]any {
	i := named(all, text(ours, "name"))
	if i < 0 {
		return ours
	}
	out := maps.Clone(all[i])
	for _, name := range []string{"command", "ports", "startupProbe", "readinessProbe", "livenessProbe", "restartPolicy", "lifecycle", "workingDir"} {
		delete(out, name)
	}
	env := keep(out, "env", func(v map[string]any) bool { return !slices.Contains(ourEnv, text(v, "name")) })
	mounts := keep(out, "volumeMounts", func(v map[string]any) bool { return !ourVolume(v) })
	delete(out, "env")
	delete(out, "volumeMounts")
	maps.Copy(out, ours)
	for name, more := range map[string][]any{"env": env, "volumeMounts": mounts} {
		if len(more) > 0 {
			mine, _ := out[name].([]any)
			out[name] = slices.Concat(mine, more)
		}
	}
	return out
}

// keep returns the items of a list that are to stay.
func keep(c map[string]any, name string, stays func(map[string]any) bool) []any {
	all, err := objects(c, "", name)
	if err != nil {
		return nil
	}
	return list(slices.DeleteFunc(all, func(m map[string]any) bool { return !stays(m) }))
}
