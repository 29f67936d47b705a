package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// shared is the seed that most tests use; those that stop or break it make one of their own.
var shared *seed

// binary is routefence as "make build" makes it.
var binary string

func TestMain(m *testing.M) { os.Exit(prepareAndRun(m)) }

func prepareAndRun(m *testing.M) (code int) {
	t := &mainT{}
	defer t.end()
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Fprintln(os.Stderr, failure)
			code = 1
		}
	}()
	lab := rig.NewLab(t)
	binary = filepath.Join(lab.Dir, "routefence")
	command(t, []string{"CGO_ENABLED=0"}, "go", "build", "-C", "../..", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/routefence")
	shared = newSeed(t, lab)
	return m.Run()
}

// mainT is what a lab hangs on that outlives the single test.
type mainT struct{ cleanups []func() }

func (t *mainT) Helper()                      {}
func (t *mainT) Cleanup(f func())             { t.cleanups = append(t.cleanups, f) }
func (t *mainT) Logf(f string, args ...any)   { fmt.Printf(f+"\n", args...) }
func (t *mainT) Errorf(f string, args ...any) { fmt.Fprintf(os.Stderr, f+"\n", args...) }
func (t *mainT) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

func (t *mainT) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

// command runs a program of the toolchain and returns what it prints.
func command(t rig.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// Gardener's own CRDs are in its main module, of which nothing is compiled here. The sum stands for the line in go.sum.
const (
	gardener    = "github.com/gardener/gardener@v1.147.1"
	gardenerSum = "h1:KRkdvsNJBpONesxqmCpWA+U8jqVzm4Rg2clxtof6whw="
)

// gardenerCRD returns the CRD of one of Gardener's extension resources.
func gardenerCRD(t rig.T, plural string) []byte {
	t.Helper()
	var module struct{ Dir, Sum string }
	out := command(t, nil, "go", "mod", "download", "-json", gardener)
	if err := json.Unmarshal([]byte(out), &module); err != nil || module.Sum != gardenerSum {
		t.Fatalf("%s: sum %s, want %s (%v)", gardener, module.Sum, gardenerSum, err)
	}
	data, err := os.ReadFile(filepath.Join(module.Dir, "example/seed-crds/10-crd-extensions.gardener.cloud_"+plural+".yaml"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return bytes.TrimSpace(data)
}
