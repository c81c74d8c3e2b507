package stage

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-go/fencepost/internal/pg"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
	"github.com/fencepost-go/fencepost/migrations"
)

// Schema is that of the queue.
const Schema = "fencepost"

// Roles that the roles of single processes are members of.
const (
	workersRole   = "torture_workers"
	producersRole = "torture_producers"
)

func (s *Stage) serverOptions() pg.Options {
	settings := map[string]string{"max_connections": strconv.Itoa(maxConnections)}
	if s.options.Standby { // it may be away for a while
		settings["wal_keep_size"] = "256MB"
	}
	maps.Copy(settings, s.options.Settings)
	return pg.Options{Major: s.options.Major, TCP: true, Durable: true, Settings: settings, Log: s.options.Log}
}

// furnish makes the database, and all that is in it before the first process.
func (s *Stage) furnish(ctx context.Context) error {
	first, err := pgx.Connect(ctx, s.servers[0].URL("postgres"))
	if err != nil {
		return err
	}
	_, err = first.Exec(ctx, "CREATE DATABASE "+Database)
	if err == nil {
		err = first.QueryRow(ctx, "SHOW data_directory").Scan(&s.data[0])
	}
	_ = first.Close(ctx)
	if err != nil {
		return err
	}
	if err := s.narrow(ctx); err != nil {
		return err
	}
	if err := s.appoint(ctx, 0); err != nil {
		return err
	}
	conn, err := s.admin.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := migrations.Up(ctx, conn.Conn(), Schema); err != nil {
		return err
	}
	for _, sql := range []string{
		"CREATE ROLE " + workersRole, "CREATE ROLE " + producersRole,
		script.Business, witness.SQL,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
	}
	roles := migrations.Roles{Workers: []string{workersRole}, Producers: []string{producersRole}}
	return migrations.Grant(ctx, conn.Conn(), Schema, roles)
}

// narrow makes the queue of notifications as small as it can be, so that it can
// be filled. Which server knows the setting is only known when it runs.
func (s *Stage) narrow(ctx context.Context) error {
	server := s.servers[0]
	if _, told := s.options.Settings["max_notify_queue_pages"]; told || server.Major() < 17 {
		return nil
	}
	err := on(ctx, server, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "ALTER SYSTEM SET max_notify_queue_pages = 64")
		return err
	})
	if err == nil {
		err = server.Shutdown("fast")
	}
	if err == nil {
		err = server.Restart(ctx)
	}
	return err
}

// appoint makes the server at a place the primary, as far as we are concerned.
func (s *Stage) appoint(ctx context.Context, place int) error {
	// Whatever is done to all sessions is not done to ours.
	pool, err := superPool(ctx, s.servers[place])
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin != nil {
		s.retired = append(s.retired, s.admin)
	}
	s.primary, s.admin = place, pool
	return nil
}

// AdminName is the application_name of the harness's own sessions.
const AdminName = "torture harness"

func superPool(ctx context.Context, server *pg.Server) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(server.URL(Database) + "&default_transaction_read_only=off")
	if err != nil {
		return nil, err
	}
	config.MaxConns = 8
	config.ConnConfig.RuntimeParams["application_name"] = AdminName
	return pgxpool.NewWithConfig(ctx, config)
}

// role makes the role of a process, whose name is that of the process without
// its life: it tells, through every proxy, whose session one is.
func (s *Stage) role(ctx context.Context, name string, kind script.Role) (password string, err error) {
	s.mu.Lock()
	password, known := s.passwords[name]
	s.mu.Unlock()
	if known {
		return password, nil
	}
	group := workersRole
	if kind == script.Producer {
		group = producersRole
	}
	password = strings.ToLower(rand.Text())
	sql := fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE %s", pgx.Identifier{name}.Sanitize(), password, group)
	if _, err := s.Admin().Exec(ctx, sql); err != nil {
		return "", fmt.Errorf("make the role of %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passwords[name] = password
	return password, nil
}
