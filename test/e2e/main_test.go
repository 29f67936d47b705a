package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// programs are the paths of what is built before the tests, of the folder for it, and of that for logs of tests that fail.
var programs struct{ routefence, webhook, standin, apiserver, kubelet, dir, logs string }

// running are the log keepers of the labs that stand now.
var running sync.Map

var table = flag.String("table", "", "file that takes the table of the replay")

func TestMain(m *testing.M) { os.Exit(prepareAndRun(m)) }

func prepareAndRun(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", fmt.Sprintf("rf%d-e2e-", os.Getpid()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs.dir = dir
	programs.logs = filepath.Join(os.TempDir(), fmt.Sprintf("routefence-e2e-logs-%d", os.Getpid()))
	programs.routefence, programs.webhook, programs.standin = filepath.Join(dir, "routefence"), filepath.Join(dir, "webhook"), filepath.Join(dir, "standin")
	for _, build := range [][]string{
		{"go", "build", "-C", "../..", "-trimpath", "-o", programs.routefence, "./cmd/routefence"},
		{"go", "build", "-C", "../..", "-trimpath", "-o", programs.webhook, "./cmd/routefence-webhook"},
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-o", programs.standin, "./standin"},
	} {
		if _, err := output(build...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for program, path := range map[string]*string{"kube-apiserver": &programs.apiserver, "kubelet": &programs.kubelet} {
		if *path, err = output("../apiserver/server/build.sh", program); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	go keepLogsOnInterrupt(dir)
	return m.Run()
}

// keepLogsOnInterrupt leaves the removal of everything else to the undertakers.
func keepLogsOnInterrupt(dir string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	<-interrupted
	running.Range(func(_, keeper any) bool {
		keeper.(*logKeeper).copy()
		return true
	})
	os.RemoveAll(dir)
	os.Exit(130)
}

func output(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
