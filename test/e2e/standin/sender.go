package main

import (
	"log"
	"net"
	"strconv"
	"syscall"
	"time"
)

// send stands in for a container that dials nodes from its first instant on: by TCP and UDP, free and bound to eth0. It says when it
// begins, and when somebody answers.
func send(args []string) error {
	rounds := -1
	if len(args) > 1 {
		var err error
		if rounds, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	log.Print("sender: begins")
	reached := false
	for ; rounds != 0; rounds-- {
		for _, device := range []string{"", "eth0"} {
			dialer := net.Dialer{Timeout: 200 * time.Millisecond, Control: func(_, _ string, raw syscall.RawConn) error {
				if device == "" {
					return nil
				}
				var err error
				if failed := raw.Control(func(fd uintptr) { err = syscall.BindToDevice(int(fd), device) }); failed != nil {
					return failed
				}
				return err
			}}
			if c, err := dialer.Dial("udp", args[0]); err == nil {
				_, _ = c.Write([]byte("!")) // refused or not: the seed network counts
				c.Close()
			}
			c, err := dialer.Dial("tcp", args[0])
			if err != nil {
				continue
			}
			c.Close()
			if !reached {
				log.Print("sender: somebody answers")
			}
			reached = true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}
