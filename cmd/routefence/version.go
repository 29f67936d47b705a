package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Set by the build; see the Makefile.
var (
	version = "dev"
	commit  = "unknown"
)

type versionInfo struct {
	Version   string            `json:"version"`
	Commit    string            `json:"commit"`
	GoVersion string            `json:"goVersion"`
	Kernel    string            `json:"kernel"`
	Iptables  map[string]string `json:"iptables"`
}

func buildLabels() map[string]string {
	return map[string]string{"version": version, "commit": commit, "goversion": runtime.Version()}
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version, and the kernel and iptables found here",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := command.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			v := versionInfo{version, commit, runtime.Version(), kernelRelease(), iptablesVersions()}
			if output == "json" {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(v)
			}
			fmt.Printf("routefence %s (commit %s, %s)\nkernel %s\n", v.Version, v.Commit, v.GoVersion, v.Kernel)
			for _, name := range iptablesPrograms {
				fmt.Printf("%s: %s\n", name, v.Iptables[name])
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

var iptablesPrograms = []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"}

func iptablesVersions() map[string]string {
	found := map[string]string{}
	for _, name := range iptablesPrograms {
		out, err := exec.Command(name, "--version").Output()
		found[name] = strings.TrimSpace(string(out))
		if err != nil {
			found[name] = "not found"
		}
	}
	return found
}
