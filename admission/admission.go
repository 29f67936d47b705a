// Package admission answers the AdmissionReviews of an API server over HTTP: what is to be done with an object is asked of a function,
// and each review gets an answer that the API server understands, whatever state it is in itself.
package admission

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Object is what somebody wants to write.
type Object struct {
	Kind, Namespace, Name string
	// Tree is the object as decoded JSON. It must not be changed.
	Tree map[string]any
}

// Verdict is what becomes of an object.
type Verdict struct {
	// Tree is the object as it shall be; the one that was asked about, or nil, if nothing is to change.
	Tree     map[string]any
	Warnings []string
}

// Judge decides about an object. An error refuses the object.
type Judge func(ctx context.Context, o Object) (Verdict, error)

// Unavailable is an error that may be gone at the next try.
type Unavailable struct{ Err error }

func (u *Unavailable) Error() string { return u.Err.Error() }
func (u *Unavailable) Unwrap() error { return u.Err }

// Outcome is what came of a review, for metrics.
type Outcome string

// The outcomes. Dashboards know them, so none may be renamed.
const (
	Changed     Outcome = "changed"
	Unchanged   Outcome = "unchanged"
	Ignored     Outcome = "ignored"
	Refused     Outcome = "refused"
	Undecided   Outcome = "unavailable"
	Unreadable  Outcome = "unreadable"
	Overwhelmed Outcome = "overwhelmed"
	Panicked    Outcome = "panicked"
)

// Handler is the HTTP handler of a webhook.
type Handler struct {
	judge   Judge
	kinds   []string
	observe func(Outcome)
	log     *zap.Logger
	bodies  *semaphore.Weighted
	objects *semaphore.Weighted
}

// Options are what a handler needs.
type Options struct {
	Judge Judge
	// Kinds are those that are asked about, such as apps/v1/Deployment. Others are let pass.
	Kinds []string
	// Observe is told the outcome of each review.
	Observe func(Outcome)
	Log     *zap.Logger
}

// NewHandler returns a handler.
func NewHandler(o Options) *Handler {
	return &Handler{judge: o.Judge, kinds: o.Kinds, observe: o.Observe, log: o.Log,
		bodies: semaphore.NewWeighted(bodies), objects: semaphore.NewWeighted(objects)}
}

// ServeHTTP answers one review.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST of an AdmissionReview", http.StatusMethodNotAllowed)
		return
	}
	body, release, err := h.receive(w, r)
	defer release()
	if err != nil {
		e, _ := decode(body)
		h.answer(w, e, refusal(err.code, err.Error()), err.outcome)
		return
	}
	e, problem := decode(body)
	if problem != nil {
		h.answer(w, e, refusal(http.StatusBadRequest, problem.Error()), Unreadable)
		return
	}
	answer, outcome := h.review(r.Context(), *e.Request)
	h.answer(w, e, answer, outcome)
}

// review decides about one request. A panic refuses it and leaves the server running: the next object may do no harm.
func (h *Handler) review(ctx context.Context, r request) (answer response, outcome Outcome) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("a review made the webhook panic", zap.Any("panic", p), zap.String("namespace", r.Namespace),
				zap.String("name", r.Name), zap.Stack("stack"))
			answer, outcome = refusal(http.StatusInternalServerError, "the webhook failed; see its log"), Panicked
		}
	}()
	if !h.concerns(r) {
		return response{Allowed: true}, Ignored
	}
	size := int64(len(r.Object))
	if size > maxObject {
		return refusal(http.StatusRequestEntityTooLarge, "the object is larger than etcd takes"), Unreadable
	}
	if err := h.objects.Acquire(ctx, size); err != nil {
		return refusal(http.StatusServiceUnavailable, "too many large objects at the same time"), Overwhelmed
	}
	defer h.objects.Release(size)
	return h.decide(ctx, r)
}

// decide decodes the object and asks the judge.
func (h *Handler) decide(ctx context.Context, r request) (response, Outcome) {
	// As the API server's own decoder does: integers stay integers.
	var tree map[string]any
	if err := utiljson.Unmarshal(r.Object, &tree); err != nil || tree == nil {
		return refusal(http.StatusBadRequest, "the object of the request is no JSON object"), Unreadable
	}
	if leaving(tree) {
		return response{Allowed: true}, Ignored
	}
	v, err := h.judge(ctx, Object{Kind: r.Kind.Kind, Namespace: r.Namespace, Name: r.Name, Tree: tree})
	if err != nil {
		return h.refuse(r, v, err)
	}
	return h.change(r, tree, v)
}

// concerns reports whether a request is one that may need a change. Scaling, status, evictions, ephemeral containers and deletions
// never do, whatever a configuration sends.
func (h *Handler) concerns(r request) bool {
	name := r.Kind.Version + "/" + r.Kind.Kind
	if r.Kind.Group != "" {
		name = r.Kind.Group + "/" + name
	}
	return (r.Operation == "CREATE" || r.Operation == "UPDATE") && r.SubResource == "" && slices.Contains(h.kinds, name)
}

// leaving reports whether an object is being deleted. Its last updates take finalizers away and must not fail.
func leaving(tree map[string]any) bool {
	metadata, _ := tree["metadata"].(map[string]any)
	return metadata["deletionTimestamp"] != nil
}

func (h *Handler) refuse(r request, v Verdict, err error) (response, Outcome) {
	h.log.Warn("refused", zap.String("kind", r.Kind.Kind), zap.String("namespace", r.Namespace), zap.String("name", r.Name), zap.Error(err))
	answer, outcome := refusal(http.StatusForbidden, err.Error()), Refused
	if unavailable := (*Unavailable)(nil); errors.As(err, &unavailable) {
		answer, outcome = refusal(http.StatusServiceUnavailable, err.Error()), Undecided
	}
	answer.Warnings = readable(v.Warnings)
	return answer, outcome
}

func (h *Handler) change(r request, tree map[string]any, v Verdict) (response, Outcome) {
	answer := response{Allowed: true, Warnings: readable(v.Warnings)}
	if v.Tree == nil {
		return answer, Unchanged
	}
	steps, err := patch(tree, v.Tree)
	if err != nil {
		return h.refuse(r, v, err)
	}
	if steps == nil {
		return answer, Unchanged
	}
	answer.Patch, answer.PatchType = steps, "JSONPatch"
	h.log.Info("changed", zap.String("kind", r.Kind.Kind), zap.String("namespace", r.Namespace), zap.String("name", r.Name))
	return answer, Changed
}

// longest is how long a warning may be. The API server cuts longer ones when there are many.
const longest = 256

// readable makes warnings that the API server passes on: it drops those with control characters, as they go into an HTTP header.
func readable(warnings []string) []string {
	var out []string
	for _, w := range warnings {
		w = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || r == unicode.ReplacementChar {
				return ' '
			}
			return r
		}, w)
		if runes := []rune(w); len(runes) > longest {
			w = string(runes[:longest-1]) + "…"
		}
		out = append(out, w)
	}
	return out
}
