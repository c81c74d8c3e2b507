//go:build torture

package claim

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

// What takes a guard out of the statements finds it there, and leaves what the
// server understands.
func TestWeakenedStatements(t *testing.T) {
	const schema = "fencepost"
	dsn := pgtest.New(t, "weakened", func(ctx context.Context, dsn string) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = migrations.Up(ctx, conn, schema)
		return err
	})
	conn := pgtest.Conn(t, dsn)
	for guard, edits := range weakened {
		for _, edit := range edits {
			found := false
			for _, s := range statements {
				found = found || strings.Contains(s, edit.from)
			}
			if !found {
				t.Errorf("%s: no statement has\n%s", guard, edit.from)
			}
		}
		for _, s := range statements {
			if weak := without(guard, s); weak != s {
				if _, err := conn.Prepare(t.Context(), "", names(schema).Replace(weak)); err != nil {
					t.Errorf("%s: %v\n%s", guard, err, weak)
				}
			}
		}
	}
}
