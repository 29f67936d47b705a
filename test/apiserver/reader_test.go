package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"sigs.k8s.io/yaml"

	"github.com/routefence/routefence/test/rig"
)

// reader is a service account in a namespace named as the Cluster, with the rights of manifests/api-source.yaml and no others.
type reader struct {
	s    *seed
	t    rig.T
	name string
	dir  string
}

// reader makes the namespace, the account, its rights, its token file and its kubeconfig.
func (s *seed) reader(t rig.T, dir, name string) *reader {
	t.Helper()
	r := &reader{s: s, t: t, name: name, dir: dir}
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("reader %s: %v", name, err)
		}
	}
	_, err := s.typed.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(err)
	r.apply("ServiceAccount")
	r.grant()
	r.newToken("first")
	r.kubeconfig(s.door.address())
	return r
}

// grant gives the rights that manifests/api-source.yaml gives, and those on the Shoots that stand in for a garden's.
func (r *reader) grant() {
	r.t.Helper()
	r.apply("ClusterRole", "ClusterRoleBinding")
	ctx := context.Background()
	subject := []rbac.Subject{{Kind: "ServiceAccount", Namespace: r.name, Name: "routefence"}}
	_, err := r.s.typed.RbacV1().Roles(r.name).Create(ctx, &rbac.Role{ObjectMeta: metav1.ObjectMeta{Name: "shoot"}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{"core.gardener.cloud"}, Resources: []string{"shoots"}, ResourceNames: []string{shootName},
			Verbs: []string{"get", "list", "watch"}}}}, metav1.CreateOptions{})
	if err == nil {
		_, err = r.s.typed.RbacV1().RoleBindings(r.name).Create(ctx, &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "shoot"},
			RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "shoot"}, Subjects: subject}, metav1.CreateOptions{})
	}
	if err != nil && !errors.IsAlreadyExists(err) {
		r.t.Fatalf("grant: %v", err)
	}
}

// grantInfrastructure also lets the account read the Infrastructure.
func (r *reader) grantInfrastructure() { r.t.Helper(); r.apply("Role", "RoleBinding") }

// grantEvents lets the account create events.
func (r *reader) grantEvents() { r.t.Helper(); r.apply("Role events", "RoleBinding events") }

// apply makes some of the objects in manifests/api-source.yaml, for the shoot of this reader.
func (r *reader) apply(kinds ...string) {
	r.t.Helper()
	data, err := os.ReadFile("../../manifests/api-source.yaml")
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	made := 0
	for _, document := range strings.Split(strings.ReplaceAll(string(data), "shoot--dev--one", r.name), "\n---\n") {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			r.t.Fatalf("%v", err)
		}
		what := u.GetKind()
		if strings.HasSuffix(u.GetName(), "-events") {
			what += " events"
		}
		if !slices.Contains(kinds, what) {
			continue
		}
		plural := schema.GroupVersionResource{Group: u.GroupVersionKind().Group, Version: "v1", Resource: strings.ToLower(u.GetKind()) + "s"}
		if _, err := r.s.client(plural, u.GetNamespace()).Create(context.Background(), &u, metav1.CreateOptions{}); err != nil {
			r.t.Fatalf("create %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		made++
	}
	if made != len(kinds) {
		r.t.Fatalf("the manifest has %d of %v", made, kinds)
	}
}

// revoke takes the rights away.
func (r *reader) revoke() {
	r.t.Helper()
	if err := r.s.typed.RbacV1().ClusterRoleBindings().Delete(context.Background(), "routefence:"+r.name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatalf("revoke: %v", err)
	}
	if err := r.s.typed.RbacV1().ClusterRoles().Delete(context.Background(), "routefence:"+r.name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatalf("revoke: %v", err)
	}
}

// newToken writes a token that is bound to a Secret: deleting that revokes it.
func (r *reader) newToken(secret string) {
	r.t.Helper()
	ctx := context.Background()
	bound, err := r.s.typed.CoreV1().Secrets(r.name).Create(ctx, &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatalf("token: %v", err)
	}
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		BoundObjectRef: &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret, UID: bound.UID}}}
	token, err := r.s.typed.CoreV1().ServiceAccounts(r.name).CreateToken(ctx, "routefence", request, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatalf("token: %v", err)
	}
	writeFile(r.t, r.file("token"), []byte(token.Status.Token))
}

func (r *reader) revokeToken(secret string) {
	r.t.Helper()
	if err := r.s.typed.CoreV1().Secrets(r.name).Delete(context.Background(), secret, metav1.DeleteOptions{}); err != nil {
		r.t.Fatalf("revoke a token: %v", err)
	}
}

func (r *reader) file(name string) string { return filepath.Join(r.dir, r.name+"-"+name) }

// kubeconfig writes a kubeconfig that names the token and the CA as files.
func (r *reader) kubeconfig(address string) string {
	r.t.Helper()
	c := api.NewConfig()
	c.Clusters["seed"] = &api.Cluster{Server: "https://" + address, CertificateAuthority: filepath.Join(r.s.dir, "ca.crt")}
	c.AuthInfos["reader"] = &api.AuthInfo{TokenFile: r.file("token")}
	c.Contexts["seed"] = &api.Context{Cluster: "seed", AuthInfo: "reader"}
	c.CurrentContext = "seed"
	if err := clientcmd.WriteToFile(*c, r.file("kubeconfig")); err != nil {
		r.t.Fatalf("kubeconfig: %v", err)
	}
	return r.file("kubeconfig")
}

// embedToken replaces the kubeconfig by one with the token of the file in it.
func (r *reader) embedToken() {
	r.t.Helper()
	token, err := os.ReadFile(r.file("token"))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	c, err := clientcmd.LoadFromFile(r.file("kubeconfig"))
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	c.AuthInfos["reader"] = &api.AuthInfo{Token: string(token)}
	text, err := clientcmd.Write(*c)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	writeFile(r.t, r.file("kubeconfig"), text)
}

// eventually waits until said holds and returns how long that took.
func eventually(t rig.T, within time.Duration, said func() (string, bool)) time.Duration {
	t.Helper()
	begin := time.Now()
	var last string
	for time.Since(begin) < within {
		var ok bool
		if last, ok = said(); ok {
			return time.Since(begin)
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("not within %s: %s", within, last)
	return 0
}

// words reports whether a text has all of the words.
func words(text string, all ...string) (string, bool) {
	for _, w := range all {
		if !strings.Contains(text, w) {
			return fmt.Sprintf("no %q in %q", w, text), false
		}
	}
	return text, true
}
