package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func prepare(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE t (id bigint)")
	return err
}

func TestNew(t *testing.T) {
	dsn := pgtest.New(t, "a", prepare)
	conn := pgtest.Conn(t, dsn)
	var tz string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('timezone') FROM (SELECT count(*) FROM t) x").Scan(&tz); err != nil {
		t.Fatal(err)
	}
	if tz != "Asia/Tokyo" {
		t.Error(tz)
	}
}
