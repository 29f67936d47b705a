package fence

import (
	"os"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// shootObject is a Shoot as Gardener writes it, shortened.
const shootObject = `apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata:
  name: crazy-botany
  namespace: garden-dev
spec:
  networking:
    nodes: 10.250.0.0/16
    pods: 100.96.0.0/11
    services: 100.64.0.0/13
status:
  networking:
    nodes:
    - 10.250.0.0/16
    - fd00:250::/48
`

// badFiles are contents that must not be believed, with the words by which the state must say why. None of them may open
// anything that was fenced.
var badFiles = []struct{ name, text, words string }{
	{"empty", "", "empty"},
	{"blank", " \n\t\n", ""},
	{"comment alone", "# nothing yet\n", ""},
	{"shipped.Binary", "\x7fELF\x02\x01\x01\x00\x00\x00\xff\xfe\x00", ""},
	{"zeros", strings.Repeat("\x00", 4096), ""},
	{"prose", "the networks are on the wiki\n", ""},
	{"HTML", "<html><body>502 Bad Gateway</body></html>\n", ""},
	{"JSON null", "null\n", ""},
	{"JSON cut short", `{"kind":"Shoot","apiVersion":"core.gardener.cloud/v1beta1","spec":{"networking":{"nodes":"10.25`, ""},
	{"tabs for blanks", "apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nspec:\n\tnetworking:\n\t\tnodes: 10.251.0.0/16\n", ""},
	{"another kind", "apiVersion: v1\nkind: ConfigMap\ndata:\n  nodes: 10.251.0.0/16\n", "ConfigMap"},
	{"a Secret", "apiVersion: v1\nkind: Secret\nstringData:\n  nodes: 10.251.0.0/16\n", "Secret"},
	{"without nodes", "apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nmetadata:\n  name: a\nspec:\n  networking:\n    pods: 100.96.0.0/11\n", ""},
	{"everything", "0.0.0.0/0\n", "0.0.0.0/0"},
	{"everything of IPv6", "::/0\n", "::/0"},
	{"loopback", "127.0.0.0/8\n", "127.0.0.0/8"},
	{"link-local", "fe80::/10\n", "fe80::/10"},
	{"multicast", "224.0.0.0/4\n", "224.0.0.0/4"},
	{"zone", "fd00::1%eth0/64\n", "fd00::1%eth0/64"},
	{"leading zeros", "010.250.0.0/16\n", "010.250.0.0/16"},
	{"mapped and too wide", "::ffff:0:0/80\n", "::ffff:0:0/80"},
	{"no length", "10.250.0.0\n", "10.250.0.0"},
	{"bad beside good", "10.250.0.0/16\n10.300.0.0/16\nfd00:250::/48\n", "10.300.0.0/16"},
	{"everything beside good", "10.250.0.0/16,fd00:250::/48,0.0.0.0/0\n", "0.0.0.0/0"},
	{"half of an address", "10.250.0.0/16\nfd00:250::/48\n10.25", "10.25"},
	{"Shoot with a bad network", strings.Replace(shootObject, "- 10.250.0.0/16", "- 10.250.0.0/99", 1), "10.250.0.0/99"},
	{"Shoot with a number", strings.Replace(shootObject, "nodes: 10.250.0.0/16", "nodes: 10", 1), ""},
}

// TestBadFiles: a file that was good turns bad. The state says what is wrong, and the networks stay fenced.
func TestBadFiles(t *testing.T) {
	r := rig.New(t, rig.Options{})
	file := newShootFile(t, r)
	file.put(shootObject)
	s := start(t, r, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
	good := func(d document) bool { return d.Ready && d.CIDRs() == strings.Join(nodeNetworks, " ") }
	s.Await("the good file is in force", good)
	for _, bad := range badFiles {
		t.Run(bad.name, func(t *testing.T) {
			s := s.In(t)
			file.put(bad.text)
			d := s.Await("the state names the bad file", func(d document) bool { return !d.Ready })
			expectKept(r, s, d, bad.words)
			file.put(shootObject)
			s.Await("the good file is back in force", good)
		})
	}
}

// expectKept wants an unhealthy source, named with the words, and the node networks fenced all the same.
func expectKept(r *rig.Rig, s *sidecar, d document, words string) {
	s.T.Helper()
	if len(d.Sources) != 1 || d.Sources[0].Healthy || d.Sources[0].Message == "" {
		s.T.Errorf("the source is not said to be bad: %+v", d.Sources)
	}
	if !strings.Contains(d.Message, words) {
		s.T.Errorf("no %q in the message: %s", words, d.Message)
	}
	for _, n := range nodeNetworks {
		if !strings.Contains(d.CIDRs(), n) {
			s.T.Errorf("%s is no longer a node network: %v", n, d.CIDRs())
		}
	}
	expectFenced(s.T, r, s.T.Name())
}

// TestFileCutAnywhere: a Shoot that ends early, wherever, shrinks nothing.
func TestFileCutAnywhere(t *testing.T) {
	r := rig.New(t, rig.Options{})
	file := newShootFile(t, r)
	file.put(shootObject)
	s := start(t, r, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
	s.Await("the good file is in force", func(d document) bool { return d.Ready })
	for cut := 0; cut < len(shootObject)-1; cut += 17 {
		file.put(shootObject[:cut])
		d := s.Await("the cut file is looked at", func(d document) bool { return !d.Ready })
		expectKept(r, s, d, "")
		file.put(shootObject)
		s.Await("the good file is back in force", func(d document) bool { return d.Ready })
	}
}

// TestFileGone: a file that vanishes, or turns into something else, shrinks nothing.
func TestFileGone(t *testing.T) {
	r := rig.New(t, rig.Options{})
	file := newShootFile(t, r)
	file.put(shootObject)
	s := start(t, r, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
	s.Await("the good file is in force", func(d document) bool { return d.Ready })
	for name, replace := range map[string]func() error{
		"removed":     func() error { return nil },
		"a directory": func() error { return os.Mkdir(file.path, 0o700) },
		"a dead link": func() error { return os.Symlink("nowhere", file.path) },
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			if err := os.RemoveAll(file.path); err != nil {
				t.Fatal(err)
			}
			if err := replace(); err != nil {
				t.Fatal(err)
			}
			d := s.Await("the state names the file", func(d document) bool { return !d.Ready })
			expectKept(r, s, d, file.path)
			if err := os.RemoveAll(file.path); err != nil {
				t.Fatal(err)
			}
			file.put(shootObject)
			s.Await("the good file is back in force", func(d document) bool { return d.Ready })
		})
	}
}

// TestBadFileFromTheStart: what another source names is fenced, and the agent is not ready.
func TestBadFileFromTheStart(t *testing.T) {
	r := rig.New(t, rig.Options{})
	file := newShootFile(t, r)
	for _, bad := range []string{"", "\x00\x01\x02", "kind: Pod\napiVersion: v1\n", "0.0.0.0/0\n", shootObject[:150]} {
		file.put(bad)
		s := start(t, r, bothNetworks, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
		d := s.Await("the fence stands", func(d document) bool { return d.Phase == "Blocked" })
		if d.Ready || d.Reason != "SourceUnavailable" && d.Reason != "InvalidNetwork" || d.CIDRs() != strings.Join(nodeNetworks, " ") {
			t.Errorf("file %q: ready %v, %s: %s, networks %v", bad, d.Ready, d.Reason, d.Message, d.CIDRs())
		}
		if code, body := s.Get("/healthz"); code != 200 {
			t.Errorf("file %q: /healthz %d %s", bad, code, body)
		}
		expectFenced(t, r, "bad file from the start")
		s.Stop()
	}
}
