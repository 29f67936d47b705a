package cache_test

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/shoot/cache"
)

const ref = "cluster/shoot--dev--one"

func statement() shoot.Statement {
	return shoot.Statement{Ref: ref, UID: "u1", Version: "7", Reading: shoot.Reading{
		Kind:     "Cluster",
		Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48")},
		Fields:   []shoot.Field{{Object: "Cluster shoot--dev--one", Path: "spec.shoot.spec.networking.nodes"}},
	}}
}

// saved returns a directory with one statement in it, and the path of its file.
func saved(t *testing.T) (cache.Dir, string) {
	t.Helper()
	dir := t.TempDir()
	if err := cache.Dir(dir).Save(statement()); err != nil {
		t.Fatal(err)
	}
	return cache.Dir(dir), filepath.Join(dir, "cluster_shoot--dev--one.json")
}

func TestSaveAndLoad(t *testing.T) {
	dir, _ := saved(t)
	got, there, err := dir.Load(ref)
	if !there || err != nil {
		t.Fatalf("there=%t %v", there, err)
	}
	if diff := cmp.Diff(statement(), got, cmpopts.IgnoreUnexported(shoot.Reading{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if files, _ := os.ReadDir(string(dir)); len(files) != 1 {
		t.Errorf("files left: %v", files)
	}
}

func TestNothingSaved(t *testing.T) {
	for _, dir := range []cache.Dir{"", cache.Dir(t.TempDir()), cache.Dir(filepath.Join(t.TempDir(), "missing"))} {
		if _, there, err := dir.Load(ref); there || err != nil {
			t.Errorf("%q: there=%t %v", dir, there, err)
		}
	}
	if err := cache.Dir("").Save(statement()); err != nil {
		t.Error(err)
	}
}

// What is not exactly what was written is ignored and said.
func TestUntrusted(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     string
	}{
		"cut":            {"}}", "", "corrupt"},
		"empty":          {"*", "", "corrupt"},
		"another size":   {"10.1.0.0/16", "10.1.0.0/24", "checksum"},
		"another UID":    {`"u1"`, `"u2"`, "checksum"},
		"another object": {"cluster/shoot--dev--one", "cluster/shoot--dev--two", "checksum"},
	} {
		dir, path := saved(t)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), c.old, c.new, 1)
		if c.old == "*" {
			text = ""
		}
		if text == string(data) {
			t.Fatalf("%s: nothing to replace in %s", name, data)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, there, err := dir.Load(ref); there || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: there=%t %v", name, there, err)
		}
	}
}

// A file of another object, whole and in the right place: a volume that more than one pod shares.
func TestForeign(t *testing.T) {
	dir, path := saved(t)
	other := statement()
	other.Ref = "cluster/shoot--dev--two"
	if err := dir.Save(other); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(string(dir), "cluster_shoot--dev--two.json"), path); err != nil {
		t.Fatal(err)
	}
	if _, there, err := dir.Load(ref); there || err == nil || !strings.Contains(err.Error(), "foreign: it is of cluster/shoot--dev--two") {
		t.Errorf("there=%t %v", there, err)
	}
	unbound := statement()
	unbound.UID = ""
	if err := dir.Save(unbound); err != nil {
		t.Fatal(err)
	}
	if _, there, err := dir.Load(ref); there || err == nil || !strings.Contains(err.Error(), "bound to no UID") {
		t.Errorf("there=%t %v", there, err)
	}
}

// A cache that cannot be written must not stay behind with less than is enforced by then.
func TestFailedWriteRemovesTheOld(t *testing.T) {
	dir, path := saved(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// A directory in the way fails the rename for root too.
	if err := os.MkdirAll(filepath.Join(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := dir.Save(statement()); err == nil || !strings.Contains(err.Error(), "restart has to wait") {
		t.Errorf("%v", err)
	}
	if files, _ := os.ReadDir(string(dir)); len(files) != 0 {
		t.Errorf("files left: %v", files)
	}
}

// A writer that is killed on its way must leave the old one, so what stands is never written into.
func TestTheOldOneIsWholeUntilTheNewOneIs(t *testing.T) {
	dir, path := saved(t)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	next := statement()
	next.Version = "8"
	if err := dir.Save(next); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(old); err != nil || string(got) != string(want) {
		t.Errorf("the old one was changed to %s (%v)", got, err)
	}
	if got, _, err := dir.Load(ref); err != nil || got.Version != "8" {
		t.Errorf("version %q, want 8 (%v)", got.Version, err)
	}
}
