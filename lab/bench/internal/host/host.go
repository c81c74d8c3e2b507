// Package host holds the server that the queues are measured on, and what is
// read from it: its own processor time, its WAL, its commits, its statements.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
)

// Host is a durable server of our own: fsync and synchronous_commit are on,
// everything else is as PostgreSQL ships it but for what Settings says.
type Host struct {
	server *pg.Server
	made   atomic.Int64
}

// Settings differ from the defaults of PostgreSQL: room for the data in memory,
// checkpoints that do not fall into a round, and a count of all statements.
var Settings = map[string]string{
	"shared_buffers":           "1GB",
	"max_wal_size":             "8GB",
	"checkpoint_timeout":       "30min",
	"max_connections":          "300",
	"shared_preload_libraries": "pg_stat_statements",
}

// Start starts the server. major 0: the newest that is found.
func Start(ctx context.Context, major int, log io.Writer) (*Host, error) {
	server, err := pg.Start(ctx, pg.Options{Major: major, Durable: true, Settings: Settings, Log: log})
	if err != nil {
		return nil, err
	}
	h := &Host{server: server}
	if err := h.admin(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE EXTENSION pg_stat_statements")
		return err
	}); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return h, nil
}

// Stop stops the server and removes its data.
func (h *Host) Stop() error { return h.server.Stop() }

// Major version of the server.
func (h *Host) Major() int { return h.server.Major() }

// PID of the server's main process.
func (h *Host) PID() int { return h.server.PID() }

// Fresh makes an empty database and returns its connection string. drop removes
// it again, whoever is still connected.
func (h *Host) Fresh(ctx context.Context) (dsn string, drop func() error, err error) {
	name := fmt.Sprintf("bench_%d", h.made.Add(1))
	if err := h.admin(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE DATABASE "+name+" STRATEGY file_copy")
		return err
	}); err != nil {
		return "", nil, err
	}
	return h.server.URL(name), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return h.admin(ctx, func(c *pgx.Conn) error {
			_, err := c.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
			return err
		})
	}, nil
}

// Settle makes a round begin from the same state: a checkpoint has been made,
// and no old one is under way.
func (h *Host) Settle(ctx context.Context) error {
	return h.admin(ctx, func(c *pgx.Conn) error { _, err := c.Exec(ctx, "CHECKPOINT"); return err })
}

func (h *Host) admin(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, h.server.URL("postgres"))
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// ProbeCommits says how many small commits a second one connection gets out of
// the disk right now, over about a quarter of a second.
func (h *Host) ProbeCommits(ctx context.Context) (rate float64, err error) {
	err = h.admin(ctx, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "CREATE TABLE IF NOT EXISTS probe (n int)"); err != nil {
			return err
		}
		began, n := time.Now(), 0
		for ; time.Since(began) < 250*time.Millisecond; n++ {
			if _, err := c.Exec(ctx, "INSERT INTO probe VALUES (1)"); err != nil {
				return err
			}
		}
		rate = float64(n) / time.Since(began).Seconds()
		_, err := c.Exec(ctx, "TRUNCATE probe")
		return err
	})
	return rate, err
}
