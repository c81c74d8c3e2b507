// Package filter is the part of the bad network for which there is no library:
// a proxy that holds bytes back in one direction and loses none of them, and
// that drops, doubles or delays single notifications. It always reads, also
// while it holds or while its client is frozen, so that what is behind it is
// never blocked.
package filter

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one of the two ways through a proxy.
type Direction int

// The ways: from the client to the server, and back.
const (
	Up Direction = iota
	Down
)

// Fate is what becomes of a notification.
type Fate struct {
	Copies int           // 0: it is dropped
	Late   time.Duration // how long each is held back, while all else goes on
}

// Pass is the fate of a notification when nothing is wrong.
var Pass = Fate{Copies: 1}

// Proxy forwards from a port of 127.0.0.1 to an address. All its methods may be
// called at any time, from any goroutine.
type Proxy struct {
	listener net.Listener
	tasks    sync.WaitGroup // all goroutines

	mu       sync.Mutex
	closed   bool
	network  string // of the address that new connections lead to; "": nowhere
	address  string
	held     [2]chan struct{} // closed by Release; nil: not held
	abrupt   bool
	fate     func(channel, payload string) Fate
	links    map[*link]bool
	withheld int
}

// Listen starts a proxy that leads nowhere yet: see Aim.
func Listen() (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{listener: listener, links: make(map[*link]bool)}
	p.tasks.Go(p.accept)
	return p, nil
}

// Port is where it listens, on 127.0.0.1.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Aim says where new connections lead to: as for net.Dial.
func (p *Proxy) Aim(network, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.address = network, address
}

// Hold keeps back all bytes of one direction, the end of a connection too, of
// connections that are open and of new ones. Nobody is told anything.
func (p *Proxy) Hold(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[d] == nil {
		p.held[d] = make(chan struct{})
	}
}

// Release lets go on what was held back.
func (p *Proxy) Release(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[d] != nil {
		close(p.held[d])
		p.held[d] = nil
	}
}

// Cut resets all open connections. What is held back is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Abrupt says whether a connection whose server's end is gone is reset, in
// place of being ended in order.
func (p *Proxy) Abrupt(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abrupt = yes
}

// Bells has the fate of each notification decided by a func, which must be
// quick; nil: all pass.
func (p *Proxy) Bells(fate func(channel, payload string) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate = fate
}

// Withheld counts the notifications that did not simply pass.
func (p *Proxy) Withheld() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.withheld
}

// Links counts the open connections.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close ends all, and waits for it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	p.Cut()
	p.tasks.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // Close has closed it
		}
		p.tasks.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve forwards for one client until either side ends.
func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	network, address := p.network, p.address
	p.mu.Unlock()
	server, err := net.Dial(network, address)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close() // the client is refused, a moment late
		return
	}
	l := newLink(p, client, server)
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.links[l] = true
	}
	p.mu.Unlock()
	if closed {
		l.reset()
		return
	}
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// gate returns what to wait for before anything goes in that direction; nil:
// nothing.
func (p *Proxy) gate(d Direction) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[d]
}

func (p *Proxy) isAbrupt() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.abrupt
}

// decide asks for the fate of a notification.
func (p *Proxy) decide(channel, payload string) Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fate == nil {
		return Pass
	}
	fate := p.fate(channel, payload)
	if fate != Pass {
		p.withheld++
	}
	return fate
}
