package pgtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pg"
)

// Test binaries make the same roles at the same moment; whoever comes second
// finds them there. They log in with and without a password, and have no right.
func TestRoles(t *testing.T) {
	t.Parallel()
	server := Server(t, pg.Options{TCP: true})
	for _, dsn := range []string{server.URL("postgres"), server.TCPURL("postgres")} {
		role := map[bool]string{true: "by socket", false: `by "password"`}[dsn == server.URL("postgres")]
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = Roles(t.Context(), dsn, role, role+" 2") })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		conn := Conn(t, As(t, dsn, role))
		var who string
		if err := conn.QueryRow(t.Context(), "SELECT session_user::text").Scan(&who); err != nil || who != role {
			t.Errorf("logged in as %q, %v; want %q", who, err, role)
		}
		if _, err := conn.Exec(t.Context(), "CREATE SCHEMA s"); !isCode(err, "42501") {
			t.Errorf("%q may create: %v", role, err)
		}
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	const role = "fencepost_test_pgtest"
	dsn := New(t, "roles", func(ctx context.Context, dsn string) error { return Roles(ctx, dsn, role) })
	limited := As(t, dsn, role)
	of := func(dsn string) (who, where string) {
		t.Helper()
		if err := Conn(t, dsn).QueryRow(t.Context(), "SELECT session_user::text, current_database()::text").Scan(&who, &where); err != nil {
			t.Fatal(err)
		}
		return who, where
	}
	who, where := of(limited)
	owner, ownWhere := of(dsn)
	if who != role || where != ownWhere {
		t.Errorf("As leads to %s in %s", who, where)
	}
	if again, where := of(Admin(t, limited)); again != owner || where != ownWhere {
		t.Errorf("Admin leads to %s in %s, want %s in %s", again, where, owner, ownWhere)
	}
	config, err := pgx.ParseConfig(As(t, "host=h user=u password=p dbname=d", role))
	if err != nil || config.User != role || config.Password == "p" || config.Password == "" || config.Host != "h" || config.Database != "d" {
		t.Errorf("keywords: %+v, %v", config, err)
	}
}
