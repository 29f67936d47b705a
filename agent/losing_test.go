package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"golang.org/x/sys/unix"
)

// TestLossesEndOnceAfterTheGrace: each part by itself, counted from when it was lost, and never while it is back.
func TestLossesEndOnceAfterTheGrace(t *testing.T) {
	const grace = time.Second
	var l losses
	start := time.Now()
	for _, step := range []struct {
		at   time.Duration
		dead string
		want string
		rest time.Duration // until the next one, at most a minute
	}{
		{0, "10.1.0.0/16", "", grace},
		{500 * time.Millisecond, "10.1.0.0/16 10.2.0.0/16", "", grace / 2},
		{grace, "10.1.0.0/16 10.2.0.0/16", "10.1.0.0/16", grace / 2},
		{1200 * time.Millisecond, "10.1.0.0/16", "", time.Minute},       // 10.2 is back before its time
		{1600 * time.Millisecond, "10.1.0.0/16 10.2.0.0/16", "", grace}, // and lost again
		{2600 * time.Millisecond, "10.1.0.0/17 10.2.0.0/16", "10.2.0.0/16", time.Minute},
		{3000 * time.Millisecond, "10.1.0.0/16 10.2.0.0/16", "", grace}, // the other half of 10.1 was back
		{4000 * time.Millisecond, "10.1.0.0/16 10.2.0.0/16", "10.1.128.0/17", time.Minute},
		{9000 * time.Millisecond, "10.1.0.0/16", "", time.Minute},
		{9500 * time.Millisecond, "", "", time.Minute},
	} {
		now := start.Add(step.at)
		got := l.follow(ranges.Of(networks(strings.Fields(step.dead)...)...), now, grace)
		if text := strings.Join(texts(got.Prefixes()), " "); text != step.want {
			t.Errorf("at %s with %q: ended %q, want %q", step.at, step.dead, text, step.want)
		}
		if rest := l.remaining(time.Minute, grace, now); rest != step.rest {
			t.Errorf("at %s: looks again after %s, want %s", step.at, rest, step.rest)
		}
	}
	if late := l.remaining(time.Minute, grace, start.Add(time.Hour)); late != time.Minute {
		t.Errorf("nothing is lost, and yet due in %s", late)
	}
}

// lostBench is a bench whose tunnel carries the network, and what takes its route away.
func lostBench(grace time.Duration) (b *bench, away, back func()) {
	b = newBench("10.250.0.0/16")
	b.TunnelGrace = grace
	b.r.state.Links = append(b.r.state.Links, routes.Link{Index: 4, Name: "tun0", Up: true})
	way := routes.Route{Family: policy.IPv4, Table: routes.TableMain, Dst: netip.MustParsePrefix("10.250.0.0/16"), Type: routes.Unicast,
		Hops: []routes.Hop{{Link: 4}}}
	isWay := func(r routes.Route) bool { return r.Table == routes.TableMain && r.Dst == way.Dst }
	away = func() { b.r.state.Routes = slices.DeleteFunc(b.r.state.Routes, isWay) }
	back = func() { b.r.state.Routes = append(b.r.state.Routes, way) }
	back()
	b.Pass()
	b.severed.ended = nil
	return b, away, back
}

// TestConnectionsOfALostTunnelAreEnded: by a pass of its own when the grace is over, and not those that came in and are answered, nor
// those that have another way.
func TestConnectionsOfALostTunnelAreEnded(t *testing.T) {
	const grace = 500 * time.Millisecond
	byMark := func(b *bench) {
		b.r.state.Rules = append([]routes.Rule{{Family: policy.IPv4, Priority: 50, Action: routes.ActLookup, Table: 50, Mark: 7, Mask: 0xff}}, b.r.state.Rules...)
		b.r.state.Routes = append(b.r.state.Routes, routes.Route{Family: policy.IPv4, Table: 50, Dst: netip.MustParsePrefix("10.250.0.0/16"),
			Type: routes.Unicast, Hops: []routes.Hop{{Link: 4}}})
	}
	deviceGone := func(b *bench) {
		b.r.state.Links = slices.DeleteFunc(b.r.state.Links, func(l routes.Link) bool { return l.Name == "tun0" })
	}
	for name, c := range map[string]struct {
		grace, away time.Duration
		change      func(*bench)
		want        []connection
	}{
		"gone":            {grace, time.Second, nil, []connection{{"10.250.0.7", 0}, {"10.250.0.7", 2}, {"10.250.0.7", 3}}},
		"gone, one bound": {grace, time.Second, func(*bench) { connectedBy[2] = 4 }, []connection{{"10.250.0.7", 0}, {"10.250.0.7", 2}}},
		"gone, one bound to what is not there": {grace, time.Second, func(b *bench) { connectedBy[2] = 4; deviceGone(b) },
			[]connection{{"10.250.0.7", 0}, {"10.250.0.7", 2}, {"10.250.0.7", 4}}},
		"back in time":        {grace, 400 * time.Millisecond, nil, nil},
		"left to hang":        {0, time.Second, nil, nil},
		"some packets marked": {grace, time.Second, byMark, nil},
		"but those that came in": {grace, time.Second, func(b *bench) { b.Replies = AllReplies },
			[]connection{{"10.250.0.7", 0}, {"10.250.0.7", 2}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			defer func(was int) { connectedBy[2] = was }(connectedBy[2])
			b, away, back := lostBench(c.grace)
			if phase := b.document().Phase; phase != Tunneled {
				t.Fatalf("%s: %s", name, phase)
			}
			before := b.document().Severed
			away()
			if c.change != nil {
				c.change(b)
			}
			// A look in between, and none when the grace is over but the one that is due then.
			time.AfterFunc(c.away/4, b.Wake)
			time.AfterFunc(c.away, b.Wake)
			for begin, gone := time.Now(), true; time.Since(begin) < 2*time.Second; {
				if gone && time.Since(begin) >= c.away {
					gone = false
					back()
				}
				b.Pass()
				b.wait(t.Context())
			}
			if !slices.Equal(b.severed.ended, c.want) {
				t.Errorf("%s: ended %v, want %v", name, b.severed.ended, c.want)
			}
			if got := b.document().Severed - before; got != uint64(len(c.want)) {
				t.Errorf("%s: the state counts %d", name, got)
			}
		})
	}
}

// TestSlowLookIsNoLoss: how long a look at the firewall takes says nothing of how long the tunnel has been gone.
func TestSlowLookIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, away, back := lostBench(500 * time.Millisecond)
		away()
		b.Pass()
		b.f.listing = func() { time.Sleep(time.Second) }
		b.Pass() // saw it at once, and takes a second to say so
		back()
		b.Pass()
		if len(b.severed.ended) > 0 {
			t.Errorf("ended %v", b.severed.ended)
		}
	})
}

// TestUnreadableBeginsTheGraceAnew: while the kernel cannot be read nobody knows what the tunnel does, and nothing is to be done in a
// hurry.
func TestUnreadableBeginsTheGraceAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, away, _ := lostBench(500 * time.Millisecond)
		away()
		b.Pass()
		b.r.listErr = unix.EINTR
		passes := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Second; passes++ {
			b.Pass()
			b.wait(t.Context())
		}
		if passes > 20 {
			t.Errorf("%d passes in ten seconds without a kernel", passes)
		}
		b.r.listErr = nil
		b.Pass()
		if len(b.severed.ended) > 0 {
			t.Errorf("the first look ended %v", b.severed.ended)
		}
		time.Sleep(time.Second)
		b.Pass()
		if len(b.severed.ended) != 3 {
			t.Errorf("after the grace: ended %v", b.severed.ended)
		}
	})
}
