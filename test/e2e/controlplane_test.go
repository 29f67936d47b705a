package e2e

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/routefence/routefence/test/authority"
	"github.com/routefence/routefence/test/rig"
)

const node = "machine-0"

func (l *lab) certificates() {
	ca := authority.New(l.t, l.pki(""), "ca")
	ca.Issue(l.t, "kube-apiserver", pkix.Name{CommonName: "kube-apiserver"}, "127.0.0.1", apiserverIP, balancerIP)
	ca.Issue(l.t, "admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
	ca.Issue(l.t, "node", pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, machineIP, machineIP6)
	ca.Issue(l.t, "kubelet-client", pkix.Name{CommonName: "kubelet-client", Organization: []string{"system:masters"}})
	ca.Issue(l.t, "accounts", pkix.Name{CommonName: "accounts"})
	ca.Issue(l.t, "proxy", pkix.Name{CommonName: "vpn-seed-server"}, vpnServerIP, "127.0.0.1")
	for _, name := range []string{"proxy-client", "vpn-seed-server", "vpn-seed-client", "vpn-shoot-client"} {
		ca.Issue(l.t, name, pkix.Name{CommonName: name})
	}
	authority.New(l.t, l.pki(""), "front-proxy").Issue(l.t, "aggregator", pkix.Name{CommonName: "aggregator"})
}

func (l *lab) pki(name string) string { return filepath.Join(l.world.Dir, "pki", name) }

// startControlPlane starts etcd, kube-apiserver, and what stands between it and the shoot.
func (l *lab) startControlPlane() {
	const etcd = "http://127.0.0.1:2379"
	l.world.apiserver.Start("etcd", "--data-dir", filepath.Join(l.world.Dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "default=http://127.0.0.1:2380", "--unsafe-no-fsync")
	l.world.gateway.Start(programs.standin, "gateway", apiserverIP+":443", vpnServerIP+":1194")
	args := []string{programs.apiserver, "--etcd-servers=" + etcd, "--secure-port=443", "--bind-address=0.0.0.0", "--advertise-address=" + apiserverIP,
		"--service-cluster-ip-range=" + serviceNetwork, "--authorization-mode=Node,RBAC", "--allow-privileged=true",
		"--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount,DefaultStorageClass",
		"--client-ca-file=" + l.pki("ca.crt"), "--tls-cert-file=" + l.pki("kube-apiserver.crt"), "--tls-private-key-file=" + l.pki("kube-apiserver.key"),
		"--kubelet-certificate-authority=" + l.pki("ca.crt"), "--kubelet-client-certificate=" + l.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + l.pki("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--enable-aggregator-routing=true", "--requestheader-client-ca-file=" + l.pki("front-proxy.crt"),
		"--proxy-client-cert-file=" + l.pki("aggregator.crt"), "--proxy-client-key-file=" + l.pki("aggregator.key"),
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--service-account-issuer=https://shoot.test", "--service-account-key-file=" + l.pki("accounts.key"),
		"--service-account-signing-key-file=" + l.pki("accounts.key"), "--profiling=false",
		// Debian's etcd is too old for this one and the server would say so for ever.
		"--feature-gates=SizeBasedListCostEstimate=false"}
	if url, yes := l.variant.proxied(); yes {
		path := filepath.Join(l.world.Dir, "egress.yaml")
		write(l.t, path, fmt.Sprintf(egressSelector, url, l.pki("ca.crt"), l.pki("proxy-client.crt"), l.pki("proxy-client.key")))
		args = append(args, "--egress-selector-config-file="+path)
		l.startProxy()
	}
	l.server = l.world.apiserver.Start(args...)
	l.connect()
}

const egressSelector = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: %s
        tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}
- {name: controlplane, connection: {proxyProtocol: Direct}}
- {name: etcd, connection: {proxyProtocol: Direct}}
`

// startProxy starts the CONNECT proxy under the group by which vpn2 knows whose packets to translate.
func (l *lab) startProxy() {
	cmd := exec.Command(programs.standin, "connect", l.pki("proxy.crt"), l.pki("proxy.key"), l.pki("ca.crt"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Gid: envoyGroup}}
	l.proxy = l.dialer().StartCommand(cmd)
	wait(l.t, "the proxy listens", 10*time.Second, func() error {
		conn, err := dial(l.dialer(), "127.0.0.1:9443", time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

const envoyGroup = 31415

// connect makes clients that reach the API server through a listener of the test itself.
func (l *lab) connect() {
	l.t.Helper()
	l.config = &rest.Config{Host: "https://" + l.door(), QPS: 1000, Burst: 1000, TLSClientConfig: rest.TLSClientConfig{
		CAFile: l.pki("ca.crt"), CertFile: l.pki("admin.crt"), KeyFile: l.pki("admin.key"),
	}}
	var err error
	if l.client, err = kubernetes.NewForConfig(l.config); err != nil {
		l.t.Fatalf("%v", err)
	}
	wait(l.t, "the API server is ready", 2*time.Minute, func() error {
		if !l.server.Running() {
			l.t.Fatalf("kube-apiserver has ended:\n%s", tail(l.server.Output()))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := l.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}
		_, err := l.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
}

func tail(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// door listens outside of the namespaces and passes on to the API server.
func (l *lab) door() string {
	l.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatalf("listen: %v", err)
	}
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			go pass(near, l.world.apiserver)
		}
	}()
	return listener.Addr().String()
}

func pass(near net.Conn, to *rig.Namespace) {
	defer near.Close()
	far, err := dial(to, "127.0.0.1:443", time.Second)
	if err != nil {
		return // the client sees its connection closed
	}
	defer far.Close()
	var once sync.Once
	end := make(chan struct{})
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			once.Do(func() { close(end) })
		}()
	}
	<-end
}
