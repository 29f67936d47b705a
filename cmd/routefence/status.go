package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

type statusFlags struct {
	output string
	server string
	watch  bool
}

func newStatus() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running agent's state",
		Long: `Status asks the running agent for its state. Exit code 0 says ready, 1 not ready, 3 that no agent answers.

Where ROUTEFENCE_LISTEN is set, as in the agent's own container, --server is by default where the agent listens by it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.OneOf("output", f.output, "table", "json", "yaml"); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "table", "table, json or yaml")
	cmd.Flags().StringVar(&f.server, "server", defaultServer(os.Getenv("ROUTEFENCE_LISTEN")), "base URL of the agent")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "show every change until interrupted")
	return cmd
}

// defaultServer returns the base URL of an agent that listens on an address; one that listens everywhere answers on loopback.
func defaultServer(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "" {
		return "http://127.0.0.1:9604"
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
	return u.String()
}

// watchPoll is how often --watch asks.
const watchPoll = time.Second

func (f statusFlags) run(ctx context.Context, out, errs io.Writer) error {
	var last string
	for {
		d, raw, err := fetch(ctx, f.server)
		if err != nil && (!f.watch || ctx.Err() == nil && last == "") {
			return &command.Exit{Code: exitUnreachable, Err: err}
		}
		// The time of the read-back moves all the time; it is no change worth showing.
		if key := changeKey(d, err); key != last {
			last = key
			if err := f.show(d, raw, err, out, errs); err != nil {
				return command.Fail(err)
			}
		}
		if !f.watch {
			if !d.Ready {
				return command.Fail(nil)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPoll):
		}
	}
}

// show prints a state, or why there is none: for people where the state would stand, for programs that read documents elsewhere.
func (f statusFlags) show(d agent.Document, raw []byte, unreachable error, out, errs io.Writer) error {
	if unreachable != nil {
		if f.output != "table" {
			out = errs
		}
		fmt.Fprintf(out, "agent unreachable: %v\n", unreachable)
		return nil
	}
	text, err := render(f.output, d, raw)
	if err != nil {
		return fmt.Errorf("print the agent's state as %s: %w", f.output, err)
	}
	fmt.Fprint(out, text)
	return nil
}

func changeKey(d agent.Document, err error) string {
	d.VerifiedAt = nil
	key, _ := json.Marshal(d)
	return fmt.Sprint(string(key), err)
}

func fetch(ctx context.Context, server string) (d agent.Document, raw []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	endpoint := strings.TrimRight(server, "/") + "/state"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return d, nil, command.Usage("--server=%s: %v", server, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return d, nil, fmt.Errorf("%w (is \"routefence run\" running here? another address: --server)", err)
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(resp.Body); err != nil {
		return d, nil, fmt.Errorf("GET %s: %w", endpoint, err)
	}
	if resp.StatusCode != http.StatusOK {
		return d, nil, fmt.Errorf("GET %s: %s", endpoint, resp.Status)
	}
	if err := json.Unmarshal(raw, &d); err != nil || d.Phase == "" {
		return d, nil, fmt.Errorf("GET %s: this is not a routefence agent's state", endpoint)
	}
	return d, raw, nil
}

// render passes json and yaml through as the agent sent them, so that an older client shows a newer agent's fields.
func render(output string, d agent.Document, raw []byte) (string, error) {
	switch output {
	case "json":
		return strings.TrimSpace(string(raw)) + "\n", nil
	case "yaml":
		out, err := yaml.JSONToYAML(raw)
		return string(out), err
	}
	return table(d), nil
}

func table(d agent.Document) string {
	var b strings.Builder
	ready := "not ready"
	if d.Ready {
		ready = "ready"
	}
	fmt.Fprintf(&b, "%s, %s (%s): %s\n", d.Phase, ready, d.Reason, d.Message)
	fmt.Fprintf(&b, "fenced: %s   tunnels: %s   firewall: %s   verified: %s\n\n", list(d.Interfaces.Fenced), list(d.Interfaces.Tunnels),
		d.Firewall.Backend, ago(d.VerifiedAt))
	w := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	fmt.Fprintln(w, "NETWORK\tSTATE\tINTERFACE\tROUTES\tFIREWALL\tSOURCES\tNOTE")
	for _, n := range d.Networks {
		note := n.Cause
		if len(n.TranslatedTo) > 0 {
			note = "translated to " + list(n.TranslatedTo)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.CIDR, n.State, dash(n.Interface), mark(n.Layers.Routes), mark(n.Layers.Firewall), list(n.Sources), note)
		for _, e := range n.Exceptions {
			fmt.Fprintf(w, "  %s\t%s\t%s\t\t\t\t%s\n", e.CIDR, e.State, dash(e.Interface), e.Cause)
		}
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, s := range d.Sources {
		if !s.Healthy || s.Message != "" {
			fmt.Fprintf(&b, "\nsource %s (%s): %s\n", s.Name, s.Ref, s.Message)
		}
	}
	for _, text := range d.Firewall.Degraded {
		fmt.Fprintf(&b, "\nfirewall degraded: %s\n", text)
	}
	return b.String()
}

func list(items []string) string { return dash(strings.Join(items, ",")) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func mark(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}

func ago(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return time.Since(*t).Round(100*time.Millisecond).String() + " ago"
}
