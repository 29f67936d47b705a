package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/policy"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

// shootNodeNetworks is what Gardener sets in the VPN's own containers; a sidecar may simply get the same.
const shootNodeNetworks = "SHOOT_NODE_NETWORKS"

// fenceFlags are the flags that say what to fence, shared by run, init and explain.
type fenceFlags struct {
	nodeNetworks []string
	shootFile    string
	shoot        string
	kubeconfig   string
	fenced       []string
	tunnels      []string
	allow        []string
	lifelines    string
	firewall     string
	translation  string
}

func (f *fenceFlags) register(fs *pflag.FlagSet) {
	f.registerFence(fs)
	fs.StringVar(&f.shoot, "shoot", "", "object to watch: cluster/NAME or shoot/NAMESPACE/NAME")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig for --shoot (default in-cluster)")
}

// registerFence adds the flags that need no API server.
func (f *fenceFlags) registerFence(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.nodeNetworks, "node-networks", nil, "fixed node CIDRs ("+shootNodeNetworks+" is read too)")
	fs.StringVar(&f.shootFile, "shoot-file", "", "file to follow: a Shoot, Cluster or Infrastructure object as YAML or JSON, or a plain list of CIDRs")
	fs.StringArrayVar(&f.fenced, "fence-interfaces", []string{"eth0"}, "interfaces node traffic must never leave by; shell patterns")
	fs.StringArrayVar(&f.tunnels, "tunnel-interfaces", []string{"tun0,bond0*"}, "interfaces of the VPN; shell patterns")
	fs.StringArrayVar(&f.allow, "allow", nil, "CIDRs inside node networks, or inside --translated-networks, that stay reachable")
	fs.StringVar(&f.lifelines, "lifelines", "keep", "a node network that holds the pod's own address, gateway, DNS, API server or a tunnel's other end: keep that address reachable, or refuse the network")
	fs.StringVar(&f.firewall, "firewall", "auto", "iptables backend: auto, nft or legacy")
	fs.StringVar(&f.translation, "translation", "auto", "follow NETMAP and DNAT of node networks in nat OUTPUT: auto or off")
}

// agentFlags are the further flags of run and init.
type agentFlags struct {
	fenceFlags
	replyFlags
	translated []string
	cacheDir   string
	readyWhen  string
	grace      time.Duration
	resync     time.Duration
	listen     string
	logLevel   string
	logFormat  string
	dryRun     bool
	// hostNetwork says that a fence in a host's network namespace is meant.
	hostNetwork bool
}

func (f *agentFlags) register(fs *pflag.FlagSet) {
	f.fenceFlags.register(fs)
	f.replyFlags.register(fs)
	fs.StringArrayVar(&f.translated, "translated-networks", []string{policy.DefaultTranslated}, "CIDRs that node networks may be translated to, never reached by a fenced interface, from before a translation is read; or none")
	fs.StringVar(&f.cacheDir, "cache-dir", "", "directory that keeps what --shoot said last over restarts (default none)")
	fs.StringVar(&f.readyWhen, "ready-when", "fenced", "what /readyz waits for: fenced or tunneled")
	fs.DurationVar(&f.grace, "tunnel-grace", 500*time.Millisecond, "how long a tunnel may be gone before connections through it are ended with an error; 0: they are left to hang")
	fs.DurationVar(&f.resync, "resync", 10*time.Second, "longest time between two full read-backs of the kernel")
	fs.StringVar(&f.listen, "listen", ":9604", "HTTP address")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", "json", "json, or console for people")
	fs.BoolVar(&f.hostNetwork, "host-network", false, "fence even a host's network namespace, which is for everything on that node, and refused without this flag")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be written, as lines for a root shell, and write nothing")
}

// fenceConfig is what fenceFlags mean.
type fenceConfig struct {
	allow           []netip.Prefix
	fenced, tunnels policy.Patterns
	fixed           []fixedSource
	shootFile       string
	api             *apiSource
	firewall        string
	translation     agent.Translation
	lifelines       agent.Lifelines
}

// parse checks the flags. Every mistake is a usage error that names the flag and the value.
func (f *fenceFlags) parse() (fenceConfig, error) {
	var c fenceConfig
	var err error
	if c.fenced, err = patterns("fence-interfaces", f.fenced); err != nil {
		return c, err
	}
	if c.tunnels, err = patterns("tunnel-interfaces", f.tunnels); err != nil {
		return c, err
	}
	for _, p := range c.fenced {
		if slices.Contains(c.tunnels, p) {
			return c, command.Usage("--fence-interfaces=%s: the same pattern is in --tunnel-interfaces; an interface is either fenced or the tunnel", p)
		}
	}
	if c.allow, err = policy.ParseAllow(strings.Join(f.allow, ",")); err != nil {
		return c, command.Usage("--allow: %v", err)
	}
	if err := command.OneOf("firewall", f.firewall, "auto", "nft", "legacy"); err != nil {
		return c, err
	}
	if err := command.OneOf("lifelines", f.lifelines, "keep", "refuse"); err != nil {
		return c, err
	}
	if err := command.OneOf("translation", f.translation, "auto", "off"); err != nil {
		return c, err
	}
	c.lifelines = agent.Lifelines(f.lifelines)
	c.firewall, c.translation, c.shootFile = f.firewall, agent.Translation(f.translation), f.shootFile
	if c.api, err = f.apiSource(); err != nil {
		return c, err
	}
	c.fixed, err = f.fixedSources()
	return c, err
}

// fixedSources are the networks known from flags and environment. A bad item on the command line is the user's mistake; one in
// SHOOT_NODE_NETWORKS comes from Gardener, and then fencing the good ones and saying so is safer than not to start.
func (f *fenceFlags) fixedSources() ([]fixedSource, error) {
	var out []fixedSource
	if len(f.nodeNetworks) > 0 {
		networks, warnings, err := prefixes("node-networks", f.nodeNetworks)
		if err != nil {
			return nil, err
		}
		if len(networks) == 0 {
			return nil, command.Usage("--node-networks=%s: names no network", strings.Join(f.nodeNetworks, ","))
		}
		out = append(out, newFixedSource("node-networks", "--node-networks", networks, warnings, nil))
	}
	if value, ok := os.LookupEnv(shootNodeNetworks); ok {
		networks, warnings, problems := policy.ParseList(value)
		out = append(out, newFixedSource("env", shootNodeNetworks, networks, warnings, problems))
	}
	return out, nil
}

func prefixes(flag string, values []string) (networks []netip.Prefix, warnings []string, err error) {
	networks, warnings, problems := policy.ParseList(strings.Join(values, ","))
	if len(problems) > 0 {
		return nil, nil, command.Usage("--%s: %v", flag, problems[0])
	}
	return networks, warnings, nil
}

func patterns(flag string, values []string) (policy.Patterns, error) {
	p, err := policy.ParsePatterns(split(values))
	if err != nil {
		return nil, command.Usage("--%s=%s: %v", flag, strings.Join(values, ","), err)
	}
	if len(p) == 0 {
		return nil, command.Usage("--%s: names no interface", flag)
	}
	return p, nil
}

// split returns the items of a list flag, which may be repeated and may hold several, separated by commas.
func split(values []string) []string {
	var list []string
	for _, v := range values {
		for item := range strings.SplitSeq(v, ",") {
			list = append(list, strings.TrimSpace(item))
		}
	}
	return list
}

// agentConfig is what agentFlags mean.
type agentConfig struct {
	fenceConfig
	agent.Config
	listen string
	log    *zap.Logger
}

// minResync keeps a mistyped unit from turning the agent into a busy loop.
const minResync = 100 * time.Millisecond

func (f *agentFlags) parse() (agentConfig, error) {
	var c agentConfig
	var err error
	if c.fenceConfig, err = f.fenceFlags.parse(); err != nil {
		return c, err
	}
	if err := f.keepIn(c.api); err != nil {
		return c, err
	}
	if len(c.fixed) == 0 && c.shootFile == "" && c.api == nil {
		return c, command.Usage("no source of node networks: give --node-networks (or %s), --shoot-file or --shoot", shootNodeNetworks)
	}
	if err := command.OneOf("ready-when", f.readyWhen, "fenced", "tunneled"); err != nil {
		return c, err
	}
	if f.resync < minResync {
		return c, command.Usage("--resync=%s: must be at least %s", f.resync, minResync)
	}
	if f.grace < 0 {
		return c, command.Usage("--tunnel-grace=%s: must not be negative", f.grace)
	}
	if err := checkAddress(f.listen); err != nil {
		return c, command.Usage("--listen=%s: %v", f.listen, err)
	}
	if c.log, err = command.Logger("", f.logLevel, f.logFormat); err != nil {
		return c, err
	}
	c.listen = f.listen
	c.Config = agent.Config{Allow: c.allow, Fenced: c.fenced, Tunnels: c.tunnels, Translation: c.translation,
		Lifelines: c.lifelines, Known: knownLifelines(),
		ReadyWhen: agent.Readiness(f.readyWhen), TunnelGrace: f.grace, Resync: f.resync}
	if c.Translated, err = f.parseTranslated(); err != nil {
		return c, err
	}
	if err := f.into(&c.Config); err != nil {
		return c, err
	}
	if err := f.refuseHost(c.Hosts); err != nil {
		return c, err
	}
	c.warn()
	return c, nil
}

// parseTranslated refuses host bits: to clear them, as is done where that widens the fence, would close a range that nobody named.
func (f *agentFlags) parseTranslated() ([]netip.Prefix, error) {
	if len(f.translated) == 1 && f.translated[0] == "none" {
		return nil, nil
	}
	translated, warnings, err := prefixes("translated-networks", f.translated)
	if err == nil && len(warnings) > 0 {
		err = command.Usage("--translated-networks: %s", warnings[0])
	}
	return translated, err
}

// warn tells once of networks that were read otherwise than they were written.
func (c agentConfig) warn() {
	for _, s := range c.fixed {
		if r := s.report; len(r.Warnings) > 0 {
			c.log.Warn("node networks should be written differently", zap.String("source", r.Ref), zap.Strings("warnings", r.Warnings))
		}
	}
}

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}
