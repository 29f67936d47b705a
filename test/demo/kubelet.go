package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/test/rig"
)

const kubeletURL = "https://" + nodeAddress + ":10250/"

// startKubelet serves HTTPS on the node's port 10250, with one listener for each interface, so that the kernel itself
// decides which of them a request came in by. That is the answer.
func startKubelet(s *stage, w *world, ca *authority) {
	p, err := ca.issue("system:node:"+nodeAddress, x509.ExtKeyUsageServerAuth, net.ParseIP(nodeAddress))
	if err != nil {
		s.Fatalf("issue the kubelet's certificate: %v", err)
	}
	certificate, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		s.Fatalf("read the kubelet's certificate: %v", err)
	}
	for _, device := range []string{"eth0", "tun0"} {
		l, err := listenBy(w.node, device)
		if err != nil {
			s.Fatalf("let the kubelet listen by %s: %v", device, err)
		}
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, device) })
		server := &http.Server{
			Handler:           answer,
			TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}},
			ReadHeaderTimeout: time.Second,
			ErrorLog:          log.New(io.Discard, "", 0), // broken handshakes are part of the story
		}
		go func() { _ = server.ServeTLS(l, "", "") }()
		s.Cleanup(func() { server.Close() })
	}
}

func listenBy(n *rig.Namespace, device string) (l net.Listener, err error) {
	err = n.Do(func() (err error) {
		config := net.ListenConfig{Control: bindTo(device)}
		l, err = config.Listen(context.Background(), "tcp4", ":10250")
		return err
	})
	return l, err
}

// bindTo binds sockets to a device; to none if the name is empty.
func bindTo(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		if device == "" {
			return nil
		}
		if outer := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); outer != nil {
			return outer
		}
		return err
	}
}

// requestTimeout is how long a request may take; nothing but silence takes as long.
const requestTimeout = 2 * time.Second

// reply is what came of asking the kubelet.
type reply struct {
	// by is the node's interface by which the request came in; empty if it did not.
	by   string
	err  error
	took time.Duration
}

func (r reply) String() string {
	var errno syscall.Errno
	switch {
	case r.err == nil && r.by == "eth0":
		return "ANSWERS, over the seed network"
	case r.err == nil:
		return "answers, through the VPN"
	case errors.As(r.err, &errno):
		return fmt.Sprintf("refused: %s", errno)
	}
	return "silence"
}

// refused tells a clear "no" from silence.
func (r reply) refused() bool {
	var errno syscall.Errno
	return errors.As(r.err, &errno)
}

// client asks the kubelet from the pod.
type client struct {
	pod  *rig.Namespace
	pool *x509.CertPool
}

// ask makes one request over a new connection. With a device, the socket is bound to it: a program that insists on eth0.
func (c client) ask(device string) reply {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = c.pod.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: requestTimeout, Control: bindTo(device)}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	h := http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DialContext:       dial,
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: c.pool},
	}}
	begin := time.Now()
	by, err := get(&h)
	return reply{by: by, err: err, took: time.Since(begin)}
}

func get(h *http.Client) (string, error) {
	response, err := h.Get(kubeletURL)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New("status " + strconv.Itoa(response.StatusCode))
	}
	return string(body), err
}
