package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + image + `"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE runc may not lower oom_score_adj, and no pod starts.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

const podNetworkConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": "` + machinePods + `"}], [{"subnet": "` + machinePods6 + `"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "::"
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%[1]s
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[2]s/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: %[2]s/node.crt
tlsPrivateKeyFile: %[2]s/node.key
resolvConf: ""
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
volumePluginDir: /var/lib/kubelet/plugins
`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: shoot, cluster: {server: "%[1]s", certificate-authority: %[2]s/ca.crt}}]
users: [{name: user, user: {client-certificate: %[2]s/%[3]s.crt, client-key: %[2]s/%[3]s.key}}]
contexts: [{name: shoot, context: {cluster: shoot, user: user}}]
current-context: shoot
`

func (l *lab) machineFile(name string) string { return filepath.Join(l.world.Dir, "machine", name) }

// startMachine boots the shoot's machine.
func (l *lab) startMachine() {
	dir := l.machineFile("")
	write(l.t, l.machineFile("containerd.toml"), fmt.Sprintf(containerdConfig, dir))
	write(l.t, l.machineFile("cni/pods.conflist"), podNetworkConfig)
	write(l.t, l.machineFile("kubelet.yaml"), fmt.Sprintf(kubeletConfig, l.cgroup, l.pki("")))
	write(l.t, l.machineFile("kubeconfig"), fmt.Sprintf(kubeconfig, "https://"+balancerIP, l.pki(""), "node"))
	writeImage(l.t, l.machineFile("images/standin.tar"), programs.standin)
	cmd := exec.Command(programs.standin, "machine", dir, programs.kubelet, "--config="+l.machineFile("kubelet.yaml"),
		"--kubeconfig="+l.machineFile("kubeconfig"), "--hostname-override="+node, "--node-ip="+strings.Join(l.variant.nodeIPs(), ","), "--root-dir=/var/lib/kubelet", "--v=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	l.machine = l.world.machine.StartCommand(cmd)
}

// startPods makes the pods of the shoot and waits for them. No controller or scheduler runs: they are bound to the node as they are.
func (l *lab) startPods() {
	var translated []string
	if l.variant.translated {
		for real, name := range translations {
			translated = append(translated, real+"="+name)
		}
	}
	device, address := "tun0", ""
	if l.variant.highlyAvailable {
		device, address = "bond0", l.variant.shootEnd()+"/26"
	}
	l.createPod("vpn-shoot", map[string]string{"app": "vpn-shoot", "type": "tunnel"},
		corev1.Container{Name: "vpn-shoot", Command: []string{"/bin/sh", "/etc/vpn/vpn-shoot.sh"},
			Env: []corev1.EnvVar{{Name: "DEVICE", Value: device}, {Name: "ADDRESS", Value: address}, {Name: "PEER", Value: l.variant.seedEnd()},
				{Name: "TRANSLATIONS", Value: strings.Join(translated, " ")}},
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			VolumeMounts:    []corev1.VolumeMount{{Name: "usr", MountPath: "/usr", ReadOnly: true}, {Name: "vpn", MountPath: "/etc/vpn", ReadOnly: true}}},
		corev1.Container{Name: "sshd", Args: []string{"banner", "22"}})
	l.createPod("metrics-server", map[string]string{"k8s-app": "metrics-server"},
		corev1.Container{Name: "metrics-server", Args: []string{"metrics", node},
			VolumeMounts: []corev1.VolumeMount{{Name: "usr", MountPath: "/usr", ReadOnly: true}}})
	l.createService(l.podRuns("metrics-server"))
	l.podRuns("vpn-shoot")
}

func (l *lab) createPod(name string, labels map[string]string, containers ...corev1.Container) {
	hostDir := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	for i := range containers {
		containers[i].Image, containers[i].ImagePullPolicy = image, corev1.PullNever
	}
	_, err := l.client.CoreV1().Pods(metav1.NamespaceSystem).Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: containers, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			TerminationGracePeriodSeconds: new(int64(1)), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{hostDir("usr", "/usr"), hostDir("vpn", l.shootFile(""))}},
	}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatalf("create pod %s: %v", name, err)
	}
}

// podRuns waits for a pod and returns its IPv4 address.
func (l *lab) podRuns(name string) (address string) {
	l.t.Helper()
	wait(l.t, "pod "+name+" is ready", 90*time.Second, func() error {
		pod, err := l.client.CoreV1().Pods(metav1.NamespaceSystem).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				for _, ip := range pod.Status.PodIPs {
					if !strings.Contains(ip.IP, ":") {
						address = ip.IP
					}
				}
				return nil
			}
		}
		return fmt.Errorf("%s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
	})
	return address
}

// restarts counts how often containers have been.
func (l *lab) restarts() (n int32) {
	l.t.Helper()
	pods, err := l.client.CoreV1().Pods(metav1.NamespaceSystem).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatalf("%v", err)
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n
}

const apiService = `{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
"spec": {"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true, "groupPriorityMinimum": 100, "versionPriority": 100,
"service": {"name": "metrics-server", "namespace": "kube-system"}}}`

// createService puts the metrics API at a pod's address.
func (l *lab) createService(address string) {
	ctx := context.Background()
	meta := metav1.ObjectMeta{Name: "metrics-server", Labels: map[string]string{discoveryv1.LabelServiceName: "metrics-server"}}
	_, err := l.client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, &corev1.Service{ObjectMeta: meta,
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)}}}}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatalf("create the service: %v", err)
	}
	_, err = l.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: meta,
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(8443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}}}, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatalf("create the endpoints: %v", err)
	}
	err = l.client.Discovery().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
		SetHeader("Content-Type", "application/json").Body([]byte(apiService)).Do(ctx).Error()
	if err != nil {
		l.t.Fatalf("create the APIService: %v", err)
	}
}
