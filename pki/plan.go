package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"
)

// Plan says how long certificates live and how they follow each other.
type Plan struct {
	// Names are the DNS names of the webhook's Service.
	Names []string
	// AuthorityLifetime and ServingLifetime: a certificate is replaced at half of it.
	AuthorityLifetime, ServingLifetime time.Duration
	// Settle is how long an authority must have been in the live bundle before anything is served from it: API servers do not learn
	// of a changed configuration at once, nor all at the same time.
	Settle time.Duration
}

// lastOfLife is the share of its life in which nothing new is done with an authority. The next one has been there for long.
const lastOfLife = 0.1

// Authorities returns those that shall be from now on, newest first: what is stored and what this process has known, less what has
// expired, and a new one if the newest has had half of its life. An authority stays until it expires, so nothing that is served from it
// is ever distrusted.
func (p Plan) Authorities(stored, known []Authority, now time.Time) ([]Authority, error) {
	var next []Authority
	for _, a := range stored {
		if now.Before(a.Cert.NotAfter) {
			next = append(next, a)
		}
	}
	for _, a := range known {
		// What somebody wiped comes back, but not at the very end of its life: replicas whose clocks differ would remove and restore
		// it in turn.
		if left(a.Cert, now) > lastOfLife {
			next = append(next, a)
		}
	}
	next = sorted(next)
	if len(next) > 0 && left(next[0].Cert, now) > 0.5 {
		return next, nil
	}
	fresh, err := NewAuthority(now, p.AuthorityLifetime)
	if err != nil {
		return nil, err
	}
	return sorted(append(next, fresh)), nil
}

// Seen is since when each authority has been in the live bundle.
type Seen map[Fingerprint]time.Time

// Update takes a look at the live bundles, one for each webhook of the configuration. What is not in all of them does not count.
func (s Seen) Update(authorities []Authority, bundles [][]byte, now time.Time) Seen {
	next := Seen{}
	for _, a := range authorities {
		f := a.Fingerprint()
		if !inAll(a, bundles) {
			continue
		}
		next[f] = now
		if since, was := s[f]; was {
			next[f] = since
		}
	}
	return next
}

func inAll(a Authority, bundles [][]byte) bool {
	for _, b := range bundles {
		if !slices.ContainsFunc(certificates(b), a.Cert.Equal) {
			return false
		}
	}
	return len(bundles) > 0
}

// Signer returns the authority to serve from: the newest that every API server has had time to learn. If there is none, the one
// served from until now if it is live; after a start the oldest that is live and not about to expire, which has most likely been there
// before. Without any, the newest of all.
func (p Plan) Signer(authorities []Authority, seen Seen, serving *tls.Certificate, now time.Time) Authority {
	var live []Authority
	for _, a := range authorities {
		since, is := seen[a.Fingerprint()]
		if is && now.Sub(since) >= p.Settle {
			return a
		}
		if is {
			live = append(live, a)
		}
	}
	if len(live) == 0 {
		return authorities[0]
	}
	if i := slices.IndexFunc(live, func(a Authority) bool { return from(serving, a) }); i >= 0 {
		return live[i]
	}
	// One that is about to expire would do so while the next one settles, or is not trusted any more where a clock is ahead.
	for _, a := range slices.Backward(live) {
		if left(a.Cert, now) > lastOfLife {
			return a
		}
	}
	return live[0]
}

// Fits reports whether a serving certificate is still the one to serve with: from this authority, and in the first half of its life, or
// at the end of its authority's, when another one would live no longer.
func (p Plan) Fits(serving *tls.Certificate, by Authority, now time.Time) bool {
	return from(serving, by) && (left(serving.Leaf, now) > 0.5 || !serving.Leaf.NotAfter.Before(by.Cert.NotAfter))
}

func from(serving *tls.Certificate, a Authority) bool {
	return serving != nil && bytes.Equal(serving.Leaf.AuthorityKeyId, a.Cert.SubjectKeyId)
}

// Trusted checks a serving certificate as an API server with these bundles would, one for each webhook of the configuration.
func (p Plan) Trusted(serving *tls.Certificate, bundles [][]byte, now time.Time) error {
	if len(bundles) == 0 {
		return errors.New("the configuration has no webhook")
	}
	for _, bundle := range bundles {
		roots := x509.NewCertPool()
		for _, c := range certificates(bundle) {
			roots.AddCert(c)
		}
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: p.Names[0], CurrentTime: now}); err != nil {
			return err
		}
	}
	return nil
}

// Expiring reports whether so little of a certificate's life is left that something must have kept it from being replaced.
func Expiring(c *x509.Certificate, now time.Time) bool { return left(c, now) < 0.3 }

// left is how much of its life a certificate has before it, from 1 to 0.
func left(c *x509.Certificate, now time.Time) float64 {
	whole := c.NotAfter.Sub(c.NotBefore.Add(backdate))
	return max(0, float64(c.NotAfter.Sub(now))/float64(max(whole, 1)))
}

// Due returns when the plan has to be looked at again, at most a while from now: at half of a life, at its end, or once an authority
// has settled.
func (p Plan) Due(authorities []Authority, serving *tls.Certificate, seen Seen, now time.Time) time.Duration {
	next := now.Add(time.Minute)
	at := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	life := func(c *x509.Certificate) {
		whole := c.NotAfter.Sub(c.NotBefore.Add(backdate))
		at(c.NotAfter.Add(-whole / 2))
		at(c.NotAfter)
	}
	for _, a := range authorities {
		life(a.Cert)
		if since, live := seen[a.Fingerprint()]; live {
			at(since.Add(p.Settle))
		}
	}
	if serving != nil {
		life(serving.Leaf)
	}
	return next.Sub(now) + 10*time.Millisecond
}
