package filter

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// link is one client's connection and the server's that belongs to it.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	server net.Conn
	once   sync.Once
	gone   chan struct{} // closed when the link is over
}

func newLink(p *Proxy, client *net.TCPConn, server net.Conn) *link {
	return &link{proxy: p, client: client, server: server, gone: make(chan struct{})}
}

// run returns when the link is over.
func (l *link) run() {
	up, down := newQueue(), newQueue()
	var tasks sync.WaitGroup
	tasks.Go(func() { l.readClient(up) })
	tasks.Go(func() { l.readServer(down) })
	tasks.Go(func() { l.write(up, l.server, Up) })
	tasks.Go(func() { l.write(down, l.client, Down) })
	tasks.Wait()
}

func (l *link) close() {
	abrupt := l.proxy.isAbrupt() // before once: reset is called under the proxy's mutex
	l.once.Do(func() {
		if abrupt {
			_ = l.client.SetLinger(0)
		}
		l.client.Close()
		l.server.Close()
		close(l.gone)
	})
}

// reset is close without regard to what is on its way. The proxy's mutex may be
// held.
func (l *link) reset() {
	l.once.Do(func() {
		_ = l.client.SetLinger(0)
		if server, ok := l.server.(*net.TCPConn); ok {
			_ = server.SetLinger(0)
		}
		l.client.Close()
		l.server.Close()
		close(l.gone)
	})
}

func (l *link) readClient(to *queue) {
	defer to.end()
	for {
		part := make([]byte, 16<<10)
		n, err := l.client.Read(part)
		to.push(part[:n])
		if err != nil {
			return
		}
	}
}

func (l *link) readServer(to *queue) {
	defer to.end()
	for {
		message, err := readMessage(l.server)
		if err != nil {
			to.push(message) // the part that came
			return
		}
		fate := Pass
		if message[0] == notification {
			var n pgproto3.NotificationResponse
			if n.Decode(message[head:]) == nil {
				fate = l.proxy.decide(n.Channel, n.Payload)
			}
		}
		for range fate.Copies {
			if fate.Late == 0 {
				to.push(message)
			} else {
				time.AfterFunc(fate.Late, func() { to.push(message) }) // nothing, if the link is over
			}
		}
	}
}

// write sends what the queue has, unless it is held back, and ends the link
// when the queue ends.
func (l *link) write(from *queue, to net.Conn, d Direction) {
	defer l.close()
	for {
		part, more := from.pop(l.gone)
		for gate := l.proxy.gate(d); gate != nil; gate = l.proxy.gate(d) {
			select {
			case <-gate:
			case <-l.gone:
				return
			}
		}
		if !more {
			return
		}
		if _, err := to.Write(part); err != nil {
			return
		}
	}
}

const (
	notification = 'A'
	head         = 5 // bytes: a type, and a length that counts itself
)

var errTooShort = errors.New("message shorter than its own length")

// readMessage reads one whole message of a server. With an error it returns
// what has come of it. No encryption is ever asked for, so that there is always
// a type.
func readMessage(r io.Reader) ([]byte, error) {
	message := make([]byte, head)
	n, err := io.ReadFull(r, message)
	if err != nil {
		return message[:n], err
	}
	length := int(binary.BigEndian.Uint32(message[1:]))
	if length < head-1 {
		return message, errTooShort
	}
	message = append(message, make([]byte, length-(head-1))...)
	n, err = io.ReadFull(r, message[head:])
	return message[:head+n], err
}
