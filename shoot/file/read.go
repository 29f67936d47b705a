package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/shoot"
)

// readFile reads a regular file and not more of it than Decode takes. Opening does not block, as the path may turn out to be a
// pipe that nobody writes to.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open it: %w", cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot inspect it: %w", cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is no regular file but %s", info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, shoot.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read it: %w", cause(err))
	}
	return data, nil
}

// cause drops the path from an error, as the message around it names it already.
func cause(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// isMountPoint reports whether something is mounted on the path itself, as Kubernetes does for subPath. Such a file stays
// what it was when the container started, for the mount holds on to the old file. Where the kernel does not tell, it is none.
func isMountPoint(path string) bool {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &s); err != nil {
		return false
	}
	return s.Attributes&s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
}
