package rtnl

import (
	"context"
	"errors"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// groups are the multicast groups whose messages can change where a packet goes.
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
}

// Events is a subscription to changes of the routing.
type Events struct {
	socket *nl.NetlinkSocket
}

// Subscribe opens the subscription in the calling thread's network namespace.
func Subscribe() (*Events, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, err
	}
	return &Events{socket: s}, nil
}

// Run calls wake whenever something may have changed, until ctx ends. What changed is not told: a link that goes down takes its
// IPv4 routes along without a message for each, and a full buffer loses messages (ENOBUFS), so a message is never more
// than a reason to look.
func (e *Events) Run(ctx context.Context, wake func()) {
	stop := context.AfterFunc(ctx, e.socket.Close)
	defer stop()
	for ctx.Err() == nil {
		_, _, err := e.socket.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			// Not a loss of messages but of the socket; the resync still sees everything. Do not spin.
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		wake()
	}
}
