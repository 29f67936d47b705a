package main

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/routefence/routefence/check"
	"github.com/routefence/routefence/check/kube"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
)

type checkFlags struct {
	fenceFlags
	kubeconfig string
	servers    []string
	each, all  time.Duration
	way        string
	output     string
}

func newCheck() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a shoot's tunnel from its API server, and by which way it is used",
		Long: `Check asks a shoot's API server to do what needs the tunnel, and says what is broken if something is: the VPN, the API server,
a kubelet, the metrics-server, or the fence.

  kube-apiserver           every --apiserver, or that of the kubeconfig, answers
  node network             port-forward to every running vpn-shoot pod, as gardenlet does, and the last line of its log
  pod and service network  the APIService v1beta1.metrics.k8s.io is available and really answers
  way                      in a control plane pod: the fence stands, no address of a node can be reached past the VPN, and a socket
                           that is bound to a fenced interface really does not get there

The last group is tried where there is a fence or where node networks are given, and needs what "routefence selftest" needs. Nothing is
changed in the shoot; nodes get at most a few packets.

Exit code 0: all is well. 1: something is broken, or could not be tried.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	f.registerFence(fs)
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the shoot (default $KUBECONFIG, else ~/.kube/config)")
	// In the agent's container the variable of this name is for another cluster.
	_ = fs.SetAnnotation("kubeconfig", noEnvironment, nil)
	fs.StringArrayVar(&f.servers, "apiserver", nil, "addresses of API servers to ask, each by itself, as HOST, HOST:PORT or URL (default that of the kubeconfig)")
	fs.DurationVar(&f.each, "check-timeout", 5*time.Second, "how long one check may take")
	fs.DurationVar(&f.all, "timeout", time.Minute, "how long all of them may take")
	fs.StringVar(&f.way, "way", "auto", "look at the way that packets to nodes take from here: auto, on or off")
	fs.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

func (f *checkFlags) run(ctx context.Context, out io.Writer) error {
	c, servers, err := f.parse()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.all)
	defer cancel()
	x := examination{each: f.each}
	for _, s := range servers {
		x.server(ctx, s)
	}
	if f.way != "off" {
		x.way(c, f.way == "on")
	}
	report := check.Conclude(x.results)
	if err := write(out, report, f.output); err != nil {
		return command.Fail(err)
	}
	if !report.Healthy {
		return command.Fail(nil)
	}
	return nil
}

func (f *checkFlags) parse() (fenceConfig, []kube.Server, error) {
	if err := command.OneOf("output", f.output, "text", "json"); err != nil {
		return fenceConfig{}, nil, err
	}
	if err := command.OneOf("way", f.way, "auto", "on", "off"); err != nil {
		return fenceConfig{}, nil, err
	}
	if f.each <= 0 {
		return fenceConfig{}, nil, command.Usage("--check-timeout=%s: must be more than 0", f.each)
	}
	if f.all <= 0 {
		return fenceConfig{}, nil, command.Usage("--timeout=%s: must be more than 0", f.all)
	}
	c, err := f.fenceFlags.parse()
	if err != nil {
		return c, nil, err
	}
	k, err := kube.Load(f.kubeconfig)
	if err != nil {
		return c, nil, command.Usage("--kubeconfig=%s: %v", f.kubeconfig, err)
	}
	servers, err := k.Servers(split(f.servers))
	if err != nil {
		return c, nil, command.Usage("--apiserver=%s: %v", strings.Join(f.servers, ","), err)
	}
	return c, servers, nil
}

// examination collects what is tried.
type examination struct {
	each    time.Duration
	results []check.Result
	// listed says that a server has told the shoot's objects: the addresses of its nodes, and the pods of its VPN that are running.
	listed bool
	nodes  []netip.Addr
	pods   []kube.Workload
}

// add tries something and notes what came of it.
func (x *examination) add(ctx context.Context, r check.Result, try func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, x.each)
	defer cancel()
	start := time.Now()
	err := try(ctx)
	r.Milliseconds = time.Since(start).Milliseconds()
	switch {
	case err == nil:
		r.Outcome, r.Hint = check.Passed, ""
	case errors.Is(err, kube.ErrDenied):
		r.Outcome, r.Message, r.Hint = check.Skipped, err.Error(), ""
	default:
		r.Outcome, r.Message = check.Failed, err.Error()
	}
	x.results = append(x.results, r)
	return err == nil
}

// ask is add for what is read in an object: that it could not be read is not what the object would say.
func (x *examination) ask(ctx context.Context, r check.Result, read func(context.Context) (trouble string, err error)) bool {
	var unread error
	x.add(ctx, r, func(ctx context.Context) error {
		var trouble string
		if trouble, unread = read(ctx); trouble != "" {
			return errors.New(trouble)
		}
		return nil
	})
	if unread != nil {
		last := &x.results[len(x.results)-1]
		last.Outcome, last.Message, last.Hint = check.Skipped, "could not be asked: "+unread.Error(), ""
	}
	return unread == nil
}

// skip notes that something was not tried.
func (x *examination) skip(r check.Result, why string) {
	r.Outcome, r.Message, r.Hint = check.Skipped, why, ""
	x.results = append(x.results, r)
}
