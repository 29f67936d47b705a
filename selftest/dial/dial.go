// Package dial makes the attempts of a selftest: one socket, one try, and what the kernel said to it.
package dial

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/selftest"
)

// patience is how long a TCP connection may take. It is shorter than the kernel's first retransmission, so that an attempt is one SYN.
const patience = 500 * time.Millisecond

// Try makes an attempt from the network namespace of the calling thread.
func Try(a selftest.Attempt) selftest.Outcome {
	fd, err := open(a)
	if err != nil {
		return selftest.Outcome{Step: selftest.Untried, Error: name(err)}
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, sockaddr(a))
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return selftest.Outcome{Step: early(err), Error: name(err)}
	}
	o := selftest.Outcome{Source: source(fd)}
	if a.Protocol == selftest.TCP {
		o.Step, err = await(fd)
	} else {
		o.Step, err = send(fd)
	}
	if err != nil {
		o.Error = name(err)
	}
	return o
}

func open(a selftest.Attempt) (int, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if a.Addr.Is6() {
		family = unix.AF_INET6
	}
	if a.Protocol == selftest.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if a.Interface != "" {
		err = unix.BindToDevice(fd, a.Interface)
	}
	if err == nil && a.Protocol == selftest.TCP {
		// A connection that comes about after all ends with a reset: no FINs and retransmissions follow.
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func sockaddr(a selftest.Attempt) unix.Sockaddr {
	port := int(a.Protocol.Port())
	if a.Addr.Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr.As16(), Port: port}
	}
	return &unix.SockaddrInet4{Addr: a.Addr.As4(), Port: port}
}

// unrouted are the errors of a failed route look-up: those of blackhole, unreachable and prohibit routes, and of no route at all.
var unrouted = []unix.Errno{unix.EINVAL, unix.EHOSTUNREACH, unix.EACCES, unix.ENETUNREACH, unix.ENETDOWN}

// early tells apart the errors that connect returns at once.
func early(err error) selftest.Step {
	for _, errno := range unrouted {
		if errors.Is(err, errno) {
			return selftest.Unrouted
		}
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPERM) {
		return selftest.Refused
	}
	return selftest.Untried
}

// await waits for a TCP connection to come about or not.
func await(fd int) (selftest.Step, error) {
	for deadline := time.Now().Add(patience); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return selftest.Unanswered, nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return selftest.Untried, err
		}
		if n > 0 {
			break
		}
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return selftest.Untried, err
	case errno != 0:
		return selftest.Refused, unix.Errno(errno)
	}
	return selftest.Connected, nil
}

// send sends a datagram. The kernel tells the sender at once if one of its rules stopped it (EPERM).
func send(fd int) (selftest.Step, error) {
	if _, err := unix.Write(fd, []byte("routefence selftest")); err != nil {
		return selftest.Refused, err
	}
	return selftest.Sent, nil
}

// source returns the address that the kernel chose, or none.
func source(fd int) netip.Addr {
	own, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	var addr netip.Addr
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		addr = netip.AddrFrom4(own.Addr)
	case *unix.SockaddrInet6:
		addr = netip.AddrFrom16(own.Addr)
	}
	if !addr.IsValid() || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

func name(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}
