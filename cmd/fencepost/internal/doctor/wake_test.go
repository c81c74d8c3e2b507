package doctor

import (
	"context"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestTheWayOfABell(t *testing.T) {
	t.Parallel()
	w := setUp(t)
	w.want("wake", OK, "a notification arrives in")

	w.patient.Listen = w.config("postgres://x:hunter2@127.0.0.1:1/none")
	w.want("wake", Fail, "the way to listen cannot be had", "connection refused", "--listen-url")

	w.patient.Listen = w.config(pgtest.New(t, "empty", func(context.Context, string) error { return nil }))
	w.limited(func(l *limits) { l.ring = l.ring / 10 })
	w.want("wake", Fail, "leads to another database")
	w.patient.Listen = nil

	// Somebody swallows what is rung.
	w.script("CREATE SCHEMA mute; CREATE FUNCTION mute.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''")
	w.patient.Conn.RuntimeParams["search_path"] = "mute, pg_catalog"
	w.want("wake", Fail, "deaf: no notification within 200ms")
	delete(w.patient.Conn.RuntimeParams, "search_path")

	w.script("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC")
	w.role("")
	w.want("wake", Fail, "ringing fails", "permission denied for function pg_notify", "grant the right")
}
