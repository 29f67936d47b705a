package apiserver

import (
	"context"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/routefence/routefence/test/authority"
	"github.com/routefence/routefence/test/rig"
)

// seed is a real API server with its etcd, in a network namespace of its own: the ports are the same each time, and nothing of it
// is left when the lab ends.
type seed struct {
	t       rig.T
	lab     *rig.Lab
	space   *rig.Namespace
	dir     string
	ca      *authority.Authority
	etcd    *rig.Process
	server  *rig.Process
	door    *relay
	admin   *rest.Config
	objects dynamic.Interface
	typed   kubernetes.Interface
}

const (
	etcdURL    = "http://127.0.0.1:2379"
	serverPort = "6443"
)

func newSeed(t rig.T, lab *rig.Lab) *seed {
	t.Helper()
	s := &seed{t: t, lab: lab, space: lab.Namespace("seed"), dir: filepath.Join(lab.Dir, "seed")}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatalf("%v", err)
	}
	s.ca = authority.New(t, s.dir, "ca")
	s.ca.Issue(t, "server", pkix.Name{CommonName: "kube-apiserver"}, "127.0.0.1")
	s.ca.Issue(t, "admin", pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, "127.0.0.1")
	s.ca.Issue(t, "accounts", pkix.Name{CommonName: "accounts"}, "127.0.0.1")
	s.etcd = s.space.Start("etcd", "--data-dir", filepath.Join(s.dir, "etcd"), "--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "default=http://127.0.0.1:2380", "--unsafe-no-fsync")
	s.door = newRelay(t, nil, s.space, "127.0.0.1:"+serverPort)
	s.trust()
	s.start()
	s.install(gardenerCRD(t, "clusters"), gardenerCRD(t, "infrastructures"), shootCRD)
	return s
}

// trust makes the test's own clients, with the authorities that the CA file names now.
func (s *seed) trust() {
	s.admin = s.config("admin")
	s.admin.QPS, s.admin.Burst = 1000, 1000
	s.admin.WarningHandlerWithContext = rest.NoWarnings{}
	// As data and not as a file, or client-go would go on with what it has read of the file for five minutes.
	var err error
	if s.admin.CAData, err = os.ReadFile(s.admin.CAFile); err != nil {
		s.t.Fatalf("%v", err)
	}
	s.objects, s.typed = dynamic.NewForConfigOrDie(s.admin), kubernetes.NewForConfigOrDie(s.admin)
}

// start starts the API server and waits until it is ready.
func (s *seed) start() {
	s.t.Helper()
	file := func(name string) string { return filepath.Join(s.dir, name) }
	s.server = s.space.Start(command(s.t, nil, "server/build.sh"), "--etcd-servers="+etcdURL, "--secure-port="+serverPort,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", "--enable-aggregator-routing=true",
		"--authorization-mode=RBAC", "--client-ca-file="+file("ca.crt"), "--tls-cert-file="+file("server.crt"),
		"--tls-private-key-file="+file("server.key"), "--service-account-issuer=https://seed.test",
		"--service-account-key-file="+file("accounts.key"), "--service-account-signing-key-file="+file("accounts.key"),
		"--disable-admission-plugins=ServiceAccount,DefaultStorageClass",
		// Webhooks are dialled at the addresses of their endpoints, as Gardener's API servers do: there is no kube-proxy here.
		"--enable-aggregator-routing=true", "--allow-privileged=true",
		// Debian's etcd is too old for this one and the server would say so for ever.
		"--feature-gates=SizeBasedListCostEstimate=false")
	s.ready()
}

func (s *seed) ready() {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err = s.typed.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		cancel()
		if err == nil {
			return
		}
		if !s.server.Running() || !s.etcd.Running() {
			break
		}
	}
	s.t.Fatalf("the API server is not ready: %v\n%s\n%s", err, tail(s.etcd.Output()), tail(s.server.Output()))
}

// stop ends the API server as kubelet would, and leaves etcd alone.
func (s *seed) stop() {
	s.server.Signal(9)
	_, _ = s.server.Wait(10 * time.Second)
}

func tail(text string) string { return text[max(0, len(text)-3000):] }

// config is the configuration of who has the certificate of a name.
func (s *seed) config(name string) *rest.Config {
	return &rest.Config{Host: "https://" + s.door.address(), TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(s.dir, "ca.crt"), CertFile: filepath.Join(s.dir, name+".crt"), KeyFile: filepath.Join(s.dir, name+".key"),
	}}
}

// writeFile replaces a file as the kubelet does: whole.
func writeFile(t rig.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatalf("%v", err)
	}
}
