package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// dialPatience is the connect_timeout of Gardener's envoy.
const dialPatience = 20 * time.Second

func serve(l net.Listener, handle func(net.Conn)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go handle(c)
	}
}

// gateway passes 443 through to the API server, and what says CONNECT with the header of a reversed VPN on 8132 to OpenVPN.
func gateway(args []string) error {
	https, err := net.Listen("tcp4", ":443")
	if err != nil {
		return err
	}
	vpn, err := net.Listen("tcp4", ":8132")
	if err != nil {
		return err
	}
	go func() {
		log.Fatal(serve(vpn, func(c net.Conn) {
			tunnel(c, func(r *http.Request) string {
				if r.Header.Get("Reversed-VPN") == "" {
					return ""
				}
				return args[1]
			})
		}))
	}()
	return serve(https, func(c net.Conn) {
		up, err := net.DialTimeout("tcp4", args[0], dialPatience)
		if err != nil {
			log.Printf("dial %s: %v", args[0], err)
			c.Close()
			return
		}
		splice(c, c, up)
	})
}

// connect is the proxy that an EgressSelectorConfiguration names.
func connect(args []string) error {
	pair, err := tls.LoadX509KeyPair(args[0], args[1])
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	l, err := tls.Listen("tcp4", ":9443", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})
	if err != nil {
		return err
	}
	return serve(l, func(c net.Conn) { tunnel(c, func(r *http.Request) string { return r.Host }) })
}

// tunnel answers one CONNECT; to says where it leads.
func tunnel(c net.Conn, to func(*http.Request) string) {
	reader := bufio.NewReader(c)
	request, err := http.ReadRequest(reader)
	if err != nil {
		c.Close()
		return
	}
	target := to(request)
	if request.Method != http.MethodConnect || target == "" {
		refuse(c, http.StatusMethodNotAllowed)
		return
	}
	begin := time.Now()
	up, err := net.DialTimeout("tcp", target, dialPatience)
	if err != nil {
		log.Printf("CONNECT %s failed after %v: %v", target, time.Since(begin).Round(time.Millisecond), err)
		refuse(c, http.StatusServiceUnavailable)
		return
	}
	log.Printf("CONNECT %s: %v to %v", target, up.LocalAddr(), up.RemoteAddr())
	fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
	splice(c, reader, up)
}

func refuse(c net.Conn, status int) {
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
	c.Close()
}

// splice copies both ways until both ends are done, or one fails.
func splice(near net.Conn, from io.Reader, far net.Conn) {
	var both sync.WaitGroup
	one := func(to net.Conn, from io.Reader) {
		if _, err := io.Copy(to, from); err != nil {
			near.Close()
			far.Close()
			return
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the other end may be gone already
		}
	}
	both.Go(func() { one(far, from) })
	both.Go(func() { one(near, far) })
	both.Wait()
	near.Close()
	far.Close()
}
