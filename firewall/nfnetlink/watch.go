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

// Run calls wake after changes of the nft ruleset and of our sets, until ctx ends. What changed is not told: whoever wakes lists afresh.
// So an overflow (ENOBUFS), after which events are missing, is nothing but one more event, and the subscription starts anew.
func (Conn) Run(ctx context.Context, wake func()) {
	if s, err := nl.Subscribe(unix.NETLINK_NETFILTER); err == nil {
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			watchSets(ctx, s, wake)
		}()
		defer func() {
			<-watched
			s.Close()
		}()
	}
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

// setPoll is how often our sets are looked at. The kernel makes no event of a change to a set, and behind a set that somebody emptied
// the rules stand and match nothing. Ten thousand members take 2 ms. A kernel without IP sets looks for a module each time it is asked.
const (
	setPoll     = time.Second
	setPollRare = 30 * time.Second
)

func watchSets(ctx context.Context, s *nl.NetlinkSocket, wake func()) {
	last, err := digest(s)
	for {
		pause := setPoll
		if unsupported(err) {
			pause = setPollRare
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		var now uint64
		if now, err = digest(s); now != last {
			last = now
			wake()
		}
	}
}
