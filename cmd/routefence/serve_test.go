package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network, for tests with a clock of their own.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns the client's end of a connection; without a server that takes it, the other end stays where it is.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	go func() {
		select {
		case p.dialed <- server:
		case <-p.closed:
		}
	}()
	return client
}

// withServer runs what serve runs, on pipes.
func withServer(t *testing.T, f func(*pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		s := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
		ended := make(chan error)
		go func() { ended <- s.Serve(limited(p)) }()
		f(p)
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// ask makes a request that leaves the connection open, and returns whether it was answered within a second.
func ask(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}

// ended returns whether the server closes a connection within a time.
func ended(c net.Conn, within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, c)
	return err == nil
}

func TestIdleConnectionsEnd(t *testing.T) {
	withServer(t, func(p *pipes) {
		c := p.dial()
		defer c.Close()
		if !ask(c) {
			t.Fatal("no answer")
		}
		if !ended(c, 61*time.Second) {
			t.Error("a connection is kept although nobody asks anything")
		}
	})
}

func TestSlowRequestsEnd(t *testing.T) {
	withServer(t, func(p *pipes) {
		c := p.dial()
		defer c.Close()
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if !ended(c, 11*time.Second) {
			t.Error("a connection is kept although the request does not end")
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	withServer(t, func(p *pipes) {
		var open []net.Conn
		for range maxConnections {
			c := p.dial()
			defer c.Close()
			if !ask(c) {
				t.Fatal("no answer")
			}
			open = append(open, c)
		}
		extra := p.dial()
		defer extra.Close()
		if ask(extra) {
			t.Error("one connection too many is served")
		}
		_ = open[0].Close()
		if !ask(extra) {
			t.Error("no answer although a connection has ended")
		}
	})
}
