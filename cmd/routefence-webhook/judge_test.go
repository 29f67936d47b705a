package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/admission"
	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/lookup"
	"github.com/routefence/routefence/test/gardener"
)

const technicalID = "shoot--dev--one"

// judging returns a judge for whom the API server is a function.
func judging(ask func(ctx context.Context, namespace string) (facts, error)) judge {
	return judge{options: inject.Options{Image: "registry.test/routefence:v1"},
		facts: lookup.New(lookup.Options[facts]{Ask: ask, Wait: 50 * time.Millisecond, Fresh: time.Hour})}
}

func knows(networks ...string) func(context.Context, string) (facts, error) {
	var f facts
	for _, n := range networks {
		f.networks = append(f.networks, netip.MustParsePrefix(n))
	}
	f.warnings, f.enforce = []string{"Shoot garden-dev/one: spec.networking.nodes: overlaps"}, "restricted"
	return func(_ context.Context, namespace string) (facts, error) {
		if namespace != technicalID {
			return facts{}, errors.New("asked about " + namespace)
		}
		return f, nil
	}
}

func silent(ctx context.Context, _ string) (facts, error) { <-ctx.Done(); return facts{}, ctx.Err() }

func subject(name string) admission.Object {
	o := gardener.Get(name)
	return admission.Object{Kind: "Deployment", Namespace: technicalID, Name: name, Tree: o.Tree()}
}

// What an object becomes must not depend on whether the API server answered in time: the next reconcile would roll the pods.
func TestTheSameWhetherTheAPIServerAnswersOrNot(t *testing.T) {
	for _, o := range gardener.Objects() {
		if o.Name == "kube-apiserver" {
			continue
		}
		s := subject(o.Name)
		heard, err := judging(knows("10.99.0.0/16")).decide(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		begin := time.Now()
		alone, err := judging(silent).decide(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s: waited for %s", o.Name, took)
		}
		if (heard.Tree != nil) != o.Fenced || fmt.Sprint(heard.Tree) != fmt.Sprint(alone.Tree) {
			t.Errorf("%s: with an answer %v\nwithout %v", o.Name, heard.Tree, alone.Tree)
		}
		if !o.Fenced {
			continue
		}
		if text := strings.Join(heard.Warnings, "\n"); !strings.Contains(text, "overlaps") || !strings.Contains(text, "level restricted") {
			t.Errorf("%s: warnings %q", o.Name, text)
		}
		if text := strings.Join(alone.Warnings, "\n"); !strings.Contains(text, "Cluster "+technicalID+" could not be read") {
			t.Errorf("%s: warnings %q", o.Name, text)
		}
	}
}

// An object that does not name the networks is fenced with those of the Cluster, or not let in.
func TestNetworksOfTheCluster(t *testing.T) {
	s := subject("kube-apiserver")
	v, err := judging(knows("10.250.0.0/16", "10.180.0.0/16")).decide(t.Context(), s)
	if text := fmt.Sprint(v.Tree); err != nil || !strings.Contains(text, "10.180.0.0/16,10.250.0.0/16") {
		t.Errorf("%v %v", text, err)
	}
	turned, err := judging(knows("10.180.0.0/16", "10.250.0.0/16")).decide(t.Context(), s)
	if err != nil || fmt.Sprint(turned.Tree) != fmt.Sprint(v.Tree) {
		t.Errorf("in another order another result: %v", err)
	}
	v, err = judging(knows()).decide(t.Context(), s)
	if err != nil || v.Tree != nil || !strings.Contains(strings.Join(v.Warnings, "\n"), "not fenced") {
		t.Errorf("with a Cluster that names none: %+v %v", v, err)
	}
	_, err = judging(silent).decide(t.Context(), s)
	if unavailable := (*admission.Unavailable)(nil); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("without an answer: %v", err)
	}
}

// What is none of the webhook's business does not even make it ask.
func TestStrangersAreNotAskedAbout(t *testing.T) {
	for _, o := range gardener.Objects() {
		if o.Fenced {
			continue
		}
		v, err := judging(func(context.Context, string) (facts, error) {
			t.Errorf("%s: asked the API server", o.Name)
			return facts{}, nil
		}).decide(t.Context(), subject(o.Name))
		if err != nil || v.Tree != nil {
			t.Errorf("%s: %+v %v", o.Name, v, err)
		}
	}
}

func TestReadCluster(t *testing.T) {
	f, err := readCluster([]byte(`{"kind":"Cluster","metadata":{"name":"shoot--dev--one"},"spec":{"cloudProfile":{"a":1},
		"seed":{"kind":"Seed","spec":{"networks":{"nodes":"10.250.0.0/16","pods":"10.1.0.0/16","services":"10.2.0.0/16"}}},
		"shoot":{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","metadata":{"name":"one","namespace":"garden-dev"},
		"spec":{"networking":{"nodes":"10.250.0.0/16"}},"status":{"networking":{"nodes":["10.250.0.0/16","10.180.0.0/16"]}}}}}`))
	if err != nil || fmt.Sprint(f.networks) != "[10.250.0.0/16 10.180.0.0/16]" {
		t.Errorf("%v %v", f.networks, err)
	}
	if text := strings.Join(f.warnings, "\n"); !strings.Contains(text, "spec.networking.nodes") {
		t.Errorf("nodes that overlap with the seed's: warnings %q", text)
	}
	for bad, want := range map[string]string{"": "unexpected end", "[]": "cannot unmarshal", "{}": "spec.shoot is no object",
		`{"spec":{"shoot":null}}`: "spec.shoot is no object", `{"spec":{"shoot":[]}}`: "spec.shoot is no object", `{"spec":{"seed":7}}`: "cannot unmarshal"} {
		if f, err := readCluster([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%q: %+v, %v, want %s", bad, f, err, want)
		}
	}
}

// A Cluster may hold anything.
func FuzzReadCluster(f *testing.F) {
	for _, seed := range []string{`{"spec":{"shoot":{"kind":"Shoot","spec":{"networking":{"nodes":"10.250.0.0/16"}}},"seed":{"spec":{"networks":{"pods":"10.1.0.0/16"}}}}}`,
		`{"spec":{"shoot":{"spec":{"networking":7},"status":{"networking":{"nodes":["x",{}]}}}}}`, `{"spec":{"shoot":{},"seed":null}}`, "null"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := readCluster(data)
		if err != nil {
			return
		}
		for _, n := range read.networks {
			if n != n.Masked() || n.Bits() == 0 {
				t.Errorf("network %s", n)
			}
		}
	})
}
