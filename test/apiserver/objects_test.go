package apiserver

import (
	"context"
	"encoding/json"
	"time"

	core "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensions "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

var (
	crds            = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	clusters        = extensions.SchemeGroupVersion.WithResource("clusters")
	infrastructures = extensions.SchemeGroupVersion.WithResource("infrastructures")
	shoots          = core.SchemeGroupVersion.WithResource("shoots")
)

// shootCRD stands in for Gardener's aggregated API server, whose storage is none of a CRD's. What is in a Shoot is what
// Gardener's types encode all the same.
var shootCRD = []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shoots.core.gardener.cloud}
spec:
  group: core.gardener.cloud
  names: {kind: Shoot, listKind: ShootList, plural: shoots, singular: shoot}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
`)

// install makes CRDs and waits until they are served.
func (s *seed) install(manifests ...[]byte) {
	s.t.Helper()
	for _, manifest := range manifests {
		var crd unstructured.Unstructured
		if err := yaml.Unmarshal(manifest, &crd.Object); err != nil {
			s.t.Fatalf("%v", err)
		}
		if _, err := s.objects.Resource(crds).Create(context.Background(), &crd, metav1.CreateOptions{}); err != nil {
			s.t.Fatalf("create CRD %s: %v", crd.GetName(), err)
		}
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		version := versions[0].(map[string]any)["name"].(string)
		s.served(schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	}
}

func (s *seed) served(r schema.GroupVersionResource) {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err = s.objects.Resource(r).List(context.Background(), metav1.ListOptions{}); err == nil {
			return
		}
	}
	s.t.Fatalf("%s is not served: %v", r, err)
}

// networks are the node networks of a shoot, by where they stand.
type networks struct {
	spec   string
	status []string
}

// shootWith is a Shoot as Gardener's types have it.
func shootWith(namespace, name string, n networks) *core.Shoot {
	s := &core.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: core.SchemeGroupVersion.String(), Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: core.ShootSpec{
			Region:     "local",
			Kubernetes: core.Kubernetes{Version: "1.34.4"},
			Provider: core.Provider{Type: "local", InfrastructureConfig: &runtime.RawExtension{
				Raw: []byte(`{"apiVersion":"unknown.provider/v9","kind":"InfrastructureConfig","networks":{"workers":"10.77.0.0/16"}}`)}},
			Networking: &core.Networking{Pods: ptr("100.96.0.0/11"), Services: ptr("100.64.0.0/13")},
		},
	}
	if n.spec != "" {
		s.Spec.Networking.Nodes = &n.spec
	}
	if n.status != nil {
		s.Status.Networking = &core.NetworkingStatus{Nodes: n.status, Pods: []string{"100.96.0.0/11"}}
	}
	return s
}

// clusterWith is the Cluster that gardenlet writes into the seed for a shoot.
func clusterWith(name string, n networks) *extensions.Cluster {
	profile := &core.CloudProfile{TypeMeta: metav1.TypeMeta{APIVersion: core.SchemeGroupVersion.String(), Kind: "CloudProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: "local"}}
	return &extensions.Cluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: extensions.SchemeGroupVersion.String(), Kind: "Cluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensions.ClusterSpec{
			CloudProfile: runtime.RawExtension{Object: profile},
			Shoot:        runtime.RawExtension{Object: shootWith("garden-dev", shootName, n)},
		},
	}
}

// shootName is the name of every Shoot inside a Cluster.
const shootName = "one"

// infrastructureWith is the Infrastructure in the namespace of a Cluster, without its status.
func infrastructureWith(namespace string) *extensions.Infrastructure {
	return &extensions.Infrastructure{
		TypeMeta:   metav1.TypeMeta{APIVersion: extensions.SchemeGroupVersion.String(), Kind: "Infrastructure"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: shootName},
		Spec:       extensions.InfrastructureSpec{DefaultSpec: extensions.DefaultSpec{Type: "local"}, Region: "local"},
	}
}

func ptr[T any](v T) *T { return &v }

// toUnstructured goes through the JSON that Gardener's types make of themselves.
func (s *seed) toUnstructured(o runtime.Object) *unstructured.Unstructured {
	s.t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	var u unstructured.Unstructured
	if err := json.Unmarshal(data, &u.Object); err != nil {
		s.t.Fatalf("%v", err)
	}
	return &u
}

func (s *seed) client(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return s.objects.Resource(r)
	}
	return s.objects.Resource(r).Namespace(namespace)
}

// put makes or replaces an object, and its status where that is a resource of its own.
func (s *seed) put(r schema.GroupVersionResource, o runtime.Object) *unstructured.Unstructured {
	s.t.Helper()
	u := s.toUnstructured(o)
	c := s.client(r, u.GetNamespace())
	out, err := c.Create(context.Background(), u, metav1.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		old, found := c.Get(context.Background(), u.GetName(), metav1.GetOptions{})
		if found != nil {
			s.t.Fatalf("get %s: %v", u.GetName(), found)
		}
		u.SetResourceVersion(old.GetResourceVersion())
		out, err = c.Update(context.Background(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatalf("write %s: %v", u.GetName(), err)
	}
	if status := u.Object["status"]; status != nil && r != clusters {
		out.Object["status"] = status
		if out, err = c.UpdateStatus(context.Background(), out, metav1.UpdateOptions{}); err != nil {
			s.t.Fatalf("write the status of %s: %v", u.GetName(), err)
		}
	}
	return out
}

func (s *seed) putCluster(name string, n networks) {
	s.t.Helper()
	s.put(clusters, clusterWith(name, n))
}

func (s *seed) remove(r schema.GroupVersionResource, namespace, name string) {
	s.t.Helper()
	if err := s.client(r, namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatalf("delete %s: %v", name, err)
	}
}

type infrastructureNetworking = extensions.InfrastructureStatusNetworking
