package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"

	"go.uber.org/zap"
)

const uid = "705ab4f5-6393-11e8-b7cc-42010a800002"

// label is a judge that puts a label on everything, but for what is called otherwise.
func label(_ context.Context, o Object) (Verdict, error) {
	switch o.Name {
	case "clash":
		return Verdict{Warnings: []string{"look\nhere"}}, errors.New("container routefence is not ours")
	case "away":
		return Verdict{}, &Unavailable{errors.New("the Cluster cannot be read")}
	case "panic":
		panic("at the disco")
	case "alone":
		return Verdict{Tree: o.Tree, Warnings: []string{strings.Repeat("long ", 100)}}, nil
	}
	next := map[string]any{"labels": map[string]any{"a/b~c": "d"}}
	for name, v := range o.Tree {
		next[name] = v
	}
	return Verdict{Tree: next}, nil
}

func handler(t testing.TB, outcome *Outcome) http.Handler {
	t.Helper()
	return NewHandler(Options{Judge: label, Kinds: []string{"apps/v1/Deployment", "apps/v1/StatefulSet"},
		Observe: func(o Outcome) { *outcome = o }, Log: zap.NewNop()})
}

// review is a well-formed one. The UID comes first, as the API server writes it.
func review(edit func(r map[string]any)) string {
	r := map[string]any{"kind": map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"},
		"operation": "UPDATE", "namespace": "shoot--dev--one", "name": "kube-apiserver", "object": map[string]any{"metadata": map[string]any{}}}
	edit(r)
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return `{"kind":"AdmissionReview","apiVersion":"` + version1 + `","request":{"uid":"` + uid + `",` + string(text[1:]) + `}`
}

func set(name string, value any) func(map[string]any) {
	return func(r map[string]any) { r[name] = value }
}
func as(map[string]any) {}

// send returns the answer and the HTTP status.
func send(t testing.TB, h http.Handler, body io.Reader) (envelope, int) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mutate", body))
	var e envelope
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Response == nil || e.Kind != "AdmissionReview" {
		t.Fatalf("no AdmissionReview: %v %s", err, w.Body)
	}
	return e, w.Code
}

func TestReviews(t *testing.T) {
	whole := review(as)
	for name, c := range map[string]struct {
		body    string
		outcome Outcome
		code    int // of the status, 0 for allowed
		words   string
	}{
		"update":        {whole, Changed, 0, ""},
		"create":        {review(set("operation", "CREATE")), Changed, 0, ""},
		"delete":        {review(set("operation", "DELETE")), Ignored, 0, ""},
		"connect":       {review(set("operation", "CONNECT")), Ignored, 0, ""},
		"scale":         {review(set("subResource", "scale")), Ignored, 0, ""},
		"status":        {review(set("subResource", "status")), Ignored, 0, ""},
		"ephemeral":     {review(set("subResource", "ephemeralcontainers")), Ignored, 0, ""},
		"wrong kind":    {review(set("kind", map[string]any{"version": "v1", "kind": "Pod"})), Ignored, 0, ""},
		"other group":   {review(set("kind", map[string]any{"group": "extensions", "version": "v1", "kind": "Deployment"})), Ignored, 0, ""},
		"leaving":       {review(set("object", map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-12-01T00:00:00Z"}})), Ignored, 0, ""},
		"alone":         {review(set("name", "alone")), Unchanged, 0, ""},
		"clash":         {review(set("name", "clash")), Refused, 403, "container routefence is not ours"},
		"away":          {review(set("name", "away")), Undecided, 503, "cannot be read"},
		"panic":         {review(set("name", "panic")), Panicked, 500, "see its log"},
		"no object":     {review(set("object", nil)), Unreadable, 400, "no JSON object"},
		"object a list": {review(set("object", []any{1})), Unreadable, 400, "no JSON object"},
		"v1beta1":       {strings.Replace(whole, version1, version1Beta, 1), Changed, 0, ""},
		"v2":            {strings.Replace(whole, version1, "admission.k8s.io/v2", 1), Unreadable, 400, "admissionReviewVersions"},
		"no review":     {strings.Replace(whole, "AdmissionReview", "Status", 1), Unreadable, 400, `kind "Status"`},
		"truncated":     {whole[:len(whole)-12], Unreadable, 400, "no AdmissionReview"},
		"uid last":      {`{"request":{"object":{"request":{"uid":"wrong"}},"uid":"` + uid + `","operation":`, Unreadable, 400, "no AdmissionReview"},
		"wrong types":   {strings.Replace(whole, `"UPDATE"`, `7`, 1), Unreadable, 400, "no AdmissionReview"},
		"1.4 MiB":       {review(set("object", map[string]any{"blob": strings.Repeat("x", 14<<20/10)})), Changed, 0, ""},
		"3 MiB":         {review(set("object", map[string]any{"blob": strings.Repeat("x", 3<<20)})), Unreadable, 413, "larger than etcd takes"},
		"3 MiB and old": {review(set("oldObject", map[string]any{"blob": strings.Repeat("x", 3<<20)})), Changed, 0, ""},
		"too large":     {review(set("zzz", strings.Repeat("x", maxBody))), Unreadable, 413, "larger than 8 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			var outcome Outcome
			e, status := send(t, handler(t, &outcome), strings.NewReader(c.body))
			r := e.Response
			if r.UID != uid || status != http.StatusOK {
				t.Errorf("uid %q, HTTP status %d", r.UID, status)
			}
			if outcome != c.outcome {
				t.Errorf("outcome %s, want %s", outcome, c.outcome)
			}
			if r.Allowed != (c.code == 0) || (r.Patch != nil) != (c.outcome == Changed) {
				t.Errorf("%+v %+v", r, r.Status)
			}
			if c.code != 0 && (r.Status.Code != c.code || !strings.Contains(r.Status.Message, c.words)) {
				t.Errorf("status %+v, want %d %q", r.Status, c.code, c.words)
			}
			if want := map[bool]string{true: version1Beta, false: version1}[name == "v1beta1"]; e.APIVersion != want {
				t.Errorf("answered as %s", e.APIVersion)
			}
			for _, w := range r.Warnings {
				if len([]rune(w)) > longest || strings.ContainsAny(w, "\n\r\t") {
					t.Errorf("warning %q", w)
				}
			}
		})
	}
}

// Where there is no UID to answer to, the HTTP status has to say that something is wrong.
func TestWithoutUID(t *testing.T) {
	for _, body := range []string{"", "null", "[]", "{", `{"kind":"AdmissionReview"`, `{"request":null}`, strings.Replace(review(as), uid, "", 1), "\xff\xfe"} {
		var outcome Outcome
		e, status := send(t, handler(t, &outcome), strings.NewReader(body))
		if status != http.StatusBadRequest || e.Response.Allowed || outcome != Unreadable {
			t.Errorf("%q: HTTP status %d, outcome %s, %+v", body, status, outcome, e.Response)
		}
	}
	w := httptest.NewRecorder()
	handler(t, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/mutate", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

// A body that breaks off in the middle, as of a caller that dies.
func TestBodyBreaksOff(t *testing.T) {
	var outcome Outcome
	whole := review(as)
	body := io.MultiReader(strings.NewReader(whole[:len(whole)-8]), iotest{})
	e, _ := send(t, handler(t, &outcome), body)
	if outcome != Unreadable || e.Response.UID != uid || !strings.Contains(e.Response.Status.Message, "ended early") {
		t.Errorf("outcome %s, %+v", outcome, e.Response)
	}
}

type iotest struct{}

func (iotest) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The patch leads exactly to where the judge wants to go, as the API server's own library applies it.
func TestPatchLeadsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := object(t, 3), object(t, 3)
		from["list"], to["list"] = list(t), list(t)
		steps, err := patch(from, to)
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(from, to) != (steps == nil) {
			t.Fatalf("%v to %v: %s", from, to, steps)
		}
		if steps == nil {
			return
		}
		apply, err := jsonpatch.DecodePatch(steps)
		if err != nil {
			t.Fatalf("%s: %v", steps, err)
		}
		before, after := text(t, from), text(t, to)
		got, err := apply.Apply(before)
		if err != nil || !reflect.DeepEqual(decoded(t, got), decoded(t, after)) {
			t.Fatalf("%s\n%s makes %s of it, want %s (%v)", before, steps, got, after, err)
		}
	})
}

func decoded(t *rapid.T, data []byte) (v any) {
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func text(t *rapid.T, v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func object(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		out[rapid.SampledFrom([]string{"a", "b", "c/d", "~1", "e~/f"}).Draw(t, "name")] = value(t, depth)
	}
	return out
}

func value(t *rapid.T, depth int) any {
	choice := rapid.IntRange(0, 6).Draw(t, "kind")
	switch {
	case choice < 2 && depth > 0:
		return object(t, depth-1)
	case choice == 2 && depth > 0:
		return list(t)
	case choice == 3:
		return nil
	case choice == 4:
		return rapid.Int64().Draw(t, "number")
	case choice == 5:
		return rapid.Bool().Draw(t, "truth")
	}
	return rapid.SampledFrom([]string{"", "x", "ü"}).Draw(t, "text")
}

// Whatever comes, the answer is an AdmissionReview, with the UID if one can be read, and nothing is allowed unread.
func FuzzReview(f *testing.F) {
	whole := review(as)
	for _, seed := range []string{whole, whole[:len(whole)/2], "", `{"request":{"uid":"x"`, strings.Replace(whole, version1, version1Beta, 1),
		review(set("object", "text")), review(set("subResource", "scale")), `{"kind":"AdmissionReview","request":{"uid":{}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var outcome Outcome
		e, status := send(t, handler(t, &outcome), bytes.NewReader(body))
		var sent envelope
		if json.Unmarshal(body, &sent) == nil && sent.Request != nil && sent.Request.UID != e.Response.UID {
			t.Errorf("uid %q for %q", e.Response.UID, sent.Request.UID)
		}
		if (status == http.StatusOK) != (e.Response.UID != "") {
			t.Errorf("HTTP status %d with uid %q", status, e.Response.UID)
		}
		if e.Response.Allowed == (outcome == Unreadable) || outcome == "" {
			t.Errorf("allowed=%t, outcome %s", e.Response.Allowed, outcome)
		}
		if (e.Response.Status == nil) != e.Response.Allowed {
			t.Error(fmt.Sprint("a refusal has to say why: ", e.Response))
		}
	})
}

// list is one of few different items, so that one is often another with something put in.
func list(t *rapid.T) []any {
	out := []any{}
	for range rapid.IntRange(0, 4).Draw(t, "items") {
		out = append(out, rapid.SampledFrom([]any{nil, "x", map[string]any{"a": nil}, map[string]any{"b": nil}, []any{int64(1)}}).Draw(t, "item"))
	}
	return out
}
