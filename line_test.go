package fencepost

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

// A connection of our own whose set-up fails is closed again (B45).
func TestDialClosesWhatItOpened(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, "no tables", func(context.Context, string) error { return nil })
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	noRights := errors.New("no rights")
	var opened []*pgx.Conn
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		opened = append(opened, conn)
		return noRights
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	client, err := New(pool, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, _, err := client.dial(t.Context(), "exchange"); !errors.Is(err, noRights) || !errors.Is(err, claim.ErrTryAgain) {
			t.Fatalf("dial: %v", err)
		}
	}
	left := 0
	for _, conn := range opened {
		if !conn.IsClosed() {
			left++
		}
	}
	if len(opened) != 50 || left > 0 {
		t.Errorf("%d of %d connections are left open, want none of 50", left, len(opened))
	}
}

// A connection that we have closed ourselves, such as the keeper's when it
// rests, is made again at once: only what has failed is tried again at a pace.
func TestALineThatRestedIsDialledAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t, "no tables", func(context.Context, string) error { return nil })
	client, err := New(pgtest.Pool(t, dsn), Config{})
	if err != nil {
		t.Fatal(err)
	}
	line := client.newLine("keeper")
	defer line.close()
	begin := time.Now()
	for range 30 {
		if err := line.use(t.Context(), func(conn *pgx.Conn) error { return conn.Ping(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		line.close()
	}
	// At a pace it would be 200 ms for each but the first, 5.8 s at least.
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("30 connections in %v", took)
	}
}
