package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/routefence/routefence/admission"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/lookup"
	"github.com/routefence/routefence/pki/rotation"
)

// webhook is a running one.
type webhook struct {
	serveConfig
	connection *connection
	keeper     *rotation.Keeper
	metrics    *figures
	// readable is true once Clusters could be read.
	readable atomic.Bool
	leaving  atomic.Bool
}

// freshness is how long an answer about a namespace counts. gardenlet changes a Cluster many tasks before it writes the objects
// that depend on it, and writes these one after the other.
const freshness = time.Second

// spareGC lets garbage grow to four times what is in use, which is a few MiB: a review makes a quarter of a MiB, and at a thousand a
// second collecting it each time costs a third of the work. GOMEMLIMIT bounds it where memory is short.
func spareGC() { debug.SetGCPercent(400) }

// serve runs until ctx ends, and then for as long as reviews may still come.
func (c serveConfig) serve(ctx context.Context) error {
	defer func() { _ = c.log.Sync() }() // stderr may be a pipe that cannot sync
	spareGC()
	w := &webhook{serveConfig: c, connection: &connection{access: c.access}}
	w.keeper = rotation.New(rotation.Options{
		Plan: c.plan, Namespace: c.namespace, Secret: c.secret, Configuration: c.configuration, Log: c.log,
		Connect: func() (rotation.API, error) { return c.access.Connect() },
		Warn:    w.warn,
	})
	w.metrics = newFigures(w.keeper)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go w.keeper.Run(background)
	if err := w.listenAndServe(ctx); err != nil {
		return command.Fail(err)
	}
	c.log.Info("stopped")
	return nil
}

// listenAndServe serves both addresses until some time after ctx has ended. Probes are answered from the start, reviews once it is known
// what to inject.
func (w *webhook) listenAndServe(ctx context.Context) error {
	reviews, err := listen(w.listen, "listen")
	if err != nil {
		return err
	}
	defer reviews.Close()
	probes, err := listen(w.healthListen, "health-listen")
	if err != nil {
		return err
	}
	defer probes.Close()
	errorLog := zap.NewStdLog(w.log.Named("http"))
	failed := make(chan error, 2)
	plain := server(w.healthMux(), errorLog)
	go func() { failed <- plain.Serve(netutil.LimitListener(probes, 64)) }()
	if !w.learn(ctx) {
		return nil // told to stop before it began
	}
	secure := server(w.mux(), errorLog)
	secure.TLSConfig = &tls.Config{GetCertificate: w.keeper.Certificate, MinVersion: tls.VersionTLS12}
	go func() { failed <- secure.ServeTLS(reviews, "", "") }()
	go w.probe(ctx)
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	// Endpoints lose this replica some time after kubelet has told it to stop, and reviews come until then.
	w.leaving.Store(true)
	w.log.Info("leaving", zap.Duration("serving", w.drain))
	time.Sleep(w.drain)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(secure.Shutdown(last), plain.Shutdown(last))
}

// learn finds out what flags do not say of what to inject. It returns false if ctx ends before that is known.
func (w *webhook) learn(ctx context.Context) bool {
	if w.options.Image == ownImage {
		var err error
		if w.options.Image, err = w.image(ctx); err != nil {
			return false
		}
	}
	if w.options.Form == "" {
		w.options.Form = form(ctx, w.connection)
	}
	w.log.Info("starting", zap.String("version", version), zap.String("listen", w.listen), zap.String("image", w.options.Image),
		zap.String("form", string(w.options.Form)))
	return true
}

func listen(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (choose another with --%s)", address, err, flag)
	}
	return l, nil
}

func server(h http.Handler, log *stdlog.Logger) *http.Server {
	return &http.Server{Handler: h, ErrorLog: log, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
}

// mux is what API servers see.
func (w *webhook) mux() http.Handler {
	kinds := []string{"apps/v1/Deployment", "apps/v1/StatefulSet"}
	if w.pods {
		kinds = append(kinds, "v1/Pod")
	}
	j := judge{options: w.options, facts: lookup.New(lookup.Options[facts]{Ask: w.connection.facts, Wait: w.clusterTimeout, Fresh: freshness})}
	h := admission.NewHandler(admission.Options{Judge: j.decide, Kinds: kinds, Observe: w.metrics.reviewed, Log: w.log})
	mux := http.NewServeMux()
	mux.Handle("/mutate", w.metrics.timed(h))
	return mux
}

// probe finds out whether Clusters can be read at all: without that right the webhook would have to refuse objects, and a rollout
// with it had better stop at the first replica. An API server that is away later does not make a replica unready.
func (w *webhook) probe(ctx context.Context) {
	for {
		if err := w.reads(ctx); err == nil {
			w.readable.Store(true)
			return
		} else if ctx.Err() == nil {
			w.log.Warn("Clusters cannot be read", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// warn tells of what somebody has to look at, in the log and as an event on the pod.
func (w *webhook) warn(message string) {
	w.log.Error(message)
	if err := w.tell(message); err != nil {
		w.log.Warn("no event on the pod", zap.Error(err))
	}
}
