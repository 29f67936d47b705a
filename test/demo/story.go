package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// story is the demo while it runs.
type story struct {
	*stage
	world  *world
	client client
	// binary and shoot are paths: the program to show and the manifest it reads.
	binary, shoot string
	rows          []row
}

// tell carries out the whole story: the defect, then the fence with the VPN dead, up, and killed, then the agent killed.
func tell(s *stage, binary, shoot, agentLog string) {
	if _, err := os.Stat(binary); err != nil {
		s.Fatalf("find the program to show (make build makes it): %v", err)
	}
	st := &story{stage: s, binary: binary, shoot: shoot}
	s.Logf("A control plane pod %s, a seed network, and a shoot node %s with a kubelet on port 10250.", podAddress, nodeAddress)
	st.world = newWorld(s)
	ca, err := newAuthority()
	if err != nil {
		s.Fatalf("make a certificate authority: %v", err)
	}
	st.client = client{pod: st.world.pod, pool: ca.pool()}
	startKubelet(s, st.world, ca)
	v := newVPN(s, st.world, ca)

	st.step("no fence, VPN dead", leaks)
	agent := st.startAgent(agentLog)
	st.step("fence, VPN dead", blocks)
	v.up()
	s.wait("the kubelet answers through the VPN", 20*time.Second, func() bool { return st.client.ask("").by == "tun0" })
	st.step("fence, VPN up", carries)
	v.kill()
	killed := time.Now()
	st.request("right after the VPN was killed", "", "", &row{})
	s.Logf("")
	s.Logf("VPN killed; refused %.1f milliseconds later.", time.Since(killed).Seconds()*1000)
	st.step("fence, VPN killed", blocks)
	agent.Kill()
	st.step("fence, VPN and agent killed", staysBlocked)
	st.table()
}

func (st *story) startAgent(logPath string) *rig.Process {
	log, err := os.Create(logPath)
	if err != nil {
		st.Fatalf("create the agent's log: %v", err)
	}
	st.Cleanup(func() { log.Close() })
	cmd := exec.Command(st.binary, "run", "--shoot-file", st.shoot, "--log-format", "console")
	cmd.Stdout, cmd.Stderr = log, log
	begin := time.Now()
	agent := st.world.pod.StartCommand(cmd)
	st.Logf("Started in the pod: routefence run --shoot-file %s --log-format console", st.shoot)
	st.wait("the agent is ready", 30*time.Second, func() bool {
		if !agent.Running() {
			st.Fatalf("the agent has ended, exit code %d", agent.Stop())
		}
		return st.world.pod.Exec(st.binary, "status").Exit == 0
	})
	st.Logf("The agent is ready after %.1f seconds.", time.Since(begin).Seconds())
	return agent
}

// expectation is what must be so in one step.
type expectation struct {
	// by is the node's interface by which requests come in; empty: they are refused. bound is the same for sockets that
	// are bound to eth0.
	by, bound string
	// leak says that the seed network sees packets to the node; otherwise it must see none.
	leak bool
	// phase is what "status" tells; empty: there is no agent to ask.
	phase string
	// statusExit and explainExit are the exit codes of the two commands.
	statusExit, explainExit int
}

var (
	leaks        = expectation{by: "eth0", bound: "eth0", leak: true, statusExit: 3, explainExit: 1}
	blocks       = expectation{phase: "Blocked"}
	carries      = expectation{by: "tun0", phase: "Tunneled"}
	staysBlocked = expectation{statusExit: 3}
)

// requests is how many of each kind a step makes.
const requests = 5

// promptly is how soon a refusal must come.
const promptly = time.Second

// step asks the kubelet, counts what the seed network saw, and asks the two commands.
func (st *story) step(name string, want expectation) {
	if st.ctx.Err() != nil {
		st.Fatalf("before %q: %v", name, st.ctx.Err())
	}
	st.Logf("")
	st.Logf("--- %s", name)
	st.world.direct.Reset()
	st.world.tunneled.Reset()
	r := row{name: name}
	r.free = st.request(name, "", want.by, &r)
	r.bound = st.request(name+", socket bound to eth0", "eth0", want.bound, &r)
	st.Logf("kubelet: %v; bound to eth0: %v", r.free, r.bound)
	r.phase = st.status(name, want)
	st.explain(name, want)
	r.direct, r.tunneled = st.world.direct.Read(), st.world.tunneled.Read()
	st.Logf("seed network: %d packets to nodes", r.direct.Total())
	if want.leak && r.direct.Packets == 0 {
		st.Errorf("%s: the seed network saw no packet to a node; the bug does not show, or the counter does not count", name)
	}
	if !want.leak {
		expect(st.stage, name+": packets to nodes on the seed network", r.direct.Total(), 0)
	}
	expect(st.stage, name+": packets by the VPN were seen", r.tunneled.Packets > 0, want.by == "tun0")
	st.rows = append(st.rows, r)
}

// request makes a number of requests, compares each with what must come of it, and returns the last or the first wrong one.
func (st *story) request(name, device, by string, r *row) (got reply) {
	for range requests {
		got = st.client.ask(device)
		r.slowest = max(r.slowest, got.took)
		if fault := got.fault(by); fault != "" {
			st.Errorf("%s: %s", name, fault)
			return got
		}
	}
	return got
}

// fault says what is wrong with a reply to a request that must come in by the interface named, or by none.
func (r reply) fault(by string) string {
	switch {
	case r.by != by && by == "":
		return fmt.Sprintf("expected a refusal, got an answer from the node's interface %s", r.by)
	case r.by != by:
		return fmt.Sprintf("expected an answer from the node's interface %s, got %q, %v", by, r.by, r.err)
	case by == "" && !r.refused():
		return fmt.Sprintf("expected a refusal, got %v", r.err)
	case by == "" && r.took > promptly:
		return fmt.Sprintf("expected a refusal within %v, it took %v", promptly, r.took)
	}
	return ""
}

// status shows "routefence status" once the agent has seen what was just done to the VPN, and returns the phase.
func (st *story) status(name string, want expectation) string {
	var state struct{ Phase string }
	if want.phase != "" {
		st.wait("the agent's phase is "+want.phase, 15*time.Second, func() bool {
			state.Phase = ""
			out := st.world.pod.Exec(st.binary, "status", "-o", "json").Stdout
			return json.Unmarshal([]byte(out), &state) == nil && state.Phase == want.phase
		})
	}
	r := st.show("status")
	expect(st.stage, name+": exit code of routefence status", r.Exit, want.statusExit)
	if state.Phase == "" {
		return "no agent"
	}
	return state.Phase
}

func (st *story) explain(name string, want expectation) {
	r := st.show("explain", nodeAddress, "--shoot-file", st.shoot)
	expect(st.stage, name+": exit code of routefence explain", r.Exit, want.explainExit)
}

// show runs a command of routefence in the pod and prints what it says.
func (st *story) show(args ...string) rig.Result {
	r := st.world.pod.Exec(append([]string{st.binary}, args...)...)
	fmt.Printf("        $ routefence %s\n", strings.Join(args, " "))
	for line := range strings.Lines(r.Stdout + r.Stderr) {
		fmt.Printf("        | %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Printf("        exit code %d\n", r.Exit)
	return r
}
