package shoot_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/shoot"
)

func decode(t testing.TB, text string) shoot.Reading {
	t.Helper()
	r, err := shoot.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return r
}

func TestAccept(t *testing.T) {
	const (
		both     = "kind: Shoot\nspec: {networking: {nodes: 10.1.0.0/16}}\nstatus: {networking: {nodes: [10.1.0.0/16, 10.2.0.0/16]}}\n"
		specOnly = "spec: {networking: {nodes: 10.1.0.0/16}}\nkind: Shoot\n"
		block    = "kind: Shoot\nspec:\n  networking:\n    nodes: 10.1.0.0/16\nstatus:\n  networking:\n    nodes: [10.2.0.0/16]\n"
		// What the API server wrote has a uid.
		written     = "metadata: {uid: 1}\n" + both
		writtenSpec = "metadata: {uid: 1}\n" + specOnly
	)
	for _, c := range []struct{ name, last, next, want, why string }{
		{"first", "", "10.1.0.0/16", "10.1.0.0/16", ""},
		{"first, open end", "", strings.TrimSpace(specOnly), "10.1.0.0/16", ""},
		{"same", both, both, "10.1.0.0/16 10.2.0.0/16", ""},
		{"growth", "10.1.0.0/16", "10.2.0.0/16 10.1.0.0/16", "10.2.0.0/16 10.1.0.0/16", ""},
		{"growth by a wider network", "10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", ""},
		{"same addresses cut otherwise", "10.0.0.0/15", "10.0.0.0/16,10.1.0.0/16", "10.0.0.0/16 10.1.0.0/16", ""},
		{"shrink", "10.1.0.0/16,10.2.0.0/16", "10.2.0.0/16", "10.2.0.0/16", ""},
		{"shrink by a narrower network", "10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/16", ""},
		{"replaced", "10.1.0.0/16", "10.2.0.0/16", "10.2.0.0/16", ""},
		{"shrink in the same field", both, strings.ReplaceAll(both, "[10.1.0.0/16, 10.2.0.0/16]", "[10.1.0.0/16]"), "10.1.0.0/16", ""},
		{"shrink with a bad item", "10.1.0.0/16,10.2.0.0/16", "10.2.0.0/16,10.3.0.0/16,10.300.0.0/16", "10.1.0.0/16 10.2.0.0/16 10.3.0.0/16", "10.300"},
		{"growth with a bad item", "10.1.0.0/16", "10.2.0.0/16,10.1.0.0/16,10.300.0.0/16", "10.2.0.0/16 10.1.0.0/16", "10.300"},
		{"shrink, open end", both, "kind: Shoot\nstatus:\n  networking:\n    nodes: [10.2.0.0/16]\nspec: {networking: {nodes: 10.2.0.0/16}}",
			"10.1.0.0/16 10.2.0.0/16", "10.1.0.0/16 stays fenced"},
		{"growth, open end", "10.1.0.0/16", strings.TrimSpace(both), "10.1.0.0/16 10.2.0.0/16", ""},
		{"a field is gone", written, writtenSpec, "10.1.0.0/16 10.2.0.0/16", "status.networking.nodes of Shoot named networks before"},
		{"a field is gone, JSON", asJSON(t, written), asJSON(t, writtenSpec), "10.1.0.0/16", ""},
		{"a field is gone, written by hand", both, specOnly, "10.1.0.0/16", ""},
		{"a field is gone, nothing lost", both, "kind: Shoot\nstatus: {networking: {nodes: [10.1.0.0/16, 10.2.0.0/16]}}\n", "10.1.0.0/16 10.2.0.0/16", ""},
		{"cut at the end of a line, written by hand", block, block[:strings.Index(block, "status")], "10.1.0.0/16 10.2.0.0/16", "the beginning of what was read before"},
		{"another object", both, "kind: Shoot\nmetadata: {name: x}\nspec: {networking: {nodes: 10.1.0.0/16}}\n", "10.1.0.0/16", ""},
		{"a list instead", both, "10.1.0.0/16", "10.1.0.0/16", ""},
		{"a document is gone", written + "---\n" + infraHead + "metadata: {name: x, uid: 2}\nstatus: {nodesCIDR: 10.9.0.0/16}\n", strings.Replace(written, "uid: 1", "uid: 1, generation: 2", 1),
			"10.1.0.0/16 10.2.0.0/16 10.9.0.0/16", "status.nodesCIDR of Infrastructure x"},
		{"the last field is gone, nothing lost", written + "tail: 1\n", written, "10.1.0.0/16 10.2.0.0/16", ""},
		{"the last field is gone and a network too", written + "tail: 1\n", strings.ReplaceAll(written, ", 10.2.0.0/16", ""), "10.1.0.0/16 10.2.0.0/16",
			"tail was the last field of Shoot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var last shoot.Reading
			if c.last != "" {
				last = decode(t, c.last)
			}
			got, err := shoot.Accept(last, decode(t, c.next))
			if have := strings.Join(texts(got.Networks), " "); have != c.want {
				t.Errorf("got %s, want %s", have, c.want)
			}
			if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want %q", err, c.why)
			}
		})
	}
	last := decode(t, both)
	got, err := shoot.Accept(last, shoot.Reading{Kind: "list"})
	if diff := cmp.Diff(texts(last.Networks), texts(got.Networks)); diff != "" || err == nil {
		t.Errorf("nothing accepted: %v\n%s", err, diff)
	}
}

// An incomplete statement adds what it names, and the next complete one is measured by the last complete one.
func TestAcceptAfterAnIncompleteStatement(t *testing.T) {
	last := decode(t, "10.1.0.0/16,10.2.0.0/16")
	got, err := shoot.Accept(last, decode(t, "10.3.0.0/16,10.300.0.0/16"))
	if have := strings.Join(texts(got.Networks), " "); err == nil || have != "10.1.0.0/16 10.2.0.0/16 10.3.0.0/16" {
		t.Fatalf("got %s, %v", have, err)
	}
	got, err = shoot.Accept(got, decode(t, "10.3.0.0/16"))
	if have := strings.Join(texts(got.Networks), " "); err != nil || have != "10.3.0.0/16" {
		t.Errorf("got %s, %v", have, err)
	}
}

// Wherever a writer stops, what it has written so far takes nothing away.
func TestCutObjectsNeverShrink(t *testing.T) {
	for _, name := range []string{"shoot.yaml", "cluster.yaml", "infrastructure.yaml"} {
		whole := read(t, name)
		two := whole + "---\n" + strings.NewReplacer("one", "two", "10.25", "10.15").Replace(whole)
		for form, text := range map[string]string{"YAML": whole, "JSON": asJSON(t, whole), "two documents": two} {
			last := decode(t, text)
			for cut := range len(text) {
				// Each byte of one object is enough; of two, look at the cuts that leave valid YAML most often.
				if form == "two documents" && text[cut] != '\n' && (cut == 0 || text[cut-1] != '\n') {
					continue
				}
				next, err := shoot.Decode([]byte(text[:cut]))
				if err != nil {
					continue
				}
				got, _ := shoot.Accept(last, next)
				if lost := shoot.Lost(last, got); len(lost) > 0 {
					t.Errorf("%s as %s cut at %d loses %v:\n%s", name, form, cut, lost, text[:cut])
				}
			}
		}
	}
}

// For any two statements: what next names holds, nothing comes from elsewhere, and trouble loses nothing.
func TestAcceptProperties(t *testing.T) {
	networks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "address")}), rapid.IntRange(26, 32).Draw(t, "bits")).Masked()
	}), 0, 5)
	reading := rapid.Custom(func(t *rapid.T) shoot.Reading {
		r := shoot.Reading{Networks: networks.Draw(t, "networks"), Truncated: rapid.Bool().Draw(t, "truncated")}
		for range rapid.IntRange(0, 2).Draw(t, "fields") {
			r.Fields = append(r.Fields, shoot.Field{Object: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "object"),
				Path: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "path")})
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		last, next := reading.Draw(t, "last"), reading.Draw(t, "next")
		got, err := shoot.Accept(last, next)
		if lost := shoot.Lost(next, got); len(lost) > 0 {
			t.Fatalf("%v of next do not hold", lost)
		}
		if err != nil && len(shoot.Lost(last, got)) > 0 {
			t.Fatalf("%v, and yet %v are lost", err, shoot.Lost(last, got))
		}
		either := ranges.Of(last.Networks...).Union(ranges.Of(next.Networks...))
		if from := ranges.Of(got.Networks...).Minus(either); !from.Empty() {
			t.Fatalf("%v come from nowhere", from)
		}
		if again, _ := shoot.Accept(got, next); len(next.Networks) > 0 && len(shoot.Lost(got, again)) > 0 && err != nil {
			t.Fatalf("the same incomplete statement, once more, loses %v", shoot.Lost(got, again))
		}
	})
}
