package file

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/shoot"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// volume is a directory as kubelet lays out a ConfigMap: name -> ..data/name, ..data -> ..2026_n.
type volume struct {
	dir, name string
	n         int
}

func newVolume(t *testing.T, text string) *volume {
	v := &volume{dir: t.TempDir(), name: "shoot.yaml"}
	must(t, os.Symlink(filepath.Join("..data", v.name), v.path()))
	v.swap(t, text)
	return v
}

func (v *volume) path() string { return filepath.Join(v.dir, v.name) }

// swap does what kubelet does for an update: a new directory, one rename of the link, the old directory away.
func (v *volume) swap(t *testing.T, text string) {
	t.Helper()
	old := filepath.Join(v.dir, fmt.Sprintf("..2026_%d", v.n))
	v.n++
	next := fmt.Sprintf("..2026_%d", v.n)
	must(t, os.Mkdir(filepath.Join(v.dir, next), 0o755))
	write(t, filepath.Join(v.dir, next, v.name), text)
	must(t, os.Symlink(next, filepath.Join(v.dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")))
	must(t, os.RemoveAll(old))
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// FR-29: a watch on the file, and not on its directory, sees the first swap as a removal and nothing ever after.
func TestTwentySwaps(t *testing.T) {
	v := newVolume(t, "10.0.0.0/16")
	r := start(t, v.path(), rare)
	v.swap(t, "10.0.0.0/16,10.100.0.0/16")
	r.awaitNetworks(t, "10.0.0.0/16 10.100.0.0/16")
	before := descriptors(t)
	for i := range 20 {
		v.swap(t, fmt.Sprintf("10.0.0.0/16,10.%d.0.0/16", 102+2*i))
		time.Sleep(time.Duration(10+i*5) * time.Millisecond)
		if report := r.Report(); report.Err != nil || !strings.HasPrefix(networks(report), "10.0.0.0/16 10.1") {
			t.Fatalf("after swap %d: %+v", i, report)
		}
	}
	r.awaitNetworks(t, "10.0.0.0/16 10.140.0.0/16")
	if after := descriptors(t); after > before {
		t.Errorf("%d open files after twenty swaps, %d before", after, before)
	}
	told := r.told.Load()
	v.swap(t, "10.0.0.0/16,10.140.0.0/16")
	v.swap(t, "10.0.0.0/16,10.140.0.0/16,10.2.0.0/16")
	r.awaitNetworks(t, "10.0.0.0/16 10.2.0.0/16 10.140.0.0/16")
	if got := r.told.Load() - told; got != 1 {
		t.Errorf("told %d times of one change; swapping to the same content is none", got)
	}
}

func TestRewrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	write(t, path, "10.1.0.0/16")
	r := start(t, path, rare)
	for i := range 5 {
		want := fmt.Sprintf("10.%d.0.0/16", 3+2*i)
		write(t, path, want)
		r.awaitNetworks(t, want)
	}
}

// FR-33: the kernel tells nothing of a link's target in another directory.
func TestDanglingLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "shoot.yaml")
	must(t, os.Symlink(elsewhere, path))
	r := start(t, path, 50*time.Millisecond)
	if report := r.Report(); report.Known || report.Err == nil {
		t.Fatalf("%+v", report)
	}
	write(t, elsewhere, "10.1.0.0/16")
	r.awaitNetworks(t, "10.1.0.0/16")
	write(t, elsewhere, "10.1.0.0/16,10.3.0.0/16")
	r.awaitNetworks(t, "10.1.0.0/16 10.3.0.0/16")
}

// FR-33: a flood in the directory costs no files and no goroutines, and the change at its end is seen.
func TestFloodOfEvents(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "list")
	write(t, path, "10.1.0.0/16")
	r := start(t, path, rare)
	write(t, path, "10.1.0.0/16,10.3.0.0/16")
	r.awaitNetworks(t, "10.1.0.0/16 10.3.0.0/16")
	files, goroutines, told := descriptors(t), runtime.NumGoroutine(), r.told.Load()
	for i := range 5000 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
		if i%1000 == 0 {
			if f, g := descriptors(t), runtime.NumGoroutine(); f > files+2 || g > goroutines+2 {
				t.Fatalf("after %d events: %d open files, %d goroutines, at first %d and %d", i, f, g, files, goroutines)
			}
		}
	}
	replace(t, path, "10.1.0.0/16,10.3.0.0/16,10.5.0.0/16")
	r.awaitNetworks(t, "10.1.0.0/16 10.3.0.0/16 10.5.0.0/16")
	if got := r.told.Load() - told; got != 1 {
		t.Errorf("told %d times of one change", got)
	}
}

func TestDirectoryComesLaterGoesAndComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	path := filepath.Join(dir, "list")
	r := start(t, path, 50*time.Millisecond)
	for i := range 4 {
		must(t, os.MkdirAll(dir, 0o755))
		want := fmt.Sprintf("10.%d.0.0/16", 1+2*i)
		write(t, path, want)
		r.awaitNetworks(t, want)
		if i%2 == 0 {
			must(t, os.RemoveAll(dir))
		} else {
			must(t, os.Rename(dir, fmt.Sprint(dir, i)))
		}
		if report := r.awaitTrouble(t, "no such file"); networks(report) != want {
			t.Errorf("%+v", report)
		}
	}
}

// The watch must find the directory that came back, by its inode number or not, since polls may be far between.
func TestWatchFollowsTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	w := &watch{dir: dir, log: zap.NewNop()}
	defer w.close()
	w.ensure()
	for round := range 3 {
		must(t, os.Mkdir(dir, 0o755))
		w.ensure()
		write(t, filepath.Join(dir, "list"), "")
		hear(t, w, filepath.Join(dir, "list"))
		if round%2 == 0 {
			must(t, os.RemoveAll(dir))
		} else {
			must(t, os.Rename(dir, dir+".old"))
		}
		for late := time.After(patience); len(w.watcher.WatchList()) > 0; {
			select {
			case <-w.events():
			case <-late:
				t.Fatal("the watch stays on a directory that is gone")
			}
		}
	}
	w.heard(false)
	must(t, os.Mkdir(dir, 0o755))
	w.ensure()
	write(t, filepath.Join(dir, "list"), "")
	hear(t, w, filepath.Join(dir, "list"))
}

func hear(t *testing.T, w *watch, name string) {
	t.Helper()
	for late := time.After(patience); ; {
		select {
		case e := <-w.events():
			if e.Name == name {
				return
			}
		case <-late:
			t.Fatalf("nothing heard of %s", name)
		}
	}
}

// FR-31: a file that is a mount of its own never changes by rename. Nothing can be done but say so, and poll all the same.
func TestFileMountedByItself(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mount tests need root (make test runs them; make unit runs those that do not)")
	}
	dir := t.TempDir()
	original, path := filepath.Join(dir, "original"), filepath.Join(dir, "mounted", "shoot.yaml")
	must(t, os.Mkdir(filepath.Dir(path), 0o755))
	write(t, original, "10.1.0.0/16")
	write(t, path, "")
	// The thread is not given back, so its mounts end with this goroutine.
	runtime.LockOSThread()
	must(t, unix.Unshare(unix.CLONE_NEWNS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if isMountPoint(path) {
		t.Error("a plain file passes for a mount point")
	}
	must(t, unix.Mount(original, path, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	s := New(path, rare, zap.NewNop())
	warned := func(r shoot.Report) bool { return len(r.Warnings) == 1 && strings.Contains(r.Warnings[0], "subPath") }
	if report := s.Report(); !warned(report) || networks(report) != "10.1.0.0/16" || report.Err != nil {
		t.Errorf("%+v", report)
	}
	write(t, original, "10.1.0.0/16,10.3.0.0/16")
	if s.look(time.Now()); networks(s.Report()) != "10.1.0.0/16 10.3.0.0/16" {
		t.Errorf("written in place: %+v", s.Report())
	}
	replace(t, original, "10.1.0.0/16,10.3.0.0/16,10.5.0.0/16")
	if s.look(time.Now()); networks(s.Report()) != "10.1.0.0/16 10.3.0.0/16" || !warned(s.Report()) {
		t.Errorf("replaced by rename: %+v", s.Report())
	}
}
