package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/routefence/routefence/check"
	"github.com/routefence/routefence/test/rig"
)

// examined is a shoot whose API server, real, runs in a namespace that reaches the one node by two links: eth0, the seed's network, and
// tun0, which stands for the VPN. The kubelet and the metrics-server stand in for real ones: they answer what the API server asks them.
type examined struct {
	*seed
	t       *testing.T
	node    *rig.Namespace
	kubelet *http.Server
	metrics *http.Server
	agent   *rig.Process
	config  string
}

const (
	nodeAddress    = "10.250.0.7"
	metricsAddress = "10.3.0.9"
	nodeNetworks   = "10.250.0.0/16"
)

func newExamined(t *testing.T) *examined {
	t.Helper()
	lab := rig.NewLab(t)
	e := &examined{seed: newSeed(t, lab), t: t, node: lab.Namespace("node")}
	e.link("eth0", "10.9.0.1", "10.9.0.2")
	e.link("tun0", "192.168.123.1", "192.168.123.2")
	e.space.IP("route add default via 10.9.0.2")
	e.node.IP("addr add "+nodeAddress+"/32 dev lo", "addr add "+metricsAddress+"/32 dev lo")
	// The seed's network reaches machines, not their pods.
	e.node.Run("iptables -A INPUT -i eth0 -d 10.3.0.0/16 -j DROP")
	e.vpn("up")
	e.kubelet = e.serve(nodeAddress+":10250", kubelet)
	e.metrics = e.serve(metricsAddress+":8443", metricsServer)
	e.put()
	e.ca.Issue(t, "nobody", pkix.Name{CommonName: "nobody"}, "127.0.0.1")
	e.config = e.kubeconfig("admin")
	return e
}

// link makes a pair of interfaces of the same name.
func (e *examined) link(name, here, there string) {
	e.space.IP("link add " + name + " type veth peer name far-" + name)
	e.space.IP("link set far-" + name + " netns " + e.node.Name)
	e.node.IP("link set far-"+name+" name "+name, "addr add "+there+"/24 dev "+name, "link set "+name+" up")
	e.space.IP("addr add "+here+"/24 dev "+name, "link set "+name+" up")
}

// vpn takes the VPN's device up, with its routes, or down.
func (e *examined) vpn(state string) {
	e.space.IP("link set tun0 " + state)
	if state == "up" {
		e.space.IP("route replace "+nodeNetworks+" via 192.168.123.2 dev tun0", "route replace 10.3.0.0/16 via 192.168.123.2 dev tun0")
	}
}

// serve answers HTTPS on an address of the node.
func (e *examined) serve(address string, h http.HandlerFunc) *http.Server {
	e.t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(e.dir, "server.crt"), filepath.Join(e.dir, "server.key"))
	if err != nil {
		e.t.Fatal(err)
	}
	var l net.Listener
	if err := e.node.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		e.t.Fatal(err)
	}
	s := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ReadHeaderTimeout: time.Minute}
	go func() {
		if err := s.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			e.t.Errorf("serve %s: %v", address, err)
		}
	}()
	e.t.Cleanup(func() { _ = s.Close() })
	return s
}

// kubelet switches to SPDY when it is asked to, and has one line of log.
func kubelet(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/portForward/") {
		_, _ = w.Write([]byte("a line\n"))
		return
	}
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"))
	_, _ = c.Read(make([]byte, 1))
}

func metricsServer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind := `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[]}`
	if strings.HasSuffix(r.URL.Path, "/nodes") {
		kind = `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[]}`
	}
	_, _ = w.Write([]byte(kind))
}

// put creates what the shoot has: a node, the VPN's pod and the metrics-server on it.
func (e *examined) put() {
	e.t.Helper()
	ctx := context.Background()
	nodes, pods := e.typed.CoreV1().Nodes(), e.typed.CoreV1().Pods(metav1.NamespaceSystem)
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine-0"}}, metav1.CreateOptions{})
	must(e.t, err)
	e.nodeReady(corev1.ConditionTrue)
	for name, label := range map[string]string{"vpn-shoot-0": "app=vpn-shoot", "metrics-server-0": "k8s-app=metrics-server"} {
		key, value, _ := strings.Cut(label, "=")
		_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{key: value}},
			Spec: corev1.PodSpec{NodeName: "machine-0", Containers: []corev1.Container{{Name: "main", Image: "none"}}}}, metav1.CreateOptions{})
		must(e.t, err)
		e.podReady(name, corev1.ConditionTrue)
	}
	_, err = e.typed.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "metrics-server"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}, metav1.CreateOptions{})
	must(e.t, err)
	https, port, tcp := "https", int32(8443), corev1.ProtocolTCP
	_, err = e.typed.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "metrics-server", Labels: map[string]string{discoveryv1.LabelServiceName: "metrics-server"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{metricsAddress}}},
		Ports: []discoveryv1.EndpointPort{{Name: &https, Port: &port, Protocol: &tcp}}}, metav1.CreateOptions{})
	must(e.t, err)
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	_, err = e.objects.Resource(services).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"name": "metrics-server", "namespace": "kube-system", "port": int64(443)}}},
	}, metav1.CreateOptions{})
	must(e.t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nodeReady writes what the node's kubelet reports.
func (e *examined) nodeReady(status corev1.ConditionStatus) {
	e.t.Helper()
	ctx := context.Background()
	n, err := e.typed.CoreV1().Nodes().Get(ctx, "machine-0", metav1.GetOptions{})
	must(e.t, err)
	n.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test", Message: "as the test says"}},
	}
	_, err = e.typed.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	must(e.t, err)
}

func (e *examined) podReady(name string, status corev1.ConditionStatus) {
	e.t.Helper()
	ctx := context.Background()
	pods := e.typed.CoreV1().Pods(metav1.NamespaceSystem)
	p, err := pods.Get(ctx, name, metav1.GetOptions{})
	must(e.t, err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}
	_, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	must(e.t, err)
}

// kubeconfig is for use inside the namespace, where no relay is needed, with the certificate of a name.
func (e *examined) kubeconfig(name string) string {
	c := api.NewConfig()
	c.Clusters["shoot"] = &api.Cluster{Server: "https://127.0.0.1:" + serverPort, CertificateAuthority: e.admin.CAFile}
	c.AuthInfos["admin"] = &api.AuthInfo{ClientCertificate: filepath.Join(e.dir, name+".crt"), ClientKey: filepath.Join(e.dir, name+".key")}
	c.Contexts["shoot"] = &api.Context{Cluster: "shoot", AuthInfo: "admin"}
	c.CurrentContext = "shoot"
	path := filepath.Join(e.t.TempDir(), "kubeconfig")
	must(e.t, clientcmd.WriteToFile(*c, path))
	return path
}

// fence starts the agent and waits until it is ready, or ends it and takes the fence away.
func (e *examined) fence(up bool) {
	e.t.Helper()
	if !up {
		if e.agent != nil {
			e.agent.Stop()
			e.agent = nil
		}
		e.space.Run(binary + " cleanup")
		return
	}
	e.agent = e.space.Start(binary, "run", "--node-networks="+nodeNetworks, "--firewall=nft", "--resync=1s")
	for deadline := time.Now().Add(20 * time.Second); e.space.Exec(binary, "status").Exit != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Fatalf("the agent is not ready:\n%s", e.agent.Output())
		}
	}
}

// refence starts an agent in the place of one that was killed.
func (e *examined) refence() {
	e.t.Helper()
	_, _ = e.agent.Wait(5 * time.Second)
	e.fence(true)
}

// checked runs the command inside the control plane's namespace.
func (e *examined) checked(args ...string) (check.Report, int) {
	e.t.Helper()
	r := e.space.Exec(append([]string{binary, "check", "--kubeconfig", e.config, "--check-timeout=3s", "-o", "json"}, args...)...)
	var report check.Report
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		e.t.Fatalf("check: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	return report, r.Exit
}

// TestCheck plants one fault after the other, and takes it away again.
func TestCheck(t *testing.T) {
	e := newExamined(t)
	e.fence(true)
	expect := func(when string, want check.Diagnosis, args ...string) {
		t.Helper()
		begin := time.Now()
		r, code := e.checked(args...)
		if r.Diagnosis != want || (code == 0) != (want == check.Healthy) {
			t.Errorf("%s: exit code %d, want %s\n%s", when, code, want, r)
		}
		t.Logf("%-34s %-22s %4d ms  %s", when, r.Diagnosis, time.Since(begin).Milliseconds(), r.Message)
	}
	e.settle(check.Healthy)
	expect("all well", check.Healthy)
	expect("from outside", check.Healthy, "--way=off")

	e.vpn("down")
	expect("VPN down, fence holds", check.VPNBroken)
	e.fence(false)
	expect("VPN down, no fence: the bug", check.NotThroughVPN, "--node-networks="+nodeNetworks)
	e.vpn("up")
	expect("VPN up, no fence", check.NotThroughVPN, "--node-networks="+nodeNetworks)
	expect("the same, nobody says it is a pod", check.Healthy)
	e.fence(true)
	e.settle(check.Healthy)

	// Somebody lets marked packets out, and the firewall's chain is gone for good as the agent that would repair it is.
	e.agent.Kill()
	e.space.Run("iptables-nft -t filter -F ROUTEFENCE")
	e.space.Run("iptables-nft -t mangle -F ROUTEFENCE")
	expect("fence leaking", check.NotThroughVPN)
	e.refence()
	e.agent.Kill()
	e.space.IP("route flush table 9604", "rule del pref 96", "rule del pref 97")
	expect("routing layer gone", check.NotThroughVPN)
	e.refence()
	e.agent.Kill()
	e.space.IP("link set eth0 down", "link set eth0 name ens5", "link set ens5 up", "route add default via 10.9.0.2")
	expect("eth0 has another name", check.NotThroughVPN)
	e.space.IP("link set ens5 down", "link set ens5 name eth0", "link set eth0 up", "route add default via 10.9.0.2")
	e.refence()
	expect("mended", check.Healthy)

	e.node.Run("iptables -I INPUT -p tcp --dport 10250 -j REJECT --reject-with tcp-reset")
	e.nodeReady(corev1.ConditionUnknown)
	expect("kubelet down", check.KubeletUnreachable)
	e.node.Run("iptables -D INPUT -p tcp --dport 10250 -j REJECT --reject-with tcp-reset")
	e.nodeReady(corev1.ConditionTrue)

	e.node.Run("iptables -I INPUT -p tcp --dport 8443 -j DROP")
	expect("pod network broken", check.PodNetworkBroken)
	e.podReady("metrics-server-0", corev1.ConditionFalse)
	expect("metrics-server down", check.MetricsServerDown)
	e.node.Run("iptables -D INPUT -p tcp --dport 8443 -j DROP")
	e.podReady("metrics-server-0", corev1.ConditionTrue)
	e.settle(check.Healthy)

	expect("one of two API servers", check.PartlyBroken, "--apiserver=127.0.0.1:"+serverPort, "--apiserver=127.0.0.1:1")
	expect("the first of two", check.PartlyBroken, "--apiserver=127.0.0.1:1", "--apiserver=127.0.0.1:"+serverPort)
	expect("nothing may be read", check.Inconclusive, "--kubeconfig="+e.kubeconfig("nobody"))
	t.Setenv("SHOOT_NODE_NETWORKS", "10.66.0.0/16")
	expect("another source names other networks", check.NotThroughVPN)
	must(t, os.Unsetenv("SHOOT_NODE_NETWORKS"))
	must(t, e.typed.CoreV1().Pods(metav1.NamespaceSystem).Delete(context.Background(), "vpn-shoot-0", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	expect("no vpn-shoot", check.NoTunnel)
	e.stop()
	expect("API server down", check.APIServerUnreachable)
}

// settle waits for what the API server finds out in its own time, such as that an APIService is back.
func (e *examined) settle(want check.Diagnosis) {
	e.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		r, _ := e.checked()
		if r.Diagnosis == want {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("never %s:\n%s", want, r)
		}
	}
}
