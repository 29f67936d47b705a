package rig

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// HammerRate is a rate, in attempts a second over all senders, that leaves a small machine room to do the rest.
const HammerRate = 2000

// Hammer is a crowd of senders that try to reach the node all the time, in every way the rig knows.
type Hammer struct {
	rig       *Rig
	seed, far Count
	stop      chan struct{}
	senders   sync.WaitGroup

	mutex  sync.Mutex
	totals Totals
}

// Totals is what came of a hammer.
type Totals struct {
	// Attempts is how often a sender tried, Refused how often the kernel said no at once, by error in Errors.
	Attempts, Refused uint64
	Errors            map[string]uint64
	// Seed and VPN are what arrived on either side meanwhile.
	Seed, VPN Count
}

func (t Totals) String() string {
	var errs []string
	for _, name := range slices.Sorted(maps.Keys(t.Errors)) {
		errs = append(errs, fmt.Sprintf("%d %s", t.Errors[name], name))
	}
	return fmt.Sprintf("%d attempts, %d refused at once (%s); arrived: seed network %+v, VPN %+v",
		t.Attempts, t.Refused, strings.Join(errs, ", "), t.Seed, t.VPN)
}

// socketsFor is how many packets a UDP sender sends before it opens a new socket: long enough for the kernel to cache a
// route in the socket, short enough to follow a device that was made anew.
const packetsPerSocket = 64

// sender is one member of the crowd: a probe that does not wait for answers.
type sender struct {
	Probe
	// connected tells UDP senders that connect (and cache a route) from those that name the address with each packet.
	connected bool
}

// Hammer starts the senders, from the pod and, if there is one, from the client: TCP and UDP, connected and not, free and
// bound to eth0, to IPv4, IPv6 and 4-in-6 addresses. The rate is in attempts a second, over all of them.
func (r *Rig) Hammer(rate int) *Hammer {
	r.t.Helper()
	h := &Hammer{rig: r, stop: make(chan struct{}), totals: Totals{Errors: map[string]uint64{}}}
	h.seed, h.far = r.SeedCount(), r.VPNCount()
	crowd := r.senders()
	pause := time.Second * time.Duration(len(crowd)) / time.Duration(rate)
	for _, s := range crowd {
		h.senders.Go(func() { h.send(s, pause) })
	}
	return h
}

func (r *Rig) senders() []sender {
	var crowd []sender
	add := func(from *Namespace, to netip.Addr, device string) {
		p := Probe{From: from, Protocol: UDP, To: to, Port: HammerPort, Device: device}
		if device != "" {
			p.Port = BoundPort
		}
		crowd = append(crowd, sender{Probe: p}, sender{Probe: p, connected: true})
		p.Protocol = TCP
		crowd = append(crowd, sender{Probe: p})
	}
	for _, to := range []netip.Addr{Node4, Node6, Mapped(Node4)} {
		add(r.Pod, to, "")
		add(r.Pod, to, "eth0")
		if r.Client != nil {
			add(r.Client, to, "")
		}
	}
	return crowd
}

// send tries again and again until the hammer stops.
func (h *Hammer) send(s sender, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	fd := -1
	defer func() { closeSocket(fd) }()
	for i := 0; ; i++ {
		select {
		case <-h.stop:
			return
		case <-tick.C:
		}
		if s.Protocol == TCP || i%packetsPerSocket == 0 {
			closeSocket(fd)
			fd = -1
		}
		var err error
		if fd, err = s.attempt(fd); err != nil {
			closeSocket(fd)
			fd = -1
		}
		h.note(err)
	}
}

// attempt sends one packet, by a new socket if fd is -1, and returns the socket it used.
func (s sender) attempt(fd int) (int, error) {
	to, _ := sockaddr(s.To, s.Port)
	if fd == -1 {
		if err := s.From.Do(func() (err error) { fd, err = s.open(); return err }); err != nil {
			return -1, err
		}
		if s.Protocol == TCP || s.connected {
			if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
				return fd, err
			}
		}
	}
	switch {
	case s.Protocol == TCP:
		return fd, nil // connecting has sent the packet
	case s.connected:
		_, err := unix.Write(fd, []byte("!"))
		return fd, err
	}
	return fd, unix.Sendto(fd, []byte("!"), 0, to)
}

func closeSocket(fd int) {
	if fd != -1 {
		unix.Close(fd)
	}
}

func (h *Hammer) note(err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.totals.Attempts++
	if err != nil {
		h.totals.Refused++
		h.totals.Errors[Answer{Err: err}.String()]++
	}
}

// Attempts is how often the senders have tried so far.
func (h *Hammer) Attempts() uint64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.totals.Attempts
}

// settle is ample for a packet that was sent to arrive on the other side of a veth pair.
const settle = 50 * time.Millisecond

// Stop ends the senders and returns what they sent and what arrived. The counters must not have been reset meanwhile.
func (h *Hammer) Stop() Totals {
	h.rig.t.Helper()
	close(h.stop)
	h.senders.Wait()
	time.Sleep(settle)
	h.totals.Seed = h.rig.SeedCount().minus(h.seed)
	h.totals.VPN = h.rig.VPNCount().minus(h.far)
	return h.totals
}
