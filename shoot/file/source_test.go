package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/routefence/routefence/shoot"
)

// patience bounds how long a test waits for what must happen. No test measures time with it.
const patience = 20 * time.Second

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replace puts a new file in place of the old one, as a careful writer does.
func replace(t testing.TB, path, text string) {
	t.Helper()
	write(t, path+".tmp", text)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running is a source that follows its file, with the news it brings.
type running struct {
	*Source
	news chan struct{}
	told atomic.Int64
}

func start(t *testing.T, path string, poll time.Duration) *running {
	t.Helper()
	r := &running{Source: New(path, poll, zap.NewNop()), news: make(chan struct{}, 1)}
	follow(t, r)
	return r
}

func follow(t *testing.T, r *running) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, func() {
			r.told.Add(1)
			select {
			case r.news <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Run does not end with its context")
		}
	})
}

func networks(r shoot.Report) string {
	var out []string
	for _, p := range r.Networks {
		out = append(out, p.String())
	}
	return strings.Join(out, " ")
}

// await waits for news until the report is as wanted.
func (r *running) await(t testing.TB, what string, wanted func(shoot.Report) bool) shoot.Report {
	t.Helper()
	late := time.After(patience)
	for {
		if report := r.Report(); wanted(report) {
			return report
		}
		select {
		case <-r.news:
		case <-late:
			t.Fatalf("no %s; the report is %+v", what, r.Report())
		}
	}
}

func (r *running) awaitNetworks(t testing.TB, want string) shoot.Report {
	t.Helper()
	return r.await(t, want, func(r shoot.Report) bool { return networks(r) == want && r.Err == nil })
}

func (r *running) awaitTrouble(t testing.TB, want string) shoot.Report {
	t.Helper()
	return r.await(t, "trouble with "+want, func(r shoot.Report) bool { return r.Err != nil && strings.Contains(r.Err.Error(), want) })
}

// rare is a poll that never comes within a test: what is seen was heard from the kernel.
const rare = time.Hour

func TestNewReadsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shoot.yaml")
	write(t, path, "10.1.2.3/16, 10.0.0.0/16")
	report := New(path, rare, zap.NewNop()).Report()
	if networks(report) != "10.0.0.0/15" || !report.Known || report.Err != nil || len(report.Warnings) != 1 || report.LastChange.IsZero() ||
		report.Name != "shoot-file" || report.Ref != path {
		t.Errorf("%+v", report)
	}
	report = New(path+".not", rare, zap.NewNop()).Report()
	if report.Known || report.Err == nil || !strings.Contains(report.Err.Error(), path+".not: cannot open it: no such file") || !report.LastChange.IsZero() {
		t.Errorf("%+v", report)
	}
}

// A bad path must be an error at once and not a hang.
func TestNewOnWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must(t, mkfifo(pipe))
	for _, path := range []string{dir, pipe, "/dev/zero", filepath.Join(pipe, "below")} {
		if err := New(path, rare, zap.NewNop()).Report().Err; err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTroubleKeepsTheLastGoodSet(t *testing.T) {
	const shootObject = "kind: Shoot\nspec:\n  networking:\n    nodes: 10.1.0.0/16\nstatus:\n  networking:\n    nodes:\n    - 10.2.0.0/15\n"
	path := filepath.Join(t.TempDir(), "shoot.yaml")
	replace(t, path, shootObject)
	r := start(t, path, rare)
	const good = "10.1.0.0/16 10.2.0.0/15"
	for _, c := range []struct {
		name, why string
		act       func()
	}{
		{"gone", "no such file", func() { must(t, os.Remove(path)) }},
		{"empty", "empty", func() { write(t, path, "") }},
		{"blank", "empty", func() { write(t, path, "\n \n# 10.9.0.0/16\n") }},
		{"unparsable", "neither YAML", func() { write(t, path, "kind: Shoot\nspec: {") }},
		{"another object", "ConfigMap", func() { write(t, path, "kind: ConfigMap\n") }},
		{"no networks", "names no node network", func() { write(t, path, "kind: Shoot\n") }},
		{"bad items only", "10.300.0.0/16", func() { write(t, path, "10.300.0.0/16") }},
		{"cut within a line", "does not end", func() { write(t, path, strings.Split(shootObject, "\nstatus")[0]) }},
		{"cut after a line", "the beginning of what was read before", func() { write(t, path, strings.Split(shootObject, "status")[0]) }},
		{"a directory", "no regular file", func() { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o755)) }},
	} {
		c.act()
		if report := r.awaitTrouble(t, c.why); networks(report) != good || !report.Known {
			t.Errorf("%s: %+v", c.name, report)
		}
		must(t, os.RemoveAll(path))
		replace(t, path, shootObject)
		r.awaitNetworks(t, good)
	}
}

func TestBadItemsKeepWhatWasAndAddWhatIsGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "10.1.0.0/16\n")
	r := start(t, path, rare)
	replace(t, path, "10.3.0.0/16\n10.300.0.0/16\n")
	if report := r.awaitTrouble(t, "10.300.0.0/16"); networks(report) != "10.1.0.0/16 10.3.0.0/16" {
		t.Errorf("%+v", report)
	}
	replace(t, path, "10.3.0.0/16\n")
	r.awaitNetworks(t, "10.3.0.0/16")
}

// The clock is the argument of look, so these need no waiting.
func TestShrinkIsBelievedWhenItLasts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "10.1.0.0/16 10.3.0.0/16")
	s := New(path, rare, zap.NewNop())
	now := time.Now()
	step := func(content string, after time.Duration, want string, wantNews bool) {
		t.Helper()
		if content != "" {
			replace(t, path, content)
		}
		now = now.Add(after)
		news, again := s.look(now)
		if got := networks(s.Report()); got != want || news != wantNews || s.Report().Err != nil {
			t.Fatalf("%q after %v: %s, news %v, %v, want %s", content, after, got, news, s.Report().Err, want)
		}
		if pending := again > 0; pending != (want != strings.Join(strings.Fields(read(t, path)), " ")) {
			t.Fatalf("%q after %v: look again after %v", content, after, again)
		}
	}
	step("10.1.0.0/16", 0, "10.1.0.0/16 10.3.0.0/16", false)
	step("", settle-1, "10.1.0.0/16 10.3.0.0/16", false)
	step("10.3.0.0/16", 1, "10.1.0.0/16 10.3.0.0/16", false) // Other bytes: the time starts again.
	step("", settle-1, "10.1.0.0/16 10.3.0.0/16", false)
	step("", 1, "10.3.0.0/16", true)
	step("10.3.0.0/16 10.5.0.0/16", 0, "10.3.0.0/16 10.5.0.0/16", true)              // Growth at once,
	step("10.7.0.0/16", 0, "10.3.0.0/16 10.5.0.0/16 10.7.0.0/16", true)              // also the growing half of a replacement.
	step("10.3.0.0/16 10.5.0.0/16", 0, "10.3.0.0/16 10.5.0.0/16 10.7.0.0/16", false) // Taken back: that is a shrink now.
	step("", 2*settle, "10.3.0.0/16 10.5.0.0/16", true)
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

// A writer that truncates and then writes shows an empty file for a moment. That is no news.
func TestMomentaryTroubleIsNotReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "10.1.0.0/16")
	s := New(path, rare, zap.NewNop())
	now := time.Now()
	for range 3 {
		write(t, path, "")
		if news, again := s.look(now); news || again != settle {
			t.Fatalf("empty: news %v, again after %v, %v", news, again, s.Report().Err)
		}
		write(t, path, "10.1.0.0/16")
		if news, again := s.look(now.Add(settle)); news || again != 0 {
			t.Fatalf("full again: news %v, again after %v, %v", news, again, s.Report().Err)
		}
		now = now.Add(settle)
	}
	write(t, path, "")
	s.look(now)
	if news, _ := s.look(now.Add(settle)); !news || s.Report().Err == nil {
		t.Errorf("still empty: news %v, %v", news, s.Report().Err)
	}
	if news, again := s.look(now.Add(2 * settle)); news || again != 0 {
		t.Errorf("the same trouble: news %v, again after %v", news, again)
	}
}

func TestOneLogLinePerChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "10.1.0.0/16")
	core, logs := observer.New(zapcore.DebugLevel)
	s := New(path, rare, zap.New(core))
	now := time.Now()
	expect := func(want ...string) {
		t.Helper()
		for range 3 {
			now = now.Add(settle)
			s.look(now)
		}
		var got []string
		for _, e := range logs.TakeAll() {
			got = append(got, e.Message)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("log %q, want %q", got, want)
		}
	}
	expect("node networks taken from the shoot file")
	expect()
	replace(t, path, "10.1.0.0/16 # the same")
	expect()
	replace(t, path, "10.1.0.0/16,10.2.0.0/16")
	expect("node networks taken from the shoot file")
	must(t, os.Remove(path))
	expect("trouble with the shoot file")
	replace(t, path, "10.1.0.0/16,10.2.0.0/16")
	expect("the shoot file is in order again")
	replace(t, path, "10.2.0.0/16")
	expect("node networks taken from the shoot file")
}
