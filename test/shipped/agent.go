package shipped

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

const (
	// server is where the agent answers unless --listen says otherwise.
	server = "http://127.0.0.1:9604"
	// patience is how long a test waits for what must come. It asserts nothing about speed.
	patience = 20 * time.Second
)

// BothNetworks is the flag that names the bench's node networks.
const BothNetworks = "--node-networks=10.250.0.0/16,fd00:250::/48"

// Agent is a running "routefence run".
type Agent struct {
	*rig.Process
	// T is the test that fails with it, Pod the namespace it is in.
	T   *testing.T
	Pod *rig.Namespace
	// Patience is with what must come.
	Patience time.Duration
}

// Start runs the agent and waits for nothing.
func Start(t *testing.T, pod *rig.Namespace, args ...string) *Agent {
	t.Helper()
	return StartWith(t, pod, nil, args...)
}

// StartWith puts the agent behind a program that prepares its surroundings, as "env" does.
func StartWith(t *testing.T, pod *rig.Namespace, wrap []string, args ...string) *Agent {
	t.Helper()
	line := append(append([]string{}, wrap...), Binary, "run")
	return Run(t, pod, append(line, args...)...)
}

// Run runs a whole command line that is an agent's.
func Run(t *testing.T, pod *rig.Namespace, line ...string) *Agent {
	t.Helper()
	return &Agent{Process: pod.Start(line...), T: t, Pod: pod, Patience: patience}
}

// StartReady runs the agent on the bench's networks and waits until it is ready.
func StartReady(t *testing.T, pod *rig.Namespace, backend string, args ...string) *Agent {
	t.Helper()
	a := Start(t, pod, append([]string{BothNetworks, "--firewall=" + backend, "--resync=1s"}, args...)...)
	a.AwaitReady()
	return a
}

// In returns the same agent for the use of a subtest.
func (a *Agent) In(t *testing.T) *Agent {
	out := *a
	out.T = t
	return &out
}

// Get asks the agent. A code of 0 says that nobody answers.
func (a *Agent) Get(path string) (int, string) {
	response, err := a.Pod.HTTP().Get(server + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// State returns an empty document as long as nobody answers.
func (a *Agent) State() (d Document) {
	a.T.Helper()
	code, body := a.Get("/state")
	if code == 0 {
		return Document{}
	}
	if code != http.StatusOK {
		a.T.Errorf("/state: %d %s", code, body)
	}
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		a.T.Errorf("/state: %v in %s", err, body)
	}
	return d
}

// Await waits until the state is as wanted, and returns it.
func (a *Agent) Await(what string, want func(Document) bool) Document {
	a.T.Helper()
	var d Document
	for deadline := time.Now().Add(a.Patience); time.Now().Before(deadline); time.Sleep(15 * time.Millisecond) {
		if d = a.State(); want(d) {
			return d
		}
		if !a.Running() {
			break
		}
	}
	a.T.Fatalf("never seen that %s\nstate: %+v\nlog: %s", what, d, a.Tail())
	return d
}

// AwaitReady waits until the agent is ready.
func (a *Agent) AwaitReady() Document {
	a.T.Helper()
	return a.Await("the agent is ready", func(d Document) bool { return d.Ready })
}

// AwaitPasses waits until the agent has looked at the kernel a number of times more.
func (a *Agent) AwaitPasses(n int) Document {
	a.T.Helper()
	d := a.State()
	for range n {
		last := d.VerifiedAt
		d = a.Await("another pass", func(d Document) bool { return d.VerifiedAt.After(last) })
	}
	return d
}

// AwaitPhase waits for a phase of a ready agent, and asserts what every other way of asking says then.
func (a *Agent) AwaitPhase(phase string) Document {
	a.T.Helper()
	d := a.Await("the phase is "+phase, func(d Document) bool { return d.Ready && d.Phase == phase })
	if code, body := a.Get("/readyz"); code != http.StatusOK || body != "ok" {
		a.T.Errorf("phase %s: /readyz says %d %s", phase, code, body)
	}
	if got := a.Pod.Exec(Binary, "status"); got.Exit != 0 || !strings.HasPrefix(got.Stdout, phase+", ready") {
		a.T.Errorf("phase %s: status exits with %d: %s%s", phase, got.Exit, got.Stdout, got.Stderr)
	}
	return d
}

// Tail is the end of the log, for messages.
func (a *Agent) Tail() string {
	const most = 4000
	out := a.Output()
	return out[max(0, len(out)-most):]
}

// Changes counts the writes that the agent has logged.
func (a *Agent) Changes() int { return strings.Count(a.Output(), `"msg":"change"`) }
