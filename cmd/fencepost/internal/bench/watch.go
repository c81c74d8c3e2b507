package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchPause is the time between two looks at the sessions.
const watchPause = 20 * time.Millisecond

// Those of our own role can be seen by every role. The session that asks and
// those without work are not active.
const sqlSessions = `
SELECT coalesce(wait_event_type, ''), coalesce(wait_event, ''), count(*)::int
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1 AND state = 'active' AND pid <> pg_backend_pid()
GROUP BY 1, 2`

// watched runs do and looks at what the sessions of the bench wait for
// meanwhile. It costs the server one small statement each time.
func (s *stage) watched(ctx context.Context, do func() error) (waits Waits, err error) {
	conn, err := pgx.ConnectConfig(ctx, s.Config.ConnConfig)
	if err != nil {
		return Waits{}, fmt.Errorf("connect to watch: %w", err)
	}
	defer hangUp(conn)
	var failed error
	stop := every(watchPause, func() {
		if failed == nil {
			failed = look(ctx, conn, s.schema, &waits)
		}
	})
	err = do()
	stop()
	if failed != nil {
		failed = fmt.Errorf("watch the sessions: %w", failed)
	}
	return waits, errors.Join(err, failed)
}

func look(ctx context.Context, conn *pgx.Conn, name string, waits *Waits) error {
	rows, err := conn.Query(ctx, sqlSessions, name)
	if err != nil {
		return err
	}
	var kind, event string
	var n int
	active := 0
	_, err = pgx.ForEachRow(rows, []any{&kind, &event, &n}, func() error {
		waits.add(kind, event, n)
		active += n
		return nil
	})
	if err == nil && active == 0 {
		waits.Idle++
	}
	return err
}
