package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// binary is one of ours, with what it says it was built from.
type binary struct {
	name, path string
	info       *buildinfo.BuildInfo
}

func readBinaries(dir string) ([]binary, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []binary
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, binary{e.Name(), path, info})
	}
	return out, nil
}

// module is a Go module that is linked into some binary, or Go's own library.
type module struct {
	path, version string
	// texts are its licences and notices, licences their SPDX identifiers.
	texts    []string
	licences []string
}

// licensed returns the modules of the binaries with their licences. One without is an error: it could not be given away.
func licensed(binaries []binary) ([]module, error) {
	versions := map[string]string{}
	for _, b := range binaries {
		for _, m := range b.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			versions[m.Path] = m.Version
		}
	}
	dirs, err := moduleDirs(versions)
	if err != nil {
		return nil, err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	dirs["stdlib"], versions["stdlib"] = strings.TrimSpace(string(goroot)), strings.TrimPrefix(binaries[0].info.GoVersion, "go")
	var out []module
	for path, dir := range dirs {
		m := module{path: path, version: versions[path]}
		if err := m.read(dir); err != nil {
			return nil, fmt.Errorf("module %s: %w", path, err)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return out, nil
}

// moduleDirs asks the go command where the modules are.
func moduleDirs(versions map[string]string) (map[string]string, error) {
	args := []string{"list", "-mod=readonly", "-m", "-json"}
	for path := range versions {
		args = append(args, path)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list -m: %w", err)
		}
		if m.Version != versions[m.Path] || m.Dir == "" {
			return nil, fmt.Errorf("module %s is linked in version %s, and %s is at hand", m.Path, versions[m.Path], m.Version)
		}
		dirs[m.Path] = m.Dir
	}
}

// legal are the names of licences and notices: LICENSE, LICENSE.txt, LICENSE-MIT, ...
var legal = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice)([.-]|$)`)

// read takes the licences and notices at the top of a module.
func (m *module) read(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !legal.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts = append(m.texts, string(text))
		for _, match := range licensecheck.Scan(text).Match {
			if !slices.Contains(m.licences, match.ID) {
				m.licences = append(m.licences, match.ID)
			}
		}
	}
	if len(m.licences) == 0 {
		return fmt.Errorf("no known licence in %s", dir)
	}
	slices.Sort(m.licences)
	return nil
}

// thirdParty is every licence and notice once, below the names of the modules that it is for.
func thirdParty(modules []module) []byte {
	var order []string
	users := map[string][]string{}
	for _, m := range modules {
		for _, text := range m.texts {
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], m.path+" "+m.version)
		}
	}
	var out bytes.Buffer
	for _, text := range order {
		fmt.Fprintf(&out, "==== %s\n\n%s\n\n", strings.Join(users[text], "\n==== "), strings.TrimSpace(text))
	}
	return out.Bytes()
}
