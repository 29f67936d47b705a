package inject

import (
	"slices"
	"strings"
)

// Where volumes are mounted in our containers.
const (
	runDir    = "/run" // the lock file of legacy iptables
	cacheDir  = "/var/cache/routefence"
	configDir = "/etc/routefence"
	tokenDir  = "/var/run/secrets/kubernetes.io/serviceaccount"
)

const (
	runVolume    = containerName + "-run"
	cacheVolume  = containerName + "-cache"
	configVolume = containerName + "-nodes"
	tokenVolume  = containerName + "-token"
)

var ourVolumes = []string{runVolume, cacheVolume, configVolume, tokenVolume}

func ourVolume(v map[string]any) bool { return slices.Contains(ourVolumes, text(v, "name")) }

// volumes are those that the agent cannot do without on a root file system that is read-only.
func (s *settings) volumes() []map[string]any {
	var out []map[string]any
	if s.raw {
		out = append(out, map[string]any{"name": runVolume, "emptyDir": map[string]any{"sizeLimit": "1Mi"}})
	}
	if s.configMap != "" {
		// Without the ConfigMap the agent starts with the networks that it knows, and says what is missing. The pod would just hang.
		out = append(out, map[string]any{"name": configVolume, "configMap": map[string]any{
			"name": s.configMap, "optional": true, "defaultMode": int64(0o644),
		}})
	}
	if s.Source == APISource {
		out = append(out, map[string]any{"name": tokenVolume, "projected": map[string]any{
			"defaultMode": int64(0o644),
			"sources": []any{
				map[string]any{"serviceAccountToken": map[string]any{"expirationSeconds": int64(3600), "path": "token"}},
				map[string]any{"configMap": map[string]any{
					"name": "kube-root-ca.crt", "items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}},
				}},
			},
		}}, map[string]any{"name": cacheVolume, "emptyDir": map[string]any{"sizeLimit": "10Mi"}})
	}
	return out
}

func (s *settings) mounts() []any {
	var out []any
	for _, v := range s.volumes() {
		m := map[string]any{"name": v["name"]}
		switch v["name"] {
		case runVolume:
			m["mountPath"] = runDir
		case cacheVolume:
			m["mountPath"] = cacheDir
		case configVolume:
			m["mountPath"], m["readOnly"] = configDir, true
		case tokenVolume:
			m["mountPath"], m["readOnly"] = tokenDir, true
		}
		out = append(out, m)
	}
	return out
}

// mergeVolumes puts ours among the others: where they stand already, else at the end.
func mergeVolumes(all, ours []map[string]any) []map[string]any {
	var out []map[string]any
	for _, v := range all {
		if !ourVolume(v) {
			out = append(out, v)
		} else if i := named(ours, text(v, "name")); i >= 0 {
			out = append(out, ours[i])
		}
	}
	for _, v := range ours {
		if named(out, text(v, "name")) < 0 {
			out = append(out, v)
		}
	}
	return out
}

// allow opens the way to the seed's API server in Gardener's network policies, and nothing else.
func (w *workload) allow() {
	child(w.meta, "labels")["networking.gardener.cloud/to-runtime-apiserver"] = "allowed"
}

// clash names what has our names and is not ours.
func (w *workload) clash() string {
	var found []string
	for _, c := range slices.Concat(w.inits, w.containers) {
		if ourContainer(c) {
			found = append(found, "container "+text(c, "name"))
		}
	}
	for _, v := range w.volumes {
		if ourVolume(v) {
			found = append(found, "volume "+text(v, "name"))
		}
	}
	return strings.Join(found, ", ")
}
