package image

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"strings"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
)

func (i *image) bill(t *testing.T) *spdx.Document {
	t.Helper()
	f, err := os.Open(filepath.Join(i.root, "usr/share/doc/routefence/sbom.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := spdxjson.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestBillOfMaterials: the bill is valid, and it has every module of the binaries and every package of which there is a file, each with its licence.
func TestBillOfMaterials(t *testing.T) {
	each(t, func(t *testing.T, i *image) {
		doc := i.bill(t)
		if err := spdxlib.ValidateDocument(doc); err != nil {
			t.Error(err)
		}
		billed := map[string]string{}
		for _, p := range doc.Packages {
			billed[p.PackageName] = p.PackageVersion
			url := p.PackageExternalReferences[0].Locator
			if golang := strings.HasPrefix(url, "pkg:golang/"); golang && strings.Contains(p.PackageLicenseDeclared, "NOASSERTION") {
				t.Errorf("%s: no licence", p.PackageName)
			}
			if strings.HasPrefix(url, "pkg:deb/") {
				if len(p.PackageChecksums) == 0 || !strings.HasSuffix(url, "?arch="+i.Architecture) {
					t.Errorf("%s: %s with checksums %v", p.PackageName, url, p.PackageChecksums)
				}
				if i.files["usr/share/doc/"+p.PackageName+"/copyright"] == nil {
					t.Errorf("%s: no copyright file", p.PackageName)
				}
			}
		}
		if billed["routefence"] != version || billed["iptables"] == "" || billed["libc6"] == "" {
			t.Errorf("billed: %v", billed)
		}
		i.modulesBilled(t, billed)
		if len(doc.Files) == 0 {
			t.Error("none of our binaries is billed")
		}
	})
}

func (i *image) modulesBilled(t *testing.T, billed map[string]string) {
	t.Helper()
	texts, err := os.ReadFile(filepath.Join(i.root, "usr/share/doc/routefence/THIRD-PARTY"))
	if err != nil {
		t.Fatal(err)
	}
	binaries, err := filepath.Glob(filepath.Join(i.root, "usr/bin/*"))
	if err != nil || len(binaries) == 0 {
		t.Fatalf("binaries: %v, %v", binaries, err)
	}
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			if billed[m.Path] != m.Version {
				t.Errorf("%s %s is billed as %q", m.Path, m.Version, billed[m.Path])
			}
			if !strings.Contains(string(texts), "==== "+m.Path+" "+m.Version+"\n") {
				t.Errorf("%s %s: no licence text", m.Path, m.Version)
			}
		}
	}
}
