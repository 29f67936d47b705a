package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/routefence/routefence/test/rig"
)

// image is the only one there is: the stand-in program, and directories as Debian has them, so that a pod which mounts the machine's /usr
// has its programs, OpenVPN and iptables among them.
const image = "e2e.test/machine:1"

// writeImage writes an archive as "docker save" does.
func writeImage(t rig.T, path, standin string) {
	t.Helper()
	program := read(t, standin)
	var layer archive
	for _, dir := range []string{"usr", "etc", "proc", "sys", "dev", "run", "tmp", "var"} {
		layer.add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		layer.add(tar.Header{Name: dir, Typeflag: tar.TypeSymlink, Linkname: "usr/" + dir, Mode: 0o777}, nil)
	}
	layer.add(tar.Header{Name: "standin", Typeflag: tar.TypeReg, Mode: 0o755}, program)
	files := layer.bytes()
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","config":{"Entrypoint":["/standin"],"Cmd":["pause"],`+
		`"Env":["PATH=/usr/sbin:/usr/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, runtime.GOARCH, sha256.Sum256(files))
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	var whole archive
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", []byte(config)}, {"layer.tar", files}, {"manifest.json", manifest}} {
		whole.add(tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644}, f.data)
	}
	write(t, path, string(whole.bytes()))
}

// archive is a tar file in memory, which cannot fail.
type archive struct {
	buffer bytes.Buffer
	writer *tar.Writer
}

func (a *archive) add(header tar.Header, data []byte) {
	if a.writer == nil {
		a.writer = tar.NewWriter(&a.buffer)
	}
	header.Size = int64(len(data))
	if err := a.writer.WriteHeader(&header); err != nil {
		panic(err)
	}
	if _, err := a.writer.Write(data); err != nil {
		panic(err)
	}
}

func (a *archive) bytes() []byte {
	if err := a.writer.Close(); err != nil {
		panic(err)
	}
	return a.buffer.Bytes()
}
