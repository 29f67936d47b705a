package xtables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

const (
	// lockWait is how long a program may wait for the xtables lock; without a limit it waits for ever.
	lockWait = "5"
	// runLimit ends a program that hangs all the same.
	runLimit = 15 * time.Second
)

// What an iptables program may fail of. Its exit status tells little: 4 stands for "no permission" and for "busy".
var (
	errLocked       = errors.New("another program holds the xtables lock; will try again")
	errPermission   = errors.New("permission denied")
	errIncompatible = errors.New("native nft objects are in the way")
	errOption       = errors.New("unknown option")
)

// symptoms are the words by which the versions of iptables say the same.
var symptoms = []struct {
	text string
	err  error
}{
	{"xtables lock", errLocked},
	{"Permission denied", errPermission},
	{"Operation not permitted", errPermission},
	{"is incompatible, use 'nft' tool", errIncompatible},
	{"CHAIN_ADD failed", errIncompatible},
	{"Parsing nftables rule failed", errIncompatible},
	{"unrecognized option", errOption},
	{"unknown option", errOption},
	{"invalid option", errOption},
}

// find returns the path of a program that works on a backend: under the name that says so, else under the plain name if its
// version says so.
func find(f policy.Family, backend, action string) (string, error) {
	bound := firewall.Program(f, backend, action)
	if path, err := exec.LookPath(bound); err == nil {
		return path, nil
	}
	plain := strings.Replace(bound, "-"+backend, "", 1)
	if path, err := exec.LookPath(plain); err == nil && backendOf(path) == backend {
		return path, nil
	}
	return "", fmt.Errorf("program %s not found in PATH (install package iptables, or the backend is not in this image)", bound)
}

// backendOf asks a program for its version, such as "iptables v1.8.9 (nf_tables)". Versions before 1.8 name no backend and
// know only the legacy one.
func backendOf(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	switch {
	case err != nil:
		return ""
	case bytes.Contains(out, []byte("nf_tables")):
		return firewall.NFT
	}
	return firewall.Legacy
}

// save returns what iptables-save prints.
func save(f policy.Family, backend string, options ...string) ([]byte, error) {
	path, err := find(f, backend, "save")
	if err != nil {
		return nil, err
	}
	return run(path, backend, nil, append(options, "-c")...)
}

// restore writes one table in one step.
func restore(c firewall.Restore) error {
	path, err := find(c.Table.Family, c.Backend, "restore")
	if err != nil {
		return err
	}
	options := []string{"--noflush"}
	if c.Backend == firewall.Legacy {
		// Separate words: some versions refuse -w5. nft has transactions and no lock.
		options = append(options, "-w", lockWait)
	}
	_, err = run(path, c.Backend, []byte(c.Text()), options...)
	if errors.Is(err, errOption) && len(options) > 1 {
		_, err = run(path, c.Backend, []byte(c.Text()), options[:1]...)
	}
	if err != nil {
		return fmt.Errorf("write table %s: %w", c.Table, err)
	}
	return nil
}

// run runs a program to its end, or to the end of its time.
func run(path, backend string, input []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	what := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: ended after %s without an answer (is the xtables lock held?): %w", what, runLimit, errLocked)
	}
	return nil, fmt.Errorf("%s: %w", what, explain(backend, strings.TrimSpace(stderr.String()), err))
}

// explain adds what is known about a failure to what the program said.
func explain(backend, said string, err error) error {
	if said == "" {
		said = err.Error()
	}
	said = strings.Join(strings.Fields(said), " ")
	for _, s := range symptoms {
		if !strings.Contains(said, s.text) {
			continue
		}
		if s.err == errPermission {
			return fmt.Errorf("%w: %s (%s)", s.err, said, needs(backend))
		}
		return fmt.Errorf("%w: %s", s.err, said)
	}
	return errors.New(said)
}

func needs(backend string) string {
	if backend == firewall.Legacy {
		return "needs NET_ADMIN and NET_RAW"
	}
	return "needs NET_ADMIN"
}

const (
	lockVariable = "XTABLES_LOCKFILE"
	defaultLock  = "/run/xtables.lock"
)

// provideLock makes sure that the legacy programs can open their lock file: on a read-only root they fail without one. Containers
// do not share the file anyway; what guards us against each other is that a legacy table is replaced as a whole.
func provideLock() error {
	if os.Getenv(lockVariable) != "" || writable(defaultLock) {
		return nil
	}
	own := filepath.Join(os.TempDir(), "routefence-xtables.lock")
	if !writable(own) {
		return fmt.Errorf("the legacy backend needs a writable lock file: neither %s nor %s can be written "+
			"(mount an emptyDir there, or set %s)", defaultLock, own, lockVariable)
	}
	return os.Setenv(lockVariable, own)
}

func writable(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
