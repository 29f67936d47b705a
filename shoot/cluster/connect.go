package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// pingAfter and pingWait are how a connection without packets is found out: by a ping after so much silence, given up if
	// that is not answered in time. TCP alone takes a quarter of an hour (kubernetes-sigs/controller-runtime#2547), and the
	// 45 seconds of client-go's own setting leave no room for a state that names the cause within 30.
	pingAfter = 12 * time.Second
	pingWait  = 8 * time.Second
	// dialWait bounds connecting. A dropped SYN would otherwise use up the time for the whole answer.
	dialWait = 5 * time.Second
)

// Access says where the API server is and who asks it.
type Access struct {
	// Kubeconfig is a file, or empty for the service account of the pod.
	Kubeconfig string
}

// Client is a connection to the API server.
type Client struct {
	rest      *rest.RESTClient
	transport *http.Transport
}

// Connect reads the configuration and everything it names from disk, and returns a client that has not connected yet.
//
// client-go keeps what it has read: an embedded token for ever, a CA file for five minutes. Whoever connects anew after a failure
// needs no other rule for rotation.
func (a Access) Connect() (*Client, error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, a.failed(err)
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	t := &http.Transport{
		Proxy:               proxy,
		DialContext:         (&net.Dialer{Timeout: dialWait, KeepAlive: pingAfter}).DialContext,
		TLSClientConfig:     tls,
		TLSHandshakeTimeout: dialWait,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait},
		MaxIdleConns:        2,
		IdleConnTimeout:     time.Minute,
		WriteBufferSize:     1 << 10,
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, t)
	if err != nil {
		return nil, a.failed(err)
	}
	// No Retry-After, no throttling here: how often to ask is the caller's decision.
	c, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: authenticated})
	if err != nil {
		return nil, a.failed(err)
	}
	return &Client{rest: c, transport: t}, nil
}

// config returns the configuration for requests without any type: all that is decoded is the Status of a failure.
func (a Access) config() (*rest.Config, error) {
	config, err := a.load()
	if err != nil {
		return nil, a.failed(err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.UserAgent = "routefence"
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Timeout = 0
	return config, nil
}

func (a Access) load() (*rest.Config, error) {
	if a.Kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("KUBERNETES_SERVICE_HOST is not set, so this is no pod; give --kubeconfig")
	}
	return config, err
}

// failed says that there is nothing to connect with.
func (a Access) failed(err error) error {
	of := "in-cluster configuration"
	if a.Kubeconfig != "" {
		of = "kubeconfig " + a.Kubeconfig
	}
	return &named{Misconfigured, fmt.Errorf("%s: %w", of, err)}
}

// Get sends one request and returns the body of a good answer, as it arrives. What the server refuses is a *errors.StatusError
// of apimachinery.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	r := c.rest.Get().MaxRetries(0).AbsPath(path)
	for name, values := range query {
		for _, v := range values {
			r = r.Param(name, v)
		}
	}
	return r.Stream(ctx)
}

// Post sends one JSON object.
func (c *Client) Post(ctx context.Context, path string, object []byte) error {
	body, err := c.rest.Post().MaxRetries(0).AbsPath(path).SetHeader("Content-Type", runtime.ContentTypeJSON).
		Body(bytes.Clone(object)).Stream(ctx)
	if err != nil {
		return err
	}
	return body.Close()
}

// Put replaces an object and returns what it is then. The server refuses it if the object has changed since the version in it.
func (c *Client) Put(ctx context.Context, path string, object []byte) ([]byte, error) {
	result := c.rest.Put().MaxRetries(0).AbsPath(path).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(bytes.Clone(object)).Do(ctx)
	// Error reads what the server says of a failure, which Raw does not.
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// Close ends connections that no request uses.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
