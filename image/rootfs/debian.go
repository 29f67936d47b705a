package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// deb is one unpacked Debian package.
type deb struct {
	name, version, architecture string
	// source is the source package and its version.
	source, sourceVersion string
	// sha256 is that of the package file.
	sha256 string
	root   string
}

func readPackages(dir string) ([]deb, error) {
	controls, err := filepath.Glob(filepath.Join(dir, "*", "control"))
	if err != nil {
		return nil, err
	}
	var out []deb
	for _, path := range controls {
		d, err := readPackage(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("package in %s: %w", filepath.Dir(path), err)
		}
		out = append(out, d)
	}
	return out, nil
}

func readPackage(dir string) (deb, error) {
	f, err := os.Open(filepath.Join(dir, "control"))
	if err != nil {
		return deb{}, err
	}
	defer f.Close()
	fields := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ": "); ok && !strings.HasPrefix(key, " ") {
			fields[key] = value
		}
	}
	sum, err := os.ReadFile(filepath.Join(dir, "sha256"))
	if err != nil {
		return deb{}, err
	}
	d := deb{name: fields["Package"], version: fields["Version"], architecture: fields["Architecture"],
		sha256: strings.Fields(string(sum))[0], root: filepath.Join(dir, "root")}
	// "Source: glibc (2.36-9)", or without a version if it is that of the package.
	source, version, _ := strings.Cut(fields["Source"], " ")
	d.source, d.sourceVersion = source, strings.Trim(version, "()")
	if d.source == "" {
		d.source = d.name
	}
	if d.sourceVersion == "" {
		d.sourceVersion = d.version
	}
	return d, lines.Err()
}
