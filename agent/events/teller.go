package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/agent"
)

const (
	// look is how often the state is compared with the one before. What came and went in between is in the log.
	look = time.Second
	// burst events may be told in a row, then one in a refill: a tunnel that flaps must not fill the seed's etcd.
	burst  = 10
	refill = time.Minute
	// rest is how long nothing is tried after an event could not be told, most likely as it is not allowed.
	rest = 5 * time.Minute
	// tellWait bounds one try.
	tellWait = 10 * time.Second
)

// Pod is what the events are about.
type Pod struct{ Namespace, Name, UID string }

// Teller writes events on a pod.
type Teller struct {
	Pod Pod
	// State returns what the agent found last.
	State func() agent.Document
	// Post sends an object to a path of the API server.
	Post func(ctx context.Context, path string, object []byte) error
	Log  *zap.Logger

	tokens   float64
	filled   time.Time
	restsTil time.Time
}

// Run tells until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	t.tokens, t.filled = burst, time.Now()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var before agent.Document
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		after := t.State()
		for _, e := range between(before, after) {
			t.tell(ctx, e)
		}
		before = after
	}
}

// tell sends one event if it may, and forgets it otherwise.
func (t *Teller) tell(ctx context.Context, e Event) {
	now := time.Now()
	t.tokens = min(burst, t.tokens+float64(now.Sub(t.filled))/float64(refill))
	t.filled = now
	if t.tokens < 1 || now.Before(t.restsTil) {
		return
	}
	t.tokens--
	object, err := json.Marshal(t.object(e, now))
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tellWait)
		defer cancel()
		err = t.Post(ctx, "/api/v1/namespaces/"+t.Pod.Namespace+"/events", object)
	}
	if err != nil {
		t.restsTil = time.Now().Add(rest)
		t.Log.Info("no event on the pod; that needs the right to create events, and nothing else does", zap.String("reason", string(e.Reason)), zap.Error(err))
	}
}

// object is the event as the API has it.
func (t *Teller) object(e Event, now time.Time) map[string]any {
	kind, at := "Normal", now.UTC().Format(time.RFC3339)
	if e.warning() {
		kind = "Warning"
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"namespace": t.Pod.Namespace, "name": fmt.Sprintf("%.200s.%x", t.Pod.Name, now.UnixNano())},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": t.Pod.Namespace, "name": t.Pod.Name,
			"uid": t.Pod.UID},
		"reason": e.Reason, "message": fmt.Sprintf("%.1000s", e.Message), "type": kind, "count": 1, "firstTimestamp": at, "lastTimestamp": at,
		"source": map[string]any{"component": "routefence"}, "reportingComponent": "routefence", "reportingInstance": t.Pod.Name,
	}
}
