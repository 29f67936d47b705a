package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/pki"
	"github.com/routefence/routefence/shoot/cluster"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	injectFlags
	listen, healthListen           string
	kubeconfig                     string
	namespace, service             string
	secret, configuration          string
	authority, serving, settle     time.Duration
	clusterTimeout, drain          time.Duration
	pods                           bool
	webhookLogLevel, webhookFormat string
}

func (f *serveFlags) register(fs *pflag.FlagSet) {
	f.injectFlags.register(fs)
	fs.StringVar(&f.listen, "listen", ":9443", "address for the API server (HTTPS, path /mutate)")
	fs.StringVar(&f.healthListen, "health-listen", ":9604", "address for /healthz, /readyz and /metrics (HTTP)")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig (default in-cluster)")
	fs.StringVar(&f.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of Service and Secret (default POD_NAMESPACE)")
	fs.StringVar(&f.service, "service", "routefence-webhook", "Service that the configuration names")
	fs.StringVar(&f.secret, "secret", "routefence-webhook-ca", "Secret for the authorities that all replicas share; it must exist")
	fs.StringVar(&f.configuration, "configuration", "routefence-webhook", "MutatingWebhookConfiguration whose caBundle is kept right")
	fs.DurationVar(&f.authority, "ca-lifetime", 60*24*time.Hour, "how long an authority lives; another one follows it at half of that")
	fs.DurationVar(&f.serving, "serving-lifetime", 7*24*time.Hour, "how long a serving certificate lives; another one follows it at half of that")
	fs.DurationVar(&f.settle, "bundle-settle", time.Minute, "how long API servers get to learn of a new authority before anything is served from it")
	fs.DurationVar(&f.clusterTimeout, "cluster-timeout", time.Second, "how long a review waits for the namespace's Cluster")
	fs.DurationVar(&f.drain, "drain", 10*time.Second, "how long to go on serving after SIGTERM, until no API server calls this replica any more")
	fs.BoolVar(&f.pods, "pods", false, "take Pods too, not only Deployments and StatefulSets")
	fs.StringVar(&f.webhookLogLevel, "webhook-log-level", "info", "the webhook's own: debug, info, warn or error")
	fs.StringVar(&f.webhookFormat, "webhook-log-format", "json", "json, or console for people")
}

// ownImage stands for the image of the webhook's own pod until that is known.
const ownImage = "own"

// serveConfig is what serveFlags mean.
type serveConfig struct {
	serveFlags
	options inject.Options
	access  cluster.Access
	plan    pki.Plan
	log     *zap.Logger
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve as a mutating admission webhook",
		Long: `Serve answers the AdmissionReviews of an API server: it puts the fence into kube-apiserver and vpn-seed-server Deployments and
StatefulSets as "inject" does, and checks the Shoot of their namespace's Cluster as "lint" does; what it finds are admission warnings.

It makes its own certificates. The authorities are in a Secret that all replicas share, and the caBundle of the
MutatingWebhookConfiguration is kept right, whoever wipes it. manifests/webhook has all that it needs.

Without --image it injects the image that its own pod (POD_NAME) runs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if own := f.options.Image == "" && os.Getenv("POD_NAME") != ""; own {
				f.options.Image = ownImage
			}
			c, err := f.parse()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("form") {
				c.options.Form = "" // as the API server's version has it
			}
			return c.serve(cmd.Context())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// parse checks the flags. Every mistake is a usage error that names the flag and the value.
func (f *serveFlags) parse() (c serveConfig, err error) {
	c.serveFlags = *f
	if c.options, err = f.injectFlags.parse(); err != nil {
		return c, err
	}
	for flag, value := range map[string]string{"listen": f.listen, "health-listen": f.healthListen} {
		if _, _, err := net.SplitHostPort(value); err != nil {
			return c, command.Usage("--%s=%s: %v", flag, value, err)
		}
	}
	for flag, value := range map[string]string{"namespace": f.namespace, "service": f.service, "secret": f.secret, "configuration": f.configuration} {
		if value == "" || strings.ContainsAny(value, "/ ") {
			return c, command.Usage("--%s=%s: want the name of a Kubernetes object", flag, value)
		}
	}
	if err := f.times(); err != nil {
		return c, err
	}
	name := f.service + "." + f.namespace
	c.plan = pki.Plan{Names: []string{name + ".svc", name + ".svc.cluster.local", name}, AuthorityLifetime: f.authority,
		ServingLifetime: f.serving, Settle: f.settle}
	c.access = cluster.Access{Kubeconfig: f.kubeconfig}
	c.log, err = command.Logger("webhook-", f.webhookLogLevel, f.webhookFormat)
	return c, err
}

// times checks that certificates can follow each other in time.
func (f *serveFlags) times() error {
	const shortest = 5 * time.Second
	switch {
	case f.serving < shortest:
		return command.Usage("--serving-lifetime=%s: must be at least %s", f.serving, shortest)
	case f.authority < 2*f.serving:
		return command.Usage("--ca-lifetime=%s: must be at least twice --serving-lifetime=%s", f.authority, f.serving)
	case f.settle < 0 || f.settle > f.authority/10:
		return command.Usage("--bundle-settle=%s: must be at most a tenth of --ca-lifetime=%s", f.settle, f.authority)
	case f.clusterTimeout <= 0 || f.clusterTimeout > 3*time.Second:
		return command.Usage("--cluster-timeout=%s: want more than 0 and at most 3s: the API server itself waits 5s", f.clusterTimeout)
	case f.drain < 0:
		return command.Usage("--drain=%s: must not be negative", f.drain)
	}
	return nil
}

// form is that of the API server's version, and the native one if it does not say.
func form(ctx context.Context, c *connection) inject.Form {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var v struct{ Major, Minor string }
	if err := c.decode(ctx, "/version", &v); err != nil {
		return inject.NativeSidecar
	}
	return inject.FormFor(v.Major, v.Minor)
}

// image asks until it is known which image the container "webhook" of this pod runs.
func (w *webhook) image(ctx context.Context) (string, error) {
	path := namespaces + w.namespace + "/pods/" + os.Getenv("POD_NAME")
	for {
		image, err := w.connection.image(ctx, path)
		if err == nil {
			return image, nil
		}
		w.log.Warn("the image of the own pod is not known yet; --image says it without asking", zap.Error(err))
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(2 * time.Second):
		}
	}
}

func (c *connection) image(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var pod struct {
		Spec struct {
			Containers []struct{ Name, Image string }
		}
	}
	if err := c.decode(ctx, path, &pod); err != nil {
		return "", err
	}
	for _, container := range pod.Spec.Containers {
		if container.Name == "webhook" {
			return container.Image, nil
		}
	}
	return "", fmt.Errorf("%s: no container is called webhook", path)
}
