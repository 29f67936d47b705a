// Package cache keeps what an API server said last on disk, for a start at which that API server cannot be asked: it may be
// the very one in this pod.
package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/shoot"
)

// maxSize is far more than ten thousand networks take.
const maxSize = 4 << 20

// Dir is the directory of the cache. The empty Dir remembers nothing.
type Dir string

// entry is the file's content. The sum is over the content's exact bytes: a disk that was full half-way, or a hand that edited
// the file, must not decide what is fenced.
type entry struct {
	Sum     string          `json:"sha256"`
	Content json.RawMessage `json:"content"`
}

type content struct {
	Format   int           `json:"format"`
	Ref      string        `json:"ref"`
	UID      string        `json:"uid"`
	Version  string        `json:"resourceVersion"`
	Kind     string        `json:"kind,omitempty"`
	Networks []string      `json:"networks"`
	Fields   []shoot.Field `json:"fields,omitempty"`
}

const format = 1

// Load returns what was saved for an object, or false if there is nothing. What cannot be trusted is an error and nothing else.
func (d Dir) Load(ref string) (shoot.Statement, bool, error) {
	if d == "" {
		return shoot.Statement{}, false, nil
	}
	path := d.path(ref)
	data, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return shoot.Statement{}, false, nil
	}
	if err != nil {
		return shoot.Statement{}, false, fmt.Errorf("cache ignored: %w", err)
	}
	s, err := decode(data, ref)
	if err != nil {
		return shoot.Statement{}, false, fmt.Errorf("cache %s ignored: %w", path, err)
	}
	return s, true, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize))
}

func decode(data []byte, ref string) (shoot.Statement, error) {
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return shoot.Statement{}, fmt.Errorf("corrupt: %w", err)
	}
	if sum(e.Content) != e.Sum {
		return shoot.Statement{}, errors.New("corrupt: its checksum does not match")
	}
	var c content
	if err := json.Unmarshal(e.Content, &c); err != nil {
		return shoot.Statement{}, fmt.Errorf("corrupt: %w", err)
	}
	switch {
	case c.Format != format:
		return shoot.Statement{}, fmt.Errorf("foreign: its format is %d, want %d", c.Format, format)
	case c.Ref != ref:
		return shoot.Statement{}, fmt.Errorf("foreign: it is of %s, want %s", c.Ref, ref)
	case c.UID == "" && len(c.Networks) > 0:
		return shoot.Statement{}, errors.New("foreign: it is bound to no UID")
	}
	networks, _, problems := policy.ParseList(strings.Join(c.Networks, ","))
	if len(problems) > 0 {
		return shoot.Statement{}, fmt.Errorf("corrupt: %w", problems[0])
	}
	return shoot.Statement{Ref: c.Ref, UID: c.UID, Version: c.Version,
		Reading: shoot.Reading{Kind: c.Kind, Networks: networks, Fields: c.Fields}}, nil
}

// Save writes a statement so that a reader finds the old one or the new one, whole. If that fails the old one is removed:
// better none than one that names less than is enforced.
func (d Dir) Save(s shoot.Statement) error {
	if d == "" {
		return nil
	}
	c := content{Format: format, Ref: s.Ref, UID: s.UID, Version: s.Version, Kind: s.Reading.Kind, Networks: []string{}, Fields: s.Reading.Fields}
	for _, n := range s.Reading.Networks {
		c.Networks = append(c.Networks, n.String())
	}
	inner, err := json.Marshal(c)
	if err != nil {
		return err
	}
	outer, err := json.Marshal(entry{Sum: sum(inner), Content: inner})
	if err != nil {
		return err
	}
	path := d.path(s.Ref)
	if err := replace(path, outer); err != nil {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return fmt.Errorf("cache not written, so a restart has to wait for the API server: %w", err)
	}
	return nil
}

// replace renames a new file over the old one, with both the file and the rename on disk before it returns.
func replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, bytes.NewReader(data))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// path is the file of an object. Its names are DNS names, so the slash is the one character that a file name cannot have.
func (d Dir) path(ref string) string {
	return filepath.Join(string(d), strings.ReplaceAll(ref, "/", "_")+".json")
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
