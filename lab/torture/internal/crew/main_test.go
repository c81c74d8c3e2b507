package crew

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
	"github.com/fencepost-go/fencepost/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// database is one on which a run could be.
func database(t *testing.T) (dsn string) {
	return pgtest.New(t, "torture", prepare)
}

func prepare(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := migrations.Up(ctx, conn, "fencepost"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, script.Business+witness.SQL+`INSERT INTO fencepost.queues (name, keep) VALUES ('bin', '0')`)
	return err
}

// actor is one who takes part, in this process.
type actor struct {
	name string
	stop context.CancelFunc
	done chan error
}

// act begins what the assignment says. It ends with the test at the latest. Jobs
// that would end the process end their goroutine.
func act(t *testing.T, a script.Assignment) *actor {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &actor{a.Name, stop, make(chan error, 1)}
	go func() {
		p.done <- Run(ctx, a, func(int) { runtime.Goexit() })
	}()
	t.Cleanup(func() {
		stop()
		p.wait(t)
	})
	return p
}

// end stops it and waits for its end, which has to be clean.
func (p *actor) end(t *testing.T) {
	t.Helper()
	p.stop()
	p.wait(t)
}

func (p *actor) wait(t *testing.T) {
	t.Helper()
	select {
	case err, open := <-p.done:
		if open {
			close(p.done)
		}
		if err != nil {
			t.Errorf("%s ended: %v", p.name, err)
		}
	case <-time.After(40 * time.Second):
		t.Fatalf("%s does not end", p.name)
	}
}

// until waits until the histories under dir show what is waited for. missing
// says what is not there yet; "" ends the wait.
func until(t *testing.T, dir string, missing func([]history.Event) string) []history.Event {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		events, err := history.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		what := missing(events)
		if what == "" {
			return events
		}
		if time.Now().After(end) {
			t.Fatalf("after %d events still missing: %s", len(events), what)
		}
	}
}

// shown says that there is such an event.
func shown(what string, is func(history.Event) bool) func([]history.Event) string {
	return func(events []history.Event) string {
		if slices.ContainsFunc(events, is) {
			return ""
		}
		return what
	}
}
