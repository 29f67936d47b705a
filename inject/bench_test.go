package inject_test

import (
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
)

func BenchmarkMutate(b *testing.B) {
	object := gardener.Get("kube-apiserver-ha-overlap").Tree()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := inject.Mutate(object, options); err != nil {
			b.Fatal(err)
		}
	}
}
