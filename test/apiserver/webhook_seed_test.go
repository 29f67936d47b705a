package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/routefence/routefence/test/rig"
)

const (
	own           = "routefence"
	webhookName   = "routefence-webhook"
	webhookSecret = "routefence-webhook-ca"
	fenceImage    = "registry.test/routefence:v1"
)

// webhookBinary is routefence-webhook as "make build" makes it.
var webhookBinary = sync.OnceValue(func() string {
	path := filepath.Join(shared.lab.Dir, "routefence-webhook")
	command(shared.t, []string{"CGO_ENABLED=0"}, "go", "build", "-C", "../..", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/routefence-webhook")
	return path
})

// installation is the webhook as its manifests install it, with replicas that are real processes at addresses of their own. What kubelet
// and the controllers of a cluster would do is done here: probes, and endpoints of those replicas that are ready.
type installation struct {
	t          *testing.T
	objects    []*unstructured.Unstructured
	kubeconfig string
	args       []string
	image      string
	client     *http.Client

	mu       sync.Mutex
	replicas map[string]*rig.Process
	stop     chan struct{}
}

// installWebhook applies the manifests, and takes them away at the end. No replica runs yet.
func installWebhook(t *testing.T, args ...string) *installation {
	t.Helper()
	i := &installation{t: t, objects: overlay(t, "webhook"), args: args, image: "--image=" + fenceImage, replicas: map[string]*rig.Process{}, stop: make(chan struct{}),
		client: shared.space.HTTP()}
	shared.apply(i.objects...)
	i.kubeconfig = i.account()
	// A restart of the API server may have been for another test, and what was in the Secret belongs to another installation.
	i.emptySecret()
	ended := make(chan struct{})
	go func() { defer close(ended); i.endpoints() }()
	t.Cleanup(func() {
		close(i.stop)
		<-ended
		for _, p := range i.replicas {
			p.Kill()
		}
		shared.dismantle(t)
		if t.Failed() {
			for address, p := range i.replicas {
				t.Logf("replica %s:\n%s", address, tail(p.Output()))
			}
		}
	})
	return i
}

// account writes a kubeconfig for the webhook's own account, which has the rights of the manifests and no others.
func (i *installation) account() string {
	i.t.Helper()
	token, err := shared.typed.CoreV1().ServiceAccounts(own).CreateToken(context.Background(), webhookName, &authentication.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	c := api.NewConfig()
	c.Clusters["seed"] = &api.Cluster{Server: "https://127.0.0.1:" + serverPort, CertificateAuthority: filepath.Join(shared.dir, "ca.crt")}
	c.AuthInfos["webhook"] = &api.AuthInfo{Token: token.Status.Token}
	c.Contexts["seed"] = &api.Context{Cluster: "seed", AuthInfo: "webhook"}
	c.CurrentContext = "seed"
	path := filepath.Join(i.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		i.t.Fatal(err)
	}
	return path
}

// run starts a replica at an address.
func (i *installation) run(address string) {
	i.t.Helper()
	if _, err := shared.space.Try("ip addr replace " + address + "/32 dev lo"); err != nil {
		i.t.Fatal(err)
	}
	name := webhookName + "-" + address[strings.LastIndexByte(address, '.')+1:]
	args := append([]string{"serve", "--kubeconfig=" + i.kubeconfig, i.image, "--listen=" + address + ":9443",
		"--health-listen=" + address + ":9604"}, i.args...)
	cmd := exec.Command(webhookBinary(), args...)
	cmd.Env = append(os.Environ(), "POD_NAMESPACE="+own, "POD_NAME="+name)
	p := shared.space.StartCommand(cmd)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.replicas[address] = p
}

// start runs the two replicas of the manifests and waits until the API server calls them.
func (i *installation) start() *installation {
	i.t.Helper()
	i.run("10.9.0.11")
	i.run("10.9.0.12")
	i.awaitsReady(2)
	return i
}

// awaitsReady waits until so many replicas are ready, and the API server knows it.
func (i *installation) awaitsReady(want int) {
	i.t.Helper()
	eventually(i.t, 20*time.Second, func() (string, bool) {
		slice, err := shared.typed.DiscoveryV1().EndpointSlices(own).Get(context.Background(), webhookName, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("endpoints: %+v", slice.Endpoints), len(slice.Endpoints) == want
	})
	time.Sleep(200 * time.Millisecond) // for the API server's own watch of endpoints
}

// end stops a replica as kubelet does.
func (i *installation) end(address string) {
	i.mu.Lock()
	p := i.replicas[address]
	delete(i.replicas, address)
	i.mu.Unlock()
	if code := p.Stop(); code != 0 {
		i.t.Errorf("replica %s ended with %d: %s", address, code, tail(p.Output()))
	}
}

// lag is how long it takes in a cluster until API servers know that a replica has come or is about to go.
const lag = 500 * time.Millisecond

// endpoints keeps the EndpointSlice of the Service, as kubelet's probes and the controller would.
func (i *installation) endpoints() {
	var last string
	for {
		ready := i.ready()
		if now := strings.Join(ready, " "); now != last || last == "" {
			time.Sleep(lag)
			if err := i.publish(ready); err == nil {
				last = now + " "
			}
		}
		select {
		case <-i.stop:
			_ = i.publish(nil)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (i *installation) ready() (addresses []string) {
	i.mu.Lock()
	var all []string
	for address := range i.replicas {
		all = append(all, address)
	}
	i.mu.Unlock()
	for _, address := range all {
		if _, code := i.get(address, "/readyz"); code == http.StatusOK {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// get asks a replica.
func (i *installation) get(address, path string) (string, int) {
	response, err := i.client.Get("http://" + address + ":9604" + path)
	if err != nil {
		return err.Error(), 0
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error(), 0
	}
	return string(text), response.StatusCode
}

func (i *installation) publish(addresses []string) error {
	slice := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4}
	slice.Name, slice.Labels = webhookName, map[string]string{discovery.LabelServiceName: webhookName}
	slice.Ports = []discovery.EndpointPort{{Name: ptr("webhook"), Port: ptr(int32(9443)), Protocol: ptr(core.ProtocolTCP)}}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{Addresses: []string{a}, Conditions: discovery.EndpointConditions{Ready: ptr(true)}})
	}
	slices := shared.typed.DiscoveryV1().EndpointSlices(own)
	if _, err := slices.Update(context.Background(), slice, metav1.UpdateOptions{}); err == nil {
		return nil
	}
	_, err := slices.Create(context.Background(), slice, metav1.CreateOptions{})
	return err
}

// metric returns a sample of a replica's metrics, by name and labels.
func (i *installation) metric(address, sample string) float64 {
	i.t.Helper()
	text, _ := i.get(address, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (.*)$`).FindStringSubmatch(text)
	if found == nil {
		i.t.Fatalf("no %s in %s", sample, text)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		i.t.Fatal(err)
	}
	return value
}

func (i *installation) emptySecret() {
	i.t.Helper()
	secrets := shared.typed.CoreV1().Secrets(own)
	s, err := secrets.Get(context.Background(), webhookSecret, metav1.GetOptions{})
	if err == nil {
		s.Data = nil
		_, err = secrets.Update(context.Background(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// bundle is the caBundle in the live configuration.
func (i *installation) bundle() string {
	i.t.Helper()
	c, err := shared.typed.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), webhookName, metav1.GetOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	return string(c.Webhooks[0].ClientConfig.CABundle)
}

func authoritiesIn(bundle string) int { return strings.Count(bundle, "BEGIN CERTIFICATE") }

// shootNamespace makes a namespace as gardenlet does, with the Cluster of its shoot.
func shootNamespace(t *testing.T, name string, n *networks) {
	t.Helper()
	namespace := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"gardener.cloud/role": "shoot", "pod-security.kubernetes.io/enforce": "privileged"}}}
	if _, err := shared.typed.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if n != nil {
		shared.putCluster(name, *n)
	}
}
