package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// patience is longer than the time-outs of kube-apiserver and envoy, so that it is theirs that show.
const patience = 60 * time.Second

// outcome is what came of one operation.
type outcome struct {
	err  error
	took time.Duration
}

func (o outcome) String() string {
	if o.err == nil {
		return fmt.Sprintf("works %.1f s", o.took.Seconds())
	}
	return fmt.Sprintf("fails %.1f s", o.took.Seconds())
}

// timed gives up on an operation that outlives all patience, even if it does not heed its context.
func timed(patience time.Duration, operation func(ctx context.Context) error) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- operation(ctx) }()
	select {
	case err := <-done:
		return outcome{err, time.Since(begin)}
	case <-time.After(patience + time.Second):
		return outcome{errors.New("still going on when all patience was at an end"), time.Since(begin)}
	}
}

// operations are what people and Gardener do with a shoot. The last one takes the pod network, the others the node network.
var operations = []struct {
	name string
	do   func(*lab) outcome
}{
	{"logs", (*lab).logs}, {"exec", (*lab).exec}, {"port-forward", (*lab).portForward}, {"tunnel check", (*lab).tunnelCheck}, {"top node", (*lab).top},
}

const nodeOperations = 4

// all carries out all operations at the same time.
func (l *lab) all(each func(do func(*lab) outcome) outcome) []outcome {
	results := make([]outcome, len(operations))
	var group sync.WaitGroup
	for i, o := range operations {
		group.Go(func() { results[i] = each(o.do) })
	}
	group.Wait()
	return results
}

func (l *lab) logs() outcome {
	return timed(patience, func(ctx context.Context) error {
		text, err := l.client.CoreV1().Pods(metav1.NamespaceSystem).GetLogs("metrics-server", &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(text), "metrics: started") {
			err = fmt.Errorf("the log says %q", text)
		}
		return err
	})
}

func (l *lab) exec() outcome {
	return timed(patience, func(ctx context.Context) error {
		url := l.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(metav1.NamespaceSystem).Name("metrics-server").SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Command: []string{"/usr/bin/echo", "hello"}, Stdout: true}, scheme.ParameterCodec).URL()
		executor, err := remotecommand.NewSPDYExecutor(l.config, "POST", url)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out}); err != nil {
			return err
		}
		if out.String() != "hello\n" {
			return fmt.Errorf("the command said %q", out.String())
		}
		return nil
	})
}

// forward opens a port-forward to a pod and calls use with the local port.
func (l *lab) forward(ctx context.Context, pod string, port int, use func(local uint16) error) error {
	transport, upgrader, err := spdy.RoundTripperFor(l.config)
	if err != nil {
		return err
	}
	url := l.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(metav1.NamespaceSystem).Name(pod).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", url), []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	return use(ports[0].Local)
}

// portForward opens one and uses it.
func (l *lab) portForward() outcome {
	return timed(patience, func(ctx context.Context) error {
		return l.forward(ctx, "metrics-server", 8080, func(local uint16) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", local), nil)
			if err != nil {
				return err
			}
			response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err == nil && string(text) != "here\n" {
				err = fmt.Errorf("the pod answers %q", text)
			}
			return err
		})
	})
}

// tunnelCheck is gardenlet's: the first running vpn-shoot pod, a port-forward to port 22, and nothing sent over it. Its five seconds are
// no limit, as client-go dials before it looks at them.
func (l *lab) tunnelCheck() outcome {
	return timed(patience, func(ctx context.Context) error {
		pods, err := l.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "app=vpn-shoot"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				return l.forward(ctx, pod.Name, 22, func(uint16) error { return nil })
			}
		}
		return errors.New("no running vpn-shoot pod found yet in the shoot cluster")
	})
}

// topPatience is short: the pod network is broken with and without the fence, and a lost connection to the metrics API takes its time.
const topPatience = 10 * time.Second

// top asks what "kubectl top node" asks.
func (l *lab) top() outcome {
	return timed(topPatience, func(ctx context.Context) error {
		text, err := l.client.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").DoRaw(ctx)
		if err == nil && !strings.Contains(string(text), node) {
			err = fmt.Errorf("the metrics API says %q", text)
		}
		return err
	})
}

// untilItWorks tries an operation again and again and tells how long that took, to which one attempt that hangs adds in full.
func (l *lab) untilItWorks(do func(*lab) outcome) outcome {
	begin := time.Now()
	for {
		o := do(l)
		o.took = time.Since(begin)
		if o.err == nil || o.took > patience {
			return o
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// dialBound connects to the kubelet by a socket that is bound to eth0, from the pod that dials nodes.
func (l *lab) dialBound() outcome {
	return timed(topPatience, func(context.Context) error {
		dialer := net.Dialer{Timeout: 3 * time.Second, Control: func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) { err = syscall.BindToDevice(int(fd), "eth0") })
			return errors.Join(failed, err)
		}}
		return l.dialer().Do(func() error {
			conn, err := dialer.Dial("tcp", net.JoinHostPort(l.variant.nodeIPs()[0], "10250"))
			if err == nil {
				conn.Close()
			}
			return err
		})
	})
}

// report is what "routefence check" says.
type report struct {
	Healthy            bool
	Diagnosis, Message string
}

// check has routefence check the tunnel from the pod that dials nodes.
func (l *lab) check() (found report) {
	l.t.Helper()
	path := filepath.Join(l.world.Dir, "kubeconfig")
	write(l.t, path, fmt.Sprintf(kubeconfig, "https://"+apiserverIP, l.pki(""), "admin"))
	said := l.dialer().Exec(programs.routefence, "check", "--kubeconfig="+path, "--node-networks="+strings.Join(l.variant.nodeNetworks(), ","), "-o", "json")
	if err := json.Unmarshal([]byte(said.Stdout), &found); err != nil || found.Healthy != (said.Exit == 0) {
		l.t.Errorf("routefence check: exit code %d, %v\n%s%s", said.Exit, err, said.Stdout, said.Stderr)
	}
	return found
}
