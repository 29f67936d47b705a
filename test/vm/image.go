package main

import (
	"context"
	_ "embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// initScript is the guest's first process.
//
//go:embed init.sh
var initScript string

// compiler stands in for go in the guest: tests that build routefence get the one that was built outside.
const compiler = `#!/bin/sh
[ "$1 $2" = "build -o" ] && exec cp /usr/lib/routefence "$3"
echo "there is no compiler in this guest: go $*" >&2
exit 1
`

// programs are copied from the host, so that the guest differs from it in nothing but the kernel. Busybox does the rest.
var programs = []string{
	"busybox", "dash", "ip", "ss", "nft", "ipset", "conntrack", "setpriv",
	"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
	"iptables-nft", "iptables-nft-save", "iptables-nft-restore", "ip6tables-nft", "ip6tables-nft-save", "ip6tables-nft-restore",
	"iptables-legacy", "iptables-legacy-save", "iptables-legacy-restore",
	"ip6tables-legacy", "ip6tables-legacy-save", "ip6tables-legacy-restore",
}

// writeImage writes the guest's root file system: programs, kernel modules, tests, and the order in which to run them.
func writeImage(ctx context.Context, name string, k kernel, built build) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	a := newArchive(f)
	// As on a Debian of today: /bin and the like are links.
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		a.link(link, "usr/"+link)
	}
	a.link("usr/sbin", "bin")
	for _, dir := range []string{"usr/bin", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "root", "var"} {
		a.dir(dir)
	}
	a.link("var/run", "/run")
	a.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
	a.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
	// As systemd sets it: a driver that is loaded makes no device by itself.
	a.text("etc/modprobe.d/devices.conf", "options bonding max_bonds=0\noptions dummy numdummies=0\n")
	a.text("init", initScript)
	a.text("usr/bin/go", compiler)
	if err := addPrograms(ctx, a); err != nil {
		return err
	}
	if err := addModules(a, k); err != nil {
		return err
	}
	if err := addTests(a, built); err != nil {
		return err
	}
	return a.close()
}

// addPrograms adds the programs under their names, iptables' extensions, and the libraries of all of them.
func addPrograms(ctx context.Context, a *archive) error {
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return err
	}
	var linked []string
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
		a.file("usr/bin/"+filepath.Base(path), path)
		a.link("usr/bin/"+name, filepath.Base(path)) // iptables' programs are one, and go by their names
		linked = append(linked, path)
	}
	for _, path := range extensions {
		a.file(path[1:], path)
	}
	// The extensions need no others. ldd fails for static programs and has told about the rest by then.
	slices.Sort(linked)
	libraries, _ := exec.CommandContext(ctx, "ldd", slices.Compact(linked)...).Output()
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
			a.file("usr"+strings.TrimPrefix(word, "/usr"), word)
		}
	}
	a.link("usr/bin/sh", "dash")
	applets, err := output(ctx, "", "busybox", "--list")
	for name := range strings.FieldsSeq(applets) {
		a.link("usr/bin/"+name, "busybox") // not in place of a program from above
	}
	return err
}

// addModules adds the modules that the guest needs, with the tables by which the kernel finds them. Those are cut to what
// is there: modprobe reads all of them whenever the kernel asks for a module, often in vain.
func addModules(a *archive, k kernel) error {
	home := "usr/lib/modules/" + k.release + "/"
	dependencies, err := os.ReadFile(filepath.Join(k.modules, "modules.dep"))
	if err != nil {
		return err
	}
	aliases, err := os.ReadFile(filepath.Join(k.modules, "modules.alias"))
	if err != nil {
		return err
	}
	m := chooseModules(string(dependencies), string(aliases))
	a.text(home+"modules.dep", m.dependencies)
	a.text(home+"modules.alias", m.aliases)
	for _, name := range m.files {
		a.file(home+name, filepath.Join(k.modules, name))
	}
	return nil
}

// addTests adds the test binaries, each in a folder like its package's, with its test data.
func addTests(a *archive, built build) error {
	a.file("usr/lib/routefence", built.routefence)
	var order strings.Builder
	for _, j := range built.jobs {
		a.file("src/"+j.pkg+"/test", built.tests[j.pkg])
		order.WriteString(j.line())
		data := filepath.Join(j.pkg, "testdata")
		err := filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				a.file("src/"+path, path)
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	a.text("order", order.String())
	return nil
}

// quote makes one word of the shell's.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
