package crew

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-go/fencepost/internal/pgtest"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/script"
)

// progressIsFound: each handler that looks for its job's progress finds what was
// last stored, as far as that is known, and none finds anything else.
func progressIsFound(t *testing.T, events []history.Event) {
	t.Helper()
	last := make(map[int64]history.Event) // by job: the last call of SetProgress
	found := 0
	for _, e := range events {
		switch {
		case e.Op == history.Amiss:
			t.Errorf("amiss: %s", e.Note)
		case e.Op == history.Progress && e.Phase != "":
			last[e.Job] = e
		case e.Op == history.Progress && last[e.Job].Phase == history.OK:
			found++
			var p stored
			if err := json.Unmarshal([]byte(e.Result), &p); err != nil || p.Token != e.Token || p.Times == 0 {
				t.Errorf("job %d has stored its progress, and finds %q", e.Job, e.Result)
			}
		case e.Op == history.Progress && last[e.Job].Phase == "" && e.Result != "":
			t.Errorf("job %d has stored nothing, and finds %q", e.Job, e.Result)
		}
	}
	if found == 0 {
		t.Error("nobody has found progress")
	}
}

// Another job's progress is written down as what must not be, and is no reason
// to give up.
func TestAnothersProgress(t *testing.T) {
	dsn, dir := database(t), t.TempDir()
	conn := pgtest.Conn(t, dsn)
	enqueue := func(kind, token, progress string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), `WITH o AS (INSERT INTO shop.orders (token, via) VALUES ($2, 'test'))
INSERT INTO fencepost.jobs (kind, queue, payload, progress)
VALUES ($1, 'main', jsonb_build_object('token', $2::text, 'times', 1), nullif($3::text, '')::jsonb)`, kind, token, progress)
		if err != nil {
			t.Fatal(err)
		}
	}
	tokens := make(map[string]string) // and what must be written down of it; "": nothing
	for _, kind := range []string{script.Progress, script.Snooze} {
		for name, c := range map[string]struct{ progress, note string }{
			"none":    {"", ""},
			"own":     {fmt.Sprintf(`{"token": "%s-own", "times": 1}`, kind), ""},
			"other":   {`{"token": "other", "times": 1}`, "another job's"},
			"zombie":  {`{"token": "of a zombie"}`, "another job's"},
			"strange": {`"x"`, "cannot unmarshal"},
		} {
			token := kind + "-" + name
			enqueue(kind, token, c.progress)
			tokens[token] = c.note
		}
	}
	w := act(t, workerOf(dsn, dir))
	events := until(t, dir, func(events []history.Event) string {
		open := make(map[string]bool)
		for token := range tokens {
			open[token] = true
		}
		for _, e := range events {
			if e.Op == history.End {
				delete(open, e.Token)
			}
		}
		return strings.TrimPrefix(fmt.Sprint(open), "map[]")
	})
	w.end(t)
	first := make(map[string]string) // by token: how the first handler ended
	for _, e := range events {
		switch {
		case e.Op == history.Amiss:
			if note := tokens[e.Token]; note == "" || !strings.Contains(e.Note, note) {
				t.Errorf("%s: %s", e.Token, e.Note)
			}
			first[e.Token] = "amiss"
		case e.Op == history.End && tokens[e.Token] != "":
			if e.Verb != "retry" || first[e.Token] != "amiss" {
				t.Errorf("%s ends with %s: %s", e.Token, e.Verb, e.Error)
			}
		}
	}
}
