package typed_test

import (
	"context"
	"fmt"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/inject/typed"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ensurer stands for the one of an extension's control plane webhook, such as provider-local's. Gardener's interface hands these
// methods one argument more, with the Cluster, whose node networks would go to Options.Networks.
type ensurer struct{ options inject.Options }

func (e *ensurer) EnsureKubeAPIServerDeployment(_ context.Context, newObj, _ *appsv1.Deployment) error {
	_, err := typed.Mutate(newObj, e.options)
	return err
}

func (e *ensurer) EnsureVPNSeedServerDeployment(_ context.Context, newObj, _ *appsv1.Deployment) error {
	_, err := typed.Mutate(newObj, e.options)
	return err
}

func (e *ensurer) EnsureVPNSeedServerStatefulSet(_ context.Context, newObj, _ *appsv1.StatefulSet) error {
	_, err := typed.Mutate(newObj, e.options)
	return err
}

func ExampleMutate() {
	e := &ensurer{inject.Options{Image: "registry.example/routefence:v1"}}
	server := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "vpn-seed-server", Namespace: "shoot--dev--one"},
		Spec: appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "vpn-seed-server"}},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "setup"}},
				Containers: []corev1.Container{{
					Name: "vpn-seed-server",
					Env:  []corev1.EnvVar{{Name: "SHOOT_NODE_NETWORKS", Value: "10.250.0.0/16"}},
				}},
			},
		}},
	}
	if err := e.EnsureVPNSeedServerStatefulSet(context.Background(), server, nil); err != nil {
		fmt.Println(err)
	}
	for _, c := range server.Spec.Template.Spec.InitContainers {
		fmt.Println("first", c.Name)
	}
	for _, c := range server.Spec.Template.Spec.Containers {
		fmt.Println("then", c.Name)
	}
	// Output:
	// first routefence
	// first setup
	// then vpn-seed-server
}
