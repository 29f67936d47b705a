// Command vm runs tests in small guests with Debian's kernels, for what the machine's own kernel lacks: bonding, ip6tnl,
// and the differences between kernels. Each guest boots once for all its tests, from an image that is made anew each
// time, and switches off. Kernels are downloaded once into ~/.cache/routefence/vm.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	var s selection
	flag.StringVar(&s.guest, "guest", "", "uml or qemu (default both)")
	flag.StringVar(&s.run, "run", "", "run the tests that match, in place of those of test/vm/plan.go")
	flag.BoolVar(&s.all, "all", false, "run all tests, not only the chosen few of make test")
	flag.BoolVar(&s.verbose, "v", false, "print all that the tests print")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "usage: vm [flags] [package...]   (test/ha, firewall/xtables, ...: see test/vm/plan.go)\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	s.packages = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := s.carryOut(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

// carryOut runs the selection in one guest after the other, and in each even if another failed.
func (s selection) carryOut(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	var failed error
	var left []job
	for i, g := range guests {
		jobs := append(s.jobs(g), left...)
		left = nil
		if len(jobs) == 0 || ctx.Err() != nil {
			continue
		}
		err := g.run(ctx, jobs)
		if errors.Is(err, errUnfit) && s.guest == "" && i < len(guests)-1 {
			fmt.Printf("guest %s: %v; its tests go to guest %s\n", g.name, err, guests[i+1].name)
			left, err = jobs, nil
		}
		failed = errors.Join(failed, err)
	}
	return errors.Join(failed, ctx.Err())
}

// run compiles the jobs, boots the guest with them and removes what it made.
func (g guest) run(ctx context.Context, jobs []job) error {
	k, err := fetchKernel(ctx, g)
	if err != nil {
		return err
	}
	// Named so that "make clean" finds it if this process is killed.
	folder, err := os.MkdirTemp("", fmt.Sprintf("rf%d-vm-", os.Getpid()))
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	begin := time.Now()
	built, err := compile(ctx, jobs, folder)
	if err != nil {
		return fmt.Errorf("build the tests for guest %s: %w", g.name, err)
	}
	compiled := time.Now()
	image := filepath.Join(folder, "image")
	if err := writeImage(ctx, image, k, built); err != nil {
		return fmt.Errorf("make the image of guest %s: %w", g.name, err)
	}
	made := time.Now()
	r, err := boot(ctx, g, k, image, folder)
	fmt.Printf("guest %s, Linux %s: %.1fs to build, %.1fs for the image, %.1fs to boot, %.1fs in all; %d passed, %d failed\n",
		g.name, k.release, compiled.Sub(begin).Seconds(), made.Sub(compiled).Seconds(), r.booted.Seconds(),
		time.Since(begin).Seconds(), len(r.passed), len(r.failed))
	if err == nil && (len(r.failed) > 0 || len(r.passed) != len(jobs)) {
		err = fmt.Errorf("guest %s: %d of %d packages passed, failed: %v", g.name, len(r.passed), len(jobs), r.failed)
	}
	return err
}
