package apiserver

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/routefence/routefence/test/rig"
)

// relay passes TCP connections on to an address inside a namespace, and misbehaves on demand.
type relay struct {
	listener net.Listener
	to       *rig.Namespace
	target   string
	accepted atomic.Int64

	mu    sync.Mutex
	pairs map[*pair]bool
}

// pair is one connection and its continuation.
type pair struct {
	near, far net.Conn
	// held stops the bytes of both directions without closing anything, as a firewall does that forgot the connection.
	held chan struct{}
	once sync.Once
}

// newRelay listens on loopback of a namespace, or of the test itself.
func newRelay(t rig.T, at, to *rig.Namespace, target string) *relay {
	t.Helper()
	r := &relay{to: to, target: target, pairs: map[*pair]bool{}}
	listen := func() (err error) {
		r.listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}
	err := error(nil)
	if at == nil {
		err = listen()
	} else {
		err = at.Do(listen)
	}
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(r.close)
	go r.serve()
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) serve() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.accepted.Add(1)
		go r.pass(near)
	}
}

func (r *relay) pass(near net.Conn) {
	defer near.Close()
	var far net.Conn
	err := r.to.Do(func() (err error) {
		far, err = net.Dial("tcp", r.target)
		return err
	})
	if err != nil {
		return
	}
	defer far.Close()
	p := &pair{near: near, far: far, held: make(chan struct{})}
	r.mu.Lock()
	r.pairs[p] = true
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(near, far) })
	both.Go(func() { p.copy(far, near) })
	both.Wait()
	r.mu.Lock()
	delete(r.pairs, p)
	r.mu.Unlock()
}

// copy ends the pair when one direction ends, unless the pair is held: then nobody hears of it.
func (p *pair) copy(to, from net.Conn) {
	_, _ = io.Copy(holdable{to, p.held}, from)
	select {
	case <-p.held:
	default:
		p.near.Close()
		p.far.Close()
	}
}

// holdable drops what is written once the pair is held.
type holdable struct {
	net.Conn
	held chan struct{}
}

func (h holdable) Write(b []byte) (int, error) {
	select {
	case <-h.held:
		return len(b), nil
	default:
		return h.Conn.Write(b)
	}
}

// hold lets the connections that stand now die in silence. New ones work.
func (r *relay) hold() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.once.Do(func() { close(p.held) })
	}
	return len(r.pairs)
}

// cut ends the connections that stand now.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.near.Close()
		p.far.Close()
	}
}

func (r *relay) close() {
	r.listener.Close()
	r.cut()
}
