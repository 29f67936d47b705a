package field

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// volume is a ConfigMap as kubelet lays it out: networks -> ..data/networks, ..data -> ..2026_n.
type volume struct {
	t   *testing.T
	dir string
	n   int
}

func newVolume(t *testing.T, r *rig.Rig, text string) *volume {
	t.Helper()
	v := &volume{t: t, dir: filepath.Join(r.Dir, "volume")}
	must(t, os.Mkdir(v.dir, 0o755))
	must(t, os.Symlink("..data/networks", v.path()))
	v.swap(text)
	return v
}

func (v *volume) path() string { return filepath.Join(v.dir, "networks") }

// swap does what kubelet does for an update: a new directory, one rename of the link, the old directory away.
func (v *volume) swap(text string) {
	v.t.Helper()
	old := filepath.Join(v.dir, fmt.Sprintf("..2026_%d", v.n))
	v.n++
	next := fmt.Sprintf("..2026_%d", v.n)
	must(v.t, os.Mkdir(filepath.Join(v.dir, next), 0o755))
	must(v.t, os.WriteFile(filepath.Join(v.dir, next, "networks"), []byte(text), 0o644))
	must(v.t, os.Symlink(next, filepath.Join(v.dir, "..data_tmp")))
	must(v.t, os.Rename(filepath.Join(v.dir, "..data_tmp"), filepath.Join(v.dir, "..data")))
	must(v.t, os.RemoveAll(old))
}

// TestFR29: kubelet swaps a link. Every content arrives, the last one stays, the same one again is no change, and nothing
// gets out meanwhile.
func TestFR29SwappedVolume(t *testing.T) {
	r := bench(t)
	const always = "10.250.0.0/16\nfd00:250::/48\n"
	expectOpen(t, r)
	v := newVolume(t, r, always)
	s := start(t, r, "--shoot-file="+v.path(), "--firewall=nft", "--resync=1s")
	s.AwaitReady()
	fds := descriptors(t, s.Pid())
	h := r.Hammer(rig.HammerRate / 4)
	for i := range 20 {
		v.swap(fmt.Sprintf("%s172.20.%d.0/24\n", always, i))
		if i%4 == 3 {
			s.Await("the last content is in force", func(d document) bool { return d.Ready && strings.Contains(d.CIDRs(), fmt.Sprintf("172.20.%d.0/24", i)) })
		}
		time.Sleep(time.Duration(10+i*10) * time.Millisecond)
	}
	want := s.Await("the last content alone", func(d document) bool {
		return d.Ready && strings.HasPrefix(d.CIDRs(), "10.250.0.0/16 172.20.19.0/24 fd")
	})
	lines := s.Changes()
	v.swap(always + "172.20.19.0/24\n")
	time.Sleep(500 * time.Millisecond) // for what must not come
	if d := s.State(); s.Changes() != lines || d.CIDRs() != want.CIDRs() {
		t.Errorf("the same content again: %d writes, networks %s", s.Changes()-lines, d.CIDRs())
	}
	if totals := h.Stop(); totals.Seed.Total() != 0 || totals.Attempts == 0 {
		t.Errorf("meanwhile: %v", totals)
	}
	if now := descriptors(t, s.Pid()); now > fds+2 {
		t.Errorf("file descriptors went from %d to %d", fds, now)
	}
}

// TestFR31: a file that is mounted by itself never changes again. The agent says so at its start, and no manifest does it.
func TestFR31MountedByItself(t *testing.T) {
	r := bench(t)
	file := newShootFile(t, r)
	file.write("10.250.0.0/16", "fd00:250::/48")
	mounted := filepath.Join(r.Dir, "mounted")
	must(t, os.WriteFile(mounted, nil, 0o600))
	wrap := []string{"unshare", "-m", "sh", "-ec", `mount --bind "$1" "$2"; shift 2; exec "$@"`, "sh", file.path, mounted}
	s := startWith(t, r, wrap, "--shoot-file="+mounted, "--firewall=nft", "--resync=1s")
	s.AwaitReady()
	if n := strings.Count(s.Output(), `"msg":"the shoot file is mounted by itself (subPath)`); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, s.Tail())
	}
	file.write("10.251.0.0/16") // by rename, which the mount does not follow
	s.AwaitPasses(2)
	if d := s.State(); d.CIDRs() != "10.250.0.0/16 fd00:250::/48" {
		t.Errorf("networks %s", d.CIDRs())
	}
	expectFenced(t, r, "mounted by itself")
	err := filepath.WalkDir("../../manifests", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "subPath:") {
			t.Errorf("%s uses subPath", path)
		}
		return err
	})
	must(t, err)
}

// TestFR33: the kernel reports nothing on a link whose target is elsewhere, and forgets events when there are too many. The agent
// looks from time to time, too.
func TestFR33UnheardChanges(t *testing.T) {
	r := bench(t)
	dir, elsewhere := filepath.Join(r.Dir, "links"), filepath.Join(r.Dir, "later")
	must(t, os.Mkdir(dir, 0o755))
	path := filepath.Join(dir, "networks")
	must(t, os.Symlink(elsewhere, path))
	s := start(t, r, "--shoot-file="+path, "--firewall=nft", "--resync=1s")
	if d := s.Await("the file is missing", func(d document) bool { return len(d.Sources) > 0 && d.Sources[0].Message != "" }); d.Ready || d.Phase != "Pending" {
		t.Errorf("ready %v, phase %s", d.Ready, d.Phase)
	}
	must(t, os.WriteFile(elsewhere, []byte("10.250.0.0/16\n"), 0o600))
	begin := time.Now()
	s.Await("the target is read", func(d document) bool { return d.Ready && d.CIDRs() == "10.250.0.0/16" })
	t.Logf("the target of a link was read %v after it came", time.Since(begin))

	// Stopped, the agent reads no events, and more than the kernel keeps (16384) are lost, the one that matters among them.
	s.Signal(syscall.SIGSTOP)
	for i := range 20000 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	must(t, os.WriteFile(path+".new", []byte("10.250.0.0/16\nfd00:250::/48\n"), 0o600))
	must(t, os.Rename(path+".new", path))
	begin = time.Now()
	s.Signal(syscall.SIGCONT)
	s.Await("the file at the end of the flood is read", func(d document) bool { return d.Ready && d.CIDRs() == "10.250.0.0/16 fd00:250::/48" })
	t.Logf("the file was read %v after the flood", time.Since(begin))
	expectFenced(t, r, "after the flood")
}
