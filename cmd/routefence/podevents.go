package main

import (
	"context"
	"os"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/agent/events"
	"github.com/routefence/routefence/shoot/cluster"
	"go.uber.org/zap"
)

// teller returns what tells events on the pod, or nil where the pod's name is not given or the API is not used at all.
func (s *apiSource) teller(a *agent.Agent, log *zap.Logger) *events.Teller {
	pod := events.Pod{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME"), UID: os.Getenv("POD_UID")}
	if s == nil || pod.Name == "" || pod.Namespace == "" {
		return nil
	}
	return &events.Teller{
		Pod: pod, Log: log,
		State: func() agent.Document { return a.State().At(time.Now()) },
		Post:  func(ctx context.Context, path string, object []byte) error { return post(ctx, s.access, path, object) },
	}
}

// post connects for one request: events are too rare to keep a connection for them.
func post(ctx context.Context, access cluster.Access, path string, object []byte) error {
	c, err := access.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Post(ctx, path, object)
}
