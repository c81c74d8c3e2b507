package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/internal/pg"
)

// sqlTables are the tables of both stories.
const sqlTables = `
CREATE SCHEMA {{schema}};

CREATE TABLE {{schema}}.invoices (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cents bigint NOT NULL
);

-- What handlers did: one row each time one was run. Nothing here is unique, so
-- whatever happens twice shows.
CREATE TABLE {{schema}}.effects (
    n          bigint      GENERATED ALWAYS AS IDENTITY,
    job_id     bigint      NOT NULL,
    fence      bigint      NOT NULL,
    invoice_id bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL
);

-- The claims that a worker held when it was killed or paused.
CREATE TABLE {{schema}}.victims (
    job_id bigint NOT NULL,
    fence  bigint NOT NULL,
    fate   text   NOT NULL
);`

// dropTimeout bounds the removal of the schema.
const dropTimeout = 15 * time.Second

// stage is where a story plays: a schema of its own on some server.
type stage struct {
	url    string // with a password, perhaps: not to be shown
	schema string
	pool   *pgxpool.Pool
	server *pg.Server // nil: somebody else's
	made   bool       // the schema may be there
}

// build finds or starts the server and makes the schema.
func build(ctx context.Context, p Plan) (_ *stage, err error) {
	s := &stage{url: p.DatabaseURL, schema: "fencepost_demo_" + strings.ToLower(rand.Text()[:10])}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.strike())
		}
	}()
	if s.url == "" {
		if s.server, err = pg.Start(ctx, pg.Options{Durable: true, Log: p.Log}); err != nil {
			return nil, err
		}
		s.url = s.server.URL("postgres")
	}
	config, err := poolConfig(s.url, "fencepost demo", producers+2)
	if err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := s.pool.Ping(ctx); err != nil {
		return nil, err
	}
	s.made = true // or perhaps made, if the next call fails
	if err := s.script(ctx, sqlTables); err != nil {
		return nil, fmt.Errorf("make the schema of the demo: %w", err)
	}
	return s, nil
}

// dialTimeout holds for each address of the server, unless the URL has a
// connect_timeout.
const dialTimeout = 5 * time.Second

// poolConfig is that of all pools of a story. A story has fewer than 90
// connections, so that a server with the default limit of 100 will do.
func poolConfig(url, session string, conns int32) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	config.ConnConfig.RuntimeParams["application_name"] = session
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = dialTimeout
	}
	return config, nil
}

// sql fills in the name of the schema.
func (s *stage) sql(template string) string { return inSchema(template, s.schema) }

func inSchema(template, schema string) string {
	return strings.ReplaceAll(template, "{{schema}}", pgx.Identifier{schema}.Sanitize())
}

// script executes several statements without parameters.
func (s *stage) script(ctx context.Context, template string) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return conn.Conn().PgConn().Exec(ctx, s.sql(template)).Close()
	})
}

// strike removes all that build has made. It has its own deadline, since a
// story that was broken off must be cleared away too. No worker may be left.
func (s *stage) strike() error {
	var errs []error
	if s.made {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := s.script(ctx, `DROP SCHEMA IF EXISTS {{schema}} CASCADE`); err != nil {
			errs = append(errs, fmt.Errorf("drop schema %s: %w", s.schema, err))
		}
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.server != nil {
		errs = append(errs, s.server.Stop())
	}
	return errors.Join(errs...)
}
