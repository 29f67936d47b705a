package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// sbom is the bill of materials of one image.
type sbom struct {
	version  string
	debs     []deb
	binaries []binary
	modules  []module
	time     time.Time
}

const noAssertion = "NOASSERTION"

// json is the bill as an SPDX document.
func (s sbom) json() ([]byte, error) {
	doc := &spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   "routefence-" + s.version,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "routefence"}},
			Created:  s.time.Format(time.RFC3339),
		},
	}
	image := bill("routefence", s.version, "pkg:oci/routefence?tag="+s.version)
	image.PackageLicenseDeclared, image.PrimaryPackagePurpose = "Apache-2.0", "CONTAINER"
	doc.Packages = append(doc.Packages, image)
	doc.Relationships = append(doc.Relationships, related("DOCUMENT", "DESCRIBES", image))
	for _, p := range append(s.debian(), s.golang()...) {
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, related(image.PackageSPDXIdentifier, "CONTAINS", p))
	}
	if err := s.addBinaries(doc, image); err != nil {
		return nil, err
	}
	// The name must be another one whenever anything in the document is.
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out); err != nil {
		return nil, err
	}
	doc.DocumentNamespace = fmt.Sprintf("https://github.com/routefence/routefence/sbom/%x", sha256.Sum256(out.Bytes()))
	out.Reset()
	err := spdxjson.Write(doc, &out, spdxjson.Indent(" "))
	return out.Bytes(), err
}

// addBinaries lists our own files with their checksums.
func (s sbom) addBinaries(doc *spdx.Document, image *spdx.Package) error {
	for _, b := range s.binaries {
		data, err := os.ReadFile(b.path)
		if err != nil {
			return err
		}
		f := &spdx.File{
			FileName:           "./usr/bin/" + b.name,
			FileSPDXIdentifier: identifier("File", b.name, ""),
			FileTypes:          []string{"BINARY"},
			Checksums:          []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sha256.Sum256(data))}},
			LicenseConcluded:   "Apache-2.0",
			FileCopyrightText:  noAssertion,
		}
		doc.Files = append(doc.Files, f)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{RefA: common.MakeDocElementID("", string(image.PackageSPDXIdentifier)),
			RefB: common.MakeDocElementID("", string(f.FileSPDXIdentifier)), Relationship: "CONTAINS"})
	}
	return nil
}

func (s sbom) debian() []*spdx.Package {
	var out []*spdx.Package
	for _, d := range s.debs {
		// A plus sign of a version means a blank in a URL.
		version := strings.NewReplacer("+", "%2B", ":", "%3A").Replace(d.version)
		p := bill(d.name, d.version, fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", d.name, version, d.architecture))
		p.PackageSupplier = &common.Supplier{SupplierType: "Organization", Supplier: "Debian"}
		p.PackageSourceInfo = fmt.Sprintf("Debian source package %s %s; files of %s_%s_%s.deb", d.source, d.sourceVersion, d.name, d.version, d.architecture)
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: d.sha256}}
		p.PackageLicenseComments = "see " + docs + "/" + d.name + "/copyright in the image"
		out = append(out, p)
	}
	return out
}

func (s sbom) golang() []*spdx.Package {
	var out []*spdx.Package
	for _, m := range s.modules {
		p := bill(m.path, m.version, "pkg:golang/"+m.path+"@"+m.version)
		p.PackageLicenseDeclared = strings.Join(m.licences, " AND ")
		p.PackageLicenseComments = "found by the text; see " + docs + "/routefence/THIRD-PARTY in the image"
		out = append(out, p)
	}
	return out
}

// bill is what is said of every package.
func bill(name, version, url string) *spdx.Package {
	return &spdx.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: identifier("Package", name, version),
		PackageDownloadLocation: noAssertion, IsFilesAnalyzedTagPresent: true, PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
		PackageExternalReferences: []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: url}},
	}
}

func related(to common.ElementID, how string, p *spdx.Package) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.MakeDocElementID("", string(to)),
		RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)), Relationship: how}
}

// foreign are the characters that an SPDX identifier cannot have.
var foreign = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func identifier(kind, name, version string) common.ElementID {
	return common.ElementID(strings.Trim(kind+"-"+foreign.ReplaceAllString(name+"-"+version, "-"), "-"))
}
