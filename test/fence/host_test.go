package fence

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// TestHostNetworkOfAPod: where Kubernetes says that the pod's address is its host's, nothing is written unless that is asked for.
func TestHostNetworkOfAPod(t *testing.T) {
	r := rig.New(t, rig.Options{})
	env := func(host, command string) rig.Result {
		return r.Exec("env", "HOST_IP="+host, "POD_IP="+rig.Pod4.String(), shipped.Binary, command, bothNetworks, "--host-network=false")
	}
	before := r.Snapshot()
	for _, command := range []string{"run", "init"} {
		got := env(rig.Pod4.String(), command)
		if got.Exit != 2 || strings.Count(got.Stderr, "\n") != 1 || !strings.Contains(got.Stderr, "--host-network") || !strings.Contains(got.Stderr, rig.Pod4.String()) {
			t.Errorf("%s: exit code %d: %s", command, got.Exit, got.Stderr)
		}
	}
	if after := r.Snapshot(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if got := env("192.0.2.1", "init"); got.Exit != 0 {
		t.Errorf("as a pod on another host: exit code %d: %s", got.Exit, got.Stderr)
	}
	if got := r.Exec("env", "HOST_IP="+rig.Pod4.String(), "POD_IP="+rig.Pod4.String(), shipped.Binary, "init", bothNetworks, "--host-network"); got.Exit != 0 {
		t.Errorf("with --host-network: exit code %d: %s", got.Exit, got.Stderr)
	}
}

// TestHostNetworkOfThisMachine is FR-47: by a mistake the agent is started in the machine's own network namespace. --dry-run is refused like the
// rest, and is all that this test ever runs there, so that not even a defect writes. Where the tests themselves run in a container there is no
// host's namespace, and nothing to refuse.
func TestHostNetworkOfThisMachine(t *testing.T) {
	dry := func(more ...string) rig.Result {
		var stdout, stderr strings.Builder
		cmd := exec.Command(shipped.Binary, append([]string{"run", "--dry-run", "--node-networks=10.250.0.0/16"}, more...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return rig.Result{Stdout: stdout.String(), Stderr: stderr.String(), Exit: cmd.ProcessState.ExitCode(), Err: err}
	}
	_, err := os.Stat("/proc/sys/net/core/dev_weight")
	refused := err == nil
	if got := dry(); (got.Exit == 2 && got.Stdout == "" && strings.Contains(got.Stderr, "--host-network")) != refused {
		t.Errorf("exit code %d, to be refused: %v: %s%s", got.Exit, refused, got.Stdout, got.Stderr)
	}
	if got := dry("--host-network"); got.Exit != 0 || !strings.Contains(got.Stdout, "table 9604") {
		t.Errorf("with --host-network: exit code %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}
