package image

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRelease makes a release of the same commit in two places. Both are the same byte for byte, and complete.
func TestRelease(t *testing.T) {
	allImages(t) // says what is wrong if nothing can be built at all
	var sums [2]string
	var out string
	for i := range sums {
		source := filepath.Join(t.TempDir(), strings.Repeat("source", i+1))
		commitSource(t, source)
		if printed, err := release(source, "VERSION=v1.2.3", "IMAGE=registry.example/routefence"); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		out = filepath.Join(source, "dist", "v1.2.3")
		sums[i] = read(t, filepath.Join(out, "SHA256SUMS"))
	}
	if sums[0] != sums[1] {
		t.Errorf("two releases of one commit:\n%s\n%s", sums[0], sums[1])
	}
	checkSums(t, out, sums[1])
	i, err := unpack(archive(out, "v1.2.3", here), filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	if got := i.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("the image says that it is %s", got)
	}
	for _, name := range []string{"routefence", "routefence-webhook"} {
		if read(t, filepath.Join(out, name+"-linux-"+i.Architecture)) != read(t, filepath.Join(i.root, "usr/bin", name)) {
			t.Errorf("%s is not the one in the image", name)
		}
	}
	manifests, err := filepath.Glob(filepath.Join(out, "*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Errorf("manifests: %v, %v", manifests, err)
	}
	for _, path := range manifests {
		images := regexp.MustCompile(`(?m)^\s*(?:- )?image: (.*)$`).FindAllStringSubmatch(read(t, path), -1)
		if len(images) != 1 || images[0][1] != "registry.example/routefence:v1.2.3" {
			t.Errorf("%s has the images %v", filepath.Base(path), images)
		}
	}
}

// TestNoRelease: what cannot be made again, or has no proper name, is refused.
func TestNoRelease(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	commitSource(t, source)
	if err := os.WriteFile(filepath.Join(source, "README.md"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	for words, env := range map[string][]string{
		"VERSION=1.2.3: want":           {"VERSION=1.2.3"},
		"IMAGE=registry.example/x:1":    {"VERSION=v1.2.3", "IMAGE=registry.example/x:1"},
		"changes that are in no commit": {"VERSION=v1.2.3"},
	} {
		if out, err := release(source, env...); err == nil || !strings.Contains(out, words) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: %v, want %q, got %q", env, err, words, out)
		}
	}
	if _, err := os.Stat(filepath.Join(source, "dist")); err == nil {
		t.Error("something was made")
	}
}

func release(source string, env ...string) (string, error) {
	cmd := exec.Command("./within.sh", scratch, filepath.Join(source, "image/release.sh"))
	cmd.Env = append(append(os.Environ(), "PLATFORMS="+here), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func checkSums(t *testing.T, dir, sums string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(sums), "\n")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(lines)+1 {
		t.Errorf("%d sums for %d files and the sums' own (%v)", len(lines), len(entries), err)
	}
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, filepath.Join(dir, name))))); got != sum {
			t.Errorf("%s: %s, and SHA256SUMS has %s", name, got, sum)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// commitSource copies what git knows or would take, and makes it a commit that is the same every time.
func commitSource(t *testing.T, to string) {
	t.Helper()
	script := `
	mkdir -p "$1"
	cd ../..
	git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do [ ! -e "$name" ] || printf '%s\0' "$name"; done |
		tar --null --files-from=- -c | tar -C "$1" -x
	cd "$1"
	git init --quiet
	git add --all
	git -c user.name=nobody -c user.email=nobody@example.org commit --quiet --message=all`
	cmd := exec.Command("bash", "-euc", script, "bash", to)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copy the source: %v\n%s", err, out)
	}
}
