package inject

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The names of what is ours in a pod. Volumes begin with containerName as well.
const (
	containerName = "routefence"
	initName      = "routefence-init"
	defaultPort   = 9604
)

func ourContainer(c map[string]any) bool { return c["name"] == containerName || c["name"] == initName }

// agent is the container that keeps the fence, complete with all that the API server would fill in: what it has to add would be a
// difference at the next look.
func (s *settings) agent() map[string]any {
	c := s.container(containerName, "run")
	c["ports"] = []any{map[string]any{"name": containerName, "containerPort": int64(s.port), "protocol": "TCP"}}
	// As soon as the fence stands the others may start. What keeps it from standing, a restart does not cure, so there is ample time.
	c["startupProbe"] = probe("/startupz", 1, 5, 300)
	// A flap takes an API server out of its Service, so one slow answer is none.
	c["readinessProbe"] = probe("/readyz", 5, 5, 3)
	c["livenessProbe"] = probe("/healthz", 10, 10, 3)
	if s.Form != Pair {
		c["restartPolicy"] = "Always"
	}
	return c
}

// installer is the one that puts up the fence and ends.
func (s *settings) installer() map[string]any { return s.container(initName, "init") }

func (s *settings) container(name, command string) map[string]any {
	c := map[string]any{
		"name":                     name,
		"image":                    s.image,
		"imagePullPolicy":          cmp.Or(s.PullPolicy, "IfNotPresent"),
		"args":                     []any{command},
		"env":                      s.env(),
		"resources":                s.resourceTree(),
		"securityContext":          s.securityContext(),
		"terminationMessagePath":   "/dev/termination-log",
		"terminationMessagePolicy": "FallbackToLogsOnError",
	}
	if mounts := s.mounts(); len(mounts) > 0 {
		c["volumeMounts"] = mounts
	}
	return c
}

func probe(path string, period, timeout, failures int64) map[string]any {
	return map[string]any{
		"httpGet":          map[string]any{"path": path, "port": containerName, "scheme": "HTTP"},
		"periodSeconds":    period,
		"timeoutSeconds":   timeout,
		"failureThreshold": failures,
		"successThreshold": int64(1),
	}
}

// securityContext is complete, as the pod's own would fill the gaps: kube-apiserver pods run as user 65532, for whom capabilities
// have no effect.
func (s *settings) securityContext() map[string]any {
	add := []any{"NET_ADMIN"}
	if s.raw {
		add = append(add, "NET_RAW")
	}
	return map[string]any{
		"allowPrivilegeEscalation": false,
		"capabilities":             map[string]any{"add": add, "drop": []any{"ALL"}},
		"privileged":               false,
		"readOnlyRootFilesystem":   true,
		"runAsGroup":               int64(0),
		"runAsNonRoot":             false,
		"runAsUser":                int64(0),
		"seccompProfile":           map[string]any{"type": "RuntimeDefault"},
	}
}

func (s *settings) resourceTree() map[string]any {
	tree := func(q quantities) map[string]any {
		return map[string]any{"cpu": string(q.CPU), "memory": string(q.Memory)}
	}
	return map[string]any{"limits": tree(s.resources.Limits), "requests": tree(s.resources.Requests)}
}

// ourEnv are all variables that env may write. Others in our container are somebody else's, and stay.
var ourEnv = []string{
	"HOST_IP", "POD_IP", "POD_NAME", "POD_NAMESPACE", "POD_UID", "SHOOT_NODE_NETWORKS", "ROUTEFENCE_NODE_NETWORKS", "ROUTEFENCE_SHOOT",
	"ROUTEFENCE_CACHE_DIR", "ROUTEFENCE_SHOOT_FILE", "ROUTEFENCE_TUNNEL_INTERFACES", "ROUTEFENCE_FIREWALL", "ROUTEFENCE_READY_WHEN",
	"ROUTEFENCE_LOG_LEVEL", "ROUTEFENCE_LISTEN", "ROUTEFENCE_ALLOW", "ROUTEFENCE_REPLIES",
}

// env configures the agent: variables, not flags, so that "kubectl exec" of routefence's other commands has the same.
func (s *settings) env() []any {
	out := []any{
		fact("HOST_IP", "status.hostIP"), fact("POD_IP", "status.podIP"), fact("POD_NAME", "metadata.name"),
		fact("POD_NAMESPACE", "metadata.namespace"), fact("POD_UID", "metadata.uid"),
	}
	if s.known.variable != nil {
		v := clone(s.known.variable).(map[string]any)
		v["name"] = "SHOOT_NODE_NETWORKS"
		out = append(out, v)
	}
	for _, f := range s.flags() {
		if f.value != f.standard {
			out = append(out, map[string]any{"name": "ROUTEFENCE_" + f.name, "value": f.value})
		}
	}
	return out
}

// flag is one of the agent's, with what it is if nobody gives it.
type flag struct{ name, value, standard string }

func (s *settings) flags() []flag {
	out := []flag{
		{"NODE_NETWORKS", join(s.known.more), ""},
		{"ALLOW", s.allow, ""},
		{"REPLIES", cmp.Or(s.replies, "auto"), "auto"},
		{"FIREWALL", cmp.Or(s.Firewall, "auto"), "auto"},
		{"READY_WHEN", cmp.Or(s.ReadyWhen, "fenced"), "fenced"},
		{"LOG_LEVEL", cmp.Or(s.LogLevel, "info"), "info"},
		{"LISTEN", ":" + strconv.Itoa(s.port), ":" + strconv.Itoa(defaultPort)},
	}
	if s.role == vpnServer {
		// In a highly available VPN the server's device is tap0.
		out = append(out, flag{"TUNNEL_INTERFACES", "tun0,tap0", ""})
	}
	if s.Source == APISource {
		out = append(out, flag{"SHOOT", "cluster/" + s.Cluster, ""}, flag{"CACHE_DIR", cacheDir, ""})
	}
	if s.configMap != "" {
		out = append(out, flag{"SHOOT_FILE", configDir + "/" + s.key, ""})
	}
	return out
}

// fact is a variable with what Kubernetes knows of the pod.
func fact(name, path string) map[string]any {
	return map[string]any{"name": name, "valueFrom": map[string]any{"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": path}}}
}

func join(networks []netip.Prefix) string {
	out := make([]string, len(networks))
	for i, p := range networks {
		out[i] = p.String()
	}
	return strings.Join(out, ",")
}

// freePort returns the first port from defaultPort on that no other container says it has.
func (w *workload) freePort() int {
	taken := map[float64]bool{}
	for _, c := range w.everybody() {
		ports, err := objects(c, "", "ports")
		if err != nil {
			continue // not ours to judge; the API server will
		}
		for _, p := range ports {
			if n, ok := number(p["containerPort"]); ok {
				taken[n] = true
			}
		}
	}
	port := defaultPort
	for taken[float64(port)] {
		port++
	}
	return port
}

// current returns our container as it is, nil if there is none.
func (w *workload) current() map[string]any {
	all := slices.Concat(w.inits, w.containers)
	if i := named(all, containerName); i >= 0 {
		return all[i]
	}
	return nil
}
