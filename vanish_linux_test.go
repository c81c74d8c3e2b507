package fencepost_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// vanishOnSignal makes the process vanish as a host does, at SIGUSR1: nothing
// that is sent to one of its connections is taken or acknowledged any more,
// nothing is sent, and nothing is closed.
func vanishOnSignal(config *pgx.ConnConfig) {
	var mu sync.Mutex
	var conns []*net.TCPConn
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, tcp)
		}
		return conn, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		<-signals
		mu.Lock() // whoever dials waits
		for _, conn := range conns {
			raw, err := conn.SyscallConn()
			if err != nil {
				fmt.Println("cannot vanish:", err)
				return
			}
			_ = raw.Control(func(fd uintptr) { // fails for those that are closed
				// A program for the socket that accepts no packet.
				//lint:ignore SA1019 what is to be used instead is a module of its own
				if err := syscall.AttachLsf(int(fd), []syscall.SockFilter{{Code: syscall.BPF_RET | syscall.BPF_K}}); err != nil {
					fmt.Println("cannot vanish:", err)
				}
			})
		}
		fmt.Println("vanished")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}()
}

// A host vanishes: its connections stay open, and nobody is there. The server
// notices by the keepalives that we have asked it for, after about 25 s, so
// the jobs run elsewhere long before a long lease is over.
func TestAHostThatVanishesIsNoticed(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pg.Options{TCP: true})
	if err := migrate(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Pool(t, server.URL("postgres"))
	enqueue(t, newClient(t, pool, fencepost.Config{}), hundred()...)
	gone := startHolderFor(t, server.TCPURL("postgres"), time.Hour)
	gone.tells(100, "began")
	stays := startHolderFor(t, server.URL("postgres"), time.Hour)
	eventually(t, "both have a lock", func() bool { return live(t, pool) == 2 })

	gone.signal(syscall.SIGUSR1)
	gone.tells(1, "vanished")
	at := time.Now()
	const limit = 60 * time.Second // 25 s to notice, and as for a process that dies; the rest for a busy machine
	for began := 0; began < 100; {
		select {
		case line := <-stays.lines:
			if line != "hearing true" && began == 0 {
				t.Logf("after %v: %s", time.Since(at), line)
			}
			if len(line) > 5 && line[:5] == "began" {
				began++
			}
		case <-time.After(time.Until(at.Add(limit))):
			t.Fatalf("after %v %d of 100 jobs of a host that vanished run again", limit, began)
		}
	}
	t.Logf("100 jobs of a host that vanished run again after %v", time.Since(at))
}
