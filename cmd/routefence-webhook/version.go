package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Set by the build; see the Makefile.
var (
	version = "dev"
	commit  = "unknown"
)

type versionInfo struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			v := versionInfo{version, commit, runtime.Version()}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "routefence-webhook %s (commit %s, %s)\n", v.Version, v.Commit, v.GoVersion)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return usage("--%s=%s: want one of %s", flag, value, strings.Join(choices, ", "))
}
