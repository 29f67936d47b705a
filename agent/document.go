package agent

import (
	"net/netip"
	"time"

	"github.com/routefence/routefence/verdict"
)

// Document is the state as the outside sees it: /state, "status -o json". Fields and values are part of the contract: more may
// be added, none renamed.
type Document struct {
	Phase      Phase      `json:"phase"`
	Ready      bool       `json:"ready"`
	Reason     Reason     `json:"reason"`
	Message    string     `json:"message"`
	ReadyWhen  Readiness  `json:"readyWhen"`
	Networks   []Network  `json:"networks"`
	Sources    []Status   `json:"sources"`
	Interfaces Interfaces `json:"interfaces"`
	Firewall   Backend    `json:"firewall"`
	VerifiedAt *time.Time `json:"verifiedAt"`
	Repairs    Repairs    `json:"repairs"`
	// Severed counts the connections that were ended because they ran outside of the tunnel, or because that is gone.
	Severed uint64 `json:"severed"`
}

// Phase sums up all networks.
type Phase string

// The phases.
const (
	Pending  Phase = "Pending"
	Blocked  Phase = "Blocked"
	Tunneled Phase = "Tunneled"
	Partial  Phase = "Partial"
	Leaking  Phase = "Leaking"
)

// Phases lists them all, for metrics.
var Phases = []Phase{Pending, Blocked, Tunneled, Partial, Leaking}

// Reason is why the agent is ready or not.
type Reason string

// The reasons. Fenced and Tunneled are those of a ready agent, by what it waits for.
const (
	ReasonFenced      Reason = "Fenced"
	ReasonTunneled    Reason = "Tunneled"
	NoNodeNetworks    Reason = "NoNodeNetworks"
	SourceUnavailable Reason = "SourceUnavailable"
	InvalidNetwork    Reason = "InvalidNetwork"
	LayerMissing      Reason = "LayerMissing"
	ReasonLeaking     Reason = "Leaking"
	TunnelDown        Reason = "TunnelDown"
	NotVerified       Reason = "NotVerified"
	// Conflict: another process of ours writes in the same network namespace.
	Conflict Reason = "Conflict"
)

// Network is the verdict on one node network.
type Network struct {
	CIDR         string        `json:"cidr"`
	Sources      []string      `json:"sources"`
	State        verdict.State `json:"state"`
	Interface    string        `json:"interface,omitempty"`
	Cause        string        `json:"cause,omitempty"`
	TranslatedTo []string      `json:"translatedTo,omitempty"`
	// Replies says that connections which come in from the network over a fenced interface are answered.
	Replies    bool        `json:"replies,omitempty"`
	Layers     Layers      `json:"layers"`
	Exceptions []Exception `json:"exceptions,omitempty"`

	prefix    netip.Prefix
	whole     bool
	unstopped []verdict.Exception
}

// Layers says which of the two layers stand for a network, as read back.
type Layers struct {
	Routes   bool `json:"routes"`
	Firewall bool `json:"firewall"`
}

// Exception is a part of a network that fares differently.
type Exception struct {
	CIDR      string        `json:"cidr"`
	State     verdict.State `json:"state"`
	Interface string        `json:"interface,omitempty"`
	Cause     string        `json:"cause,omitempty"`
}

// Status is what one source says at the moment.
type Status struct {
	Name       string     `json:"name"`
	Ref        string     `json:"ref"`
	Healthy    bool       `json:"healthy"`
	Message    string     `json:"message"`
	Networks   []string   `json:"networks"`
	LastChange *time.Time `json:"lastChange"`
}

// Interfaces are those present in the namespace that play a role.
type Interfaces struct {
	Fenced  []string `json:"fenced"`
	Tunnels []string `json:"tunnels"`
}

// Backend is the firewall in use.
type Backend struct {
	Backend  string   `json:"backend"`
	Degraded []string `json:"degraded,omitempty"`
}

// Repairs counts the passes that had to put something back which had stood before.
type Repairs struct {
	Routes   uint64 `json:"routes"`
	Firewall uint64 `json:"firewall"`
}
