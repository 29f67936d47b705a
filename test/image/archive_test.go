package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// image is one platform's image, unpacked.
type image struct {
	oci.Image
	digest digest.Digest
	// root is the root file system, files are what is in it by name, directories apart.
	root  string
	files map[string]*tar.Header
}

// unpack reads an OCI archive as a registry's client would: by digests, each of which must be true.
func unpack(archive, root string) (*image, error) {
	blobs, err := readArchive(archive)
	if err != nil {
		return nil, err
	}
	var index oci.Index
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		return nil, fmt.Errorf("index with %d manifests: %w", len(index.Manifests), err)
	}
	i := &image{digest: index.Manifests[0].Digest, root: root, files: map[string]*tar.Header{}}
	var manifest oci.Manifest
	if err := decode(blobs, i.digest, &manifest); err != nil {
		return nil, err
	}
	if err := decode(blobs, manifest.Config.Digest, &i.Image); err != nil {
		return nil, err
	}
	for _, layer := range manifest.Layers {
		blob, err := blobOf(blobs, layer.Digest)
		if err != nil {
			return nil, err
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(blob))
		if err != nil {
			return nil, err
		}
		if err := i.extract(tar.NewReader(unzipped)); err != nil {
			return nil, err
		}
	}
	return i, nil
}

func readArchive(path string) (map[string][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if out[filepath.Clean(h.Name)], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

func blobOf(blobs map[string][]byte, d digest.Digest) ([]byte, error) {
	blob := blobs[filepath.Join("blobs", d.Algorithm().String(), d.Encoded())]
	if digest.FromBytes(blob) != d {
		return nil, fmt.Errorf("blob %s is not there, or not what it says", d)
	}
	return blob, nil
}

func decode(blobs map[string][]byte, d digest.Digest, into any) error {
	blob, err := blobOf(blobs, d)
	if err != nil {
		return err
	}
	return json.Unmarshal(blob, into)
}

func (i *image) extract(layer *tar.Reader) error {
	for {
		h, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := filepath.Clean(h.Name)
		path := filepath.Join(i.root, name)
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, fs.FileMode(h.Mode)); err != nil {
				return err
			}
			continue
		}
		i.files[name] = h
		if err := extractFile(path, h, layer); err != nil {
			return err
		}
	}
}

func extractFile(path string, h *tar.Header, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeReg:
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, fs.FileMode(h.Mode))
	}
	return fmt.Errorf("%s: is neither file, directory nor symbolic link", h.Name)
}
