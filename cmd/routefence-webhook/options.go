package main

import (
	"net/netip"
	"strings"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/policy"
	"github.com/spf13/pflag"
)

// injectFlags say what the injected containers are like; annotations of an object go before them.
type injectFlags struct {
	options  inject.Options
	networks []string
	source   string
	form     string
}

func (f *injectFlags) register(fs *pflag.FlagSet) {
	o := &f.options
	fs.StringVar(&o.Image, "image", "", "routefence's image (required)")
	fs.StringVar(&o.PullPolicy, "image-pull-policy", "IfNotPresent", "Always, IfNotPresent or Never")
	fs.StringVar(&f.source, "source", string(inject.PodSource), "where node networks come from: pod (what its VPN containers have), api (watch the Cluster) or configmap/NAME[/KEY]")
	fs.StringVar(&f.form, "form", string(inject.NativeSidecar), "native (sidecar; Kubernetes 1.29 and later) or pair (init container and sidecar)")
	fs.StringVar(&o.Firewall, "firewall", "auto", "iptables backend: auto, nft or legacy")
	fs.StringVar(&o.Resources.CPURequest, "cpu-request", inject.DefaultResources.CPURequest, "CPU that is set aside")
	fs.StringVar(&o.Resources.CPULimit, "cpu-limit", inject.DefaultResources.CPULimit, "most CPU")
	fs.StringVar(&o.Resources.MemoryRequest, "memory-request", inject.DefaultResources.MemoryRequest, "memory that is set aside")
	fs.StringVar(&o.Resources.MemoryLimit, "memory-limit", inject.DefaultResources.MemoryLimit, "most memory")
	fs.StringVar(&o.LogLevel, "log-level", "info", "the agent's: debug, info, warn or error")
	fs.StringVar(&o.ReadyWhen, "ready-when", "fenced", "what vpn-seed-server pods wait for: fenced or tunneled")
}

// registerFixed adds what a webhook finds out by itself.
func (f *injectFlags) registerFixed(fs *pflag.FlagSet) {
	fs.StringVarP(&f.options.Namespace, "namespace", "n", "", "namespace of objects that do not name one")
	fs.StringArrayVar(&f.networks, "node-networks", nil, "node CIDRs, for pods that do not have them in SHOOT_NODE_NETWORKS")
	fs.StringVar(&f.options.Cluster, "cluster", "", "Cluster to watch with --source=api (default the namespace)")
}

// parse checks the flags, whose names are those of inject's options.
func (f *injectFlags) parse() (inject.Options, error) {
	o := f.options
	o.Source, o.Form = inject.Source(f.source), inject.Form(f.form)
	if o.Image == "" {
		return o, command.Usage("--image: is not given; want the reference of routefence's image")
	}
	var err error
	if o.Networks, err = networks(f.networks); err != nil {
		return o, err
	}
	if err := inject.Check(o); err != nil {
		return o, command.Usage("--%s", asFlags.Replace(err.Error()))
	}
	return o, nil
}

// asFlags turns the names of values into those of the flags.
var asFlags = strings.NewReplacer("requests.cpu", "cpu-request", "limits.cpu", "cpu-limit", "requests.memory", "memory-request", "limits.memory", "memory-limit")

func networks(values []string) ([]netip.Prefix, error) {
	out, _, problems := policy.ParseList(strings.Join(values, ","))
	if len(problems) > 0 {
		return nil, command.Usage("--node-networks: %v", problems[0])
	}
	if len(values) > 0 && len(out) == 0 {
		return nil, command.Usage("--node-networks=%s: names no network", strings.Join(values, ","))
	}
	return out, nil
}
