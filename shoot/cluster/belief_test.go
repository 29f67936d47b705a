package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/shoot"
)

var one = Ref{Kind: Cluster, Name: "shoot--dev--one"}

// cluster is the JSON of a Cluster with the node networks in its Shoot's spec and status, each "" for none.
func clusterJSON(uid string, version int, spec, status string) string {
	return fmt.Sprintf(`{"apiVersion":"extensions.gardener.cloud/v1alpha1","kind":"Cluster",
		"metadata":{"name":"shoot--dev--one","uid":%q,"resourceVersion":"%d","labels":{"a":"b"}},
		"spec":{"cloudProfile":{"kind":"CloudProfile","spec":{"nodes":"10.99.0.0/16"}},"shoot":{"kind":"Shoot","metadata":{"name":"one"},
		"spec":{"networking":{"nodes":%s,"pods":"100.96.0.0/11"}},"status":{"networking":{"nodes":%s}}}}}`, uid, version, quoted(spec), quoted(status))
}

func quoted(s string) string {
	if s == "" {
		return "null"
	}
	return `"` + s + `"`
}

func seen(t *testing.T, uid string, version int, spec, status string) object {
	t.Helper()
	o, err := read(Cluster, json.RawMessage(clusterJSON(uid, version, spec, status)))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func held(b belief) string { return fmt.Sprint(ranges.Of(b.held.Reading.Networks...).Prefixes()) }

// report is what the world sees.
func report(b belief) shoot.Report { return b.fill(shoot.Report{}) }

func TestBelief(t *testing.T) {
	b := belief{ref: one}
	for _, step := range []struct {
		name        string
		next        func(belief) belief
		want        string
		known       bool
		err, absent string
	}{
		{"nothing yet", func(b belief) belief { return b.miss() }, "[]", false, "NotFound of cluster/shoot--dev--one", ""},
		{"unreachable", func(b belief) belief { return b.lose(&named{Unreachable, errors.New("refused")}) }, "[]", false, "Unreachable", ""},
		{"there, names nothing", func(b belief) belief { return b.reach().hear(seen(t, "u1", 1, "", "")) }, "[]", false, "names no node network", ""},
		{"named", func(b belief) belief { return b.hear(seen(t, "u1", 2, "10.1.0.0/16", "")) }, "[10.1.0.0/16]", true, "", ""},
		{"status too", func(b belief) belief { return b.hear(seen(t, "u1", 3, "10.1.0.0/16", "10.3.0.0/16")) }, "[10.1.0.0/16 10.3.0.0/16]", true, "", ""},
		{"older", func(b belief) belief { return b.hear(seen(t, "u1", 2, "10.1.0.0/16", "")) }, "[10.1.0.0/16 10.3.0.0/16]", true, "", ""},
		{"refused", func(b belief) belief { return b.lose(&named{Forbidden, errors.New("no")}) }, "[10.1.0.0/16 10.3.0.0/16]", true, "", "Forbidden"},
		{"back, and less", func(b belief) belief { return b.reach().hear(seen(t, "u1", 4, "10.1.0.0/16", "10.1.0.0/16")) }, "[10.1.0.0/16]", true, "", ""},
		{"emptied", func(b belief) belief { return b.hear(seen(t, "u1", 5, "", "")) }, "[10.1.0.0/16]", true, "names no node network", ""},
		{"bad", func(b belief) belief { return b.hear(seen(t, "u1", 6, "10.300.0.0/16", "10.4.0.0/16")) }, "[10.1.0.0/16 10.4.0.0/16]", true, "10.300.0.0/16", ""},
		{"deleted", func(b belief) belief { return b.miss() }, "[10.1.0.0/16 10.4.0.0/16]", true, "", "NotFound"},
		{"another, names nothing", func(b belief) belief { return b.hear(seen(t, "u2", 8, "", "")) }, "[10.1.0.0/16 10.4.0.0/16]", true, "names no node network", ""},
		{"another, partly bad", func(b belief) belief { return b.hear(seen(t, "u2", 9, "10.5.0.0/16", "10.300.0.0/16")) },
			"[10.1.0.0/16 10.4.0.0/15]", true, "10.300.0.0/16", ""},
		{"another, good", func(b belief) belief { return b.hear(seen(t, "u2", 10, "10.5.0.0/16", "")) }, "[10.5.0.0/16]", true, "", ""},
		{"its status", func(b belief) belief { return b.hear(seen(t, "u2", 11, "10.5.0.0/16", "10.7.0.0/16")) }, "[10.5.0.0/16 10.7.0.0/16]", true, "", ""},
		{"a third without status", func(b belief) belief { return b.hear(seen(t, "u3", 13, "10.5.0.0/16", "")) }, "[10.5.0.0/16]", true, "", ""},
	} {
		b = step.next(b)
		r := report(b)
		if held(b) != step.want || r.Known != step.known {
			t.Errorf("%s: holds %s known=%t, want %s", step.name, held(b), r.Known, step.want)
		}
		for _, c := range []struct {
			what string
			got  error
			want string
		}{{"err", r.Err, step.err}, {"away", r.Away, step.absent}} {
			if (c.got == nil) != (c.want == "") || !strings.Contains(text(c.got), c.want) {
				t.Errorf("%s: %s is %v, want %q", step.name, c.what, c.got, c.want)
			}
		}
	}
}

// An Infrastructure that may not be read, is not there or names nothing yet is in order, and nothing waits for it.
func TestAdditional(t *testing.T) {
	infra := Ref{Kind: Infrastructure, Namespace: "shoot--dev--one", Name: "one"}
	with := func(status string) object {
		o, err := read(Infrastructure, json.RawMessage(`{"kind":"Infrastructure","apiVersion":"extensions.gardener.cloud/v1alpha1",
			"metadata":{"name":"one","uid":"u","resourceVersion":"3"},"status":`+status+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	fresh := belief{ref: infra, role: additional}
	for name, b := range map[string]belief{
		"403":     fresh.lose(&named{Forbidden, errors.New("no")}),
		"404":     fresh.lose(&named{NotServed, errors.New("no")}),
		"missing": fresh.miss(),
		"empty":   fresh.hear(with(`{}`)),
	} {
		if r := report(b); !r.Known || r.Err != nil || r.Away != nil || len(r.Warnings) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := report(fresh.lose(&named{TimedOut, errors.New("silence")})); r.Known || !strings.Contains(text(r.Err), "TimedOut") {
		t.Errorf("not asked: %+v", r)
	}
	if r := report(fresh.hear(with(`{"nodesCIDR":"10.300.0.0/16"}`))); r.Err == nil {
		t.Errorf("bad item: %+v", r)
	}
	b := fresh.hear(with(`{"nodesCIDR":"10.1.0.0/16","networking":{"nodes":["10.2.0.0/16"]}}`))
	if held(b) != "[10.1.0.0/16 10.2.0.0/16]" {
		t.Errorf("holds %s", held(b))
	}
	if r := report(b.lose(&named{Forbidden, errors.New("no")})); r.Away == nil || r.Err != nil || !strings.Contains(text(r.Away), "stays fenced") {
		t.Errorf("taken away: %+v", r)
	}
}

// Whatever the API server says and however it fails, less than before holds only after an object named something, all of it understood.
func TestBeliefNeverShrinksByTrouble(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		network := rapid.SampledFrom([]string{"", "10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.300.0.0/16"})
		b := belief{ref: one}
		for version := range 12 {
			before := b.held.Reading
			positive := false
			switch rapid.IntRange(0, 4).Draw(t, "act") {
			case 0:
				b = b.miss()
			case 1:
				b = b.lose(errors.New("anything"))
			default:
				uid := rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid")
				older := rapid.IntRange(0, 3).Draw(t, "older")
				spec, status := network.Draw(t, "spec"), network.Draw(t, "status")
				o, err := read(Cluster, json.RawMessage(clusterJSON(uid, max(1, version-older), spec, status)))
				if err != nil {
					t.Fatal(err)
				}
				positive = spec+status != "" && !strings.Contains(spec+status, "300") && (uid != b.held.UID || o.version >= b.version)
				b = b.hear(o)
			}
			if lost := shoot.Lost(before, b.held.Reading); len(lost) > 0 && !positive {
				t.Fatalf("%v lost", lost)
			}
			if len(before.Networks) > 0 && !b.known {
				t.Fatal("known no more")
			}
		}
	})
}

func TestKeepDropsWhatIsNotNeeded(t *testing.T) {
	kept := string(keep(json.RawMessage(clusterJSON("u1", 1, "10.1.0.0/16", "")), trees[Cluster]))
	for _, gone := range []string{"cloudProfile", "labels", "100.96"} {
		if strings.Contains(kept, gone) {
			t.Errorf("%s is still in %s", gone, kept)
		}
	}
	for _, odd := range []string{`null`, `[]`, `"text"`, `{"spec":"text"}`, `{"spec":{"shoot":null}}`, `{"spec":{"shoot":["a"]}}`, `{"metadata":{"name":1}}`} {
		o, err := read(Cluster, json.RawMessage(odd))
		if err == nil && o.err == nil {
			t.Errorf("%s names %v", odd, o.reading.Networks)
		}
	}
}

func TestItemsOfAnAggregatedListHaveNoKind(t *testing.T) {
	o, err := read(Shoot, json.RawMessage(`{"metadata":{"name":"one","uid":"u","resourceVersion":"5"},"spec":{"networking":{"nodes":"10.1.0.0/16"}}}`))
	if err != nil || o.err != nil || o.version != 5 || fmt.Sprint(o.reading.Networks) != "[10.1.0.0/16]" {
		t.Errorf("%+v %v", o, err)
	}
}

func TestParseRef(t *testing.T) {
	for in, want := range map[string]string{
		"cluster/shoot--dev--one": "cluster/shoot--dev--one", "shoot/garden-dev/one": "shoot/garden-dev/one",
		"": "", "cluster": "", "cluster/": "", "cluster/a/b": "", "shoot/a": "", "shoot/a/": "", "node/a": "", "cluster/a b": "",
		"cluster/../x": "", "Cluster/a": "", "infrastructure/a/b": "", "cluster/A": "",
	} {
		r, err := ParseRef(in)
		if (err == nil) != (want != "") || err == nil && r.String() != want {
			t.Errorf("%q: %s, %v", in, r, err)
		}
	}
}
