package apiserver

import (
	"testing"
	"time"
)

const soon = 10 * time.Second

// A Cluster through all of its life: what it names is fenced, and nothing goes without a statement.
func TestClusterFromCreationToReincarnation(t *testing.T) {
	const name = "shoot--dev--life"
	r := shared.reader(t, t.TempDir(), name)
	w := watch(t, "cluster/"+name, r.file("kubeconfig"), "")
	w.says(soon, "known=false", "NotFound of cluster/"+name)

	shared.putCluster(name, networks{})
	w.says(soon, "known=false", "names no node network: looked at spec.shoot.spec.networking.nodes and spec.shoot.status.networking.nodes")

	shared.putCluster(name, networks{spec: "10.250.0.0/16"})
	w.names(soon, "10.250.0.0/16")
	w.healthy(soon)

	// The status is ahead of the spec, then both have moved: the union holds as long as they differ.
	shared.putCluster(name, networks{spec: "10.250.0.0/16", status: []string{"10.250.0.0/16", "10.180.0.0/16"}})
	w.names(soon, "10.180.0.0/16", "10.250.0.0/16")
	shared.putCluster(name, networks{spec: "10.180.0.0/16", status: []string{"10.250.0.0/16", "10.180.0.0/16"}})
	shared.putCluster(name, networks{spec: "10.180.0.0/16", status: []string{"10.180.0.0/16"}})
	w.names(soon, "10.180.0.0/16")
	w.healthy(soon)

	shared.putCluster(name, networks{})
	w.says(soon, "10.180.0.0/16", "known=true", "err=cluster/"+name+":", "names no node network", "what it named before stays fenced")
	shared.putCluster(name, networks{spec: "10.180.0.0/16", status: []string{"10.180.0.0/16"}})
	w.healthy(soon)

	shared.remove(clusters, "", name)
	w.says(soon, "away=NotFound of cluster/"+name, "there is no such object", "stays fenced")
	w.holds("10.180.0.0/16")

	// Another object of the same name that names nothing replaces nothing; one that names a network does.
	shared.putCluster(name, networks{})
	w.says(soon, "10.180.0.0/16", "names no node network")
	shared.putCluster(name, networks{spec: "10.1.0.0/16"})
	w.names(soon, "10.1.0.0/16")
	w.healthy(soon)
}

func TestShootSpecAndStatus(t *testing.T) {
	const namespace = "garden-shoots"
	r := shared.reader(t, t.TempDir(), namespace)
	w := watch(t, "shoot/"+namespace+"/"+shootName, r.file("kubeconfig"), "")
	shared.put(shoots, shootWith(namespace, shootName, networks{}))
	w.says(soon, "known=false", "Shoot "+namespace+"/"+shootName+" names no node network")
	shared.put(shoots, shootWith(namespace, shootName, networks{status: []string{"10.2.0.0/16", "fd00:2::/48"}}))
	w.names(soon, "10.2.0.0/16", "fd00:2::/48")
	w.healthy(soon)
	shared.put(shoots, shootWith(namespace, shootName, networks{spec: "10.3.0.0/16", status: []string{"10.2.0.0/16", "fd00:2::/48"}}))
	w.names(soon, "10.2.0.0/15", "fd00:2::/48")
}
