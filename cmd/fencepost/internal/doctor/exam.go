package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	timeLimit   = 5 * time.Second // of each statement, kept by the server
	dialLimit   = 5 * time.Second // of each address
	answerLimit = timeLimit + 2*time.Second
)

// exam is one examination: what is looked at, and a connection to it.
type exam struct {
	Patient
	limits limits
	fill   *strings.Replacer
	conn   *pgx.Conn // nil until it is needed, and after it broke
	unfit  error     // why the tables cannot be read; the check "schema" sets it
}

func newExam(p Patient) *exam {
	e := &exam{Patient: p, limits: usual, fill: strings.NewReplacer("{{schema}}", pgx.Identifier{p.Schema}.Sanitize())}
	if p.limits != nil {
		e.limits = *p.limits
	}
	e.Conn = plain(p.Conn)
	e.Listen = e.Conn
	if p.Listen != nil {
		e.Listen = plain(p.Listen)
	}
	return e
}

// plain makes connections of a config name no statement, whatever it says: a
// pooler may give the next one to another server process.
func plain(config *pgx.ConnConfig) *pgx.ConnConfig {
	config = config.Copy()
	if config.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > dialLimit {
		config.ConnectTimeout = dialLimit
	}
	return config
}

func (e *exam) connection(ctx context.Context) (*pgx.Conn, error) {
	if e.conn != nil && !e.conn.IsClosed() {
		return e.conn, nil
	}
	conn, err := pgx.ConnectConfig(ctx, e.Conn)
	if err != nil {
		return nil, err
	}
	e.conn = conn
	return conn, nil
}

func (e *exam) close() {
	if e.conn != nil {
		hangUp(e.conn)
	}
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // there is nothing left to do about it
}

// sqlBounds holds for one transaction, so that it is safe behind a pooler.
const sqlBounds = `SELECT set_config('statement_timeout', '5s', true), set_config('jit', 'off', true)`

// look runs do in a transaction that reads only.
func (e *exam) look(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, fmt.Errorf("no answer within %v", answerLimit))
	defer cancel()
	conn, err := e.connection(ctx)
	if err == nil {
		options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
		err = pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, sqlBounds); err != nil {
				return err
			}
			return do(ctx, tx)
		})
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

// ask returns the rows of one statement, column by column into the fields of T.
func ask[T any](ctx context.Context, e *exam, sql string, args ...any) (found []T, err error) {
	err = e.look(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, e.fill.Replace(sql), args...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		return err
	})
	return found, err
}

// askOne is ask for statements that always have one row.
func askOne[T any](ctx context.Context, e *exam, sql string, args ...any) (one T, err error) {
	found, err := ask[T](ctx, e, sql, args...)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d rows; want 1", len(found))
	}
	if err != nil {
		return one, err
	}
	return found[0], nil
}

// span writes a number of seconds as people say it.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	case d < 48*time.Hour:
		text := d.Round(time.Second).String()
		if minutes, whole := strings.CutSuffix(text, "m0s"); whole {
			text = minutes + "m"
		}
		return text
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// literal quotes for SQL that somebody may paste.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// word quotes for a shell command that somebody may paste.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.,:@%+/-]+$`)
