package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routefence/routefence/test/gardener"
)

const (
	// shootNode is in the node network that the VPN containers of test/gardener have in their environment. The seed reaches it.
	shootNode      = "10.0.0.7"
	shootNamespace = "shoot--dev--one"
	fenceName      = "routefence"
)

// sidecar is a seed with one node, on which control plane pods run as the webhook makes them.
type sidecar struct {
	*lab
	deployment *appsv1.Deployment
	plain      *appsv1.Deployment
}

// TestSidecar has kube-apiserver pods of Gardener's on a real kubelet, injected by the real webhook that the real API server calls, from the
// image. In them every container but the fence tries to reach a node from its first instant on.
func TestSidecar(t *testing.T) {
	t.Parallel()
	s := &sidecar{lab: newCluster(t, variant{name: "sidecar", highlyAvailable: true}, map[string]string{fenceName: buildImage(t)})}
	s.prepareShootNode()
	s.startWebhook()
	s.injects()
	s.positiveControl()
	s.gates()
	s.starts("first")
	s.comesBack("first")
	s.reboots("first")
	s.rollsOut("first", "second")
}

// buildImage builds the image and returns its archive.
func buildImage(t *testing.T) string {
	t.Helper()
	scratch, dir := filepath.Join(programs.dir, "image"), filepath.Join(programs.dir, "archives")
	for _, path := range []string{scratch, dir} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("../image/within.sh", scratch, "../../image/build.sh", "routefence:test", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the image: %v\n%s", err, out)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*.tar"))
	if len(found) != 1 {
		t.Fatalf("archives of the image: %v", found)
	}
	return found[0]
}

// prepareShootNode puts a node behind the seed network, and counts what the seed's node lets out towards it.
func (s *sidecar) prepareShootNode() {
	s.world.gateway.IP("addr add " + shootNode + "/32 dev lo")
	s.world.router.IP("route add " + shootNode + " via " + gatewayIP + " dev cali-gate onlink")
	s.world.gateway.Start(programs.standin, "banner", "10250")
	s.world.router.Feed("table inet shoot {\ncounter to_nodes {}\nchain in {\ntype filter hook prerouting priority -450\n"+
		"iifname \"cali-node\" ip daddr 10.0.0.0/16 counter name to_nodes\n}\n}\n", "nft -f -")
}

// leaked returns what was counted since it was asked last.
func (s *sidecar) leaked() int { return readCounters(s.t, s.world.router, "shoot")["to_nodes"] }

const webhookService = "routefence-webhook"

// startWebhook installs what manifests/webhook does, but that the webhook is a process beside the API server.
func (s *sidecar) startWebhook() {
	ctx := context.Background()
	s.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", clusterCRD)
	for _, n := range []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: fenceName}},
		{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace, Labels: map[string]string{"gardener.cloud/role": "shoot"}}}} {
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, &n, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	wait(s.t, "Clusters are served", 30*time.Second, func() error { return s.try("/apis/extensions.gardener.cloud/v1alpha1/clusters", cluster) })
	meta := metav1.ObjectMeta{Name: webhookService, Labels: map[string]string{discoveryv1.LabelServiceName: webhookService}}
	_, err := s.client.CoreV1().Services(fenceName).Create(ctx, &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = s.client.DiscoveryV1().EndpointSlices(fenceName).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: meta,
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(9443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{apiserverIP}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = s.client.CoreV1().Secrets(fenceName).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: webhookService + "-ca"}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", string(read(s.t, "../../manifests/webhook/configuration.yaml")))
	path := filepath.Join(s.world.Dir, "webhook.kubeconfig")
	write(s.t, path, fmt.Sprintf(kubeconfig, "https://"+apiserverIP, s.pki(""), "admin"))
	s.world.apiserver.Start(programs.webhook, "serve", "--kubeconfig="+path, "--namespace="+fenceName, "--image=e2e.test/"+fenceName+":test-"+runtime.GOARCH,
		"--image-pull-policy=Never", "--bundle-settle=1s", "--webhook-log-format=console")
}

// cluster is what gardenlet leaves beside a control plane: the webhook looks at the Shoot in it.
const cluster = `{"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster", "metadata": {"name": "` + shootNamespace + `"}, "spec": {
"seed": {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "spec": {"networks": {"nodes": "172.18.0.0/16", "pods": "10.1.0.0/16", "services": "10.2.0.0/16"}}},
"shoot": {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "metadata": {"name": "one", "namespace": "garden-dev"},
"spec": {"provider": {"workers": [{"name": "one"}]}, "networking": {"nodes": "10.0.0.0/16", "pods": "` + podNetwork + `", "services": "` + serviceNetwork + `"}}}}}`

const clusterCRD = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "clusters.extensions.gardener.cloud"},
"spec": {"group": "extensions.gardener.cloud", "scope": "Cluster", "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
"versions": [{"name": "v1alpha1", "served": true, "storage": true,
"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

func (s *sidecar) post(path, object string) {
	s.t.Helper()
	if err := s.try(path, object); err != nil {
		s.t.Fatalf("create %s: %v", path, err)
	}
}

func (s *sidecar) try(path, object string) error {
	return s.client.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/yaml").Body([]byte(object)).Do(context.Background()).Error()
}

// injects creates Gardener's Deployment, whose containers are replaced, and keeps what the API server made of it.
func (s *sidecar) injects() {
	data, err := json.Marshal(gardener.Get("kube-apiserver-ha").Tree())
	if err != nil {
		s.t.Fatal(err)
	}
	s.plain = &appsv1.Deployment{}
	if err := json.Unmarshal(data, s.plain); err != nil {
		s.t.Fatal(err)
	}
	replaceContainers(&s.plain.Spec.Template.Spec)
	wait(s.t, "the webhook answers", 90*time.Second, func() (err error) {
		s.deployment, err = s.client.AppsV1().Deployments(shootNamespace).Create(context.Background(), s.plain, metav1.CreateOptions{})
		return err
	})
	first := s.deployment.Spec.Template.Spec.InitContainers[0]
	if first.Name != fenceName || first.RestartPolicy == nil || *first.RestartPolicy != corev1.ContainerRestartPolicyAlways || first.StartupProbe == nil {
		s.t.Fatalf("the first container is %+v", first)
	}
}

// replaceContainers leaves names, order, environment and capabilities; what was Gardener's program is a sender.
func replaceContainers(spec *corev1.PodSpec) {
	for _, all := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range all {
			c := &all[i]
			c.Image, c.ImagePullPolicy = image, corev1.PullNever
			c.Command, c.Args = []string{"/standin", "sender", shootNode + ":10250"}, nil
			c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
			c.VolumeMounts, c.Resources = nil, corev1.ResourceRequirements{}
		}
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Command = append(spec.InitContainers[i].Command, "10") // rounds, then it is done
	}
	spec.Volumes, spec.ServiceAccountName, spec.PriorityClassName = nil, "", ""
	spec.TerminationGracePeriodSeconds = new(int64(1))
}

// create makes a pod of a template, as the Deployment's controllers would.
func (s *sidecar) create(name string, from *appsv1.Deployment) {
	s.t.Helper()
	template := from.Spec.Template.DeepCopy()
	template.Name, template.Namespace = name, shootNamespace
	template.Spec.NodeName = node
	template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	_, err := s.client.CoreV1().Pods(shootNamespace).Create(context.Background(), &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatalf("create pod %s: %v", name, err)
	}
}

func (s *sidecar) pod(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := s.client.CoreV1().Pods(shootNamespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatalf("get pod %s: %v", name, err)
	}
	return pod
}

// waitPod waits until a pod is as it should be.
func (s *sidecar) waitPod(name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	s.t.Helper()
	var pod *corev1.Pod
	wait(s.t, "pod "+name+" "+what, 2*time.Minute, func() error {
		if pod = s.pod(name); !is(pod) {
			return fmt.Errorf("%s, init %+v, others %+v", pod.Status.Phase, pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (s *sidecar) delete(name string) {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(shootNamespace)
	if err := pods.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	wait(s.t, "pod "+name+" is gone", time.Minute, func() error {
		if _, err := pods.Get(context.Background(), name, metav1.GetOptions{}); err == nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

// output is what a container has logged since its last start.
func (s *sidecar) output(pod, container string) string {
	s.t.Helper()
	text, err := s.client.CoreV1().Pods(shootNamespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(context.Background())
	if err != nil {
		s.t.Fatalf("logs of %s in %s: %v", container, pod, err)
	}
	return string(text)
}

// mustHold: the senders have been at it, and nothing came of it.
func (s *sidecar) mustHold(when string, pods ...string) {
	s.t.Helper()
	time.Sleep(500 * time.Millisecond) // for the senders, to have a chance
	if n := s.leaked(); n > 0 {
		s.t.Errorf("%s: %d packets to nodes on the seed network", when, n)
	}
	for _, name := range pods {
		for _, c := range s.pod(name).Spec.Containers {
			if text := s.output(name, c.Name); !strings.Contains(text, "begins") || strings.Contains(text, "answers") {
				s.t.Errorf("%s: %s in %s says %q", when, c.Name, name, text)
			}
		}
	}
}

// positiveControl: the same pod without the fence gets through, and is counted.
func (s *sidecar) positiveControl() {
	s.create("unfenced", s.plain)
	s.waitPod("unfenced", "is ready", ready)
	wait(s.t, "an unfenced pod reaches the node", 30*time.Second, func() error {
		if text := s.output("unfenced", "kube-apiserver"); !strings.Contains(text, "answers") {
			return errors.New(text)
		}
		return nil
	})
	if s.leaked() == 0 {
		s.t.Error("the counter does not count")
	}
	s.delete("unfenced")
	s.leaked()
}

// gates: where the fence cannot be built no other container starts.
func (s *sidecar) gates() {
	crippled := s.deployment.DeepCopy()
	crippled.Spec.Template.Spec.InitContainers[0].SecurityContext.Capabilities.Add = nil
	s.create("crippled", crippled)
	pod := s.waitPod("crippled", "has a fence that runs and stands not", func(p *corev1.Pod) bool {
		return len(p.Status.InitContainerStatuses) > 0 && (p.Status.InitContainerStatuses[0].State.Running != nil || p.Status.InitContainerStatuses[0].RestartCount > 0)
	})
	time.Sleep(3 * time.Second) // in which a pod that is not kept from it has long started
	pod = s.pod(pod.Name)
	for _, c := range append(pod.Status.InitContainerStatuses[1:], pod.Status.ContainerStatuses...) {
		if c.State.Waiting == nil || c.RestartCount > 0 {
			s.t.Errorf("without NET_ADMIN for the fence %s started: %+v", c.Name, c.State)
		}
	}
	s.mustHold("no NET_ADMIN for the fence")
	s.delete("crippled")
}

// starts: the fence comes first, its probes pass, and the pod becomes ready without a VPN.
func (s *sidecar) starts(name string) {
	s.create(name, s.deployment)
	begin := time.Now()
	pod := s.waitPod(name, "is ready", ready)
	s.t.Logf("%s: ready after %.1f s", name, time.Since(begin).Seconds())
	fence := pod.Status.InitContainerStatuses[0]
	if fence.Name != fenceName || fence.Started == nil || !*fence.Started || !fence.Ready || fence.RestartCount > 0 {
		s.t.Errorf("%s: the fence is %+v", name, fence)
	}
	s.mustHold(name+" starts", name)
	s.stands(name)
}

// stands asks the agent in a pod, as a probe does.
func (s *sidecar) stands(name string) {
	s.t.Helper()
	response, err := s.world.machine.HTTP().Get("http://" + s.pod(name).Status.PodIP + ":9604/readyz?verbose")
	if err != nil {
		s.t.Errorf("%s: %v", name, err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		s.t.Errorf("%s: the fence is not ready: %s", name, response.Status)
	}
}

// comesBack: each container is killed by itself, the fence among them.
func (s *sidecar) comesBack(name string) {
	pod := s.pod(name)
	for _, old := range append(pod.Status.InitContainerStatuses[:1], pod.Status.ContainerStatuses...) {
		_, id, _ := strings.Cut(old.ContainerID, "://")
		s.kill(id)
		s.waitPod(name, "has its "+old.Name+" back", func(p *corev1.Pod) bool {
			for _, c := range append(p.Status.InitContainerStatuses[:1], p.Status.ContainerStatuses...) {
				if c.Name == old.Name {
					return c.RestartCount > old.RestartCount && c.Ready && ready(p)
				}
			}
			return false
		})
		s.mustHold(old.Name+" killed", name)
		s.stands(name)
	}
}

// reboots: the sandbox is made anew, with an empty network namespace.
func (s *sidecar) reboots(name string) {
	old := s.pod(name)
	s.kill(strings.TrimSpace(s.containerd("containers", "list", "--quiet", "labels.\"io.kubernetes.pod.uid\"=="+string(old.UID)+",labels.\"io.cri-containerd.kind\"==sandbox")))
	s.waitPod(name, "has a new sandbox", func(p *corev1.Pod) bool {
		return p.Status.PodIP != old.Status.PodIP && p.Status.PodIP != "" && ready(p)
	})
	s.mustHold("sandbox made anew", name)
	s.stands(name)
}

// rollsOut: two generations side by side, then the later one alone.
func (s *sidecar) rollsOut(first, second string) {
	s.starts(second)
	s.mustHold("two generations", first, second)
	s.stands(first)
	s.delete(first)
	s.mustHold("the first generation is gone", second)
	s.stands(second)
}

// kill ends a container or sandbox with SIGKILL.
func (s *sidecar) kill(id string) { s.containerd("tasks", "kill", "--signal", "SIGKILL", id) }

// containerd runs its client in the machine.
func (s *sidecar) containerd(args ...string) string {
	s.t.Helper()
	r := s.world.machine.Exec(append([]string{"nsenter", "--mount", "--target", fmt.Sprint(s.machine.Pid()), "ctr", "--namespace", "k8s.io"}, args...)...)
	if r.Err != nil {
		s.t.Fatalf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}
