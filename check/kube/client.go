// Package kube tries what a shoot's API server can do by way of the tunnel.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Server is one API server of the shoot.
type Server struct {
	// URL is where it is asked.
	URL  string
	http *http.Client
}

// dialWait bounds connecting, so that one address without an answer does not use up the time for the whole check.
const dialWait = 5 * time.Second

// Kubeconfig is where and as whom a shoot's API server is asked.
type Kubeconfig struct {
	config *rest.Config
	base   *url.URL
}

// Load reads a kubeconfig: a path, or "" for the usual places ($KUBECONFIG, ~/.kube/config). The service account of a pod is not among
// them: it belongs to the cluster that the pod runs in, which is the seed and not the shoot.
func Load(path string) (Kubeconfig, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	merged, err := rules.Load()
	if err != nil {
		return Kubeconfig{}, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*merged, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return Kubeconfig{}, errors.New("no file is named, KUBECONFIG is not set, and ~/.kube/config is not there")
	}
	if err != nil {
		return Kubeconfig{}, err
	}
	config.UserAgent = "routefence check"
	base, _, err := rest.DefaultServerUrlFor(config)
	return Kubeconfig{config, base}, err
}

// Servers returns the API server of the kubeconfig, or one for each address given: HOST, HOST:PORT or a URL. Those are asked with the
// same credentials, and have to show a certificate for the name that the kubeconfig has.
func (k Kubeconfig) Servers(addresses []string) ([]Server, error) {
	if len(addresses) == 0 {
		s, err := newServer(k.config, k.base)
		return []Server{s}, err
	}
	config := rest.CopyConfig(k.config)
	if config.TLSClientConfig.ServerName == "" {
		config.TLSClientConfig.ServerName = k.base.Hostname()
	}
	var out []Server
	for _, a := range addresses {
		u, err := at(k.base, a)
		if err != nil {
			return nil, err
		}
		s, err := newServer(config, u)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// at returns the URL with another host.
func at(base *url.URL, address string) (*url.URL, error) {
	if rest, ok := strings.CutPrefix(address, base.Scheme+"://"); ok {
		address = strings.TrimRight(rest, "/")
	}
	out := *base
	if host, port, err := net.SplitHostPort(address); err == nil && host != "" && port != "" {
		out.Host = address
		return &out, nil
	}
	host := strings.Trim(address, "[]")
	if host == "" || strings.ContainsAny(host, "/ ") {
		return nil, fmt.Errorf("%q is no address of an API server (want HOST, HOST:PORT or %s://HOST:PORT)", address, base.Scheme)
	}
	out.Host = net.JoinHostPort(host, map[string]string{"http": "80", "https": "443"}[base.Scheme])
	return &out, nil
}

func newServer(config *rest.Config, at *url.URL) (Server, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return Server{}, err
	}
	// HTTP/1.1 alone: a connection that is upgraded belongs to one request. No keep-alives: a pooled connection may be older than the
	// fault that is looked for.
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialWait}).DialContext,
		TLSClientConfig:     tls,
		TLSHandshakeTimeout: dialWait,
		DisableKeepAlives:   true,
		Proxy:               config.Proxy,
	}
	if t.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, t)
	if err != nil {
		return Server{}, err
	}
	return Server{URL: strings.TrimRight(at.String(), "/"), http: &http.Client{Transport: authenticated}}, nil
}

// most is how much of an answer is read.
const most = 32 << 20

// get asks for a path and decodes the answer, unless into is nil.
func (s Server) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return plain(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if answer.StatusCode != http.StatusOK {
		return refusal(answer, body)
	}
	if err != nil {
		return fmt.Errorf("the answer to GET %s broke off: %w", path, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer to GET %s is no JSON as expected: %w", path, err)
	}
	return nil
}

// plain leaves out the method and the URL, which stand in the check's own name.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return err
}

// ErrDenied is in the error of a request that the API server itself does not allow, which says nothing of what lies behind it.
var ErrDenied = errors.New("not allowed")

// refusal is what the API server says of a request that failed: the message of its Status, or what else is there.
func refusal(answer *http.Response, body []byte) error {
	var status struct{ Kind, Message string }
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(body[:min(len(body), 300)]))
	}
	err := fmt.Errorf("%s: %s", answer.Status, status.Message)
	if status.Kind == "Status" && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}
