package image

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// scratch is where the image is built.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", fmt.Sprintf("rf%d-image-", os.Getpid())); err != nil { // a name that "make clean" knows
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// images are those that were built, by platform: for this machine's, or for those in PLATFORMS. The first test that needs one waits.
var images = sync.OnceValues(func() (map[string]*image, error) {
	platforms := cmp.Or(os.Getenv("PLATFORMS"), here)
	if err := build(scratch, platforms); err != nil {
		return nil, err
	}
	built := map[string]*image{}
	for platform := range strings.SplitSeq(platforms, ",") {
		i, err := unpack(archive(scratch, version, platform), filepath.Join(scratch, filepath.Base(platform)))
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", platform, err)
		}
		built[platform] = i
	}
	if built[here] == nil {
		return nil, fmt.Errorf("PLATFORMS=%s: must have %s, which runs here", platforms, here)
	}
	return built, nil
})

// here is the platform that can be run.
const here = "linux/" + runtime.GOARCH

// host is the image for it.
func host(t *testing.T) *image {
	t.Helper()
	return allImages(t)[here]
}

func allImages(t *testing.T) map[string]*image {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("to build and run the image needs root (make test runs these tests; make unit runs those that do not)")
	}
	built, err := images()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func archive(dir, version, platform string) string {
	return filepath.Join(dir, "routefence-"+version+"-linux-"+filepath.Base(platform)+".oci.tar")
}

// version, commit and epoch are what the image of the tests says of itself.
const (
	version = "v0.0.0-test"
	commit  = "0123456789abcdef"
	epoch   = 1767225600
)

// build makes archives of this source tree in a directory.
func build(dir, platforms string) error {
	cmd := exec.Command("./within.sh", scratch, "../../image/build.sh", "routefence:"+version, dir)
	cmd.Env = append(os.Environ(), "PLATFORMS="+platforms, "VERSION="+version, "COMMIT="+commit, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image: %w\n%s", err, out)
	}
	return nil
}
