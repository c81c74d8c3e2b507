package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-go/fencepost/claim"
)

// B107: whatever a handler's error says, the failure is stored, with what of
// the text can be stored.
func TestAnyErrorTextIsStored(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	texts := map[string]struct{ text, want string }{
		"NUL":               {"a\x00b", "ab"},
		"only NUL":          {"\x00\x00", "earlier"},
		"empty":             {"", "earlier"},
		"bad UTF-8":         {"a\xff\xfeb", "a\ufffd\ufffdb"},
		"lone surrogate":    {"a\xed\xa0\x80b", "a\ufffd\ufffd\ufffdb"},
		"escape in words":   {`a\ud800\u0000b`, `a\ud800\u0000b`},
		"quotes":            {`'"\'; DROP TABLE jobs --`, `'"\'; DROP TABLE jobs --`},
		"array syntax":      {`{NULL,"a"}`, `{NULL,"a"}`},
		"the word NULL":     {"NULL", "NULL"},
		"line breaks":       {"a\r\nb\tc", "a\r\nb\tc"},
		"10 MB":             {strings.Repeat("x", 10<<20), strings.Repeat("x", 8192-len("… (cut)")) + "… (cut)"},
		"10 MB of emoji":    {strings.Repeat("🙂", 10<<20/4), strings.Repeat("🙂", (8192-len("… (cut)"))/4) + "… (cut)"},
		"just fits":         {strings.Repeat("x", 8192), strings.Repeat("x", 8192)},
		"noise":             {"\x00\x01\x02\xff\x7f\x80", "\x01\x02\ufffd\x7f\ufffd"},
		"10 MB of bad UTF8": {strings.Repeat("\xff", 10<<20), strings.Repeat("\ufffd", (8192-len("… (cut)"))/3) + "… (cut)"},
	}
	for _, verb := range []claim.Verb{claim.Retry, claim.Dead, claim.Cancelled, claim.Release} {
		b := b.fresh(t)
		b.exec("INSERT INTO {{schema}}.jobs (kind, last_error) SELECT 'test', 'earlier' FROM generate_series(1, $1::int)", len(texts))
		var outcomes []claim.Outcome
		want := make(map[int64]string)
		rows := b.take(len(texts), lease)
		for _, test := range texts {
			row := rows[len(outcomes)]
			outcomes = append(outcomes, claim.Outcome{Lease: row.Lease(), Verb: verb, Error: test.text})
			want[row.ID] = test.want
		}
		// All in one batch: no text spoils the others' outcomes.
		results, err := b.Finish(b.ctx, b.conn, outcomes)
		if err != nil || slices.Contains(results, claim.Busy) || slices.Contains(results, claim.Lost) {
			t.Fatal(results, err)
		}
		for id, want := range want {
			got := ask[string](b, "SELECT last_error FROM {{schema}}.all_jobs WHERE id = $1::bigint AND status <> 'running'", id)
			if got != want {
				t.Errorf("%s: stored %.80q… (%d bytes), want %.80q… (%d bytes)", verb, got, len(got), want, len(want))
			}
			if !utf8.ValidString(got) || len(got) > 8192 {
				t.Errorf("%s: stored %d bytes, valid: %v", verb, len(got), utf8.ValidString(got))
			}
		}
	}
}

// An outcome that the database refuses stands alone: the others of its batch
// are stored, and the call says which one it was.
func TestRejectedOutcomeStandsAlone(t *testing.T) {
	t.Parallel()
	for name, ddl := range map[string]string{
		"class 23": "ALTER TABLE fencepost.finished ADD CONSTRAINT picky CHECK (last_error <> 'poison')",
		"class 22": `CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				RAISE EXCEPTION 'unsupported Unicode escape sequence' USING ERRCODE = '22P05';
			END $$;
			CREATE TRIGGER picky BEFORE INSERT ON fencepost.finished FOR EACH ROW
			WHEN (NEW.last_error = 'poison') EXECUTE FUNCTION picky()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			if _, err := b.conn.PgConn().Exec(b.ctx, ddl).ReadAll(); err != nil {
				t.Fatal(err)
			}
			b.insert(10)
			rows := b.take(10, lease)
			outcomes, want := make([]claim.Outcome, 10), make([]claim.Result, 10)
			for i, row := range rows {
				outcomes[i] = claim.Outcome{Lease: row.Lease(), Verb: verbs[i%len(verbs)], Error: "fine"}
				want[i] = claim.Stored
			}
			for _, poisoned := range []int{2, 7} {
				outcomes[poisoned].Verb, outcomes[poisoned].Error = claim.Dead, "poison"
				want[poisoned] = claim.Busy
			}
			results, err := b.Finish(b.ctx, b.conn, outcomes)
			if !errors.Is(err, claim.ErrRejected) {
				t.Errorf("got %v, want ErrRejected", err)
			}
			for _, poisoned := range []int{2, 7} {
				if name := fmt.Sprint("job ", rows[poisoned].ID); err != nil && !strings.Contains(err.Error(), name) {
					t.Errorf("the error does not name %s: %v", name, err)
				}
			}
			if !slices.Equal(results, want) {
				t.Errorf("results %v, want %v", results, want)
			}
			expect(b, int64(2), "SELECT count(*) FROM {{schema}}.jobs WHERE status = 'running'")
		})
	}
}
