package field

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// server is where the agent answers unless --listen says otherwise.
const server = "http://127.0.0.1:9604"

const (
	// patience is how long a test waits for what must come. It asserts nothing about speed.
	patience = 20 * time.Second
	// ample is the patience with probes that must be answered, brief that with those that must not.
	ample = 10 * time.Second
	brief = 300 * time.Millisecond
)

// bothNetworks is the flag that names the bench's node networks.
const bothNetworks = "--node-networks=10.250.0.0/16,fd00:250::/48"

// sidecar is a running "routefence run".
type sidecar struct {
	*rig.Process
	t *testing.T
	r *rig.Rig
}

// document is the state as the contract words it. The product's own type is not used: a renamed field must be noticed.
type document struct {
	Phase, Reason, Message string
	Ready                  bool
	Networks               []network
	Sources                []struct {
		Name, Message string
		Healthy       bool
	}
	Firewall struct {
		Backend  string
		Degraded []string
	}
	VerifiedAt time.Time
	Repairs    struct{ Routes, Firewall uint64 }
}

type network struct {
	CIDR, State, Interface, Cause string
	TranslatedTo                  []string
	Exceptions                    []struct{ CIDR, State, Interface, Cause string }
}

// start runs the agent and waits for nothing.
func start(t *testing.T, r *rig.Rig, args ...string) *sidecar {
	t.Helper()
	return startWith(t, r, nil, args...)
}

// startWith puts the agent behind a program that prepares its surroundings, as "env" does.
func startWith(t *testing.T, r *rig.Rig, wrap []string, args ...string) *sidecar {
	t.Helper()
	line := append(append([]string{}, wrap...), binary, "run")
	return &sidecar{r.Start(append(line, args...)...), t, r}
}

// startReady runs the agent on the bench's networks and waits until it is ready.
func startReady(t *testing.T, r *rig.Rig, backend string, args ...string) *sidecar {
	t.Helper()
	s := start(t, r, append([]string{bothNetworks, "--firewall=" + backend, "--resync=1s"}, args...)...)
	s.awaitReady()
	return s
}

// in returns the same sidecar for the use of a subtest.
func (s *sidecar) in(t *testing.T) *sidecar { return &sidecar{s.Process, t, s.r} }

// get asks the agent. A code of 0 says that nobody answers.
func (s *sidecar) get(path string) (int, string) {
	response, err := s.r.Pod.HTTP().Get(server + path)
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

// state returns an empty document as long as nobody answers.
func (s *sidecar) state() (d document) {
	s.t.Helper()
	code, body := s.get("/state")
	if code == 0 {
		return document{}
	}
	if code != http.StatusOK {
		s.t.Errorf("/state: %d %s", code, body)
	}
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		s.t.Errorf("/state: %v in %s", err, body)
	}
	return d
}

// await waits until the state is as wanted, and returns it.
func (s *sidecar) await(what string, want func(document) bool) document {
	s.t.Helper()
	var d document
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(15 * time.Millisecond) {
		if d = s.state(); want(d) {
			return d
		}
		if !s.Running() {
			break
		}
	}
	s.t.Fatalf("never seen that %s\nstate: %+v\nlog: %s", what, d, s.tail())
	return d
}

func (s *sidecar) awaitReady() document {
	s.t.Helper()
	return s.await("the agent is ready", func(d document) bool { return d.Ready })
}

// awaitPasses waits until the agent has looked at the kernel a number of times more.
func (s *sidecar) awaitPasses(n int) document {
	s.t.Helper()
	d := s.state()
	for range n {
		last := d.VerifiedAt
		d = s.await("another pass", func(d document) bool { return d.VerifiedAt.After(last) })
	}
	return d
}

// tail is the end of the log, for messages.
func (s *sidecar) tail() string {
	const most = 4000
	out := s.Output()
	return out[max(0, len(out)-most):]
}

// changes counts the writes that the agent has logged.
func (s *sidecar) changes() int { return strings.Count(s.Output(), `"msg":"change"`) }

// network returns what the state says about one network.
func (d document) network(cidr string) network {
	for _, n := range d.Networks {
		if n.CIDR == cidr {
			return n
		}
	}
	return network{}
}

// cidrs lists the networks of the state, separated by blanks.
func (d document) cidrs() string {
	var out []string
	for _, n := range d.Networks {
		out = append(out, n.CIDR)
	}
	return strings.Join(out, " ")
}

// causes is all that the state says about exceptions, for searching.
func (d document) causes() string {
	var b strings.Builder
	b.WriteString(d.Message)
	for _, n := range d.Networks {
		b.WriteString("\n" + n.CIDR + " " + n.State + ": " + n.Cause)
		for _, e := range n.Exceptions {
			b.WriteString("\n" + e.CIDR + " " + e.State + " " + e.Interface + ": " + e.Cause)
		}
	}
	return b.String()
}
