package peer_test

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencepost-go/fencepost/internal/peer"
)

// A server that goes away may answer a query with nothing at all. That is an
// error, and no panic.
func TestAServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serveNothing(listener) }()

	config, err := pgx.ParseConfig("postgres://nobody@" + listener.Addr().String() + "/nothing?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	peer.PreferPrimary(config)
	if _, err := pgx.ConnectConfig(t.Context(), config); err == nil || !strings.Contains(err.Error(), "does not say whether it takes writes") {
		t.Errorf("it says %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// serveNothing takes one client in and answers its first query without a row.
func serveNothing(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return err
	}
	server.Send(&pgproto3.AuthenticationOk{})
	server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := server.Flush(); err != nil {
		return err
	}
	if _, err := server.Receive(); err != nil {
		return err
	}
	server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return server.Flush()
}
