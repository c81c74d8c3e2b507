package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/peer"
	"github.com/fencepost-go/fencepost/migrations"
)

const (
	clients     = 16 // that enqueue at the same time
	hangUpLimit = time.Second
	// dropLimit bounds the removal of the schema.
	dropLimit = 15 * time.Second
)

// stage is where the bench plays: a schema of its own.
type stage struct {
	Plan
	seen   Seen
	schema string
	keeper *pgx.Conn // holds the lock that says that the schema is in use
	pool   *pgxpool.Pool
	client *fencepost.Client
	made   bool // the schema may be there
}

// build makes the schema and the queue in it.
func build(ctx context.Context, p Plan) (_ *stage, err error) {
	s := &stage{Plan: p, schema: prefix + strings.ToLower(rand.Text()[:10])}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.strike())
		}
	}()
	s.Config = p.Config.Copy()
	conn := s.Config.ConnConfig
	// By this name the sessions of the bench are found in pg_stat_activity.
	conn.RuntimeParams["application_name"] = s.schema
	s.Config.MaxConns = clients + 2
	if s.keeper, err = pgx.ConnectConfig(ctx, conn); err != nil {
		return nil, err
	}
	server, err := peer.Greet(ctx, s.keeper)
	if err != nil {
		return nil, err
	}
	s.seen.Server.Pooled = server.Pooled
	if !server.Pooled && p.Prepare {
		conn.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	}
	if err := mayCreate(ctx, s.keeper); err != nil {
		return nil, err
	}
	if err := s.report(ctx); err != nil {
		return nil, err
	}
	if err := s.keep(ctx); err != nil {
		return nil, fmt.Errorf("lock the name of the bench's schema: %w", err)
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, s.Config); err != nil {
		return nil, err
	}
	s.made = true // or perhaps made, if the next call fails
	if err := s.script(ctx, sqlTables); err != nil {
		return nil, fmt.Errorf("make the bench's schema: %w", err)
	}
	if err := s.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := migrations.Up(ctx, c.Conn(), s.schema)
		return err
	}); err != nil {
		return nil, fmt.Errorf("make the bench's queue: %w", err)
	}
	s.client, err = fencepost.New(s.pool, fencepost.Config{Schema: s.schema})
	return s, err
}

// strike removes all that build has made. It has its own deadline, since a
// bench that was broken off must be cleared away too.
func (s *stage) strike() error {
	var errs []error
	if s.made {
		ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
		defer cancel()
		if err := s.script(ctx, `DROP SCHEMA IF EXISTS {{schema}} CASCADE`); err != nil {
			errs = append(errs, fmt.Errorf("drop schema %s, which is left over (fencepost bench --clean removes it): %w", s.schema, err))
		}
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.keeper != nil {
		hangUp(s.keeper)
	}
	return errors.Join(errs...)
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), hangUpLimit)
	defer cancel()
	_ = conn.Close(ctx) // there is nothing left to do about it
}

// sqlTables makes the schema and what is measured by hand. The comment tells
// it from a schema of that name that somebody else has made.
const sqlTables = `
CREATE SCHEMA {{schema}};
COMMENT ON SCHEMA {{schema}} IS '` + comment + `';
CREATE TABLE {{schema}}.commits (n bigint NOT NULL);
CREATE TABLE {{schema}}.floor (n bigint PRIMARY KEY, claimed_at timestamptz);`

// script executes several statements without parameters, in one transaction.
func (s *stage) script(ctx context.Context, template string) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		return conn.Conn().PgConn().Exec(ctx, s.sql(template)).Close()
	})
}

// sql fills in the name of the schema.
func (s *stage) sql(template string) string {
	return strings.ReplaceAll(template, "{{schema}}", pgx.Identifier{s.schema}.Sanitize())
}

const sqlMayCreate = `
SELECT has_database_privilege(current_database(), 'CREATE'), quote_ident(current_database()), quote_ident(current_user)`

// mayCreate says what to do where the role may not make a schema.
func mayCreate(ctx context.Context, conn *pgx.Conn) error {
	var may bool
	var database, role string
	if err := conn.QueryRow(ctx, sqlMayCreate).Scan(&may, &database, &role); err != nil {
		return fmt.Errorf("look whether a schema may be made: %w", err)
	}
	if !may {
		return fmt.Errorf("the bench works in a schema of its own, and the role %s may not make one in the database %s; let its owner run: GRANT CREATE ON DATABASE %[2]s TO %[1]s", role, database)
	}
	return nil
}

const sqlServer = `
SELECT current_setting('server_version'), current_setting('synchronous_commit'),
       current_setting('fsync') = 'on', current_setting('synchronous_standby_names')`

func (s *stage) report(ctx context.Context) error {
	v := &s.seen.Server
	err := s.keeper.QueryRow(ctx, sqlServer).Scan(&v.Version, &v.SynchronousCommit, &v.Fsync, &v.Standbys)
	if err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	return nil
}
