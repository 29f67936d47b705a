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
	"golang.org/x/sys/unix"
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
	return run(job{path: path, backend: backend, args: append(options, "-c")})
}

// batch are restores of one family and backend, written by one program, each table in one step.
type batch []firewall.Restore

// batches joins neighbours that one program can write.
func batches(restores []firewall.Restore) []batch {
	var out []batch
	for _, c := range restores {
		if n := len(out); n > 0 && out[n-1][0].Table.Family == c.Table.Family && out[n-1][0].Backend == c.Backend {
			out[n-1] = append(out[n-1], c)
		} else {
			out = append(out, batch{c})
		}
	}
	return out
}

func (b batch) job(options ...string) (job, error) {
	path, err := find(b[0].Table.Family, b[0].Backend, "restore")
	if err != nil {
		return job{}, err
	}
	var text strings.Builder
	for _, c := range b {
		text.WriteString(c.Text())
	}
	options = append([]string{"--noflush"}, options...)
	return job{path: path, backend: b[0].Backend, input: []byte(text.String()), args: options}, nil
}

func (b batch) failed(err error) error {
	if err == nil {
		return nil
	}
	var tables []string
	for _, c := range b {
		tables = append(tables, c.Table.String())
	}
	return fmt.Errorf("write table %s: %w", strings.Join(tables, ", "), err)
}

// restore writes batches side by side, for each family has locks and tables of its own. It returns an error for each.
func restore(all ...batch) []error {
	errs := make([]error, len(all))
	var jobs []job
	var of []int
	for i, b := range all {
		var options []string
		if b[0].Backend == firewall.Legacy {
			// Separate words: some versions refuse -w5. nft has transactions and no lock.
			options = []string{"-w", lockWait}
		}
		j, err := b.job(options...)
		if err != nil {
			errs[i] = b.failed(err)
			continue
		}
		jobs, of = append(jobs, j), append(of, i)
	}
	for n, o := range runAll(jobs) {
		b, err := all[of[n]], o.err
		if errors.Is(err, errOption) && len(jobs[n].args) > 1 {
			jobs[n].args = jobs[n].args[:1]
			_, err = run(jobs[n])
		}
		errs[of[n]] = b.failed(err)
	}
	return errs
}

// job is one run of a program.
type job struct {
	path, backend string
	input         []byte
	args          []string
}

// outcome is what came of it.
type outcome struct {
	printed []byte
	err     error
}

func run(j job) ([]byte, error) {
	o := runAll([]job{j})[0]
	return o.printed, o.err
}

// runAll runs programs side by side, each to its end or to the end of its time. All are started by the calling thread, as they
// are to run in its network namespace.
func runAll(jobs []job) []outcome {
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	out := make([]outcome, len(jobs))
	running := make([]*started, len(jobs))
	for i, j := range jobs {
		running[i], out[i].err = start(ctx, j)
	}
	for i, p := range running {
		var said string
		if p != nil {
			out[i].err = p.cmd.Wait()
			out[i].printed, said = p.close()
		}
		if out[i].err == nil {
			continue
		}
		out[i].printed = nil
		what := strings.Join(append([]string{filepath.Base(jobs[i].path)}, jobs[i].args...), " ")
		if ctx.Err() != nil {
			out[i].err = fmt.Errorf("%s: ended after %s without an answer (is the xtables lock held?): %w", what, runLimit, errLocked)
		} else {
			out[i].err = fmt.Errorf("%s: %w", what, explain(jobs[i].backend, strings.TrimSpace(said), out[i].err))
		}
	}
	return out
}

// started is a program that runs. What it reads and prints stands in files in memory: pipes need a goroutine each to fill and to empty
// them, which takes longer than some of these programs.
type started struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File
}

func start(ctx context.Context, j job) (*started, error) {
	p := &started{cmd: exec.CommandContext(ctx, j.path, j.args...)}
	var err error
	for _, f := range []struct {
		to      **os.File
		content []byte
	}{{&p.stdin, j.input}, {&p.stdout, nil}, {&p.stderr, nil}} {
		if *f.to, err = scratch(f.content); err != nil {
			p.close()
			return nil, err
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.stdin, p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// scratch returns a file in memory that is read from its start.
func scratch(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("routefence", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.WriteAt(content, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write to a file in memory: %w", err)
	}
	return f, nil
}

// close returns what was printed and frees the files.
func (p *started) close() (stdout []byte, stderr string) {
	stdout, said := contents(p.stdout), contents(p.stderr)
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close() // of one that is nil, too
	}
	return stdout, string(said)
}

func contents(f *os.File) []byte {
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	out := make([]byte, info.Size())
	n, _ := f.ReadAt(out, 0)
	return out[:n]
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
