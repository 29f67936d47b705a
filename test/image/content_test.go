package image

import (
	"archive/tar"
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/image/pattern"
)

// maxSize is what an image may be, uncompressed, in bytes.
const maxSize = 35_000_000

// each runs a test for every platform that was built.
func each(t *testing.T, test func(t *testing.T, i *image)) {
	for platform, i := range allImages(t) {
		t.Run(platform, func(t *testing.T) { test(t, i) })
	}
}

// TestEveryFileHasItsReason compares the image with the list in docs/image.md, both ways.
func TestEveryFileHasItsReason(t *testing.T) {
	patterns := documented(t)
	each(t, func(t *testing.T, i *image) {
		used := map[string]bool{}
		for name := range i.files {
			reason := ""
			for _, p := range patterns {
				if ok, err := path.Match(p, name); err != nil {
					t.Fatalf("docs/image.md: pattern %s: %v", p, err)
				} else if ok {
					reason = p
					used[p] = true
				}
			}
			if reason == "" {
				t.Errorf("%s is in the image, and docs/image.md has no reason for it", name)
			}
		}
		for _, p := range patterns {
			// The loader has another place on each architecture.
			if !used[p] && !strings.Contains(p, "ld-linux") {
				t.Errorf("docs/image.md lists %s, and nothing like it is in the image", p)
			}
		}
	})
}

// documented returns the patterns of the table in docs/image.md, without braces.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/image.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			break
		}
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			out = append(out, pattern.Expand(quoted[1])...)
		}
	}
	if len(out) < 20 {
		t.Fatalf("docs/image.md: only %d patterns of files", len(out))
	}
	return out
}

func TestSize(t *testing.T) {
	each(t, func(t *testing.T, i *image) {
		var sum int64
		for _, h := range i.files {
			sum += h.Size
		}
		t.Logf("%d files, %.1f MB", len(i.files), float64(sum)/1e6)
		if sum > maxSize {
			t.Errorf("the files have %d bytes; want at most %d", sum, maxSize)
		}
	})
}

// TestFilesAreHarmless: no scripts, no special modes, nobody's but root's, nothing that tells when it was built.
func TestFilesAreHarmless(t *testing.T) {
	each(t, func(t *testing.T, i *image) {
		for name, h := range i.files {
			if h.Uid != 0 || h.Gid != 0 || h.Mode&0o7022 != 0 && h.Typeflag != tar.TypeSymlink {
				t.Errorf("%s: mode %o, owner %d:%d", name, h.Mode, h.Uid, h.Gid)
			}
			if !h.ModTime.Equal(time.Unix(epoch, 0)) {
				t.Errorf("%s: time %v is not the commit's", name, h.ModTime)
			}
			if h.Typeflag == tar.TypeReg && h.Mode&0o111 != 0 {
				open(t, filepath.Join(i.root, name)) // what is not a program or library is no business of an executable file
			}
		}
	})
}

func open(t *testing.T, path string) *elf.File {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestNothingIsMissing: all programs and libraries are for the platform, and what they are linked with is in the image.
func TestNothingIsMissing(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	each(t, func(t *testing.T, i *image) {
		libraries := map[string]bool{}
		for name := range i.files {
			libraries[path.Base(name)] = true
		}
		objects := 0
		for name, h := range i.files {
			if !strings.Contains(name, ".so") && !strings.Contains(name, "bin/") || h.Typeflag != tar.TypeReg {
				continue
			}
			objects++
			f := open(t, filepath.Join(i.root, name))
			if f.Machine != machines[i.Architecture] {
				t.Errorf("%s is for %v, the image for %s", name, f.Machine, i.Architecture)
			}
			needs, err := f.ImportedLibraries()
			if err != nil {
				t.Fatal(err)
			}
			for _, need := range needs {
				if !libraries[need] {
					t.Errorf("%s needs %s", name, need)
				}
			}
			if strings.HasPrefix(name, "usr/bin/") && len(needs) > 0 {
				t.Errorf("%s is not static: %v", name, needs)
			}
		}
		if objects < 60 {
			t.Errorf("only %d programs and libraries looked at", objects)
		}
	})
}

// TestEveryExtension: what the machine's own iptables has for IPv4 and IPv6, less what docs/decisions/020-every-extension.md leaves out.
func TestEveryExtension(t *testing.T) {
	out := leftOut(t)
	here, err := filepath.Glob("/usr/lib/*/xtables/lib*t_*.so")
	if err != nil || len(here) < 50 {
		t.Fatalf("the machine's own extensions: %v, %v", here, err)
	}
	each(t, func(t *testing.T, i *image) {
		if mine, theirs := machineVersion(t), i.iptables(t); mine != theirs {
			t.Skipf("the machine has iptables %s and the image %s, so their extensions cannot be compared", mine, theirs)
		}
		has := map[string]bool{}
		for name := range i.files {
			has[path.Base(name)] = true
		}
		for _, p := range here {
			name := path.Base(p)
			if strings.HasPrefix(name, "libarpt") || strings.HasPrefix(name, "libebt") {
				continue
			}
			if has[name] == slices.Contains(out, name) {
				t.Errorf("%s: in the image: %v", name, has[name])
			}
		}
	})
}

// machineVersion is that of the machine's own iptables, such as 1.8.9.
func machineVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("iptables-nft", "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 2 {
		t.Fatalf("iptables-nft --version: %v, %q", err, out)
	}
	return strings.TrimPrefix(words[1], "v")
}

// iptables is the image's, as billed.
func (i *image) iptables(t *testing.T) string {
	t.Helper()
	for _, p := range i.bill(t).Packages {
		if p.PackageName == "iptables" {
			upstream, _, _ := strings.Cut(p.PackageVersion, "-")
			return upstream
		}
	}
	t.Fatal("iptables is not billed")
	return ""
}

// leftOut reads the list at the end of the decision.
func leftOut(t *testing.T) []string {
	t.Helper()
	var out []string
	prefix := ""
	for line := range strings.Lines(read(t, "../../docs/decisions/020-every-extension.md")) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "    ") || prefix == "" && !strings.HasPrefix(words[0], "lib") {
			continue
		}
		if strings.HasPrefix(words[0], "lib") {
			prefix, words = words[0], words[1:]
		}
		for _, word := range words {
			out = append(out, prefix+word+".so")
		}
	}
	if len(out) < 10 {
		t.Fatalf("the decision leaves out only %v", out)
	}
	return out
}

// TestConfig: what a runtime and a registry are told.
func TestConfig(t *testing.T) {
	each(t, func(t *testing.T, i *image) {
		if !slices.Equal(i.Config.Entrypoint, []string{"/usr/bin/routefence"}) || i.Config.User != "0:0" || len(i.Config.Cmd) > 0 {
			t.Errorf("entrypoint %v, user %q, command %v", i.Config.Entrypoint, i.Config.User, i.Config.Cmd)
		}
		if !slices.Equal(i.Config.Env, []string{"PATH=/usr/sbin:/usr/bin"}) {
			t.Errorf("environment %v", i.Config.Env)
		}
		for label, want := range map[string]string{"title": "routefence", "version": version, "revision": commit,
			"source": "https://github.com/routefence/routefence", "licenses": "Apache-2.0 AND GPL-2.0-or-later AND LGPL-2.1-or-later"} {
			if got := i.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("label %s: %q, want %q", label, got, want)
			}
		}
	})
}
