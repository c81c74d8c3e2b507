package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost"
	"github.com/fencepost-go/fencepost/internal/peer"
	"github.com/fencepost-go/fencepost/migrations"
)

// dialTimeout holds for each address of the database, unless the URL has a
// connect_timeout.
const dialTimeout = 5 * time.Second

// config reads the URL of the database.
func (a *app) config() (*pgxpool.Config, error) {
	if a.databaseURL == "" {
		return nil, usage("no database given: set --database-url or DATABASE_URL")
	}
	return parse(a.databaseURL)
}

// parse reads the URL of a database. Its errors never quote it: what cannot be
// parsed may be a password.
func parse(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil || hidesPassword(url) {
		return nil, usage("the database URL (not shown, it may hold a password) cannot be read; it must be like postgres://user@host:5432/database or host=... dbname=..., and in a URL special characters of a password are written %%2F for /, %%40 for @, %%3A for : and so on")
	}
	// Statements with names do not get through every pooler.
	if config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && !strings.Contains(url, "default_query_exec_mode") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if peer.Servers(config.ConnConfig) > 1 { // the one of them that takes writes
		peer.PreferPrimary(config.ConnConfig)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = dialTimeout
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "fencepost"
	}
	return config, nil
}

// listenConfig reads the URL of the way on which workers listen: that of the
// flag, or else of the environment. nil: it is the way of everything else.
func (a *app) listenConfig(flag string) (*pgx.ConnConfig, error) {
	url := cmp.Or(flag, a.getenv("FENCEPOST_LISTEN_URL"))
	if url == "" {
		return nil, nil
	}
	config, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("--listen-url: %w", err)
	}
	return config.ConnConfig, nil
}

// hidesPassword reports a URL whose password probably holds an unescaped /, ?
// or #: there it ends for the parser, and the rest would be taken, and printed,
// as the name of a host or database.
func hidesPassword(url string) bool {
	_, rest, ok := strings.Cut(url, "://")
	end := strings.IndexAny(rest, "/?#")
	return ok && end >= 0 && !strings.Contains(rest[:end], "@") && strings.Contains(rest[end:], "@")
}

// withPool runs do on a pool, after it has made sure that the database can be
// reached and that its tables fit this program.
func (a *app) withPool(ctx context.Context, do func(*pgxpool.Pool) error) error {
	return a.withCheckedPool(ctx, func(err error) error { return err }, do)
}

// withCheckedPool leaves it to judge whether an error of the check is one.
func (a *app) withCheckedPool(ctx context.Context, judge func(error) error, do func(*pgxpool.Pool) error) error {
	config, err := a.config()
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return usage("%w", err)
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return cannotConnect(err)
	}
	if err := judge(migrations.Check(ctx, pool, a.schema)); err != nil {
		return explain(err)
	}
	return explain(do(pool))
}

func isRefused(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "42501"
}

// explain adds to an error about a missing right where rights come from.
func explain(err error) error {
	if isRefused(err) && !strings.Contains(err.Error(), "fencepost migrate grants") {
		return fmt.Errorf("%w\n%s", err, rightsHelp)
	}
	return err
}

const rightsHelp = `this role of the database lacks a right: to look needs those of a monitor, to enqueue those of a producer, all else those of a worker; "fencepost migrate grants" gives them`

// withClient is withPool for commands that need a client of the usual kind.
func (a *app) withClient(ctx context.Context, do func(*fencepost.Client, *pgxpool.Pool) error) error {
	return a.withPool(ctx, func(pool *pgxpool.Pool) error {
		return a.newClient(pool, do)
	})
}

// withProducer is withClient for commands that only enqueue. A producer may
// not read which version the schema is of, and need not: what is wrong with
// the tables is refused by them.
func (a *app) withProducer(ctx context.Context, do func(*fencepost.Client, *pgxpool.Pool) error) error {
	judge := func(err error) error {
		if isRefused(err) {
			return nil
		}
		return err
	}
	return a.withCheckedPool(ctx, judge, func(pool *pgxpool.Pool) error { return a.newClient(pool, do) })
}

func (a *app) newClient(pool *pgxpool.Pool, do func(*fencepost.Client, *pgxpool.Pool) error) error {
	client, err := fencepost.New(pool, fencepost.Config{Schema: a.schema})
	if err != nil {
		return usage("%w", err)
	}
	return do(client, pool)
}

// withConn runs do on a connection, whatever the database holds.
func (a *app) withConn(ctx context.Context, do func(*pgx.Conn) error) (err error) {
	config, err := a.config()
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return cannotConnect(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		err = errors.Join(err, conn.Close(ctx))
	}()
	return do(conn)
}

func cannotConnect(err error) error {
	// pgx puts each address that it has tried on a line of its own, and tries
	// some twice, with and without TLS.
	tried := strings.Split(err.Error(), "\n\t")
	return fmt.Errorf("%w: %s", errConnect, strings.Join(slices.Compact(tried), " "))
}

// secret finds the passwords of URLs and of keyword strings. What looks like
// one is hidden to its last @ or to the end of its word.
var secret = regexp.MustCompile(`(?i)(postgres(?:ql)?://[^:@/\s]*:)\S*(@)|(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|\S+)`)

// redact hides what must not be printed, wherever an error got it from: a URL
// given as the wrong argument is quoted by the error about it.
func redact(text string) string {
	return secret.ReplaceAllString(text, "${1}${3}xxxxx${2}")
}
