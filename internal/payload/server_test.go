package payload_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencepost-go/fencepost/internal/payload"
	"github.com/fencepost-go/fencepost/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	return pgtest.Conn(t, pgtest.New(t, "payload", func(context.Context, string) error { return nil }))
}

// store sends a document through the server's jsonb and returns what comes back.
func store(conn *pgx.Conn, doc string) (back string, err error) {
	err = conn.QueryRow(context.Background(), "SELECT $1::text::jsonb::text", doc).Scan(&back)
	return back, err
}

// canonical reads a document with every digit of its numbers, whatever their
// notation.
func canonical(doc string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return exact(v), nil
}

func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, _ := new(big.Rat).SetString(v.String())
		return json.Number(r.RatString())
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// stored fails unless the server gives doc back with every digit and letter.
func stored(conn *pgx.Conn, doc string) error {
	back, err := store(conn, doc)
	if err != nil {
		return fmt.Errorf("accepted %.60q, and the server says: %w", doc, err)
	}
	want, err := canonical(doc)
	if err != nil {
		return err
	}
	got, err := canonical(back)
	if err != nil {
		return err
	}
	// Not cmp.Diff, which takes twice as long for each level of nesting.
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("%.200q came back as %.200q", doc, back)
	}
	return nil
}

func TestServerStoresWhatCheckAccepts(t *testing.T) {
	conn := connect(t)
	for _, doc := range accepted {
		if err := stored(conn, doc); err != nil {
			t.Error(err)
		}
	}
}

// What Check refuses for PostgreSQL's sake, PostgreSQL must refuse as well:
// otherwise the check would be stricter than it says.
func TestServerRefusesWhatCheckRefuses(t *testing.T) {
	conn := connect(t)
	for _, r := range refused {
		if back, err := store(conn, r.doc); err == nil {
			t.Errorf("the server stores %.60q as %.60q", r.doc, back)
		}
	}
}

// Documents put together at random from what makes trouble.
func TestServerAgreesOnRandomDocuments(t *testing.T) {
	conn := connect(t)
	number := rapid.Custom(func(t *rapid.T) string {
		n := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})`).Draw(t, "whole")
		n += rapid.StringMatching(`(\.[0-9]{1,30})?`).Draw(t, "fraction")
		return n + rapid.StringMatching(`([eE][+-]?[0-9]{1,4})?`).Draw(t, "exponent")
	})
	text := rapid.Custom(func(t *rapid.T) string {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
			`a`, `\\`, `\"`, `\/`, `\n`, `\u`, `0000`, `\u0000`, `\u0001`, `\u0041`, `\u00e4`, `ä`, `€`, `😀`,
			`\ud83d`, `\ude00`, `\uD83D\uDE00`, `\udfff`, `\udbff`, "\x7f", "\t", "\xff", "\xc3", "\xed\xa0\x80", " ",
		}), 0, 6).Draw(t, "pieces")
		return `"` + strings.Join(pieces, "") + `"`
	})
	var document func(depth int) *rapid.Generator[string]
	document = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			top := 5
			if depth == 0 {
				top = 3
			}
			switch rapid.IntRange(0, top).Draw(t, "what") {
			case 0:
				return number.Draw(t, "number")
			case 1, 2:
				return text.Draw(t, "text")
			case 3:
				return rapid.SampledFrom([]string{"null", "true", "false", "[]", "{}", "", "nul", "01", "-"}).Draw(t, "literal")
			case 4:
				return "[" + strings.Join(rapid.SliceOfN(document(depth-1), 1, 3).Draw(t, "items"), ",") + "]"
			default:
				return "{" + text.Draw(t, "key") + ":" + document(depth-1).Draw(t, "value") + "}"
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := document(3).Draw(t, "document")
		err := payload.Check([]byte(doc))
		if err == nil {
			if err := stored(conn, doc); err != nil {
				t.Error(err)
			}
			return
		}
		if strings.Contains(err.Error(), "digits") {
			return // stricter than the server
		}
		if _, err2 := store(conn, doc); err2 == nil {
			t.Errorf("the server stores %q, and Check says: %v", doc, err)
		}
	})
}

// The largest documents must fit the jobs table, whose last word on the size
// is about the binary form.
func TestLargestDocumentsStaySmallEnough(t *testing.T) {
	conn := connect(t)
	for _, item := range []string{"1,", `"",`, "[],"} {
		items := strings.Repeat(item, (payload.MaxBytes-1)/len(item))
		doc := []byte("[" + strings.TrimSuffix(items, ",") + "]")
		if err := payload.Check(doc); err != nil {
			t.Errorf("%s: %v", item, err)
			continue
		}
		var size int
		if err := conn.QueryRow(context.Background(), "SELECT pg_column_size($1::text::jsonb)", string(doc)).Scan(&size); err != nil {
			t.Errorf("%s: %v", item, err)
		}
		if size > 8<<20 {
			t.Errorf("[%s…]: %d bytes of JSON become %d of jsonb", item, len(doc), size)
		}
	}
}

func TestServerStoresCleanText(t *testing.T) {
	conn := connect(t)
	for _, text := range []string{
		"plain", "a\x00b", "\xff\xfe", "\xed\xa0\x80", `\ud800 \u0000`, "\u2028\U0010ffff",
		strings.Repeat("größer\x00\xff", 1_000_000),
	} {
		clean := payload.CleanText(text, 8<<10)
		var back string
		if err := conn.QueryRow(context.Background(), "SELECT $1::text", clean).Scan(&back); err != nil {
			t.Errorf("%.40q: %v", text, err)
		} else if back != clean {
			t.Errorf("%.40q came back as %.40q", clean, back)
		}
	}
}
