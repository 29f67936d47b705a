package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/routefence/routefence/cmd/internal/command"
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
			if err := command.OneOf("output", output, "text", "json"); err != nil {
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
