package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// snapshot is a transaction that sees the database as it was when it was
// taken, as a report or a dump does. Until it is released nothing that has
// ended since can be removed, neither by vacuum nor by whoever steps over it.
type snapshot struct{ conn *pgx.Conn }

func holdSnapshot(ctx context.Context, dsn string) (s *snapshot, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	s = &snapshot{conn}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("hold a snapshot: %w", err), conn.Close(ctx))
		}
	}()
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return nil, err
	}
	return s, s.check(ctx)
}

// check says whether the snapshot is held still: a round in which it was not
// would be one without it.
func (s *snapshot) check(ctx context.Context) error {
	var holds bool
	if err := s.conn.QueryRow(ctx, "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()").Scan(&holds); err != nil {
		return err
	}
	if !holds {
		return errors.New("the server keeps nothing for it")
	}
	return nil
}

func (s *snapshot) release() error {
	ctx := context.Background()
	return errors.Join(s.check(ctx), s.conn.Close(ctx))
}
