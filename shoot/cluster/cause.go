package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Cause is why the API server cannot be heard, by name. The state shows it, so none may be renamed.
type Cause string

// The causes.
const (
	Misconfigured  Cause = "Misconfigured"
	Unauthorized   Cause = "Unauthorized"
	Forbidden      Cause = "Forbidden"
	NotServed      Cause = "NotServed"
	NotFound       Cause = "NotFound"
	Expired        Cause = "Expired"
	Busy           Cause = "Busy"
	ServerFailed   Cause = "ServerFailed"
	Untrusted      Cause = "Untrusted"
	TimedOut       Cause = "TimedOut"
	Silent         Cause = "Silent"
	ConnectionLost Cause = "ConnectionLost"
	Unreachable    Cause = "Unreachable"
	NotUnderstood  Cause = "NotUnderstood"
)

// advice is what a cause means and what to do about it.
var advice = map[Cause]string{
	Misconfigured:  "correct it, it is read again at the next try",
	Unauthorized:   "the token or certificate has expired, was revoked or is of another cluster; it is read again at the next try",
	Forbidden:      "grant get, list and watch on this one object (manifests/api-source.yaml)",
	NotServed:      "the API server does not serve this kind: its CRD or API service is not there (yet)",
	NotFound:       "check the name; an object that appears is seen at once",
	Expired:        "the API server has compacted the history that the watch needs; a list comes next",
	Busy:           "the API server asks to come back later",
	ServerFailed:   "see the log of the API server",
	Untrusted:      "the configured CA did not sign the API server's certificate; it is read again at the next try",
	TimedOut:       "the API server, or something before it, keeps silent",
	Silent:         "the connection seems dead, a new one comes next",
	ConnectionLost: "a new connection comes next",
	Unreachable:    "the API server is down, or a NetworkPolicy is in the way (the pod needs the label networking.gardener.cloud/to-runtime-apiserver=allowed)",
	NotUnderstood:  "this is not the answer of a Kubernetes API server",
}

// named is a failure whose cause is known where it happens.
type named struct {
	cause Cause
	err   error
}

func (n *named) Error() string { return n.err.Error() }
func (n *named) Unwrap() error { return n.err }

// causeOf names the cause of a failed request.
func causeOf(err error) Cause {
	var known *named
	var status apierrors.APIStatus
	var request *url.Error
	switch {
	case errors.As(err, &known):
		return known.cause
	case errors.As(err, &status):
		return causeOfCode(int(status.Status().Code))
	case untrusted(err):
		return Untrusted
	case dialing(err):
		return Unreachable
	case errors.Is(err, context.DeadlineExceeded), timedOut(err):
		return TimedOut
	case errors.As(err, &request):
		return ConnectionLost
	}
	return NotUnderstood
}

func causeOfCode(code int) Cause {
	switch {
	case code == 401:
		return Unauthorized
	case code == 403:
		return Forbidden
	case code == 404:
		return NotServed
	case code == 410:
		return Expired
	case code == 429, code == 503:
		return Busy
	case code >= 500:
		return ServerFailed
	}
	return NotUnderstood
}

func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host)
}

func dialing(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// retryAfter is how long the server asked to be left alone, or 0.
func retryAfter(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// explain says which object could not be heard of, why, and what to do about it.
func explain(r Ref, err error) error {
	cause := causeOf(err)
	var request *url.Error
	if errors.As(err, &request) {
		// What is around it repeats the whole URL.
		err = request.Err
	}
	return fmt.Errorf("%s of %s: %w; %s", cause, r, err, advice[cause])
}
