package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernel is one of Debian's, downloaded and unpacked into the user's cache and never installed.
type kernel struct {
	// image is what boots. modules is the folder of the modules, called release like the kernel itself.
	image, modules, release string
}

// fetchKernel returns the guest's kernel from the cache, or downloads it first.
func fetchKernel(ctx context.Context, g guest) (kernel, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return kernel{}, err
	}
	cache = filepath.Join(cache, "routefence", "vm")
	home := filepath.Join(cache, g.name)
	if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
		if err := download(ctx, g, cache, home); err != nil {
			return kernel{}, fmt.Errorf("get the kernel for guest %s: %w", g.name, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(home, "lib/modules/*"))
	if err != nil || len(found) != 1 {
		return kernel{}, fmt.Errorf("%s holds no kernel; remove it to have it downloaded again (%v)", home, err)
	}
	return kernel{image: filepath.Join(home, "kernel"), modules: found[0], release: filepath.Base(found[0])}, nil
}

// download unpacks the package beside its place and moves it there when it is complete, so that a run that is killed, or
// two at once, leave nothing half done.
func download(ctx context.Context, g guest, cache, home string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, fmt.Sprintf("rf%d-", os.Getpid()))
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	name, err := fetchPackage(ctx, g, work)
	if err != nil {
		return err
	}
	fmt.Printf("unpacking %s\n", filepath.Base(name))
	raw, tidy := filepath.Join(work, "raw"), filepath.Join(work, "tidy")
	if _, err := output(ctx, work, "dpkg-deb", "-x", name, raw); err != nil {
		return err
	}
	if err := arrange(ctx, g, raw, tidy); err != nil {
		return err
	}
	if err := os.Rename(tidy, home); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// fetchPackage downloads the guest's package into a folder. Package lists that are missing or out of date are brought
// up to date once.
func fetchPackage(ctx context.Context, g guest, work string) (string, error) {
	get := func() error {
		name, err := g.packageName(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("downloading Debian's package %s\n", name)
		_, err = output(ctx, work, "apt-get", "-qq", "download", name)
		return err
	}
	if err := get(); err != nil {
		if _, updating := output(ctx, work, "apt-get", "-qq", "update"); updating != nil {
			return "", errors.Join(err, updating)
		}
		if err := get(); err != nil {
			return "", err
		}
	}
	found, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("apt-get download left %v, want one package (%v)", found, err)
	}
	return found[0], nil
}

// arrange picks image and modules from an unpacked package and lists what the modules depend on, which Debian leaves to
// the installation.
func arrange(ctx context.Context, g guest, raw, tidy string) error {
	if err := os.MkdirAll(filepath.Join(tidy, "lib"), 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{g.image: "kernel", g.modules: "lib/modules"} {
		found, err := filepath.Glob(filepath.Join(raw, from))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("the package has %v for %s, want one (%v)", found, from, err)
		}
		if err := os.Rename(found[0], filepath.Join(tidy, to)); err != nil {
			return err
		}
	}
	releases, err := os.ReadDir(filepath.Join(tidy, "lib/modules"))
	if err != nil || len(releases) != 1 {
		return fmt.Errorf("modules for %v, want one kernel (%v)", releases, err)
	}
	_, err = output(ctx, tidy, "busybox", "depmod", "-b", tidy, releases[0].Name())
	return err
}

// cloudKernel is the package that the meta package stands for today.
func cloudKernel(ctx context.Context) (string, error) {
	const meta = "linux-image-cloud-amd64"
	out, err := output(ctx, "", "apt-cache", "depends", "--important", meta)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 2 && strings.HasPrefix(words[1], "linux-image-") {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("apt knows no kernel behind %s", meta)
}

// output runs a program to its end and returns what it printed. An error holds its complaint.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, failed.Stderr)
	}
	return string(out), err
}
