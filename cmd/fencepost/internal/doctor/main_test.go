package doctor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// patience bounds every wait for an event.
const patience = 30 * time.Second

// An odd name, since every statement has to get it right.
const testSchema = `fence "post's; $1`

// ward is a migrated database, a connection to it, and what a doctor is told.
type ward struct {
	*testing.T
	ctx     context.Context
	dsn     string
	conn    *pgx.Conn
	patient Patient
}

func setUp(t *testing.T) *ward {
	t.Helper()
	return on(t, pgtest.New(t, "fencepost doctor", migrate))
}

func migrate(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = migrations.Up(ctx, conn, testSchema)
	return errors.Join(err, conn.Close(ctx))
}

// on is setUp for a database that is migrated already.
func on(t *testing.T, dsn string) *ward {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	w := &ward{T: t, ctx: ctx, dsn: dsn, conn: pgtest.Conn(t, dsn)}
	w.patient = Patient{Conn: w.config(dsn), Schema: testSchema}
	return w
}

func (w *ward) config(dsn string) *pgx.ConnConfig {
	w.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		w.Fatal(err)
	}
	return config
}

// fresh is the ward in a subtest.
func (w *ward) fresh(t *testing.T) *ward {
	c := *w
	c.T = t
	return &c
}

// limited gives the doctor other limits than the usual ones.
func (w *ward) limited(change func(*limits)) {
	l := usual
	change(&l)
	w.patient.limits = &l
}

// script runs statements without parameters.
func (w *ward) script(sql string) {
	w.Helper()
	run(w, w.conn, sql)
}

func run(w *ward, conn *pgx.Conn, sql string) {
	w.Helper()
	if _, err := conn.PgConn().Exec(w.ctx, filled(sql)).ReadAll(); err != nil {
		w.Fatalf("%.300s: %v", sql, err)
	}
}

func filled(sql string) string {
	return strings.ReplaceAll(sql, "{{schema}}", pgx.Identifier{testSchema}.Sanitize())
}

// claim writes the rows of claims that go with running jobs, up to 500 in each.
func (w *ward) claim() {
	w.Helper()
	w.script(`DELETE FROM {{schema}}.claims;
		INSERT INTO {{schema}}.claims (look_at, worker_id, ids)
		SELECT min(r.lease_until), r.worker_id, array_agg(r.id)
		FROM (SELECT j.id, j.worker_id, j.lease_until, row_number() OVER (PARTITION BY j.worker_id ORDER BY j.lease_until) / 500 AS part
		      FROM {{schema}}.jobs AS j WHERE j.status = 'running') AS r
		GROUP BY r.worker_id, r.part`)
}

// value returns the one value that a statement selects.
func value[T any](w *ward, sql string, args ...any) (v T) {
	w.Helper()
	if err := w.conn.QueryRow(w.ctx, filled(sql), args...).Scan(&v); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
	return v
}

// until waits for a statement to select true.
func (w *ward) until(sql string, args ...any) {
	w.Helper()
	for deadline := time.Now().Add(patience); !value[bool](w, sql, args...); {
		if time.Now().After(deadline) {
			w.Fatalf("not within %v: %s", patience, sql)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// find makes one check.
func (w *ward) find(name string) []Finding {
	w.Helper()
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		w.Fatalf("there is no check %s", name)
	}
	e := newExam(w.patient)
	defer e.close()
	list := checks[i].findings(w.ctx, e)
	for _, f := range list {
		if (f.Verdict == OK) != (f.Remedy == "") {
			w.Errorf("%s: verdict %s with remedy %q", name, f.Verdict, f.Remedy)
		}
		w.Logf("%s %s: %s -> %s %v", f.Verdict, f.Check, f.Message, f.Remedy, f.Figures)
	}
	return list
}

// want makes one check, which must find exactly one thing, in words that
// contain the given ones. It returns what it found.
func (w *ward) want(name string, verdict Verdict, words ...string) Finding {
	w.Helper()
	list := w.find(name)
	if len(list) != 1 || list[0].Verdict != verdict {
		w.Fatalf("%s: %+v; want one finding, %s", name, list, verdict)
	}
	w.says(list[0], words...)
	return list[0]
}

func (w *ward) says(f Finding, words ...string) {
	w.Helper()
	for _, word := range words {
		if text := f.Message + " -> " + f.Remedy; !strings.Contains(text, word) {
			w.Errorf("%s: %q does not say %q", f.Check, text, word)
		}
	}
}

// examine makes the whole examination.
func (w *ward) examine() (list []Finding, err error) {
	w.Helper()
	err = Examine(w.ctx, w.patient, func(f Finding) { list = append(list, f) })
	for _, f := range list {
		w.Logf("%s %s: %s -> %s", f.Verdict, f.Check, f.Message, f.Remedy)
		for name := range f.Figures {
			if slices.Contains([]string{"check", "verdict", "message", "remedy"}, name) {
				w.Errorf("%s: a figure is named %s", f.Check, name)
			}
		}
	}
	return list, err
}

// verdicts examines and returns the checks with that verdict.
func (w *ward) verdicts(v Verdict) (names []string) {
	w.Helper()
	list, err := w.examine()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range list {
		if f.Verdict == v && !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	return names
}

// role makes a role with some rights, {{role}} in the script, for the doctor
// to be. It ends with the test.
func (w *ward) role(grants string) string {
	w.Helper()
	role := value[string](w, "SELECT 'fencepost_test_' || md5(random()::text || clock_timestamp()::text)")
	w.script("CREATE ROLE " + role)
	dsn := w.dsn
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			_, err = conn.PgConn().Exec(ctx, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role).ReadAll()
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			w.Error(err)
		}
	})
	w.script(strings.ReplaceAll(grants, "{{role}}", role))
	w.patient.Conn = w.patient.Conn.Copy()
	w.patient.Conn.RuntimeParams["role"] = role
	return role
}
