// Package lookup asks for something once on behalf of all who want to know it at the same time, and lets nobody wait for long.
package lookup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Options are what a table needs.
type Options[T any] struct {
	// Ask fetches what is known of a key. Its context outlives those who wait for the answer.
	Ask func(ctx context.Context, key string) (T, error)
	// Wait is how long somebody waits for an answer. Asking itself goes on for twice as long, for the next one.
	Wait time.Duration
	// Fresh is how long an answer counts, a failure too.
	Fresh time.Duration
}

// Table has an answer for each key that was asked for lately.
type Table[T any] struct {
	Options[T]
	flights singleflight.Group

	mu      sync.Mutex
	answers map[string]answer[T]
}

type answer[T any] struct {
	value T
	err   error
	until time.Time
}

// New returns an empty table.
func New[T any](o Options[T]) *Table[T] {
	return &Table[T]{Options: o, answers: map[string]answer[T]{}}
}

// Get returns what is known of a key, if need be by asking.
func (t *Table[T]) Get(ctx context.Context, key string) (T, error) {
	if a, ok := t.known(key); ok {
		return a.value, a.err
	}
	flight := t.flights.DoChan(key, func() (any, error) { return t.ask(key), nil })
	wait := time.NewTimer(t.Wait)
	defer wait.Stop()
	var none T
	select {
	case r := <-flight:
		a := r.Val.(answer[T])
		return a.value, a.err
	case <-wait.C:
		return none, fmt.Errorf("no answer within %s", t.Wait)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (t *Table[T]) ask(key string) answer[T] {
	ctx, cancel := context.WithTimeout(context.Background(), 2*t.Wait)
	defer cancel()
	var a answer[T]
	a.value, a.err = t.Ask(ctx, key)
	now := time.Now()
	a.until = now.Add(t.Fresh)
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, old := range t.answers {
		if now.After(old.until) {
			delete(t.answers, k)
		}
	}
	t.answers[key] = a
	return a
}

func (t *Table[T]) known(key string) (answer[T], bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, ok := t.answers[key]
	return a, ok && time.Now().Before(a.until)
}
