// Command standin is what stands in for the parts of a seed and a shoot that are not worth their size in a test: one static program,
// also the only one in the image of the pods.
//
//	standin pause                                     the container that holds a pod's namespaces
//	standin banner PORT                               says something to whoever connects, as sshd does on port 22
//	standin metrics NODE                              metrics-server's API on 8443, one line of HTTP on 8080
//	standin sender ADDRESS [TIMES]                    tries to reach an address in all ways, for ever or so many times
//	standin gateway HTTPS-TARGET VPN-TARGET           istio-ingressgateway: 443 passed through, 8132 for the VPN
//	standin connect CERT KEY CA                       envoy of vpn-seed-server: HTTP CONNECT on 9443 with client certificates
//	standin machine DIR KUBELET [KUBELET-ARGUMENT...] the first process of a shoot's machine
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	roles := map[string]struct {
		arguments int
		run       func(args []string) error
	}{
		"pause":   {0, pause},
		"banner":  {1, banner},
		"metrics": {1, metrics},
		"sender":  {1, send},
		"gateway": {2, gateway},
		"connect": {3, connect},
		"machine": {2, machine},
	}
	if len(os.Args) < 2 {
		log.Fatal("usage: standin ROLE ...")
	}
	role, known := roles[os.Args[1]]
	if !known || len(os.Args)-2 < role.arguments {
		log.Fatalf("usage: standin ROLE ...: got %q", os.Args[1:])
	}
	if err := role.run(slices.Clone(os.Args[2:])); err != nil {
		log.Fatalf("%s: %v", os.Args[1], err)
	}
}

// pause waits for the end. As the first process of its namespace it must ask for the signal, or the kernel drops it.
func pause([]string) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	return nil
}

func banner(args []string) error {
	l, err := net.Listen("tcp", ":"+args[0])
	if err != nil {
		return err
	}
	return serve(l, func(c net.Conn) {
		defer c.Close()
		fmt.Fprintln(c, "SSH-2.0-standin")
	})
}
