package main

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// claimName is in the abstract namespace of unix sockets, which belongs to the network namespace and outlives no process.
const claimName = "@routefence"

// claim tells whether this process is the only one that writes the fence of its network namespace. It is no lock: whoever else may
// hold the name, the fence must go up.
type claim struct {
	held net.Listener
}

// alone tries to take the claim, if it is not held yet.
func (c *claim) alone() bool {
	if c.held != nil {
		return true
	}
	l, err := net.Listen("unix", claimName)
	if err == nil {
		c.held = l
	}
	return !errors.Is(err, unix.EADDRINUSE)
}
