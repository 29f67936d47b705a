package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Protocol is what a probe speaks.
type Protocol string

// The protocols of probes.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp"
)

// ErrNoAnswer is the outcome of a probe that was sent and to which nothing came back in time.
var ErrNoAnswer = errors.New("no answer")

// DefaultTimeout is how long a probe waits. On a busy machine an answer may take longer: give probes that must be answered
// a Timeout that is ample, they will not use it up.
const DefaultTimeout = 700 * time.Millisecond

// Probe is one attempt to reach an address.
type Probe struct {
	// From is where the probe starts. Default: the pod.
	From     *Namespace
	Protocol Protocol
	// To is the address; a 4-in-6 one (see Mapped) is dialled from an IPv6 socket.
	To netip.Addr
	// Port defaults to the kubelet's. ICMP has none.
	Port int
	// Device binds the socket to an interface (SO_BINDTODEVICE), Mark sets its mark (SO_MARK).
	Device string
	Mark   int
	// Source is the address to send from. Default: the kernel's choice.
	Source netip.Addr
	// Timeout defaults to DefaultTimeout.
	Timeout time.Duration
}

// Answer is the outcome of a probe.
type Answer struct {
	// From is AnswerNet or AnswerVPN, empty if Err is set.
	From string
	// Err holds the kernel's error number, or is ErrNoAnswer.
	Err  error
	Took time.Duration
}

// String is the side that answered or the reason why none did, in a few letters.
func (a Answer) String() string {
	var errno unix.Errno
	switch {
	case a.Err == nil:
		return a.From
	case errors.As(a.Err, &errno):
		return unix.ErrnoName(errno)
	}
	return a.Err.Error()
}

func (p Probe) String() string {
	s := fmt.Sprintf("%s to %s", p.Protocol, p.To)
	if p.From != nil {
		s += " from " + p.From.Name
	}
	if p.Source.IsValid() {
		s += " as " + p.Source.String()
	}
	if p.Device != "" {
		s += " bound to " + p.Device
	}
	if p.Mark != 0 {
		s += fmt.Sprintf(" with mark %#x", p.Mark)
	}
	return s
}

// Probe carries out a probe. It never ends the test: what came of it is for the caller to judge. It may be called from
// any goroutine.
func (r *Rig) Probe(p Probe) Answer {
	if p.From == nil {
		p.From = r.Pod
	}
	if p.Port == 0 {
		p.Port = Port
	}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	begin := time.Now()
	from, err := p.carryOut(begin.Add(p.Timeout))
	return Answer{From: from, Err: err, Took: time.Since(begin)}
}

// ProbeAll carries out probes at the same time, as most of them only wait, and returns the answers in the order of the
// probes.
func (r *Rig) ProbeAll(probes []Probe) []Answer {
	answers := make([]Answer, len(probes))
	var all sync.WaitGroup
	for i, p := range probes {
		all.Go(func() { answers[i] = r.Probe(p) })
	}
	all.Wait()
	return answers
}

func (p Probe) carryOut(deadline time.Time) (string, error) {
	fd := -1
	if err := p.From.Do(func() (err error) { fd, err = p.open(); return err }); err != nil {
		return "", err
	}
	defer unix.Close(fd)
	to, _ := sockaddr(p.To, p.Port)
	if err := connect(fd, to, deadline); err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	switch p.Protocol {
	case ICMP:
		return p.ping(fd, deadline)
	case UDP:
		if _, err := unix.Write(fd, []byte("?")); err != nil {
			return "", fmt.Errorf("send: %w", err)
		}
	}
	buffer := make([]byte, 16)
	n, err := receive(fd, deadline, func() (int, error) { return unix.Read(fd, buffer) })
	if err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	return string(buffer[:n]), nil
}

// open makes the socket; it runs on the namespace's thread.
func (p Probe) open() (int, error) {
	_, family := sockaddr(p.To, p.Port)
	kind, protocol := unix.SOCK_STREAM, 0
	switch {
	case p.Protocol == UDP:
		kind = unix.SOCK_DGRAM
	case p.Protocol == ICMP && family == unix.AF_INET:
		kind, protocol = unix.SOCK_DGRAM, unix.IPPROTO_ICMP
	case p.Protocol == ICMP:
		kind, protocol = unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("%s socket: %w", p.Protocol, err)
	}
	if err := p.dress(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (p Probe) dress(fd int) error {
	if p.Device != "" {
		if err := unix.BindToDevice(fd, p.Device); err != nil {
			return fmt.Errorf("bind to device %s: %w", p.Device, err)
		}
	}
	if p.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, p.Mark); err != nil {
			return fmt.Errorf("set mark %#x: %w", p.Mark, err)
		}
	}
	if p.Source.IsValid() {
		from, _ := sockaddr(p.Source, 0)
		if err := unix.Bind(fd, from); err != nil {
			return fmt.Errorf("bind to %s: %w", p.Source, err)
		}
	}
	if p.Protocol == TCP {
		// Close with a reset: neither FINs nor retransmissions follow, which would blur the counts.
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	return nil
}

func connect(fd int, to unix.Sockaddr, deadline time.Time) error {
	err := unix.Connect(fd, to)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	if err := await(fd, unix.POLLOUT, deadline); err != nil {
		return err
	}
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && number != 0 {
		err = unix.Errno(number)
	}
	return err
}

// receive reads as soon as there is something.
func receive(fd int, deadline time.Time, read func() (int, error)) (int, error) {
	if err := await(fd, unix.POLLIN, deadline); err != nil {
		return 0, err
	}
	return read()
}

// await waits until a socket is ready or has an error.
func await(fd int, events int16, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return ErrNoAnswer
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(left.Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("poll: %w", err)
		case n > 0:
			return nil
		}
	}
}
