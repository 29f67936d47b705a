package manifest_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"
	"github.com/routefence/routefence/manifest"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
	yamljson "sigs.k8s.io/yaml"
)

func split(t rapid.TB, stream string) []manifest.Document {
	t.Helper()
	docs, err := manifest.Split([]byte(stream))
	if err != nil {
		t.Fatalf("%v in\n%s", err, stream)
	}
	var all strings.Builder
	for _, d := range docs {
		all.WriteString(d.Text)
	}
	if all.String() != stream {
		t.Fatalf("texts do not make up the stream:\n%s", udiff.Unified("stream", "texts", stream, all.String()))
	}
	return docs
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		kinds  []string // "" for a document without object
	}{
		"one":                {"kind: A\n", []string{"A"}},
		"no last newline":    {"kind: A\n---\nkind: B", []string{"A", "B"}},
		"separator first":    {"---\nkind: A\n--- # next\nkind: B\n", []string{"A", "B"}},
		"empty ones":         {"# licence\n---\n---\nkind: A\n---\n# end\n", []string{"", "", "A", ""}},
		"on the marker":      {"--- {kind: A}\n--- {kind: B}\n", []string{"A", "B"}},
		"dashes in a scalar": {"kind: A\ntext: |\n  ---\n  x\n----: 1\n", []string{"A"}},
		"end marker":         {"kind: A\n...\n---\nkind: B\n...\n", []string{"A", "B"}},
		"directive":          {"%YAML 1.1\n---\nkind: A\n", []string{"", "A"}},
		"CRLF":               {"kind: A\r\n---\r\nkind: B\r\n", []string{"A", "B"}},
		"JSON values":        {"{\"kind\":\"A\"}\n{\"kind\":\"B\"} {\"kind\":\"C\"}\n", []string{"A", "B", "C"}},
		"JSON and YAML":      {"{\"kind\":\"A\"}\n---\nkind: B\n", []string{"A", "B"}},
		"byte order mark":    {"\ufeffkind: A\n", []string{"A"}},
	} {
		t.Run(name, func(t *testing.T) {
			docs := split(t, c.stream)
			var kinds []string
			number := 0
			for _, d := range docs {
				kind, _ := d.Object["kind"].(string)
				kinds = append(kinds, kind)
				if d.Object != nil {
					number++
				}
				if d.Object != nil && d.Number != number {
					t.Errorf("%q has number %d", d.Text, d.Number)
				}
			}
			if !reflect.DeepEqual(kinds, c.kinds) {
				t.Errorf("want %q, got %q", c.kinds, kinds)
			}
		})
	}
}

func TestSplitNamesTheDocument(t *testing.T) {
	for stream, want := range map[string]string{
		"kind: A\n---\n# nothing\n---\nkind: B\n  c: d\n": "document 2 (from line 4 on): ",
		"- a\n":                     "document 1 (from line 1 on): is no object",
		"{\"kind\":\"A\"}\n{\"kind": "document 1 (from line 1 on): ",
	} {
		_, err := manifest.Split([]byte(stream))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", stream, err, want)
		}
	}
}

// rewritings are texts, a change, and the text then.
var rewritings = []struct {
	name, before, after string
	change              func(map[string]any)
	anew                bool
}{
	{name: "nothing", before: "a:   1 # one\n", after: "a:   1 # one\n", change: func(map[string]any) {}},
	{name: "new key", before: "# top\nm:\n  b: 2 # two\n\n  # about a\n  a: 1\n\n# bottom\nz: 1\n",
		after:  "# top\nm:\n  b: 2 # two\n\n  # about a\n  a: 1\n  k: \"3\"\n\n# bottom\nz: 1\n",
		change: func(o map[string]any) { o["m"].(map[string]any)["k"] = "3" }},
	{name: "new key behind a list below its key", before: "m:\n  l:\n  - x\n  - w\nz: 1\n", after: "m:\n  l:\n  - x\n  - w\n  k: 3\nz: 1\n",
		change: func(o map[string]any) { o["m"].(map[string]any)["k"] = 3.0 }},
	{name: "first item", before: "l:\n# about x\n- name: x\n  v: 1\n- name: w\n", after: "l:\n- name: k\n# about x\n- name: x\n  v: 1\n- name: w\n",
		change: func(o map[string]any) {
			o["l"] = append([]any{map[string]any{"name": "k"}}, o["l"].([]any)...)
		}},
	{name: "last item, and no last newline", before: "l:\n    - name: x\n    - name: w", after: "l:\n    - name: x\n    - name: w\n    - name: k",
		change: func(o map[string]any) { o["l"] = append(o["l"].([]any), map[string]any{"name": "k"}) }},
	{name: "value in the first line of an item", before: "l:\n  - name: x # the name\n    v: 1\n", after: "l:\n  - name: x # the name\n    v: 2\n",
		change: func(o map[string]any) { o["l"].([]any)[0].(map[string]any)["v"] = 2.0 }},
	{name: "the first line of an item", before: "l:\n  - v: 1\n    name: x # the name\n", after: "l:\n  - v: 2\n    name: x # the name\n",
		change: func(o map[string]any) { o["l"].([]any)[0].(map[string]any)["v"] = 2.0 }},
	{name: "removed", before: "a: 1\nm:\n  x:\n  - 1\n  # kept\n  w: 2\nl:\n- name: x\n- name: w # gone\n",
		after: "a: 1\nm:\n  # kept\n  w: 2\nl:\n- name: x\n",
		change: func(o map[string]any) {
			delete(o["m"].(map[string]any), "x")
			o["l"] = o["l"].([]any)[:1]
		}},
	{name: "flow style becomes block style, and that alone", before: "a: {x: 1}  # one\nl: []\nb: [1,   2]\n", after: "a:\n  w: 2\n  x: 1\nl:\n- 1\nb: [1,   2]\n",
		change: func(o map[string]any) {
			o["a"].(map[string]any)["w"] = 2.0
			o["l"] = []any{1.0}
		}},
	{name: "block scalar last", before: "m:\n  s: |\n    # no comment\n    text\n    # nor this\nz: 1\n", after: "m:\n  s: |\n    # no comment\n    text\n    # nor this\n  k: 1\nz: 1\n",
		change: func(o map[string]any) { o["m"].(map[string]any)["k"] = 1.0 }},
	{name: "CRLF", before: "m:\r\n  a: 1\r\nz: 1\r\n", after: "m:\r\n  a: 1\r\n  k: 1\r\nz: 1\r\n",
		change: func(o map[string]any) { o["m"].(map[string]any)["k"] = 1.0 }},
	{name: "end marker", before: "a: 1\n...\n", after: "a: 1\nk: 1\n...\n", change: func(o map[string]any) { o["k"] = 1.0 }},
	{name: "objects in a list", before: "items:\n- kind: A # a\n  metadata:\n    name: x\n- kind: B # b\n  metadata:\n    name: x\n",
		after:  "items:\n- kind: A # a\n  metadata:\n    name: x\n- kind: B # b\n  metadata:\n    name: x\n  k: 1\n",
		change: func(o map[string]any) { o["items"].([]any)[1].(map[string]any)["k"] = 1.0 }},
	{name: "an anchor", before: "a: &x # x\n  b: 1\nc: *x # c\n", after: "a: &x # x\n  b: 1\nc:\n  b: 1\n  k: 1\n",
		change: func(o map[string]any) { o["c"].(map[string]any)["k"] = 1.0 }},
	{name: "what an anchor shares is beyond it", before: "---\na: &x\n  b: 1\nc: *x\n", after: "---\na:\n  b: 1\n  k: 1\nc:\n  b: 1\n", anew: true,
		change: func(o map[string]any) { o["a"].(map[string]any)["k"] = 1.0 }},

	{name: "JSON", before: "{\n  \"z\": 1,\n  \"a\": {\n    \"x\": \"<&>\"\n  }\n}\n", after: "{\n  \"z\": 1,\n  \"a\": {\n    \"x\": \"<&>\",\n    \"k\": [\n      \"<\"\n    ]\n  }\n}\n",
		change: func(o map[string]any) { o["a"].(map[string]any)["k"] = []any{"<"} }},
	{name: "JSON behind a separator", before: "---\n{\"b\":1,\"a\":2}\n", after: "---\n{\"b\":1,\"a\":2,\"k\":1}\n", change: func(o map[string]any) { o["k"] = 1.0 }},
	{name: "flow style all over", before: "{b: 1, a: 2}\n", after: "a: 2\nb: 1\nk: 1\n", anew: true, change: func(o map[string]any) { o["k"] = 1.0 }},
	{name: "integers that a float cannot hold, in flow style", before: "{a: 9007199254740993, b: [-9223372036854775807, 18446744073709551615], c: 1.50, d: 1e3, e: 1e100}\n",
		after: "a: 9007199254740993\nb:\n- -9223372036854775807\n- 18446744073709551615\nc: 1.5\nd: 1000\ne: 1e+100\nk: 1\n", anew: true,
		change: func(o map[string]any) { o["k"] = 1.0 }},
	{name: "integers that a float cannot hold, in a part that becomes block style", before: "a: {x: 9007199254740993}\nb: {y: 9007199254740993, z: 1.50}\n",
		after: "a:\n  w: 2\n  x: 9007199254740993\nb: {y: 9007199254740993, z: 1.50}\n", change: func(o map[string]any) { o["a"].(map[string]any)["w"] = 2 }},
	{name: "an integer that a float takes for another", before: "a: 9007199254740992\n", after: "a: 9007199254740993\n",
		change: func(o map[string]any) { o["a"] = int64(9007199254740993) }},
	{name: "integers that a float cannot hold, in JSON", before: `{"l":[{"x":9007199254740993,"y":1.50}]}`, after: `{"l":[{"k":1,"x":9007199254740993,"y":1.50},{}]}`,
		change: func(o map[string]any) {
			o["l"] = []any{maps.Collect(func(yield func(string, any) bool) {
				yield("k", 1)
				maps.All(o["l"].([]any)[0].(map[string]any))(yield)
			}), map[string]any{}}
		}},
	{name: "compact JSON", before: `{"z":1,"l":[{"name":"x","v":1.50},{"name":"y"}]}`, after: `{"z":1,"l":[{"name":"k"},{"name":"x","v":1.50},{"name":"y","k":1}]}`,
		change: func(o map[string]any) {
			l := o["l"].([]any)
			l[1].(map[string]any)["k"] = 1.0
			o["l"] = append([]any{map[string]any{"name": "k"}}, l...)
		}},
}

func TestRewrite(t *testing.T) {
	for _, c := range rewritings {
		t.Run(c.name, func(t *testing.T) {
			d := split(t, c.before)[0]
			object := split(t, c.before)[0].Object
			c.change(object)
			r, err := d.Rewrite(object)
			if err != nil {
				t.Fatal(err)
			}
			text := r.Text
			if r.Anew != c.anew || text != c.after {
				t.Errorf("anew %v\n%s", r.Anew, udiff.Unified("want", "got", c.after, text))
			}
		})
	}
}

// styles write the same object in different ways.
var styles = map[string]func(any) ([]byte, error){
	"compact lists": yamljson.Marshal,
	"indented lists": func(v any) ([]byte, error) {
		return yaml.Marshal(v)
	},
}

// TestRewriteAnything: whatever is changed, the text then says the new object, and comments of what stayed are still there.
func TestRewriteAnything(t *testing.T) {
	for style, marshal := range styles {
		t.Run(style, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				before := tree(t, "before", 3)
				before["there"] = "always" // nothing is no document
				data, err := marshal(before)
				if err != nil {
					t.Fatal(err)
				}
				text := "# comment 1\n" + string(data) + "# comment 2\n"
				d := split(t, text)[0]
				after := vary(t, split(t, text)[0].Object, 3).(map[string]any)
				r, err := d.Rewrite(after)
				if err != nil {
					t.Fatal(err)
				}
				made := r.Text
				if got := split(t, made)[0].Object; !reflect.DeepEqual(got, decoded(t, after)) {
					t.Fatalf("want %v\ngot %v\nbefore\n%s\nafter\n%s", after, got, text, made)
				}
				if applied, err := udiff.Apply(text, r.Edits); err != nil || applied != made {
					t.Fatalf("%v: edits make\n%s\ninstead of\n%s", err, applied, made)
				}
				if !r.Anew && strings.Count(made, "# comment") != 2 {
					t.Fatalf("comments are lost:\n%s", made)
				}
			})
		})
	}
}

// decoded is a tree as it is read from JSON, with its numbers to the digit.
func decoded(t *rapid.T, v any) (out any) {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

var scalars = []any{nil, true, "", "x", "true", "- a", "a: b # c", "two\nlines\n", "ends\n\n", 1.0, -2.5, int64(1<<53 + 1), map[string]any{}, []any{}}

// tree draws an object.
func tree(t *rapid.T, label string, depth int) map[string]any {
	m := map[string]any{}
	for _, key := range []string{"name", "b", "c", "kind"} {
		if rapid.Bool().Draw(t, label+"."+key) {
			m[key] = branch(t, label+"."+key, depth-1)
		}
	}
	return m
}

func branch(t *rapid.T, label string, depth int) any {
	kind := rapid.IntRange(0, 3).Draw(t, label)
	if depth == 0 || kind < 2 {
		return rapid.SampledFrom(scalars).Draw(t, label)
	}
	if kind == 2 {
		return tree(t, label, depth)
	}
	var l []any
	for range rapid.IntRange(1, 3).Draw(t, label+" length") {
		l = append(l, branch(t, label+"[]", depth-1))
	}
	return l
}

// vary draws changes of a tree.
func vary(t *rapid.T, v any, depth int) any {
	act := rapid.IntRange(0, 5).Draw(t, "act")
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range []string{"name", "b", "c", "kind"} {
			if e, ok := v[key]; ok && rapid.IntRange(0, 5).Draw(t, "drop") > 0 {
				out[key] = vary(t, e, depth-1)
			}
		}
		if act == 0 {
			out["new"] = branch(t, "new", 2)
		}
		return out
	case []any:
		var out []any
		for _, e := range v {
			if rapid.IntRange(0, 5).Draw(t, "drop") > 0 {
				out = append(out, vary(t, e, depth-1))
			}
			if rapid.IntRange(0, 4).Draw(t, "insert") == 0 {
				out = append(out, branch(t, "item", 2))
			}
		}
		if out == nil {
			return []any{}
		}
		return out
	}
	if act == 0 {
		return branch(t, "other", 2)
	}
	return v
}

// FuzzRewrite: no text is too odd to be split, and what is changed in it reads as it should.
func FuzzRewrite(f *testing.F) {
	for _, c := range rewritings {
		f.Add(c.before, "name")
	}
	f.Add("? a\n: - b\n- c\n", "b")
	f.Add("a: !!binary Zm9v\n'b': \"\\u00e9\"\n", "c")
	f.Fuzz(func(t *testing.T, stream, key string) {
		docs, err := manifest.Split([]byte(stream))
		if err != nil {
			return
		}
		var all strings.Builder
		for _, d := range docs {
			all.WriteString(d.Text)
			if d.Object == nil {
				continue
			}
			d.Object = maps.Clone(d.Object)
			after := maps.Clone(d.Object)
			after[strings.ToValidUTF8(key, "?")] = []any{"x"}
			r, err := d.Rewrite(after)
			if err != nil {
				// The encoder cannot write every string that the decoder reads.
				if !strings.Contains(err.Error(), "write the object as YAML") {
					t.Fatalf("%q: %v", d.Text, err)
				}
				continue
			}
			again, err := manifest.Split([]byte(r.Text))
			if err != nil {
				t.Fatalf("%q became %q: %v", d.Text, r.Text, err)
			}
			for _, a := range again {
				if a.Object != nil && !reflect.DeepEqual(a.Object, after) {
					t.Fatalf("%q became %q\nwant %v\ngot %v", d.Text, r.Text, after, a.Object)
				}
			}
		}
		if all.String() != stream {
			t.Fatalf("%q became %q", stream, all.String())
		}
	})
}
