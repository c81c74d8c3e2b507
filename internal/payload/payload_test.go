package payload_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-go/fencepost/internal/payload"
)

// nested returns a document of depth arrays and objects in turn.
func nested(depth int) string {
	var open, shut strings.Builder
	for i := range depth {
		if i%2 == 0 {
			open.WriteString(`[`)
		} else {
			open.WriteString(`{"a":`)
		}
		if (depth-1-i)%2 == 0 {
			shut.WriteString(`]`)
		} else {
			shut.WriteString(`}`)
		}
	}
	return open.String() + "0" + shut.String()
}

// sized returns a document of n bytes.
func sized(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// accepted are documents that Check must let through and the server must store.
var accepted = []string{
	`null`, `[]`, `"x"`, `1`, `true`, `false`, `{}`, `""`,
	" \t\r\n[1 , {\"a\" : [ ] } ]\n",
	// Numbers no float64 holds.
	`9223372036854775807`, `18446744073709551615`, `1970670598291982290`,
	`0.1234567890123456789012345678901234567890`, `1.000`, `-0`, `1e2`, `1.5E+3`, `2.5e-7`, `0e-7`,
	`1e999`, `1e-999`, strings.Repeat("9", 1000), `0.` + strings.Repeat("9", 999),
	strings.Repeat("9", 500) + "." + strings.Repeat("1", 500), `1e0000000002`,
	// Texts that only look like trouble.
	`"\\u0000"`, `{"\\u0000":"\\\\u0000"}`, `"\\ud800"`, `"\u005cu0000"`, `"\\\u0001"`,
	`"\ud83d\ude00"`, `"\uD83D\uDE00x"`, `"` + "\u2028\ufffd\U0010ffff\x7f" + `"`, `"\ufffd"`,
	`"\b\f\n\r\t\/\"\\"`, `{"":{"a b":[{"ä":"ö"}]}}`,
	`{"a":1,"a":{"b":2},"a":3}`,
	nested(payload.MaxDepth), sized(payload.MaxBytes),
}

func TestCheckAccepts(t *testing.T) {
	for _, doc := range accepted {
		if err := payload.Check([]byte(doc)); err != nil {
			t.Errorf("%.60s: %v", doc, err)
		}
	}
}

// A refusal is a document with what Check must say about it.
type refusal struct {
	doc, path string
	offset    int
	reason    string // a part of it
}

// refused are documents that the server does not store either.
var refused = []refusal{
	{``, `$`, 0, "empty"},
	{" \n", `$`, 0, "empty"},
	{`nul`, `$`, 2, "invalid JSON"},
	{`NaN`, `$`, 0, "invalid JSON"},
	{"\ufeff{}", `$`, 0, "invalid JSON"},
	{`'x'`, `$`, 0, "invalid JSON"},
	{`{`, `$`, 1, "unexpected end"},
	{`[1,{"a":"b`, `$[1].a`, 10, "unexpected end"},
	{`[1,]`, `$[1]`, 3, "invalid JSON"},
	{`[1 2]`, `$[1]`, 3, "invalid JSON"},
	{`{"a":1,}`, `$`, 7, "invalid JSON"},
	{`{"a" 1}`, `$.a`, 5, "invalid JSON"},
	{`{a:1}`, `$`, 1, "invalid JSON"},
	{`[01]`, `$[1]`, 2, "invalid JSON"},
	{`[0,+1]`, `$[1]`, 3, "invalid JSON"},
	{`[.5]`, `$[0]`, 1, "invalid JSON"},
	{`"\x"`, `$`, 2, "invalid JSON"},
	{`"\u12g4"`, `$`, 5, "invalid JSON"},
	{"\"a\nb\"", `$`, 2, "invalid JSON"},
	{"[\"\x00\"]", `$[0]`, 2, "invalid JSON"},
	{`[1}`, `$[1]`, 2, "invalid JSON"},

	{`1 2`, `$`, 2, "after the end"},
	{`{} x`, `$`, 3, "after the end"},
	{"null\n]", `$`, 5, "after the end"},
	{"{}\x00", `$`, 2, "after the end"},

	{"\"a\xff\"", `$`, 2, "invalid UTF-8"},
	{"[1,\"\xc3\"]", `$[1]`, 4, "invalid UTF-8"},
	{"{\"a\xc0\x80\":1}", "$[\"a\ufffd\ufffd\"]", 3, "invalid UTF-8"},
	{"\"\xed\xa0\x80\"", `$`, 1, "invalid UTF-8"},
	{"\"\xf4\x90\x80\x80\"", `$`, 1, "invalid UTF-8"},

	{`"\u0000"`, `$`, 1, `\u0000`},
	{`"\\\u0000"`, `$`, 3, `\u0000`},
	{`{"customer":{"names":["a","b","c","d\u0000"]}}`, `$.customer.names[3]`, 36, `\u0000`},
	{`{"a":1,"b\u0000":2}`, `$["b\x00"]`, 9, `\u0000`},
	{`{"a":[[],{"\u0000":2}]}`, `$.a[1]["\x00"]`, 11, `\u0000`},

	{`"\ud800"`, `$`, 1, "surrogate"},
	{`"\ud800x"`, `$`, 1, "surrogate"},
	{`"\ud800\n"`, `$`, 1, "surrogate"},
	{`"\ud800\u0041"`, `$`, 1, "surrogate"},
	{`"\ud83d\ud83d\ude00"`, `$`, 1, "surrogate"},
	{`"\ude00\ud83d"`, `$`, 1, "surrogate"},
	{`["x\udc00"]`, `$[0]`, 3, "surrogate"},
	{`{"\udc00":1}`, "$[\"\ufffd\"]", 2, "surrogate"},

	{`[1e131073]`, `$[0]`, 1, "digits"},
	{`1e-16384`, `$`, 0, "digits"},
	{`-1e99999999999999999999`, `$`, 0, "digits"},
	{`-1e-99999999999999999999`, `$`, 0, "digits"},
}

// stricter are documents that the server would store, at a price.
var stricter = []refusal{
	{`{"n":1e1000}`, `$.n`, 5, "digits"},
	{`[-1e-1000]`, `$[0]`, 1, "digits"},
	{`0e2000`, `$`, 0, "digits"},
	{strings.Repeat("9", 1001), `$`, 0, "digits"},
	{strings.Repeat("9", 501) + "." + strings.Repeat("1", 500), `$`, 0, "digits"},
	{strings.Repeat("9", 1500) + "e-1000", `$`, 0, "digits"},
	{nested(payload.MaxDepth + 1), `$[0].a`, 3 * payload.MaxDepth, "nested deeper"},
	{sized(payload.MaxBytes + 1), `$`, payload.MaxBytes, "1048577 bytes"},
	{sized(payload.MaxBytes) + " ", `$`, payload.MaxBytes, "1048577 bytes"},
	{`[0` + strings.Repeat(`,1e999`, 1100) + `]`, `$[1048]`, 6285, "written out"},
}

func TestCheckRefuses(t *testing.T) {
	for _, r := range append(refused, stricter...) {
		err := payload.Check([]byte(r.doc))
		bad, ok := err.(*payload.Error)
		if !ok {
			t.Errorf("%.60q: got %v, want a *payload.Error", r.doc, err)
			continue
		}
		if !strings.HasPrefix(bad.Path, r.path) || bad.Offset != r.offset || !strings.Contains(bad.Reason, r.reason) {
			t.Errorf("%.60q: %v, want %q at %s (byte %d)", r.doc, bad, r.reason, r.path, r.offset)
		}
	}
}

// What a glance lets through each token lets through, and what Check is mostly
// given gets by with a glance.
func TestHarmless(t *testing.T) {
	for _, r := range append(refused, stricter...) {
		if len(r.doc) <= payload.MaxBytes && payload.Harmless([]byte(r.doc)) {
			t.Errorf("%.60q is not harmless: %s", r.doc, r.reason)
		}
	}
	for _, doc := range []string{
		`{}`, `null`, `{"id": 42, "price": 12.50, "names": ["é", "b\\", "\n"], "at": "2031-02-03T04:05:06.789Z", "ok": true}`,
		`"` + strings.Repeat("x", payload.MaxBytes-2) + `"`,
	} {
		if !payload.Harmless([]byte(doc)) {
			t.Errorf("%.60q is not harmless at a glance", doc)
		}
	}
}

func TestErrorSaysWhere(t *testing.T) {
	err := payload.Check([]byte(`{"customer":{"names":["a","b","c","d\u0000"]}}`))
	const want = `\u0000, which no text in PostgreSQL can hold, at $.customer.names[3] (byte 36)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A document a megabyte large must not make its error as large.
func TestErrorIsShort(t *testing.T) {
	long := strings.Repeat("k", 1000)
	doc := strings.Repeat(`{"`+long+`":`, 900) + `"\u0000"`
	err := payload.Check([]byte(doc))
	var bad *payload.Error
	if !errors.As(err, &bad) || bad.Reason == "" || len(err.Error()) > 400 {
		t.Errorf("got %d bytes: %v", len(err.Error()), err)
	}
}

// seed leaves out what is there for its size only: mutating it is slow.
func seed(f *testing.F, doc string) {
	if len(doc) < 10_000 {
		f.Add([]byte(doc))
	}
}

func FuzzCheck(f *testing.F) {
	for _, doc := range accepted {
		seed(f, doc)
	}
	for _, r := range append(refused, stricter...) {
		seed(f, r.doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if err := payload.CheckTokens(doc); err != nil && payload.Harmless(doc) {
			t.Fatalf("harmless at a glance: %q: %v", doc, err)
		}
		err := payload.Check(doc)
		if err == nil {
			if !json.Valid(doc) || !utf8.Valid(doc) {
				t.Fatalf("accepted %q", doc)
			}
			return
		}
		var bad *payload.Error
		if !errors.As(err, &bad) {
			t.Fatalf("%q: %T", doc, err)
		}
		if bad.Offset < 0 || bad.Offset > len(doc) || !strings.HasPrefix(bad.Path, "$") || bad.Reason == "" {
			t.Errorf("%q: %#v", doc, bad)
		}
		text := err.Error()
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > 500 {
			t.Errorf("%q: not fit to print: %q", doc, text)
		}
		// A short document without escapes and exponents breaks no limit.
		if json.Valid(doc) && utf8.Valid(doc) && !bytes.ContainsAny(doc, `\eE`) && len(doc) < payload.MaxDigits {
			t.Errorf("refused %q: %v", doc, err)
		}
	})
}
