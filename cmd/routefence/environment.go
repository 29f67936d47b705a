package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const envPrefix = "ROUTEFENCE_"

// serviceLink matches what Kubernetes puts into every container's environment for a Service whose name starts with
// "routefence": that is not a mistake of the user, and must not keep the sidecar from starting.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_.*)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// noEnvironment marks a flag that no variable sets.
const noEnvironment = "no-environment"

func ofEnvironment(f *pflag.Flag) bool {
	_, marked := f.Annotations[noEnvironment]
	return !marked
}

// fromEnvironment sets the flags of cmd that were not given from the environment. A variable that no command knows is an
// error; one of another command is not, as "status" runs in the container that is configured for "run".
func fromEnvironment(cmd *cobra.Command, environ []string) error {
	known := map[string]bool{}
	for _, c := range cmd.Root().Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[variable(f)] = true })
	}
	slices.Sort(environ)
	for _, line := range environ {
		name, value, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, envPrefix) || known[name] {
			continue
		}
		if serviceLink.MatchString("_" + strings.TrimPrefix(name, envPrefix)) {
			continue
		}
		return command.Usage("%s=%s: no flag of this name (run \"routefence run --help\" for those there are)", name, value)
	}
	var bad error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(environ, variable(f))
		if f.Changed || !ok || value == "" || bad != nil || !ofEnvironment(f) {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			bad = command.Usage("%s=%s: %v", variable(f), value, err)
		}
	})
	return bad
}

func variable(f *pflag.Flag) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

func lookup(environ []string, name string) (string, bool) {
	for _, line := range environ {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
