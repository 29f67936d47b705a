package image

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// scratch is where the image was built; built are the images by platform, and host is the one that runs here.
var (
	scratch string
	built   = map[string]*image{}
	host    *image
)

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

// buildAndRun builds for this machine's platform, or for those in PLATFORMS.
func buildAndRun(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", fmt.Sprintf("rf%d-image-", os.Getpid())); err != nil { // a name that "make clean" knows
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	if err := buildImages(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func buildImages() error {
	own := "linux/" + runtime.GOARCH
	platforms := cmp.Or(os.Getenv("PLATFORMS"), own)
	if err := build(scratch, "../..", platforms); err != nil {
		return err
	}
	for platform := range strings.SplitSeq(platforms, ",") {
		i, err := unpack(archive(scratch, platform), filepath.Join(scratch, filepath.Base(platform)))
		if err != nil {
			return fmt.Errorf("image for %s: %w", platform, err)
		}
		built[platform] = i
	}
	if host = built[own]; host == nil {
		return fmt.Errorf("PLATFORMS=%s: must have %s, which runs here", platforms, own)
	}
	return nil
}

func archive(dir, platform string) string {
	return filepath.Join(dir, "archives", "routefence-test-linux-"+filepath.Base(platform)+".oci.tar")
}

// build makes the archives out of a source tree.
func build(dir, source, platforms string) error {
	cmd := exec.Command("./build.sh", dir, source)
	cmd.Env = append(os.Environ(), "PLATFORMS="+platforms)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image: %w\n%s", err, out)
	}
	return nil
}
