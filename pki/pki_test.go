package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

var plan = Plan{Names: []string{"routefence-webhook.routefence.svc"}, AuthorityLifetime: 60 * 24 * time.Hour,
	ServingLifetime: 7 * 24 * time.Hour, Settle: time.Minute}

func authority(t *testing.T, at time.Time) Authority {
	t.Helper()
	a, err := NewAuthority(at, plan.AuthorityLifetime)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a Authority, at time.Time) *tls.Certificate {
	t.Helper()
	c, err := a.Issue(plan.Names, at, plan.ServingLifetime)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestEncodedAuthoritiesComeBack(t *testing.T) {
	want := []Authority{authority(t, start.Add(time.Hour)), authority(t, start)}
	certs, keys, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(certs, keys)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d authorities, %v", len(got), err)
	}
	for i, a := range got {
		if err := plan.Trusted(issue(t, a, start.Add(2*time.Hour)), [][]byte{Bundle(want[i : i+1])}, start.Add(2*time.Hour)); err != nil {
			t.Errorf("signed by authority %d of those read, checked with that of those written: %v", i, err)
		}
	}
	other, err := Decode(nil, nil)
	if err != nil || other != nil {
		t.Errorf("nothing: %v, %v", other, err)
	}
	leaf := issue(t, want[0], start)
	leafCert, leafKey, err := Encode([]Authority{{leaf.Leaf, leaf.PrivateKey.(crypto.Signer)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][2][]byte{
		"text":           {[]byte("text"), nil},
		"no key":         {certs, nil},
		"a key too few":  {certs, keys[:len(keys)/2]},
		"keys swapped":   {append(Bundle(want[1:]), Bundle(want[:1])...), keys},
		"cut short":      {certs[:len(certs)-40], keys},
		"no authority":   {leafCert, leafKey},
		"keys and certs": {keys, certs},
	} {
		if got, err := Decode(c[0], c[1]); err == nil {
			t.Errorf("%s: %d authorities and no error", name, len(got))
		}
	}
}

// An API server whose clock is five minutes late has to accept what was made just now.
func TestClockFiveMinutesLate(t *testing.T) {
	a := authority(t, start)
	if err := plan.Trusted(issue(t, a, start), [][]byte{Bundle([]Authority{a})}, start.Add(-5*time.Minute)); err != nil {
		t.Error(err)
	}
}

func TestTrusted(t *testing.T) {
	a, b := authority(t, start), authority(t, start)
	serving := issue(t, a, start)
	both := Bundle([]Authority{b, a})
	for name, c := range map[string]struct {
		bundles [][]byte
		at      time.Time
		want    bool
	}{
		"its own":              {[][]byte{Bundle([]Authority{a})}, start, true},
		"both":                 {[][]byte{both, both}, start, true},
		"another":              {[][]byte{Bundle([]Authority{b})}, start, false},
		"one webhook without":  {[][]byte{both, Bundle([]Authority{b})}, start, false},
		"wiped":                {[][]byte{nil}, start, false},
		"no webhook":           {nil, start, false},
		"text":                 {[][]byte{[]byte("text")}, start, false},
		"after its end":        {[][]byte{both}, start.Add(plan.ServingLifetime + time.Second), false},
		"just before its end":  {[][]byte{both}, start.Add(plan.ServingLifetime - time.Second), true},
		"long before its time": {[][]byte{both}, start.Add(-time.Hour), false},
	} {
		if err := plan.Trusted(serving, c.bundles, c.at); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := plan
	elsewhere.Names = []string{"other.svc"}
	if elsewhere.Trusted(serving, [][]byte{both}, start) == nil {
		t.Error("trusted for a name that it does not have")
	}
}

func TestAuthoritiesFollowEachOther(t *testing.T) {
	half, end := plan.AuthorityLifetime/2, plan.AuthorityLifetime
	one := authority(t, start)
	next := func(stored, known []Authority, at time.Time, want int) []Authority {
		t.Helper()
		got, err := plan.Authorities(stored, known, at)
		if err != nil || len(got) != want {
			t.Fatalf("%d authorities after %s, want %d (%v)", len(got), at.Sub(start), want, err)
		}
		return got
	}
	next(nil, nil, start, 1)
	if got := next([]Authority{one}, nil, start.Add(half-time.Second), 1); !got[0].Cert.Equal(one.Cert) {
		t.Error("replaced before its time")
	}
	two := next([]Authority{one}, nil, start.Add(half+time.Second), 2)
	if !two[1].Cert.Equal(one.Cert) {
		t.Error("the old one is gone, or first")
	}
	next(two, nil, start.Add(end-time.Second), 2)
	if got := next(two, two, start.Add(end+time.Second), 2); got[1].Cert.Equal(one.Cert) {
		t.Error("the old one has expired and is still there")
	}
	if got := next(nil, two, start.Add(half+time.Minute), 2); string(Bundle(got)) != string(Bundle(two)) {
		t.Error("a wiped Secret does not come back as it was")
	}
	// A replica whose clock is late must not bring back what the other one has just removed.
	next(two[:1], two, start.Add(end-time.Minute), 1)
}

func TestFits(t *testing.T) {
	a, b := authority(t, start), authority(t, start)
	serving := issue(t, a, start)
	half := plan.ServingLifetime / 2
	late := start.Add(plan.AuthorityLifetime - time.Hour)
	last := issue(t, a, late)
	if last.Leaf.NotAfter.After(a.Cert.NotAfter) {
		t.Error("a certificate outlives its authority")
	}
	for name, got := range map[string]bool{
		"fresh":                              plan.Fits(serving, a, start.Add(half-time.Second)),
		"at the end of its authority":        plan.Fits(last, a, late.Add(50*time.Minute)),
		"not: none":                          !plan.Fits(nil, a, start),
		"not: second half of its life":       !plan.Fits(serving, a, start.Add(half+time.Second)),
		"not: from another authority":        !plan.Fits(serving, b, start),
		"expiring: at 29 %":                  Expiring(serving.Leaf, start.Add(plan.ServingLifetime*71/100)),
		"not expiring: at 31 %":              !Expiring(serving.Leaf, start.Add(plan.ServingLifetime*69/100)),
		"due: at half of a life":             plan.Due([]Authority{a}, serving, nil, start.Add(half-time.Second)) < 2*time.Second,
		"due: when an authority has settled": plan.Due([]Authority{a}, nil, Seen{a.Fingerprint(): start}, start.Add(50*time.Second)) < 11*time.Second,
		"due: within a minute":               plan.Due([]Authority{a}, serving, nil, start) <= time.Minute+time.Second,
	} {
		if !got {
			t.Error(name)
		}
	}
}

// replica is one of those that share a Secret; it does what rotation does, at times of its own.
type replica struct {
	known   []Authority
	seen    Seen
	serving *tls.Certificate
	clock   time.Duration
}

// Whatever happens to Secret and bundle, and however late the API servers are: what is served is trusted.
func TestEveryReplicaIsTrustedAtAllTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{Names: plan.Names, AuthorityLifetime: 6 * time.Hour, ServingLifetime: time.Hour, Settle: 10 * time.Minute}
		const step = 5 * time.Minute
		replicas := []*replica{{}, {clock: time.Duration(rapid.IntRange(-300, 300).Draw(t, "skew")) * time.Second}}
		var stored []Authority
		var bundle []byte
		var history [][]byte // one a step
		checked := map[string]bool{}
		for i := range int(10 * time.Hour / step) {
			now := start.Add(time.Duration(i) * step)
			away := i%50 > 20 && i%50 < 25
			// A new process knows nothing of what its predecessor knew. (With the Secret wiped in the same moment nobody could help.)
			if stored != nil && rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				r := replicas[rapid.IntRange(0, 1).Draw(t, "which")]
				*r = replica{clock: r.clock}
			}
			for i, r := range replicas {
				// One of them may be away for a while; what it does not do, it catches up on.
				if i == 1 && away {
					continue
				}
				at := now.Add(r.clock)
				next, err := p.Authorities(stored, r.known, at)
				if err != nil {
					t.Fatal(err)
				}
				stored, r.known = next, next
				bundle = Bundle(next)
				r.seen = r.seen.Update(next, [][]byte{bundle}, at)
				if by := p.Signer(next, r.seen, r.serving, at); !p.Fits(r.serving, by, at) {
					c, err := by.Issue(p.Names, at, p.ServingLifetime)
					if err != nil {
						t.Fatal(err)
					}
					r.serving = &c
				}
			}
			history = append(history, bundle)
			// The first bundle is there before anybody is ready.
			late := history[max(0, len(history)-1-int(p.Settle/step))]
			for n, r := range replicas {
				if r.serving == nil {
					continue // not ready
				}
				for name, b := range map[string][]byte{"bundle": bundle, "bundle of ten minutes ago": late} {
					// The end of a certificate is looked at even where nothing else has changed.
					key := fmt.Sprint(r.serving.Leaf.SerialNumber, sha256.Sum256(b), now.After(r.serving.Leaf.NotAfter))
					if checked[key] {
						continue
					}
					checked[key] = true
					if err := p.Trusted(r.serving, [][]byte{b}, now); err != nil {
						t.Fatalf("step %d, replica %d, %s: %v", i, n, name, err)
					}
				}
			}
			if rapid.IntRange(0, 99).Draw(t, "wipe") == 0 {
				stored = nil
			}
		}
	})
}

func TestSigner(t *testing.T) {
	old, fresh := authority(t, start), authority(t, start.Add(time.Hour))
	both := []Authority{fresh, old}
	now := start.Add(2 * time.Hour)
	long, short := now.Add(-time.Hour), now.Add(-time.Second)
	ended := authority(t, now.Add(-plan.AuthorityLifetime*95/100))
	for name, c := range map[string]struct {
		authorities []Authority
		seen        Seen
		serving     *tls.Certificate
		want        Authority
	}{
		"settled":                   {both, Seen{old.Fingerprint(): long, fresh.Fingerprint(): long}, nil, fresh},
		"not settled":               {both, Seen{old.Fingerprint(): long, fresh.Fingerprint(): short}, nil, old},
		"after a start":             {both, Seen{old.Fingerprint(): short, fresh.Fingerprint(): short}, nil, old},
		"after a wipe":              {both, Seen{old.Fingerprint(): short, fresh.Fingerprint(): short}, issue(t, fresh, now), fresh},
		"only one in the bundle":    {both, Seen{old.Fingerprint(): short}, issue(t, fresh, now), old},
		"nothing in the bundle yet": {both, Seen{}, nil, fresh},
		// It would expire before the next one has settled.
		"after a start, the old one about to expire": {[]Authority{old, ended}, Seen{old.Fingerprint(): short, ended.Fingerprint(): short}, nil, old},
		"about to expire, and no other is live":      {[]Authority{old, ended}, Seen{ended.Fingerprint(): short}, nil, ended},
	} {
		if got := plan.Signer(c.authorities, c.seen, c.serving, now); !got.Cert.Equal(c.want.Cert) {
			t.Errorf("%s: the wrong one", name)
		}
	}
	if !slices.EqualFunc(sorted([]Authority{old, fresh, old}), both, func(a, b Authority) bool { return a.Cert.Equal(b.Cert) }) {
		t.Error("not sorted")
	}
}

// The Secret may hold anything. What is taken out of it can sign, and comes back the same.
func FuzzDecode(f *testing.F) {
	a, err := NewAuthority(start, plan.AuthorityLifetime)
	if err != nil {
		f.Fatal(err)
	}
	certs, keys, err := Encode([]Authority{a})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(certs, keys)
	f.Add(append(certs, certs...), append(keys, keys...))
	f.Add(keys, certs)
	f.Add(certs[:40], []byte(nil))
	f.Fuzz(func(t *testing.T, certs, keys []byte) {
		authorities, err := Decode(certs, keys)
		if err != nil {
			return
		}
		for _, a := range authorities {
			if _, err := a.Issue(plan.Names, start, plan.ServingLifetime); err != nil {
				t.Errorf("cannot sign: %v", err)
			}
		}
		one, two, err := Encode(authorities)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(one, two)
		if err != nil || len(again) != len(authorities) {
			t.Errorf("%d authorities, written and read %d: %v", len(authorities), len(again), err)
		}
	})
}
