package rig_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// victim is set for the copy of this test binary that TestNothingOutlivesAKilledTest kills.
const victim = "ROUTEFENCE_RIG_VICTIM"

// TestNothingOutlivesAKilledTest: Ctrl-C, "go test -timeout" and an out-of-memory kill run no clean-up code.
func TestNothingOutlivesAKilledTest(t *testing.T) {
	if os.Getenv(victim) != "" {
		beVictim(t)
	}
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) { killVictim(t, signal) })
	}
}

func beVictim(t *testing.T) {
	r := rig.New(t, rig.Options{Forwarding: true})
	p := r.Start("sleep", "60")
	fmt.Println("VICTIM", r.Pod.Name, r.Dir, p.Pid())
	time.Sleep(time.Minute)
}

func killVictim(t *testing.T, signal syscall.Signal) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlivesAKilledTest$", "-test.v")
	cmd.Env = append(os.Environ(), victim+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var word, name, dir string
	var pid int
	for lines := bufio.NewScanner(out); word == "" && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "VICTIM") {
			fmt.Sscan(lines.Text(), &word, &name, &dir, &pid)
		}
	}
	if _, err := os.Stat("/run/netns/" + name); word == "" || err != nil {
		t.Fatalf("the victim has no namespace: %v", err)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for _, path := range []string{"/run/netns/" + name, dir, fmt.Sprintf("/proc/%d/root", pid)} {
		if !disappears(path) {
			t.Errorf("%s outlives its test", path)
		}
	}
}

func disappears(path string) bool {
	for range 100 {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func TestProcessesRunInTheirNamespace(t *testing.T) {
	r := rig.New(t, rig.Options{})
	p := r.Start("sh", "-c", "ip -br addr show dev eth0; exec sleep 60")
	for range 100 {
		if strings.Contains(p.Output(), rig.Pod4.String()) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !strings.Contains(p.Output(), rig.Pod4.String()) {
		t.Errorf("the log shows no address of the pod: %q", p.Output())
	}
	if code := p.Stop(); code != -1 || p.Running() {
		t.Errorf("after Stop: code %d, running %v", code, p.Running())
	}
	if got := r.Exec("sh", "-c", "echo out; echo err >&2; exit 7"); got.Exit != 7 || got.Stdout != "out\n" || got.Stderr != "err\n" {
		t.Errorf("got %+v", got)
	}
}

func TestHTTPDialsFromTheNamespace(t *testing.T) {
	r := rig.New(t, rig.Options{})
	var l net.Listener
	if err := r.Net.Do(func() (err error) { l, err = net.Listen("tcp", ":8080"); return err }); err != nil {
		t.Fatal(err)
	}
	served := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, rig.AnswerNet) })}
	go func() { _ = served.Serve(l) }()
	t.Cleanup(func() { served.Close() })
	response, err := r.Pod.HTTP().Get("http://" + rig.Node4.String() + ":8080/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != rig.AnswerNet {
		t.Errorf("got %q (%v), want %s", body, err, rig.AnswerNet)
	}
	if _, err := r.VPN.HTTP().Get("http://" + rig.Pod4.String() + ":10250/"); err == nil {
		t.Error("the VPN's side reached the pod without a tunnel")
	}
}
