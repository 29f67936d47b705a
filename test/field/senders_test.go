package field

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"golang.org/x/sys/unix"
)

const (
	// vpnGroup is the group of the process whose packets Gardener's rules translate.
	vpnGroup   = 31415
	otherGroup = 4711
	// quick is at once for a caller, on a machine that may be busy.
	quick = 500 * time.Millisecond
)

// senders dial under a group id. The kernel's owner match looks at the one that the thread had when it made the socket,
// so the bench's thread in the pod puts it on for that moment. One sender at a time: they share the thread.
type senders struct {
	t     *testing.T
	r     *rig.Rig
	mutex sync.Mutex
}

func newSenders(t *testing.T, r *rig.Rig) *senders { return &senders{t: t, r: r} }

// dial connects by TCP.
func (s *senders) dial(group int, to netip.Addr, device string, patience time.Duration) rig.Answer {
	return s.probe(group, rig.Probe{Protocol: rig.TCP, To: to, Device: device, Timeout: patience})[0]
}

func (s *senders) probe(group int, probes ...rig.Probe) []rig.Answer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.become(group)
	defer s.become(0)
	return s.r.ProbeAll(probes)
}

func (s *senders) become(group int) {
	if err := s.r.Pod.Do(func() error { return unix.Setfsgid(group) }); err != nil {
		s.t.Errorf("put on group %d: %v", group, err)
	}
}

// stream is a sender that dials all the time.
type stream struct {
	t    *testing.T
	stop chan struct{}
	done chan struct{}

	dialled int
	cut     []rig.Answer
}

// stream starts a stream; expectNeverCut ends it.
func (s *senders) stream(group int, to netip.Addr) *stream {
	st := &stream{t: s.t, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(st.done)
		for {
			select {
			case <-st.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			a := s.dial(group, to, "", ample)
			st.dialled++
			if a.From != rig.AnswerVPN {
				st.cut = append(st.cut, a)
			}
		}
	}()
	return st
}

func (st *stream) expectNeverCut(when string) {
	st.t.Helper()
	close(st.stop)
	<-st.done
	if len(st.cut) > 0 || st.dialled == 0 {
		st.t.Errorf("%s: %d of %d connections failed, the first with %v", when, len(st.cut), st.dialled, st.cut)
	}
	st.t.Logf("%d connections %s", st.dialled, when)
}
