package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// build is what a guest runs, compiled.
type build struct {
	jobs []job
	// tests are the test binaries by package.
	tests      map[string]string
	routefence string
}

// compile builds routefence and the tests of the jobs into a folder, static, as the guest has no more than it needs, and
// without tables for debuggers, as the guest holds the image in memory twice while it boots.
func compile(ctx context.Context, jobs []job, folder string) (build, error) {
	b := build{jobs: jobs, tests: map[string]string{}, routefence: filepath.Join(folder, "routefence")}
	if err := golang(ctx, "build", "-ldflags=-s -w", "-o", b.routefence, "./cmd/routefence"); err != nil {
		return b, err
	}
	for _, j := range jobs {
		if b.tests[j.pkg] != "" {
			continue
		}
		name := filepath.Join(folder, filepath.Base(j.pkg)+".test")
		if err := golang(ctx, "test", "-c", "-tags=vm", "-ldflags=-s -w", "-o", name, "./"+j.pkg); err != nil {
			return b, err
		}
		b.tests[j.pkg] = name
	}
	return b, nil
}

func golang(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
