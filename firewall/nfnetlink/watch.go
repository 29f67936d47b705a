package nfnetlink

import (
	"context"
	"errors"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// subscribePause keeps a kernel that refuses the subscription from being asked in a tight loop.
const subscribePause = time.Second

// Run calls wake after changes of the nft ruleset, until ctx ends. What changed is not told: whoever wakes lists afresh. So
// an overflow (ENOBUFS), after which events are missing, is nothing but one more event, and the subscription starts anew.
func (Conn) Run(ctx context.Context, wake func()) {
	for ctx.Err() == nil {
		if err := watchOnce(ctx, wake); err != nil && !errors.Is(err, unix.ENOBUFS) {
			select {
			case <-ctx.Done():
			case <-time.After(subscribePause):
			}
		}
		if ctx.Err() == nil {
			wake()
		}
	}
}

func watchOnce(ctx context.Context, wake func()) error {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	// Whatever changed before this subscription stood is found by the pass that this causes.
	wake()
	for {
		if _, _, err := s.Receive(); err != nil {
			return err
		}
		wake()
	}
}
