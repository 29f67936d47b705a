package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/routefence/routefence/lint"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/shoot/cluster"
)

// facts are what the API server knows of a shoot's namespace.
type facts struct {
	// networks are the node networks that the Shoot in the Cluster names.
	networks []netip.Prefix
	// warnings are what is wrong with the Shoot.
	warnings []string
	// enforce is the Pod Security level of the namespace, if that may be read.
	enforce string
}

// connection is made when it is first needed, and anew after a failure.
type connection struct {
	access cluster.Access

	mu     sync.Mutex
	client *cluster.Client
}

func (c *connection) get(ctx context.Context, path string) ([]byte, error) {
	client, err := c.current()
	if err != nil {
		return nil, err
	}
	data, err := fetch(ctx, client, path)
	if err != nil && !apierrors.IsNotFound(err) {
		c.drop(client)
	}
	return data, err
}

// decode reads an object of the API.
func (c *connection) decode(ctx context.Context, path string, into any) error {
	data, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (c *connection) current() (client *cluster.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		c.client, err = c.access.Connect()
	}
	return c.client, err
}

func (c *connection) drop(client *cluster.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == client {
		c.client = nil
		client.Close()
	}
}

// maxObject is more than etcd takes.
const maxObject = 8 << 20

func fetch(ctx context.Context, client *cluster.Client, path string) ([]byte, error) {
	body, err := client.Get(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, maxObject))
}

const (
	clusters   = "/apis/extensions.gardener.cloud/v1alpha1/clusters/"
	namespaces = "/api/v1/namespaces/"
)

// facts asks the API server. In a seed the Cluster of a shoot's namespace has the namespace's name.
func (c *connection) facts(ctx context.Context, namespace string) (facts, error) {
	data, err := c.get(ctx, clusters+namespace)
	if err != nil {
		return facts{}, err
	}
	f, err := readCluster(data)
	if err != nil {
		return facts{}, fmt.Errorf("cluster/%s: %w", namespace, err)
	}
	f.enforce = c.enforced(ctx, namespace)
	return f, nil
}

// enforced is for a warning alone, so that it need not be known.
func (c *connection) enforced(ctx context.Context, namespace string) string {
	data, err := c.get(ctx, namespaces+namespace)
	var n struct {
		Metadata struct{ Labels map[string]string }
	}
	if err != nil || json.Unmarshal(data, &n) != nil {
		return ""
	}
	return n.Metadata.Labels["pod-security.kubernetes.io/enforce"]
}

// smaller is a Cluster with nothing but the Shoot.
const smaller = `{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"Cluster","spec":{"shoot":%s}}`

// readCluster takes Shoot and Seed out of a Cluster. Its CloudProfile, most of a megabyte, is skipped.
func readCluster(data []byte) (facts, error) {
	var c struct {
		Spec struct {
			Shoot json.RawMessage `json:"shoot"`
			Seed  map[string]any  `json:"seed"`
		} `json:"spec"`
	}
	var s map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		return facts{}, err
	}
	if json.Unmarshal(c.Spec.Shoot, &s) != nil || s == nil {
		return facts{}, errors.New("spec.shoot is no object")
	}
	var f facts
	if reading, err := shoot.Decode(fmt.Appendf(nil, smaller, c.Spec.Shoot)); err == nil {
		f.networks = reading.Networks
	}
	for _, finding := range lint.Shoot(s, c.Spec.Seed) {
		f.warnings = append(f.warnings, fmt.Sprintf("%s: %s: %s", finding.Object, finding.Field, finding.Message))
	}
	return f, nil
}
