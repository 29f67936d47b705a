package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/image/pattern"
	"golang.org/x/sys/unix"
)

// tree is the root file system under way.
type tree struct {
	out  string
	debs []deb
	// from names the package that each file came from.
	from map[string]string
}

func newTree(out string, debs []deb) *tree {
	return &tree{out: out, debs: debs, from: map[string]string{}}
}

// used returns the packages of which the tree has files.
func (t *tree) used() []deb {
	var out []deb
	for _, d := range t.debs {
		for _, name := range t.from {
			if name == d.name {
				out = append(out, d)
				break
			}
		}
	}
	return out
}

// addMatching adds the files of a pattern with braces. A pattern without a file is an error: the package is not what it was.
func (t *tree) addMatching(wanted string) error {
	for _, p := range pattern.Expand(wanted) {
		found := false
		for _, d := range t.debs {
			paths, err := filepath.Glob(filepath.Join(d.root, p))
			if err != nil {
				return fmt.Errorf("pattern %s: %w", p, err)
			}
			for _, path := range paths {
				found = true
				if isLeftOut(filepath.Base(path)) {
					continue
				}
				if err := t.add(d, strings.TrimPrefix(path, d.root+"/")); err != nil {
					return err
				}
			}
		}
		if !found {
			return fmt.Errorf("no package has a file %s", p)
		}
	}
	return nil
}

// add adds one file of a package, with the copyright of the package and, of a link, what it leads to.
func (t *tree) add(d deb, name string) error {
	if _, there := t.from[name]; there {
		return nil
	}
	t.from[name] = d.name
	source := filepath.Join(d.root, name)
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	if copyright := filepath.Join(docs, d.name, "copyright"); name != copyright {
		if err := t.add(d, copyright); err != nil {
			return fmt.Errorf("package %s: %w", d.name, err)
		}
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return t.put(name, source, info.Mode().Perm())
	}
	target, err := os.Readlink(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(t.out, name)), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, filepath.Join(t.out, name)); err != nil {
		return err
	}
	if filepath.IsAbs(target) {
		target = strings.TrimPrefix(target, "/")
	} else {
		target = filepath.Join(filepath.Dir(name), target)
	}
	return t.add(d, target)
}

// put copies a file into the tree.
func (t *tree) put(name, source string, mode fs.FileMode) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	path := filepath.Join(t.out, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}

func (t *tree) write(name string, data []byte) error {
	path := filepath.Join(t.out, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// addLibraries adds what the programs and extensions in the tree are linked with, and the loader, until nothing is missing.
func (t *tree) addLibraries() error {
	for done := map[string]bool{}; ; {
		var todo []string
		for name := range t.from {
			if !done[name] && isObject(filepath.Join(t.out, name)) {
				todo = append(todo, name)
			}
		}
		if len(todo) == 0 {
			return nil
		}
		slices.Sort(todo)
		for _, name := range todo {
			done[name] = true
			if err := t.addNeeds(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

func isObject(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// addNeeds adds the loader and the libraries that one object names.
func (t *tree) addNeeds(name string) error {
	f, err := elf.Open(filepath.Join(t.out, name))
	if err != nil {
		return err
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if err := t.addLibrary(library); err != nil {
			return err
		}
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, p.Filesz)
		if _, err := p.ReadAt(loader, 0); err != nil {
			return fmt.Errorf("read the name of the loader: %w", err)
		}
		if err := t.addMatching(strings.Trim(string(loader), "/\x00")); err != nil {
			return err
		}
	}
	return nil
}

// addLibrary looks where Debian keeps libraries. The loader is named as one, too.
func (t *tree) addLibrary(library string) error {
	for _, dir := range []string{"lib/*", "usr/lib/*"} {
		err := t.addMatching(filepath.Join(dir, library))
		if err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "no package has") {
			return err
		}
	}
	return errors.New("needs " + library + ", which no package has (add one to image/packages)")
}

// finish gives everything the same time, links too: some engines keep it.
func (t *tree) finish(at time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(at.UnixNano()), unix.NsecToTimespec(at.UnixNano())}
	return filepath.WalkDir(t.out, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}
