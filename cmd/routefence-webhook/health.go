package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// healthMux is what kubelet and Prometheus see.
func (w *webhook) healthMux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", w.metrics.handler())
	mux.HandleFunc("/healthz", func(rw http.ResponseWriter, r *http.Request) { answer(rw, nil) })
	mux.HandleFunc("/readyz", func(rw http.ResponseWriter, r *http.Request) { answer(rw, w.ready()) })
	return mux
}

func answer(rw http.ResponseWriter, err error) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		rw.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(rw, err)
		return
	}
	fmt.Fprintln(rw, "ok")
}

// ready reports why no review should come here, or nil.
func (w *webhook) ready() error {
	switch {
	case w.leaving.Load():
		return errors.New("leaving")
	case !w.readable.Load():
		return errors.New("no Cluster can be read (yet); see the log")
	}
	return w.keeper.Ready()
}

// reads asks for a Cluster that is not there, which is answered to whoever may read any.
func (w *webhook) reads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := w.connection.get(ctx, clusters+"routefence-webhook-asks-whether-it-may")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// tell puts a warning where people look: on the pod, if its name is known.
func (w *webhook) tell(message string) error {
	pod := os.Getenv("POD_NAME")
	if pod == "" {
		return nil
	}
	now := time.Now().UTC().Format(time.RFC3339)
	event, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"generateName": pod + ".", "namespace": w.namespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": w.namespace, "name": pod, "uid": os.Getenv("POD_UID")},
		"type":           "Warning", "reason": "CertificateExpiring", "message": message, "count": 1,
		"source": map[string]any{"component": "routefence-webhook"}, "firstTimestamp": now, "lastTimestamp": now,
	})
	if err != nil {
		return err
	}
	client, err := w.access.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Post(ctx, "/api/v1/namespaces/"+w.namespace+"/events", event)
}
