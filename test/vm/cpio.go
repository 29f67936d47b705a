package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// archive writes the "newc" format of cpio, which the kernel unpacks into its first root file system. Paths have no
// leading slash; the folders above each are added by themselves, and what is there already is not added again.
type archive struct {
	w      *bufio.Writer
	seen   map[string]bool
	offset int64
	err    error
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriter(w), seen: map[string]bool{"": true, ".": true}}
}

// The types of files, as in stat(2).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// dir adds an empty folder.
func (a *archive) dir(name string) { a.add(name, typeDir|0o755, 0, strings.NewReader("")) }

// link adds a symbolic link.
func (a *archive) link(name, target string) {
	a.add(name, typeLink|0o777, int64(len(target)), strings.NewReader(target))
}

// text adds an executable file with a content.
func (a *archive) text(name, content string) {
	a.add(name, typeFile|0o755, int64(len(content)), strings.NewReader(content))
}

// file adds a copy of a file, executable.
func (a *archive) file(name, from string) {
	if a.err != nil || a.seen[path.Clean(name)] {
		return
	}
	f, err := os.Open(from)
	if err != nil {
		a.err = err
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.err = err
		return
	}
	a.add(name, typeFile|0o755, info.Size(), f)
}

// add writes one entry. The first error stays, for close to return.
func (a *archive) add(name string, mode uint32, size int64, content io.Reader) {
	name = path.Clean(name)
	if a.err != nil || a.seen[name] {
		return
	}
	if parent := path.Dir(name); !a.seen[parent] {
		a.dir(parent)
	}
	a.seen[name] = true
	a.entry(name, mode, size, content)
}

// entry writes header, name and content, each filled up to four bytes. The inode number only has to differ from the
// others: equal ones are taken for hard links.
func (a *archive) entry(name string, mode uint32, size int64, content io.Reader) {
	const links = 1
	a.printf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		len(a.seen), mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.fill()
	n, err := io.CopyN(a.w, content, size)
	a.offset += n
	if err != nil && a.err == nil {
		a.err = fmt.Errorf("add %s: %w", name, err)
	}
	a.fill()
}

func (a *archive) printf(format string, args ...any) {
	n, err := fmt.Fprintf(a.w, format, args...)
	a.offset += int64(n)
	if a.err == nil {
		a.err = err
	}
}

func (a *archive) fill() {
	for a.offset%4 != 0 {
		a.printf("\x00")
	}
}

// close writes the end and returns the first error there was.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, 0, strings.NewReader(""))
	if err := a.w.Flush(); a.err == nil {
		a.err = err
	}
	return a.err
}
