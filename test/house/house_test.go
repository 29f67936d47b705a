// Package house checks the rules that keep the code's rooms apart: who imports whom, and that every package says what its
// duty is.
package house

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/routefence/routefence/"

// pure packages decide and never act: no clock, no goroutine, no kernel. They may import the standard library less what
// acts, each other, and libraries that only compute.
var pure = []string{"policy", "ranges", "netattr", "shoot", "routes", "firewall", "verdict", "explain", "selftest", "check", "inject", "lint", "pki", "manifest"}

// computing are the libraries that pure packages may use.
var computing = []string{"go4.org/netipx", "go.yaml.in/yaml/", "sigs.k8s.io/yaml", "k8s.io/apimachinery/pkg/api/resource",
	"github.com/aymanbagabas/go-udiff"}

// acting are parts of the standard library that a pure package has no business with.
var acting = []string{"os", "os/exec", "net", "net/http", "syscall", "sync", "context", "log", "math/rand", "math/rand/v2"}

// edges act, each with the libraries it exists for. No edge knows another edge, nor the agent.
var edges = map[string][]string{
	"routes/rtnl":        {"github.com/vishvananda/netlink", "golang.org/x/sys/"},
	"firewall/xtables":   {"github.com/coreos/go-iptables/", "go.uber.org/zap", "golang.org/x/sys/"},
	"firewall/nfnetlink": {"github.com/vishvananda/netlink", "golang.org/x/sys/"},
	"sockets":            {"github.com/vishvananda/netlink", "golang.org/x/sys/"},
	"shoot/file":         {"github.com/fsnotify/fsnotify", "go.uber.org/zap", "golang.org/x/sys/"},
	"shoot/cluster":      {"k8s.io/client-go/", "k8s.io/apimachinery/", "go.uber.org/zap"},
	"shoot/cache":        {},
	"selftest/dial":      {"golang.org/x/sys/"},
	"check/kube":         {"k8s.io/client-go/"},
	"admission":          {"golang.org/x/sync/", "k8s.io/apimachinery/pkg/util/json", "go.uber.org/zap"},
	"pki/rotation":       {"k8s.io/apimachinery/pkg/api/errors", "go.uber.org/zap"},
	"lookup":             {"golang.org/x/sync/"},
	"inject/typed":       {"k8s.io/api/"},
}

// shared packages are for agent and commands alike, and know nobody of ours.
var shared = map[string][]string{
	"metrics": {"github.com/VictoriaMetrics/metrics"},
}

// pkg is what "go list -json" says of a package.
type pkg struct {
	ImportPath, Doc string
	Imports         []string
	GoFiles         []string
	Standard        bool
}

func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module) }

func list(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles,Standard", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := map[string]pkg{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found[p.name()] = p
	}
}

func standard(path string) bool { return !strings.Contains(strings.Split(path, "/")[0], ".") }

func allowed(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) })
}

func TestPurePackagesOnlyCompute(t *testing.T) {
	packages := list(t)
	for _, name := range pure {
		p, found := packages[name]
		if !found {
			t.Errorf("no package %s", name)
		}
		for _, path := range p.Imports {
			inside, ours := strings.CutPrefix(path, module)
			switch {
			case ours && slices.Contains(pure, inside):
			case standard(path) && !slices.Contains(acting, path):
			case !ours && allowed(path, computing):
			default:
				t.Errorf("%s is pure and must not import %s", name, path)
			}
		}
	}
}

func TestEdgesKnowTheirOneLibraryAndNoOtherEdge(t *testing.T) {
	packages := list(t)
	for name, libraries := range edges {
		p, found := packages[name]
		if !found {
			t.Errorf("no package %s", name)
		}
		for _, path := range p.Imports {
			inside, ours := strings.CutPrefix(path, module)
			if ours && !slices.Contains(pure, inside) || !ours && !standard(path) && !allowed(path, libraries) {
				t.Errorf("%s is an edge and must not import %s", name, path)
			}
		}
	}
}

func TestSharedPackagesKnowNobody(t *testing.T) {
	packages := list(t)
	for name, libraries := range shared {
		p, found := packages[name]
		if !found {
			t.Errorf("no package %s", name)
		}
		for _, path := range p.Imports {
			if !standard(path) && !allowed(path, libraries) {
				t.Errorf("%s is shared and must not import %s", name, path)
			}
		}
	}
}

func TestAgentKnowsNoEdge(t *testing.T) {
	packages := list(t)
	for _, name := range []string{"agent", "agent/health"} {
		for _, path := range packages[name].Imports {
			if _, edge := edges[strings.TrimPrefix(path, module)]; edge {
				t.Errorf("%s must not import the edge %s: it owns the interface, cmd joins them", name, path)
			}
		}
	}
}

// TestEveryPackageHasItsRules keeps the lists above complete.
func TestEveryPackageHasItsRules(t *testing.T) {
	for name, p := range list(t) {
		_, edge := edges[name]
		known := edge || shared[name] != nil || slices.Contains(pure, name) || strings.HasPrefix(name, "agent") || strings.HasPrefix(name, "cmd/") ||
			strings.HasPrefix(name, "image/") || strings.HasPrefix(name, "test/")
		if !known {
			t.Errorf("%s is neither pure, edge, shared, agent, cmd, image nor test: say which in %s", name, "test/house")
		}
		// A package of tests alone has its comment in a test file, which go list does not read.
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no doc comment that says its duty", name)
		}
		for _, vague := range []string{"util", "common", "helper", "manager"} {
			if strings.Contains(name, vague) {
				t.Errorf("%s: a package named %s says nothing about its duty", name, vague)
			}
		}
	}
}

// TestREADMENamesEveryPackage: the table of folders is where people look first.
func TestREADMENamesEveryPackage(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(readme), "## Where things are")
	if !found {
		t.Fatal("README.md has no table of folders")
	}
	for name := range list(t) {
		// Of these two the folder is enough.
		for _, folder := range []string{"image", "test"} {
			if strings.HasPrefix(name, folder+"/") {
				name = folder
			}
		}
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("README.md: the table of folders lacks %s", name)
		}
	}
}
