package faultproxy

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Proxy listens on a free port of 127.0.0.1 and forwards to one server. All
// faults may be set and lifted at any time, from any goroutine.
type Proxy struct {
	network, address string // of the server
	own              string // address of the proxy

	tasks sync.WaitGroup // the accepting goroutine and those of the links

	mu       sync.Mutex
	listener net.Listener // nil: refusing
	links    map[*link]bool
	stalled  chan struct{} // closed by Resume; nil: not stalled
	drop     int           // notifications still to be dropped; negative: all
	onQuery  func(sql string) *pgproto3.ErrorResponse
}

// New starts a proxy to the server that dsn names; it ends with the test.
func New(t testing.TB, dsn string) *Proxy {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{own: listener.Addr().String(), links: make(map[*link]bool)}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	p.accept(listener)
	t.Cleanup(func() {
		p.Refuse()
		p.Cut()
		p.tasks.Wait()
	})
	return p
}

// Through makes config connect through the proxy, without encryption: the
// proxy has to read what it forwards.
func (p *Proxy) Through(config *pgx.ConnConfig) {
	config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", p.own)
	}
	config.TLSConfig = nil
	config.Fallbacks = nil
}

// Stall holds back all bytes in both directions, of open and of new
// connections, and closes nothing: a black hole.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Resume ends Stall; what was held back goes on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Strand turns every open connection into a black hole for good. New ones
// are not affected.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.stranded = true
	}
}

// Cut closes every open connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse makes new connections fail with "connection refused".
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// Accept ends Refuse, at the same address.
func (p *Proxy) Accept(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", p.own)
	if err != nil {
		t.Fatal(err)
	}
	p.accept(listener)
}

// DropNotifications drops the next n notifications on their way to clients,
// and all of them if n is negative.
func (p *Proxy) DropNotifications(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = n
}

// OnQuery calls f with each statement that a client sends by the simple query
// protocol, before it is forwarded. f may block to delay it. If f returns an
// error, the client gets that in place of the server's answer.
func (p *Proxy) OnQuery(f func(sql string) *pgproto3.ErrorResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onQuery = f
}

func (p *Proxy) accept(listener net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = listener
	p.tasks.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // Refuse has closed it
			}
			p.tasks.Go(func() { p.serve(listener, client) })
		}
	})
}

// serve forwards for one client until either side ends.
func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	defer client.Close()
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		return // the client sees its connection end, as it would without us
	}
	l := &link{proxy: p, client: client, server: server, gone: make(chan struct{})}
	defer l.close()

	p.mu.Lock()
	late := p.listener != listener // accepted just before Refuse: do not outlive a Cut that follows
	if !late {
		p.links[l] = true
	}
	p.mu.Unlock()
	if late {
		return
	}

	var back sync.WaitGroup
	back.Go(l.toClient)
	l.toServer()
	back.Wait()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// takeDrop says whether to drop the notification at hand.
func (p *Proxy) takeDrop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drop > 0 {
		p.drop--
		return true
	}
	return p.drop < 0
}

// answer asks the test what to answer to sql; nil: let the server answer.
func (p *Proxy) answer(sql string) *pgproto3.ErrorResponse {
	p.mu.Lock()
	onQuery := p.onQuery
	p.mu.Unlock()
	if onQuery == nil {
		return nil
	}
	return onQuery(sql)
}
