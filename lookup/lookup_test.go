package lookup

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestManyAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		table := New(Options[int64]{Wait: time.Second, Fresh: time.Second, Ask: func(context.Context, string) (int64, error) {
			time.Sleep(100 * time.Millisecond)
			return asked.Add(1), nil
		}})
		get := func() int64 {
			n, err := table.Get(t.Context(), "one")
			if err != nil {
				t.Error(err)
			}
			return n
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if n := get(); n != 1 {
					t.Errorf("answer %d", n)
				}
			})
		}
		all.Wait()
		time.Sleep(500 * time.Millisecond)
		if n := get(); n != 1 {
			t.Errorf("asked %d times within a second", n)
		}
		time.Sleep(time.Second)
		if n := get(); n != 2 {
			t.Errorf("answer %d after more than a second", n)
		}
		_, _ = table.Get(t.Context(), "two")
		time.Sleep(time.Minute)
		get()
		if len(table.answers) != 1 {
			t.Errorf("%d answers are kept", len(table.answers))
		}
	})
}

func TestNobodyWaitsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 2)
		table := New(Options[int]{Wait: time.Second, Fresh: time.Second, Ask: func(ctx context.Context, key string) (int, error) {
			if key == "late" {
				time.Sleep(1500 * time.Millisecond)
				return 7, nil
			}
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, ctx.Err()
		}})
		begin := time.Now()
		if _, err := table.Get(t.Context(), "dead"); err == nil || !strings.Contains(err.Error(), "no answer within 1s") || time.Since(begin) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		if _, err := table.Get(t.Context(), "late"); err == nil {
			t.Error("an answer before its time")
		}
		time.Sleep(700 * time.Millisecond)
		if n, err := table.Get(t.Context(), "late"); n != 7 || err != nil {
			t.Errorf("what came late is lost: %d %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := table.Get(ctx, "other"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that is gone: %v", err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("asking ended by %v", err)
			}
		}
	})
}
