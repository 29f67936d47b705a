// Package typed is inject for programs that hold workloads as the Go types of k8s.io/api, such as a Gardener extension's webhook. It is
// a package of its own because those types are large.
package typed

import (
	"encoding/json"
	"fmt"

	"github.com/routefence/routefence/inject"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Workload is what can be fenced.
type Workload interface {
	appsv1.Deployment | appsv1.StatefulSet | corev1.Pod
}

// Mutate puts the fence into an object, which is changed only if the result's outcome is inject.Injected. The result's Object is the
// generic form of it. An error means that the object must not be used.
func Mutate[T Workload](object *T, o inject.Options) (inject.Result, error) {
	tree, err := generic(object)
	if err != nil {
		return inject.Result{}, err
	}
	result, err := inject.Mutate(tree, o)
	if err != nil || result.Outcome != inject.Injected {
		return result, err
	}
	data, err := json.Marshal(result.Object)
	if err != nil {
		return inject.Result{}, fmt.Errorf("encode what was made of the object: %w", err)
	}
	var made T
	if err := json.Unmarshal(data, &made); err != nil {
		return inject.Result{}, fmt.Errorf("decode what was made of the object: %w", err)
	}
	*object = made
	return result, nil
}

// generic returns an object as a tree that says its kind, which typed objects usually do not.
func generic(object any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	tree["apiVersion"], tree["kind"] = "apps/v1", "Deployment"
	switch object.(type) {
	case *appsv1.StatefulSet:
		tree["kind"] = "StatefulSet"
	case *corev1.Pod:
		tree["apiVersion"], tree["kind"] = "v1", "Pod"
	}
	return tree, nil
}
