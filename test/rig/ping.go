package rig

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// farHops is the hop limit with which the far end of the VPN answers; the seed network keeps the kernel's 64.
const farHops = 32

// ping sends an echo request by a connected ping socket (the kernel adds identifier and checksum) and tells by the hop
// limit of the answer who sent it.
func (p Probe) ping(fd int, deadline time.Time) (string, error) {
	request := []byte{8, 0, 0, 0, 0, 0, 0, 1}
	level, option := unix.IPPROTO_IP, unix.IP_RECVTTL
	if !p.To.Is4() {
		request[0] = 128
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return "", fmt.Errorf("ask for hop limits: %w", err)
	}
	if _, err := unix.Write(fd, request); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	hops := 0
	_, err := receive(fd, deadline, func() (n int, err error) {
		hops, err = receiveHops(fd)
		return 0, err
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("receive: %w", err)
	case hops <= farHops:
		return AnswerVPN, nil
	}
	return AnswerNet, nil
}

func receiveHops(fd int) (int, error) {
	data, control := make([]byte, 64), make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(fd, data, control, 0)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return 0, fmt.Errorf("parse control messages: %w", err)
	}
	for _, m := range messages {
		ttl := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL
		limit := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT
		if (ttl || limit) && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data)), nil
		}
	}
	return 0, fmt.Errorf("the answer came without a hop limit")
}
