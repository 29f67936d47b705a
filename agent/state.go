package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/verdict"
)

// State is what a pass found. What it says about readiness is a lease: it expires when no pass renews it.
type State struct {
	Document
	// passed is when the pass ended, before the first one when the agent was made.
	passed  time.Time
	resync  time.Duration
	err     error
	inPlace bool
	started bool
	whole   bool
	checks  []Check
}

// Check is one named condition. Err says what is wrong, nil that it holds.
type Check struct {
	Name   string
	Reason Reason
	Err    error
}

// leases is how many resyncs a read-back counts for.
const leases = 3

// renewed returns the state with the failure of a later pass that could not read the kernel. What was read back before still
// counts until its lease expires: one interrupted list must not take an API server out of service.
func (s *State) renewed(failed *State) *State {
	out := *s
	out.passed, out.err, out.Sources, out.Repairs = failed.passed, failed.err, failed.Sources, failed.Repairs
	return &out
}

// At returns the document as it reads at a moment: with readiness gone if the read-back is too old by then.
func (s *State) At(now time.Time) Document {
	d := s.Document
	failed := failures(s.Ready(now))
	if len(failed) > 0 {
		d.Ready, d.Reason, d.Message = false, failed[0].Reason, sentence(failed)
		return d
	}
	d.Ready, d.Reason, d.Message = true, ReasonFenced, s.summary()
	if s.ReadyWhen == WhenTunneled {
		d.Reason = ReasonTunneled
	}
	return d
}

// Ready returns the conditions of readiness, the weightiest first.
func (s *State) Ready(now time.Time) []Check {
	verified := Check{Name: "verified", Reason: NotVerified}
	switch {
	case s.VerifiedAt == nil:
		verified.Err = errors.Join(errors.New("the kernel has not been read back yet"), s.err)
	case now.Sub(*s.VerifiedAt) > leases*s.resync:
		verified.Err = errors.Join(fmt.Errorf("the last read-back is from %s, %s ago", s.VerifiedAt.Format(time.RFC3339),
			now.Sub(*s.VerifiedAt).Round(time.Second)), s.err)
	}
	return append([]Check{verified}, s.checks...)
}

// Started returns the condition of start-up: the fence for the networks known has been read back once.
func (s *State) Started() []Check {
	c := Check{Name: "fence-installed", Reason: LayerMissing}
	if !s.started {
		c.Err = errors.New("the fence has not been read back as complete since the start")
		if len(s.Networks) == 0 {
			c.Reason, c.Err = NoNodeNetworks, errors.New("no node network is known yet")
		}
	}
	return []Check{c}
}

// minLiveLease leaves a pass time for programs that wait for locks. A kernel that is slow is no reason for a restart, which would
// find the same kernel.
const minLiveLease = time.Minute

// Live returns the condition of liveness: the loop turns. What the kernel or the VPN does never fails it.
func (s *State) Live(now time.Time) []Check {
	c := Check{Name: "loop"}
	if age := now.Sub(s.passed); age > max(leases*s.resync, minLiveLease) {
		c.Err = fmt.Errorf("no pass has ended for %s", age.Round(time.Second))
	}
	return []Check{c}
}

// checks returns what readiness wants of a pass, besides that it is recent.
func checks(s *State, reports []shoot.Report, p plan, d *Document, readErr error) []Check {
	out := []Check{
		{"networks", NoNodeNetworks, noNetworks(d, reports)},
		{"kernel-read", NotVerified, readErr},
		{"no-leak", ReasonLeaking, leaks(d.Networks)},
		{"interfaces", LayerMissing, said(p.unguarded)},
		{"lifelines", InvalidNetwork, errors.Join(p.refused...)},
		{"alone", Conflict, conflict(p.company)},
	}
	for _, f := range policy.Families {
		out = append(out,
			Check{"routes-" + f.String(), LayerMissing, layerMissing(s, d.Networks, f, "routes")},
			Check{"firewall-" + f.String(), LayerMissing, layerMissing(s, d.Networks, f, "firewall")})
	}
	for _, r := range reports {
		out = append(out, sourceCheck(r))
	}
	if s.ReadyWhen == WhenTunneled {
		out = append(out, Check{"tunneled", TunnelDown, notTunneled(d.Networks)})
	}
	return out
}

func conflict(company bool) error {
	if !company {
		return nil
	}
	return errors.New("another process of routefence writes in this network namespace; this one takes nothing away meanwhile (stop one of them)")
}

func said(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

func noNetworks(d *Document, reports []shoot.Report) error {
	if len(d.Networks) > 0 {
		return nil
	}
	errs := []error{errors.New("no node network is known")}
	for _, r := range reports {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.Err))
		}
	}
	return errors.Join(errs...)
}

func leaks(networks []Network) error {
	var out []string
	for _, n := range networks {
		if n.State != verdict.Leaking {
			continue
		}
		if len(n.Exceptions) == 0 {
			out = append(out, fmt.Sprintf("%s: %s", n.CIDR, n.Cause))
		}
		for _, e := range n.Exceptions {
			if e.State == verdict.Leaking {
				out = append(out, fmt.Sprintf("%s can leave by %s: %s", e.CIDR, e.Interface, e.Cause))
			}
		}
	}
	return said(few(out))
}

// layerMissing says for which networks of a family a layer does not stand, and why if the kernel told.
func layerMissing(s *State, networks []Network, f policy.Family, layer string) error {
	var out []string
	for _, n := range networks {
		stands := n.Layers.Routes
		if layer == "firewall" {
			stands = n.Layers.Firewall
		}
		if stands || policy.FamilyOf(n.prefix) != f {
			continue
		}
		text := n.CIDR + " is not covered by the " + layer
		if layer == "firewall" && len(n.unstopped) > 0 {
			u := n.unstopped[0]
			text += fmt.Sprintf(": sockets bound to %s are not stopped (%s)", u.Interface, u.Cause)
		}
		out = append(out, text)
	}
	if len(out) > 0 && s.err != nil {
		return errors.Join(said(few(out)), s.err)
	}
	return said(few(out))
}

func sourceCheck(r shoot.Report) Check {
	c := Check{Name: "source-" + r.Name, Reason: SourceUnavailable, Err: r.Err}
	var invalid *policy.InvalidNetworkError
	if errors.As(r.Err, &invalid) {
		c.Reason = InvalidNetwork
	}
	if c.Err == nil && !r.Known {
		c.Err = errors.New("has not been read yet")
	}
	return c
}

func notTunneled(networks []Network) error {
	var out []string
	for _, n := range networks {
		if !n.whole {
			out = append(out, fmt.Sprintf("%s is %s (%s)", n.CIDR, n.State, n.Cause))
		}
	}
	return said(few(out))
}

// few shortens a list for a message.
func few(list []string) []string {
	const most = 3
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

func failures(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.Err == nil })
}

// sentence is all that is wrong, in one line. Several checks may fail for one cause, which is said once.
func sentence(failed []Check) string {
	var out []string
	for _, c := range failed {
		for line := range strings.SplitSeq(c.Err.Error(), "\n") {
			if !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	return strings.Join(out, "; ")
}

// summary is the message of a ready agent: "2 node networks fenced, both through tun0".
func (s *State) summary() string {
	count := len(s.Networks)
	out := fmt.Sprintf("%d node networks fenced", count)
	if count == 1 {
		out = "1 node network fenced"
	}
	through := map[string]int{}
	partly := 0
	for _, n := range s.Networks {
		if n.State == verdict.Tunneled {
			through[n.Interface]++
			if !n.whole {
				partly++
			}
		}
	}
	if len(through) == 0 {
		return out + ", no tunnel carries any"
	}
	var parts []string
	for link, n := range through {
		parts = append(parts, quantity(n, count)+" through "+link)
	}
	slices.Sort(parts)
	out += ", " + strings.Join(parts, ", ")
	if partly > 0 {
		out += fmt.Sprintf(" (%d not as a whole)", partly)
	}
	return out
}

func quantity(n, of int) string {
	switch {
	case of == 1:
		return "all of it"
	case n == of && of == 2:
		return "both"
	case n == of:
		return "all"
	}
	return fmt.Sprint(n)
}

// Installed reports whether the fence for the networks known stands, as this pass read it back.
func (s *State) Installed() bool { return s.inPlace }
