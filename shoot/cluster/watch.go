package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/routefence/routefence/shoot"
)

const (
	// answerWait bounds a list, from the first byte sent to the last one received, and the first answer to a watch.
	answerWait = 10 * time.Second
	// watchTime is how long a watch is asked for at most. A watch that has begun goes on after its token was revoked or its right was
	// taken away, and one through a proxy that lives but has lost its other side says nothing for ever
	// (kubernetes-sigs/controller-runtime#2547): both come out when the watch ends, or does not. Watching on from a known revision
	// costs the API server about what the renewal of a Lease does.
	watchTime = 25 * time.Second
	// grace is how much later than asked a watch may end.
	grace = 5 * time.Second
	// proof is how long a watch must stand to count as working.
	proof = 2 * time.Second
	// maxWatch bounds what one watch may send.
	maxWatch = 8 * shoot.MaxSize
)

// follow connects, lists and watches until that fails, and returns why.
func (s *Source) follow(ctx context.Context) error {
	api, err := s.Connect()
	if err != nil {
		return err
	}
	defer api.Close()
	version, err := s.list(ctx, api)
	if err != nil {
		return err
	}
	if !s.doubtful {
		s.reach()
	}
	for {
		if version, err = s.watch(ctx, api, version); err != nil {
			s.doubtful = true
			return err
		}
	}
}

// list asks for the object as it is now, and returns the revision from which to watch. The revision asked for is the newest and not
// "any", or an API server that lags behind could take back what is known already.
func (s *Source) list(ctx context.Context, api API) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWait, noAnswer("list"))
	defer cancel()
	body, err := api.Get(ctx, s.Ref.path(), s.Ref.query())
	if err != nil {
		return "", orCause(ctx, err)
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, shoot.MaxSize+1))
	switch {
	case err != nil:
		return "", orCause(ctx, broken(err))
	case len(data) > shoot.MaxSize:
		return "", &named{NotUnderstood, fmt.Errorf("the list of one object has more than %d bytes", shoot.MaxSize)}
	}
	var answer struct {
		Kind     string            `json:"kind"`
		Metadata meta              `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || !strings.HasSuffix(answer.Kind, "List") {
		return "", &named{NotUnderstood, errors.Join(fmt.Errorf("asked for a list, got %.80q", data), err)}
	}
	return answer.Metadata.Version, s.items(answer.Items)
}

// items takes the one object, or its absence, out of a list.
func (s *Source) items(items []json.RawMessage) error {
	for _, item := range items {
		o, err := read(s.Ref.Kind, item)
		if err != nil {
			return &named{NotUnderstood, err}
		}
		if o.name == s.Ref.Name {
			s.take(o)
			return nil
		}
	}
	s.miss()
	return nil
}

// watch follows the object from a revision on. It returns the revision reached when the watch ended as asked.
func (s *Source) watch(ctx context.Context, api API, version string) (string, error) {
	length := watchTime - rand.N(watchTime/4)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer := time.AfterFunc(answerWait, func() { cancel(noAnswer("watch")) })
	defer answer.Stop()
	query := s.Ref.query()
	maps.Copy(query, map[string][]string{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(length / time.Second))}})
	body, err := api.Get(ctx, s.Ref.path(), query)
	if err != nil {
		return version, orCause(ctx, err)
	}
	defer body.Close()
	if !answer.Stop() {
		return version, noAnswer("watch")
	}
	frames := make(chan frame)
	go receive(ctx, body, frames)
	return s.heed(ctx, frames, version, length+grace)
}

// heed takes the events of one watch until it ends.
func (s *Source) heed(ctx context.Context, frames <-chan frame, version string, limit time.Duration) (string, error) {
	proven, silent := time.NewTimer(proof), time.NewTimer(limit)
	defer proven.Stop()
	defer silent.Stop()
	stands := false
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case <-silent.C:
			return version, &named{Silent, fmt.Errorf("the watch should have ended by itself within %s", limit)}
		case <-proven.C:
			stands = true
			s.proven()
		case f := <-frames:
			if errors.Is(f.err, io.EOF) && stands {
				return version, nil
			}
			if f.err != nil {
				return version, ended(f.err)
			}
			next, err := s.event(f)
			if err != nil {
				return version, err
			}
			if next != "" {
				version = next
			}
		}
	}
}

// proven takes note that the watch works.
func (s *Source) proven() {
	s.doubtful = false
	s.pace.proven()
	s.reach()
}

// ended is why a watch ended that should not have.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return &named{ConnectionLost, errors.New("the watch ended as soon as it had begun")}
	}
	return err
}

// event takes one event and returns the revision it brought.
func (s *Source) event(f frame) (string, error) {
	switch f.Type {
	case "ERROR":
		var status metav1.Status
		if err := json.Unmarshal(f.Object, &status); err != nil {
			return "", &named{NotUnderstood, err}
		}
		return "", &apierrors.StatusError{ErrStatus: status}
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
	default:
		return "", nil
	}
	var head struct {
		Metadata meta `json:"metadata"`
	}
	if err := json.Unmarshal(f.Object, &head); err != nil {
		return "", &named{NotUnderstood, err}
	}
	if f.Type == "BOOKMARK" || head.Metadata.Name != s.Ref.Name {
		return head.Metadata.Version, nil
	}
	if f.Type == "DELETED" {
		s.miss()
		return head.Metadata.Version, nil
	}
	o, err := read(s.Ref.Kind, f.Object)
	if err != nil {
		return "", &named{NotUnderstood, err}
	}
	s.take(o)
	return head.Metadata.Version, nil
}

// frame is one event of a watch, or its end.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
	err    error
}

// receive reads events until the body ends or ctx does.
func receive(ctx context.Context, body io.Reader, to chan<- frame) {
	for d := json.NewDecoder(io.LimitReader(body, maxWatch)); ; {
		var f frame
		if err := d.Decode(&f); err != nil {
			f.err = broken(err)
		}
		select {
		case <-ctx.Done():
			return
		case to <- f:
		}
		if f.err != nil {
			return
		}
	}
}

// broken tells an answer that stopped from one that makes no sense. The errors of HTTP/2 have no exported types.
func broken(err error) error {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case errors.As(err, &syntax), errors.As(err, &mistyped):
		return &named{NotUnderstood, err}
	}
	return &named{ConnectionLost, err}
}

func noAnswer(to string) error {
	return &named{TimedOut, fmt.Errorf("no complete answer to the %s within %s", to, answerWait)}
}

// orCause prefers the reason for which ctx was ended to the error that this caused.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
