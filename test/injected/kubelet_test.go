package injected

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
	corev1 "k8s.io/api/core/v1"
)

// patience is how long the kubelet waits for what must come. It asserts nothing about speed.
const patience = 30 * time.Second

// kubelet starts the containers of one pod in the bench. Of the pod's own it runs routefence; each other container is somebody who
// tries to reach nodes from the moment at which it is started.
type kubelet struct {
	t *testing.T
	*rig.Rig
	spec corev1.PodSpec
	// agent is the container that runs on, and process its process.
	agent   corev1.Container
	process *rig.Process
	// host is the address that the kubelet has, and probes from.
	host netip.Addr
	// others are senders, one hammer for all containers that are not ours, since the first of them was started.
	others *rig.Hammer
	// ran are the names of the containers in the order in which they were started.
	ran []string
}

// newKubelet takes a workload of Gardener's with the bench's node networks, as Mutate makes it.
func newKubelet(t *testing.T, workload string, o inject.Options) *kubelet {
	t.Helper()
	o.Image = "routefence:test"
	nodes := rig.Network4.String() + "," + rig.Network6.String()
	object := gardener.Get(workload).Tree()
	template := object["spec"].(map[string]any)["template"].(map[string]any)
	for _, list := range []string{"initContainers", "containers"} {
		all, _ := template["spec"].(map[string]any)[list].([]any)
		for _, c := range all {
			env, _ := c.(map[string]any)["env"].([]any)
			for _, v := range env {
				if v := v.(map[string]any); v["name"] == "SHOOT_NODE_NETWORKS" {
					v["value"] = nodes
				}
			}
		}
	}
	if workload == "kube-apiserver" {
		o.Networks = append(o.Networks, rig.Network4, rig.Network6) // as the Cluster names them
	}
	r, err := inject.Mutate(object, o)
	if err != nil || r.Outcome != inject.Injected {
		t.Fatalf("%s %s: %v", r.Outcome, r.Message, err)
	}
	k := &kubelet{t: t, Rig: rig.New(t, rig.Options{}), spec: podSpec(t, r.Object)}
	k.live(netip.MustParseAddr("192.0.2.1"))
	return k
}

func podSpec(t *testing.T, object map[string]any) corev1.PodSpec {
	t.Helper()
	var o struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o.Spec.Template.Spec
}

// start is what the kubelet does with a new pod: init containers one after the other, each to its end, or if it is a sidecar until it has
// started; then all containers at once.
func (k *kubelet) start() {
	k.t.Helper()
	for _, c := range k.spec.InitContainers {
		k.ran = append(k.ran, c.Name)
		switch {
		case !strings.HasPrefix(c.Name, "routefence"):
			k.other()
		case c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways:
			k.run(c)
			k.await(k.agent.StartupProbe)
		default:
			if code, err := k.command(c).Wait(patience); err != nil || code != 0 {
				k.t.Fatalf("init container %s: exit code %d, %v", c.Name, code, err)
			}
		}
	}
	for _, c := range k.spec.Containers {
		k.ran = append(k.ran, c.Name)
		if strings.HasPrefix(c.Name, "routefence") {
			k.run(c)
		} else {
			k.other()
		}
	}
	if k.agent.Name == "" {
		k.t.Fatal("there is no agent among the containers")
	}
	k.await(k.agent.StartupProbe)
}

// other stands for any container that is not ours.
func (k *kubelet) other() {
	if k.others == nil {
		k.others = k.Hammer(rig.HammerRate)
	}
}

func (k *kubelet) run(c corev1.Container) {
	k.agent, k.process = c, k.command(c)
}

// live gives the kubelet's host an address, on the link to its pod's network.
func (k *kubelet) live(host netip.Addr) {
	k.host = host
	k.Net.IP("addr add " + host.String() + "/32 dev cali0")
}

// fact is what the kubelet tells a pod of itself.
func (k *kubelet) fact(path string) (string, bool) {
	fact, known := map[string]string{"status.hostIP": k.host.String(), "status.podIP": rig.Pod4.String(), "metadata.name": "pod-0",
		"metadata.namespace": "shoot--dev--one", "metadata.uid": "0b1b7c2e-0000-4000-8000-000000000000"}[path]
	return fact, known
}

// command runs a container's program with its arguments, environment and capabilities, and no others.
func (k *kubelet) command(c corev1.Container) *rig.Process {
	k.t.Helper()
	s := c.SecurityContext
	if len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || *s.RunAsUser != 0 || len(c.Command) > 0 {
		k.t.Fatalf("container %s is not what this kubelet can run: %+v", c.Name, c)
	}
	set := "-all"
	for _, name := range s.Capabilities.Add {
		set += ",+" + strings.ToLower(string(name))
	}
	cmd := exec.Command("setpriv", append([]string{"--no-new-privs", "--inh-caps=-all", "--bounding-set=" + set, "--", shipped.Binary}, c.Args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil {
			fact, known := k.fact(v.ValueFrom.FieldRef.FieldPath)
			if !known {
				k.t.Fatalf("the kubelet does not know %s", v.ValueFrom.FieldRef.FieldPath)
			}
			value = fact
		}
		cmd.Env = append(cmd.Env, v.Name+"="+value)
	}
	return k.Pod.StartCommand(cmd)
}

// probe asks as the kubelet does, from the host.
func (k *kubelet) probe(p *corev1.Probe) error {
	port := 0
	for _, named := range k.agent.Ports {
		if named.Name == p.HTTPGet.Port.StrVal {
			port = int(named.ContainerPort)
		}
	}
	client := &http.Client{Timeout: time.Duration(p.TimeoutSeconds) * time.Second, Transport: &http.Transport{DialContext: k.dial, DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("http://%s:%d%s", rig.Pod4, port, p.HTTPGet.Path))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says %s", p.HTTPGet.Path, response.Status)
	}
	return nil
}

// dial connects from the kubelet's address.
func (k *kubelet) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(k.host, 0))}
	err = k.Net.Do(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// await waits until a probe succeeds.
func (k *kubelet) await(p *corev1.Probe) {
	k.t.Helper()
	err := k.probe(p)
	for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); err = k.probe(p) {
		if !k.process.Running() {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		k.t.Fatalf("%s never succeeded: %v\nlog: %s", p.HTTPGet.Path, err, k.process.Output())
	}
}

// enough is how many attempts make an answer.
const enough = 300

// stop ends the senders once they have tried often enough, and expects that nothing of theirs left by eth0.
func (k *kubelet) stop(when string) rig.Totals {
	k.t.Helper()
	totals := k.count(when)
	if totals.Seed.Total() != 0 {
		k.t.Errorf("%s: packets left by eth0: %v", when, totals)
	}
	return totals
}

func (k *kubelet) count(when string) rig.Totals {
	k.t.Helper()
	if k.others == nil {
		k.t.Fatalf("%s: no other container was started; only %v", when, k.ran)
	}
	for deadline := time.Now().Add(patience); k.others.Attempts() < enough && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	totals := k.others.Stop()
	k.others = nil
	if totals.Attempts < enough {
		k.t.Errorf("%s: hardly anybody tried: %v", when, totals)
	}
	return totals
}
