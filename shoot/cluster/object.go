package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/routefence/routefence/shoot"
)

// object is what is needed of one object of the API.
type object struct {
	name, uid string
	version   uint64
	// shootName is the name of the Shoot that a Cluster carries.
	shootName string
	reading   shoot.Reading
	// err says that it names nothing.
	err error
}

// fields is what a tree of JSON is cut down to. A Cluster carries a whole CloudProfile, most of a megabyte that nobody here
// needs, and a decoded tree takes ten times as much memory as its text.
type fields map[string]fields

var (
	all        fields
	networking = fields{"networking": {"nodes": all}}
	identity   = fields{"name": all, "namespace": all, "uid": all, "resourceVersion": all}
	shootTree  = fields{"apiVersion": all, "kind": all, "metadata": identity, "spec": networking, "status": networking}
	trees      = map[Kind]fields{
		Shoot:   shootTree,
		Cluster: {"apiVersion": all, "kind": all, "metadata": identity, "spec": {"shoot": shootTree}},
		Infrastructure: {"apiVersion": all, "kind": all, "metadata": identity,
			"status": {"nodesCIDR": all, "networking": {"nodes": all}}},
	}
)

// keep returns raw with only the fields of the tree. What is no JSON object stays as it is, for the decoder to complain about.
func keep(raw json.RawMessage, tree fields) json.RawMessage {
	var whole map[string]json.RawMessage
	if tree == nil || json.Unmarshal(raw, &whole) != nil || whole == nil {
		return raw
	}
	kept := make(map[string]json.RawMessage, len(tree))
	for name, below := range tree {
		if value, there := whole[name]; there {
			kept[name] = keep(value, below)
		}
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return raw
	}
	return out
}

type meta struct {
	Name    string `json:"name"`
	UID     string `json:"uid"`
	Version string `json:"resourceVersion"`
}

// read takes the node networks and the identity out of an object of a kind.
func read(kind Kind, raw json.RawMessage) (object, error) {
	kept := keep(raw, trees[kind])
	var head struct {
		Metadata meta `json:"metadata"`
	}
	if err := json.Unmarshal(kept, &head); err != nil {
		return object{}, fmt.Errorf("an object of the API server has no metadata that could be read: %w", err)
	}
	o := object{name: head.Metadata.Name, uid: head.Metadata.UID}
	// Versions can be compared since Kubernetes 1.35 says so (KEP-5504); it was so before. 0 stands for one that is no number.
	o.version, _ = strconv.ParseUint(head.Metadata.Version, 10, 64)
	var carried struct {
		Spec struct {
			Shoot struct {
				Metadata meta `json:"metadata"`
			} `json:"shoot"`
		} `json:"spec"`
	}
	if kind == Cluster && json.Unmarshal(kept, &carried) == nil {
		o.shootName = carried.Spec.Shoot.Metadata.Name
	}
	o.reading, o.err = shoot.Decode(withType(kind, kept))
	return o, nil
}

// withType adds apiVersion and kind, which an aggregated API server leaves out of the items of a list.
func withType(kind Kind, raw json.RawMessage) []byte {
	var whole map[string]json.RawMessage
	if json.Unmarshal(raw, &whole) != nil || whole == nil || whole["kind"] != nil {
		return raw
	}
	r := resources[kind]
	whole["apiVersion"], _ = json.Marshal(r.group + "/" + r.version)
	whole["kind"], _ = json.Marshal(r.kind)
	out, err := json.Marshal(whole)
	if err != nil {
		return raw
	}
	return out
}
