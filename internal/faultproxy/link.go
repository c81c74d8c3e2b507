package faultproxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// link is one client's connection and the server's that belongs to it.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	once           sync.Once
	gone           chan struct{} // closed when the link is over
	stranded       bool          // guarded by proxy.mu

	writing sync.Mutex // of the client, message by message
}

// Message types of the protocol.
const (
	typeQuery        = 'Q' // from the client
	typeNotification = 'A' // from the server
)

var errTooShort = errors.New("message shorter than its own length")

// close ends the link; both directions see it.
func (l *link) close() {
	l.once.Do(func() {
		close(l.gone)
		l.client.Close()
		l.server.Close()
	})
}

func (l *link) toServer() {
	defer l.close()
	for typed := false; ; typed = true {
		message, err := readMessage(l.client, typed)
		if !l.pass() || err != nil {
			return
		}
		if typed && message[0] == typeQuery {
			sql := strings.TrimSuffix(string(message[5:]), "\x00")
			if refusal := l.proxy.answer(sql); refusal != nil {
				if l.refuse(refusal) != nil {
					return
				}
				continue
			}
		}
		if _, err := l.server.Write(message); err != nil {
			return
		}
	}
}

func (l *link) toClient() {
	defer l.close()
	for {
		message, err := readMessage(l.server, true)
		if !l.pass() || err != nil {
			return
		}
		if message[0] == typeNotification && l.proxy.takeDrop() {
			continue
		}
		if l.tell(message) != nil {
			return
		}
	}
}

// pass waits while the link is stalled or stranded: nothing goes through, the
// end of the other side neither. It returns false when the link is over.
func (l *link) pass() bool {
	for {
		l.proxy.mu.Lock()
		stranded, stalled := l.stranded, l.proxy.stalled
		l.proxy.mu.Unlock()
		switch {
		case stranded:
			<-l.gone
			return false
		case stalled == nil:
			return true
		}
		select {
		case <-stalled:
		case <-l.gone:
			return false
		}
	}
}

func (l *link) refuse(refusal *pgproto3.ErrorResponse) error {
	answer, err := refusal.Encode(nil)
	if err != nil {
		return err
	}
	answer, err = (&pgproto3.ReadyForQuery{TxStatus: 'I'}).Encode(answer)
	if err != nil {
		return err
	}
	return l.tell(answer)
}

func (l *link) tell(message []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.client.Write(message)
	return err
}

// readMessage reads one whole message: a type unless it is a client's first
// one, a length that counts itself, and the body.
func readMessage(r io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(head[len(head)-4:]))
	if length < 4 {
		return nil, errTooShort
	}
	message := append(head, make([]byte, length-4)...)
	_, err := io.ReadFull(r, message[len(head):])
	return message, err
}
