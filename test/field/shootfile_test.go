package field

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// shootFile is a list of networks that is replaced as a whole.
type shootFile struct {
	t    *testing.T
	path string
}

func newShootFile(t *testing.T, r *rig.Rig) shootFile {
	t.Helper()
	dir := filepath.Join(r.Dir, "shoot")
	must(t, os.Mkdir(dir, 0o700))
	return shootFile{t, filepath.Join(dir, "networks")}
}

// write names networks.
func (f shootFile) write(networks ...string) {
	f.t.Helper()
	f.put(strings.Join(networks, "\n") + "\n")
}

// put replaces the file by a text.
func (f shootFile) put(text string) {
	f.t.Helper()
	must(f.t, os.WriteFile(f.path+".new", []byte(text), 0o600))
	must(f.t, os.Rename(f.path+".new", f.path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
