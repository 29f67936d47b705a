package selftest

import (
	"fmt"

	"github.com/routefence/routefence/policy"
)

// Judge says what the evidence proves about the layer that the attempt was up against, and why.
func Judge(e Evidence) (Result, string) {
	switch {
	case e.Step == Untried:
		return Inconclusive, fmt.Sprintf("could not be tried: %s", e.Error)
	case e.Layer() == Routes:
		return e.routes()
	}
	return e.firewall()
}

// routes judges an attempt that left the way to the kernel.
func (e Evidence) routes() (Result, string) {
	switch {
	case e.Step == Unrouted:
		return Pass, fmt.Sprintf("routing refused at once (%s)", e.said())
	case e.Sunk > 0:
		return Pass, fmt.Sprintf("led to lo and refused there (%s), as nothing translated it", e.said())
	case e.Egress == "" && e.TranslatedTo.IsValid():
		return Pass, fmt.Sprintf("translated to %s, and routing has no way there", e.TranslatedTo)
	case e.Egress == "":
		return Inconclusive, fmt.Sprintf("routing changed during the attempt (%s)", e.said())
	case e.Role == policy.Tunnel:
		return Pass, fmt.Sprintf("left by the tunnel %s%s%s", e.Egress, e.translated(), e.farEnd())
	case e.Egress == "lo":
		return Inconclusive, fmt.Sprintf("stayed in this namespace (%s)", e.said())
	}
	kind := e.Egress
	if e.Role != policy.Fenced {
		kind += ", which is neither fenced nor a tunnel"
	}
	if e.caught() {
		return Fail, fmt.Sprintf("routing sent it to %s%s; the firewall stopped it (%s)", kind, e.translated(), e.said())
	}
	return Fail, fmt.Sprintf("LEAK: routing sent it to %s%s, and our rules did not count it (%s)", kind, e.translated(), e.said())
}

// firewall judges an attempt that was bound to a fenced interface.
func (e Evidence) firewall() (Result, string) {
	switch {
	case e.caught() && e.Step == Unanswered:
		return Pass, "counted and dropped without an answer, so callers hang until their own timeout"
	case e.caught():
		return Pass, fmt.Sprintf("counted and refused at once (%s)", e.said())
	case e.unreached() && e.Open != "":
		return Fail, fmt.Sprintf("no packet got as far (%s), but as read back nothing would stop it: %s", e.said(), e.Open)
	case e.unreached():
		return Inconclusive, fmt.Sprintf("no packet got as far as the rules (%s); as read back they would stop it", e.said())
	case e.Step == Unanswered:
		return Fail, fmt.Sprintf("LEAK: it left by %s, our rules did not count it (no answer)", e.Interface)
	}
	return Fail, fmt.Sprintf("LEAK: it left by %s, our rules did not count it (%s)", e.Interface, e.said())
}

// caught reports whether our rules stopped the packet. Counters alone do not prove it, since others may have sent to the same
// address meanwhile: what was connected, or taken for sending, went past them.
func (e Evidence) caught() bool {
	return e.Stopped > 0 && e.Step != Connected && e.Step != Sent
}

// unreached reports whether the packet ended before our rules: in routing, which has nothing for that interface, or at a rule of
// somebody else, for which the kernel tells the sender EPERM as it does for ours.
func (e Evidence) unreached() bool {
	return e.Step == Unrouted || e.Step == Refused && e.Error == "EPERM"
}

func (e Evidence) translated() string {
	if !e.TranslatedTo.IsValid() {
		return ""
	}
	return fmt.Sprintf(", translated to %s", e.TranslatedTo)
}

// farEnd says what became of a packet in the tunnel.
func (e Evidence) farEnd() string {
	switch e.Step {
	case Connected:
		return ", and was answered"
	case Sent:
		return ", for the VPN to deliver"
	}
	return fmt.Sprintf(" (what came of it there, %s, is not the fence's business)", e.said())
}

func (e Evidence) said() string {
	switch {
	case e.Error != "":
		return e.Error
	case e.Step == Connected:
		return "connected"
	case e.Step == Unanswered:
		return "no answer"
	}
	return "sent"
}
