package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/lint"
	"github.com/routefence/routefence/manifest"
	"github.com/spf13/cobra"
)

func newLint() *cobra.Command {
	var files []string
	var output string
	cmd := &cobra.Command{
		Use:   "lint -f SHOOT [-f SEED]",
		Short: "Check whether a Shoot's networks can be fenced",
		Long: `Lint checks the networks of Shoots: node networks that are missing, invalid, or overlap the shoot's own pods and services, ranges that
Gardener's VPN uses itself, or the networks of the seed. For the last give the Seed as well, or a Cluster, which has both in it. With several Seeds
each Shoot is checked against the one that it names in spec.seedName; if that is not among them a warning says so.

Exit code 0 without errors (warnings may be there), 1 with errors, 2 for what cannot be read.`,
		Example: "  routefence-webhook lint -f shoot.yaml -f seed.yaml\n  kubectl get cluster shoot--dev--one -o yaml | routefence-webhook lint -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.OneOf("output", output, "table", "json"); err != nil {
				return err
			}
			if len(files) == 0 {
				return command.Usage("-f: is not given; want a file with a Shoot, or - for standard input")
			}
			return lintFiles(cmd, files, output)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file with a Shoot, Seed or Cluster, - for standard input (may be repeated)")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func lintFiles(cmd *cobra.Command, files []string, output string) error {
	var l linter
	for _, name := range files {
		if err := l.read(cmd.InOrStdin(), name); err != nil {
			return &command.Exit{Code: command.Mistake, Err: err}
		}
	}
	findings, err := l.findings()
	if err != nil {
		return err
	}
	if err := printFindings(cmd.OutOrStdout(), output, findings); err != nil {
		return command.Fail(err)
	}
	if slices.ContainsFunc(findings, func(f lint.Finding) bool { return f.Severity == lint.Error }) {
		return command.Fail(nil)
	}
	return nil
}

// linter collects Shoots, each with the Seed that came with it, and Seeds.
type linter struct {
	shoots []pair
	seeds  []map[string]any
}

type pair struct{ shoot, seed map[string]any }

func (l *linter) read(stdin io.Reader, name string) error {
	data, err := read(stdin, name)
	if err != nil {
		return err
	}
	documents, err := manifest.Split(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	known := len(l.shoots) + len(l.seeds)
	for _, d := range documents {
		l.take(d.Object)
	}
	if len(l.shoots)+len(l.seeds) == known {
		return fmt.Errorf("%s: holds no Shoot, Seed or Cluster", name)
	}
	return nil
}

// take passes over objects of other kinds: whole directories are checked.
func (l *linter) take(o map[string]any) {
	kind, _ := o["kind"].(string)
	switch kind {
	case "Shoot":
		l.shoots = append(l.shoots, pair{shoot: o})
	case "Seed":
		l.seeds = append(l.seeds, o)
	case "Cluster":
		spec, _ := o["spec"].(map[string]any)
		shoot, _ := spec["shoot"].(map[string]any)
		seed, _ := spec["seed"].(map[string]any)
		if shoot != nil {
			l.shoots = append(l.shoots, pair{shoot, seed})
		}
	}
	if items, _ := o["items"].([]any); strings.HasSuffix(kind, "List") {
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				l.take(adopt(o, item))
			}
		}
	}
}

func (l *linter) findings() ([]lint.Finding, error) {
	if len(l.shoots) == 0 {
		return nil, command.Usage("-f: holds no Shoot, only Seeds")
	}
	out := []lint.Finding{}
	for _, p := range l.shoots {
		if p.seed != nil {
			out = append(out, lint.Shoot(p.shoot, p.seed)...)
		} else {
			out = append(out, lint.Among(p.shoot, l.seeds)...)
		}
	}
	return out, nil
}

func printFindings(out io.Writer, format string, findings []lint.Finding) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(findings)
	}
	if len(findings) == 0 {
		_, err := fmt.Fprintln(out, "no findings")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "SEVERITY\tOBJECT\tFIELD\tMESSAGE")
	for _, f := range findings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Severity, f.Object, f.Field, f.Message)
	}
	return w.Flush()
}
