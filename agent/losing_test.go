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

// TestConnectionsOfALostTunnelAreEnded: by a pass of its own when the grace is over, and not those that came in and are answered.
func TestConnectionsOfALostTunnelAreEnded(t *testing.T) {
	for name, c := range map[string]struct {
		grace   time.Duration
		away    time.Duration
		replies Replies
		want    int
	}{
		"gone":                   {500 * time.Millisecond, time.Second, NoReplies, 3},
		"back in time":           {500 * time.Millisecond, 400 * time.Millisecond, NoReplies, 0},
		"left to hang":           {0, time.Second, NoReplies, 0},
		"but those that came in": {500 * time.Millisecond, time.Second, AllReplies, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench("10.250.0.0/16")
			b.TunnelGrace, b.Replies = c.grace, c.replies
			tunnel := routes.Link{Index: 4, Name: "tun0", Up: true}
			way := routes.Route{Family: policy.IPv4, Table: routes.TableMain, Dst: netip.MustParsePrefix("10.250.0.0/16"), Type: routes.Unicast,
				Hops: []routes.Hop{{Link: 4}}}
			b.r.state.Links = append(b.r.state.Links, tunnel)
			b.r.state.Routes = append(b.r.state.Routes, way)
			b.Pass()
			if phase := b.document().Phase; phase != Tunneled {
				t.Fatalf("%s: %s", name, phase)
			}
			b.severed.ended = nil
			isWay := func(r routes.Route) bool { return r.Table == routes.TableMain && r.Dst == way.Dst }
			b.r.state.Routes = slices.DeleteFunc(b.r.state.Routes, isWay)
			time.AfterFunc(c.away/2, b.Wake)
			time.AfterFunc(c.away, b.Wake)
			for begin, back := time.Now(), false; time.Since(begin) < 2*time.Second; {
				if !back && time.Since(begin) >= c.away {
					back = true
					b.r.state.Routes = append(b.r.state.Routes, way)
				}
				b.Pass()
				b.wait(t.Context())
			}
			if len(b.severed.ended) != c.want {
				t.Errorf("%s: ended %v, want %d", name, b.severed.ended, c.want)
			}
			if got := b.document().Severed; int(got) < c.want {
				t.Errorf("%s: the state counts %d", name, got)
			}
		})
	}
}
