package main

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPlanNamesTestsThatExist: a test that was renamed must not fall out of the plan without a word.
func TestPlanNamesTestsThatExist(t *testing.T) {
	for _, j := range slices.Concat(chosen, all) {
		have := testsIn(t, filepath.Join("../..", j.pkg))
		if len(have) == 0 {
			t.Errorf("%s has no tests", j.pkg)
		}
		for _, name := range append(j.tests, j.skip...) {
			if !slices.Contains(have, name) {
				t.Errorf("%s has no test %s, only %v", j.pkg, name, have)
			}
		}
	}
}

// testsIn reads the sources, with no regard to build tags.
func testsIn(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				out = append(out, f.Name.Name)
			}
		}
	}
	return out
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, console  string
		passed, failed int
		done           bool
		printed        string
	}{
		{"all well", "boots\r\nGUEST begins a\r\nPASS\r\nGUEST ends 0\r\nGUEST is done\r\nhalted\r\n", 1, 0, true, "ok    g  a"},
		{"a failure", "GUEST begins a\nsome detail\nGUEST ends 1\nGUEST begins b\nGUEST ends 0\nGUEST is done\n", 1, 1, true, "some detail"},
		{"killed by a signal", "GUEST begins a\nGUEST ends 137\nGUEST is done\n", 0, 1, true, "FAIL  g  a"},
		{"no test fits", "GUEST begins a\n" + noTests + "\nPASS\nGUEST ends 0\nGUEST is done\n", 0, 1, true, noTests},
		{"garbled code", "GUEST begins a\nGUEST ends 0[  12.3] Oops\nGUEST is done\n", 0, 1, true, "FAIL"},
		{"kernel dies", "GUEST begins a\nKernel panic\n", 0, 0, false, "Kernel panic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := listen(strings.NewReader(c.console), &out, "g")
			if len(r.passed) != c.passed || len(r.failed) != c.failed || r.done != c.done || !strings.Contains(out.String(), c.printed) {
				t.Errorf("got %+v and %q", r, out.String())
			}
		})
	}
}

// TestArchive takes the archive apart again.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := newArchive(&b)
	a.text("etc/a/name", "content")
	a.text("etc/a/name", "not twice")
	a.link("link", "etc/a")
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for rest := b.Bytes(); len(rest) >= 110; {
		size, length := number(t, rest[54:62]), number(t, rest[94:102])
		names = append(names, string(rest[110:110+length-1])+"="+string(rest[round(110+length):round(110+length)+size]))
		rest = rest[round(round(110+length)+size):]
	}
	want := []string{"etc=", "etc/a=", "etc/a/name=content", "link=etc/a", "TRAILER!!!="}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	a = newArchive(&b)
	a.file("gone", "/nonexistent")
	if err := a.close(); !os.IsNotExist(err) {
		t.Errorf("a missing file: got %v", err)
	}
}

func number(t *testing.T, hex []byte) (n int) {
	t.Helper()
	for _, digit := range hex {
		n = n*16 + strings.IndexByte("0123456789abcdef", digit)
	}
	return n
}

func round(n int) int { return (n + 3) / 4 * 4 }

func TestModulesComeWithTheirNeeds(t *testing.T) {
	m := chooseModules("kernel/drivers/net/bonding/bonding.ko: kernel/net/tls/tls.ko\nkernel/net/tls/tls.ko:\nkernel/sound/loud.ko:\n",
		"alias rtnl-link-bond bonding\nalias snd loud\n")
	if len(m.files) != 2 || m.aliases != "alias rtnl-link-bond bonding\n" || strings.Contains(m.dependencies, "loud") {
		t.Errorf("got %+v", m)
	}
}

// TestLimit: a guest that hangs is ended, with all of its processes, and said to have hung.
func TestLimit(t *testing.T) {
	g := guest{name: "g", limit: 300 * time.Millisecond, command: func(ctx context.Context, _ kernel, _ string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", "echo GUEST begins a; sleep 60 & sleep 60")
	}}
	begin := time.Now()
	r, err := boot(context.Background(), g, kernel{}, "", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "limit") || r.done {
		t.Errorf("got %+v, %v", r, err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestSelection(t *testing.T) {
	if err := (selection{packages: []string{"test/nothing"}}).check(); err == nil {
		t.Error("an unknown package passes")
	}
	if err := (selection{guest: "vax"}).check(); err == nil {
		t.Error("an unknown guest passes")
	}
	for _, g := range guests {
		few, most := (selection{}).jobs(g), (selection{all: true}).jobs(g)
		if len(few) == 0 || len(most) < len(few) {
			t.Errorf("guest %s: %d chosen, %d in all", g.name, len(few), len(most))
		}
	}
}

// TestGuard: the guest's whole group and its folder go when the pipe is closed.
func TestGuard(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "guest")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	guest := exec.Command("sh", "-c", "sleep 60 & sleep 60")
	guest.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := guest.Start(); err != nil {
		t.Fatal(err)
	}
	undertaker := exec.Command("sh", "-c", burial, "undertaker", strconv.Itoa(guest.Process.Pid), folder)
	if out, err := undertaker.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_ = guest.Wait() // it was killed; else this hangs
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(-guest.Process.Pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("processes are left")
		}
	}
}
