package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/verdict"
)

// state is a document with one network a text "CIDR State", both layers in place unless the text ends in "!".
func state(networks ...string) (d agent.Document) {
	for _, text := range networks {
		bare, broken := strings.CutSuffix(text, "!")
		cidr, is, _ := strings.Cut(bare, " ")
		d.Networks = append(d.Networks, agent.Network{CIDR: cidr, State: verdict.State(is), Cause: "why",
			Layers: agent.Layers{Routes: !broken, Firewall: true}})
	}
	return d
}

func TestBetween(t *testing.T) {
	const a, b = "10.1.0.0/16", "10.2.0.0/16"
	none, blocked, tunneled := state(), state(a+" Blocked"), state(a+" Tunneled")
	for _, c := range []struct {
		name          string
		before, after agent.Document
		want          string
	}{
		{"nothing", none, none, ""},
		{"the same", blocked, blocked, ""},
		{"first", none, blocked, "Fenced"},
		{"first, not whole yet", none, state(a + " Blocked!"), ""},
		{"whole now", state(a + " Blocked!"), blocked, "Fenced"},
		{"first, with the VPN up", none, tunneled, "Fenced TunnelUp"},
		{"up", blocked, tunneled, "TunnelUp"},
		{"down", tunneled, blocked, "TunnelDown"},
		{"leak", blocked, state(a + " Leaking!"), "LeakDetected"},
		{"leak goes on", state(a + " Leaking!"), state(a + " Leaking!"), ""},
		{"leak instead of the tunnel", tunneled, state(a + " Leaking"), "LeakDetected"},
		{"one leaks, one is down", state(a+" Tunneled", b+" Tunneled"), state(a+" Leaking", b+" Blocked"), "LeakDetected TunnelDown"},
		{"another network", blocked, state(b + " Blocked"), "NetworksChanged Fenced"},
		{"a tunneled network goes", state(a+" Tunneled", b+" Tunneled"), state(b + " Tunneled"), "NetworksChanged Fenced"},
	} {
		var got []string
		for _, e := range between(c.before, c.after) {
			got = append(got, string(e.Reason))
			if !strings.Contains(e.Message, "10.") {
				t.Errorf("%s: %s names no network: %s", c.name, e.Reason, e.Message)
			}
		}
		if have := strings.Join(got, " "); have != c.want {
			t.Errorf("%s: %q, want %q", c.name, have, c.want)
		}
	}
}

// A tunnel that flaps for an hour makes no more than the burst and one a minute; a refusal, one try in five minutes.
func TestRate(t *testing.T) {
	for name, c := range map[string]struct {
		answer   error
		min, max int
	}{
		"allowed": {nil, 60, 71},
		"refused": {errors.New("forbidden"), 10, 13},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				flaps := 0
				teller := &Teller{Pod: Pod{"ns", "pod", "7"}, Log: zap.NewNop(),
					State: func() agent.Document {
						flaps++
						return state("10.1.0.0/16 " + []string{"Tunneled", "Blocked"}[flaps%2])
					},
					Post: func(_ context.Context, path string, object []byte) error {
						sent++
						var e map[string]any
						if err := json.Unmarshal(object, &e); err != nil || path != "/api/v1/namespaces/ns/events" || e["kind"] != "Event" {
							t.Errorf("%s %v %s", path, err, object)
						}
						return c.answer
					}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				teller.Run(ctx)
				if sent < c.min || sent > c.max {
					t.Errorf("%d events in an hour", sent)
				}
			})
		})
	}
}

func TestLongListsAreCut(t *testing.T) {
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("10.%d.0.0/24 Blocked", i%256))
	}
	if e := between(state(), state(many...)); len(e) != 1 || len(e[0].Message) > 300 || !strings.Contains(e[0].Message, "and 295 more") {
		t.Errorf("%v", e)
	}
}

// The state is looked at every second, and many networks are within what is promised. Comparing each network with each would take
// minutes for as many as here.
func TestManyNetworksCostLittle(t *testing.T) {
	all := func(is string) agent.Document {
		var many []string
		for i := range 100_000 {
			many = append(many, fmt.Sprintf("%d.%d.%d.0/24 %s", 10+i>>16, i>>8&255, i&255, is))
		}
		return state(many...)
	}
	tunneled, blocked := all("Tunneled"), all("Blocked")
	begin := time.Now()
	if e := between(tunneled, tunneled); len(e) != 0 {
		t.Errorf("nothing happened, and %v is told", e)
	}
	if e := between(tunneled, blocked); len(e) != 1 || e[0].Reason != TunnelDown {
		t.Errorf("the tunnel went down, and %v is told", e)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("two comparisons took %s", took)
	}
	t.Logf("two comparisons took %s", time.Since(begin))
}
