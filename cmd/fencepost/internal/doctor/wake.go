package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const listenRemedy = "give workers a direct way with --listen-url, FENCEPOST_LISTEN_URL or Config.ListenConfig; without it they look every second"

// place tells one database of one server from another.
const sqlPlace = `SELECT pg_backend_pid(), (SELECT d.oid::text FROM pg_database AS d WHERE d.datname = current_database())
	|| ' ' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint`

type place struct {
	PID uint32
	At  string
}

// wake rings over one connection and hears it over the one that listens, on a
// channel that nobody else has: what a worker does to prove that it hears.
func wake(ctx context.Context, e *exam) ([]Finding, error) {
	rings, err := askOne[place](ctx, e, sqlPlace)
	if err != nil {
		return nil, err
	}
	ear, err := pgx.ConnectConfig(ctx, e.Listen)
	if err != nil {
		return []Finding{but(Fail, nil, "the way to listen cannot be had: "+oneLine(err), "see to --listen-url or FENCEPOST_LISTEN_URL")}, nil
	}
	defer hangUp(ear)
	hears, pooled, err := e.listen(ctx, ear)
	channel := "fencepost_doctor_" + strings.ToLower(rand.Text())
	if err == nil {
		err = bounded(ctx, func(ctx context.Context) error {
			_, err := ear.Exec(ctx, "LISTEN "+channel)
			return err
		})
	}
	if err != nil {
		return []Finding{but(Fail, nil, "LISTEN fails: "+err.Error(), refusal(err))}, nil
	}
	defer func() { // a pooler keeps the session for others
		_ = bounded(ctx, func(ctx context.Context) error {
			_, err := ear.Exec(ctx, "UNLISTEN "+channel)
			return err
		})
	}()

	start := time.Now()
	err = e.look(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_notify($1::text, 'doctor')", channel)
		return err
	})
	if err != nil {
		return []Finding{but(Fail, nil, "ringing fails: "+err.Error(), refusal(err))}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, e.limits.ring)
	defer cancel()
	_, err = ear.WaitForNotification(waiting)
	took := time.Since(start)
	f := figures{"pooled": pooled}
	switch {
	case err == nil && pooled:
		f["latency_ms"] = millis(took)
		return []Finding{but(Warn, f, fmt.Sprintf("a notification arrived in %.1f ms, but a pooler sits between: in transaction mode it would lose others", millis(took)),
			"make sure that it is in session mode, or "+listenRemedy)}, nil
	case err == nil:
		f["latency_ms"] = millis(took)
		return []Finding{ok(f, "a notification arrives in %.1f ms", millis(took))}, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case rings.At != hears.At:
		return []Finding{but(Fail, f, "deaf: the way to listen leads to another database, or another server",
			"point --listen-url at the database that --database-url names, on the same primary")}, nil
	case pooled:
		return []Finding{but(Warn, f, fmt.Sprintf("deaf: no notification within %v, a pooler sits between", e.limits.ring), listenRemedy)}, nil
	case !errors.Is(err, context.DeadlineExceeded):
		return []Finding{but(Fail, f, "deaf: the connection that listens broke: "+err.Error(), "see what ends idle connections between here and the server")}, nil
	default:
		return []Finding{but(Fail, f, fmt.Sprintf("deaf: no notification within %v", e.limits.ring),
			"see the checks notifications and transactions, and what lies between here and the server")}, nil
	}
}

// listen finds out where the ear is, and whether a pooler is in between: then
// the process id is not the one that the protocol gave.
func (e *exam) listen(ctx context.Context, ear *pgx.Conn) (p place, pooled bool, err error) {
	err = bounded(ctx, func(ctx context.Context) error {
		return ear.QueryRow(ctx, sqlPlace).Scan(&p.PID, &p.At)
	})
	return p, p.PID != ear.PgConn().PID(), err
}

func bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	return do(ctx)
}

func refusal(err error) string {
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && server.Code == "25006":
		return "the server is in recovery or read-only: connect to the primary"
	case errors.As(err, &server) && server.Code == "42501":
		return "grant the right that is missing: everybody may call pg_notify unless that was revoked"
	default:
		return "see to the error; " + listenRemedy
	}
}
