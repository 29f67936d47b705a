// Package rotation keeps the webhook's certificates: the authorities in a Secret that all replicas share, the bundle in the live
// configuration that API servers trust, and the certificate that this replica serves with.
//
// There is no leader. Every write names the version it changes, and every replica comes to the same result from the same objects.
package rotation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/pki"
)

// API is a connection to the API server.
type API interface {
	// Get returns the body of a good answer as it arrives.
	Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error)
	// Put replaces an object and returns what it is then.
	Put(ctx context.Context, path string, object []byte) ([]byte, error)
	Close()
}

// Options are what a keeper needs.
type Options struct {
	Plan pki.Plan
	// Namespace and Secret name the Secret, which must exist; Configuration the MutatingWebhookConfiguration.
	Namespace, Secret, Configuration string
	// Connect reads the configuration of the client anew. It is called after each failure.
	Connect func() (API, error)
	// Warn is told once of each certificate that is close to its end.
	Warn func(message string)
	Log  *zap.Logger
}

// Keeper keeps certificates. Its methods may be called at any time, while Run runs.
type Keeper struct {
	Options
	secret, configuration object

	mu    sync.Mutex
	state State
	// What follows belongs to Run.
	authorities []pki.Authority
	bundles     [][]byte
	seen        pki.Seen
	warned      map[string]bool
}

// State is what is served and trusted at the moment.
type State struct {
	// Serving is the certificate that this replica serves with, or nil.
	Serving *tls.Certificate
	// Authority is the newest there is, or nil.
	Authority *x509.Certificate
	// Bundles are those of the live configuration's webhooks, as last seen.
	Bundles [][]byte
	// Trouble is what keeps the objects from being read or written.
	Trouble error
	// Repairs, Issued and Authorities count bundles that were written, serving certificates and authorities made by this process.
	Repairs, Issued, Authorities int
}

// New returns a keeper that knows nothing yet.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, warned: map[string]bool{},
		secret:        object{"/api/v1/namespaces/" + o.Namespace + "/secrets", o.Secret},
		configuration: object{"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", o.Configuration},
	}
}

// State returns what is served and trusted at the moment.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Certificate is for the TLS server: connections that begin after a rotation get the new certificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := k.State().Serving; serving != nil {
		return serving, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// Ready reports why API servers would not trust this replica, or nil.
func (k *Keeper) Ready() error {
	s := k.State()
	if s.Serving == nil {
		return errors.Join(errors.New("there is no serving certificate yet"), s.Trouble)
	}
	if err := k.Plan.Trusted(s.Serving, s.Bundles, time.Now()); err != nil {
		return errors.Join(fmt.Errorf("%s does not trust the serving certificate: %w", k.configuration.name, err), s.Trouble)
	}
	return nil
}

const (
	minPause = 250 * time.Millisecond
	maxPause = 15 * time.Second
)

// Run keeps the certificates until ctx ends. Trouble with the API server does not end it, nor what is served.
func (k *Keeper) Run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		passed, err := k.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if passed {
			pause = minPause
		}
		k.Log.Warn("certificates cannot be kept; what is served stays", zap.Error(err))
		k.update(func(s *State) { s.Trouble = err })
		if err := k.serve(time.Now()); err != nil {
			k.Log.Error("no serving certificate", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// follow makes one pass after the other on one connection, until something fails. It returns whether any pass went well.
func (k *Keeper) follow(ctx context.Context) (passed bool, err error) {
	api, err := k.Connect()
	if err != nil {
		return false, err
	}
	defer api.Close()
	for {
		versions, err := k.pass(ctx, api)
		if conflict(err) {
			time.Sleep(minPause / 10) // somebody else was faster: look at what they wrote
			continue
		}
		if err != nil {
			return passed, err
		}
		passed = true
		k.update(func(s *State) { s.Trouble = nil })
		if err := k.wait(ctx, api, versions); err != nil {
			return passed, err
		}
	}
}

// pass reads both objects, puts right what is not, and sees to the serving certificate. It returns the versions of both.
func (k *Keeper) pass(ctx context.Context, api API) (versions [2]string, err error) {
	now := time.Now()
	versions[0], err = k.keepSecret(ctx, api, now)
	if conflict(err) || len(k.authorities) == 0 {
		return versions, err
	}
	// Whatever became of the Secret: what is known is served, and must be trusted.
	var unwritten error
	if versions[1], unwritten = k.keepBundles(ctx, api); conflict(unwritten) {
		return versions, unwritten
	}
	k.seen = k.seen.Update(k.authorities, k.bundles, now)
	return versions, errors.Join(err, unwritten, k.serve(now))
}

// serve sees to the serving certificate, with what is known.
func (k *Keeper) serve(now time.Time) error {
	if len(k.authorities) == 0 {
		return nil
	}
	k.warn(k.authorities[0].Cert, "the newest authority", now)
	serving := k.State().Serving
	by := k.Plan.Signer(k.authorities, k.seen, serving, now)
	if k.Plan.Fits(serving, by, now) {
		return nil
	}
	next, err := by.Issue(k.Plan.Names, now, k.Plan.ServingLifetime)
	if err != nil {
		return err
	}
	k.Log.Info("serving with a new certificate", zap.Time("until", next.Leaf.NotAfter), zap.Time("authorityUntil", by.Cert.NotAfter))
	k.update(func(s *State) { s.Serving, s.Issued = &next, s.Issued+1 })
	return nil
}

// warn tells once of a certificate that something keeps from being replaced.
func (k *Keeper) warn(c *x509.Certificate, what string, now time.Time) {
	if !pki.Expiring(c, now) || k.warned[string(c.Raw)] {
		return
	}
	k.warned[string(c.Raw)] = true
	message := fmt.Sprintf("%s of the webhook ends at %s and could not be replaced; then writes of control plane pods are refused",
		what, c.NotAfter.UTC().Format(time.RFC3339))
	if err := k.State().Trouble; err != nil {
		message += ": " + err.Error()
	}
	k.Warn(message)
}

func (k *Keeper) update(f func(*State)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.state)
}
