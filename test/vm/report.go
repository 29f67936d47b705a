package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// report is what a guest's console told.
type report struct {
	// booted is how long the guest took until its first test. passed and failed are packages.
	booted         time.Duration
	passed, failed []string
	// done is set when the guest came to the end of its list.
	done bool
	// prologue is what the kernel said before the first test: of interest only if there never is one.
	prologue []string
}

// word begins the lines that the guest's first process writes between those of the tests.
const word = "GUEST "

// noTests is what a test binary says when its pattern fits no test, and passes.
const noTests = "testing: warning: no tests to run"

// listen passes on what the tests print and keeps account of how they end.
func listen(console io.Reader, out io.Writer, guest string) report {
	var r report
	begin := time.Now()
	var pkg string
	var since time.Time
	empty := false
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		told, ours := strings.CutPrefix(line, word)
		verb, rest, _ := strings.Cut(told, " ")
		switch {
		case !ours && r.booted == 0:
			r.prologue = append(r.prologue, line)
		case !ours && r.done:
			// A farewell.
		case !ours:
			empty = empty || strings.Contains(line, noTests)
			if line != "PASS" {
				fmt.Fprintln(out, line)
			}
		case verb == "begins":
			pkg, since, empty = rest, time.Now(), false
			if r.booted == 0 {
				r.booted = time.Since(begin)
			}
		case verb == "ends":
			r.end(out, guest, pkg, rest, empty, time.Since(since))
		case told == "is done":
			r.done = true
		}
	}
	return r
}

// end notes the end of a package, whose code is 0 only if all went well.
func (r *report) end(out io.Writer, guest, pkg, code string, empty bool, took time.Duration) {
	verdict := "ok"
	if n, err := strconv.Atoi(code); err != nil || n != 0 || empty {
		verdict = "FAIL"
		r.failed = append(r.failed, pkg)
	} else {
		r.passed = append(r.passed, pkg)
	}
	fmt.Fprintf(out, "%-4s  %s  %s  %.1fs\n", verdict, guest, pkg, took.Seconds())
}
