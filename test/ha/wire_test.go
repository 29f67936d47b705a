//go:build vm

package ha

import (
	"os"
	"sync"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"golang.org/x/sys/unix"
)

// wire carries frames between taps of the same name in two namespaces, in place of two OpenVPN processes and the
// network between them. A tap has a carrier as long as somebody holds it open.
type wire struct {
	ends [2]*os.File
	both sync.WaitGroup
}

func newWire(t *testing.T, tap string, here, there *rig.Namespace) *wire {
	t.Helper()
	w := new(wire)
	for i, n := range []*rig.Namespace{here, there} {
		err := n.Do(func() (err error) { w.ends[i], err = openTap(tap); return err })
		if err != nil {
			t.Fatalf("open %s in %s: %v", tap, n.Name, err)
		}
	}
	for i := range w.ends {
		w.both.Go(func() { carry(w.ends[i], w.ends[1-i]) })
	}
	t.Cleanup(w.cut)
	return w
}

// openTap attaches to a tap that exists; it runs on the namespace's thread.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil // non-blocking, so that closing it ends a read
}

// carry copies frames until one of the ends is closed. A frame that the other side does not take is lost, as on any wire.
func carry(from, to *os.File) {
	frame := make([]byte, 1<<16)
	for {
		n, err := from.Read(frame)
		if err != nil {
			return
		}
		_, _ = to.Write(frame[:n])
	}
}

// cut takes the carrier from both ends. Cutting it again changes nothing.
func (w *wire) cut() {
	for _, end := range w.ends {
		end.Close()
	}
	w.both.Wait()
}
