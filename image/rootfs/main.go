// Command rootfs puts together the root file system of the image: our binaries, the files of Debian's packages that they need, and a
// bill of materials with the licences of all of it.
//
// It runs nothing that it packs, so it works for any architecture. The Dockerfile calls it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	var in inputs
	var epoch int64
	flag.StringVar(&in.packages, "packages", "", "directory of unpacked Debian packages: NAME/root, NAME/control, NAME/sha256")
	flag.StringVar(&in.binaries, "binaries", "", "directory of our binaries")
	flag.StringVar(&in.out, "out", "", "directory to make")
	flag.StringVar(&in.version, "version", "dev", "version of the image")
	flag.Int64Var(&epoch, "epoch", 0, "time of everything, in seconds since 1970")
	flag.Parse()
	in.time = time.Unix(epoch, 0).UTC()
	if err := in.assemble(); err != nil {
		fmt.Fprintf(os.Stderr, "rootfs: %v\n", err)
		os.Exit(1)
	}
}

// inputs are what the root file system is made from.
type inputs struct {
	packages, binaries, out, version string
	time                             time.Time
}

// docs is where everything stands that is for people and their tools.
const docs = "usr/share/doc"

func (in inputs) assemble() error {
	debs, err := readPackages(in.packages)
	if err != nil {
		return err
	}
	root := newTree(in.out, debs)
	for _, pattern := range content {
		if err := root.addMatching(pattern); err != nil {
			return err
		}
	}
	if err := root.addLibraries(); err != nil {
		return err
	}
	built, err := readBinaries(in.binaries)
	if err != nil {
		return err
	}
	for _, b := range built {
		if err := root.put(filepath.Join("usr/bin", b.name), b.path, 0o755); err != nil {
			return err
		}
	}
	if err := in.document(root, built); err != nil {
		return err
	}
	return root.finish(in.time)
}

// document adds licences and the bill of materials.
func (in inputs) document(root *tree, built []binary) error {
	modules, err := licensed(built)
	if err != nil {
		return err
	}
	bill, err := sbom{version: in.version, debs: root.used(), binaries: built, modules: modules, time: in.time}.json()
	if err != nil {
		return err
	}
	return errors.Join(
		root.put(filepath.Join(docs, "routefence/LICENSE"), "LICENSE", 0o644),
		root.write(filepath.Join(docs, "routefence/THIRD-PARTY"), thirdParty(modules)),
		root.write(filepath.Join(docs, "routefence/sbom.spdx.json"), bill))
}
