package fencepost

import (
	"encoding/json"
	"fmt"
	"testing"
)

// What a payload decodes into does not depend on those before it, whatever they
// were and whether they fit.
func TestPayloadsDecodeApart(t *testing.T) {
	t.Parallel()
	type object struct {
		N int             `json:"n"`
		S string          `json:"s"`
		A any             `json:"a"`
		R json.RawMessage `json:"r"`
	}
	for _, c := range []struct {
		raw, want string // an empty want is an error
	}{
		{`{"n":1,"s":"one","a":[9007199254740993],"r":{"k":1}}`, `{1 one [9007199254740993] {"k":1}}`},
		{`{"s":"two"}`, `{0 two <nil> }`},
		{`{"n":"three"}`, ``},
		{`{"n":4}`, `{4  <nil> }`},
		{`{"n":5`, ``},
		{`{"n":6} `, `{6  <nil> }`},
		{`{"n":7}{"n":8}`, `{7  <nil> }`},
		{`null`, `{0  <nil> }`},
		{``, ``},
		{`12`, ``},
		{`{"n":9}`, `{9  <nil> }`},
	} {
		var into object
		err := decodePayload(json.RawMessage(c.raw), &into)
		if err != nil && c.want != "" || err == nil && fmt.Sprintf("{%d %s %v %s}", into.N, into.S, into.A, into.R) != c.want {
			t.Errorf("%s: got %+v, %v; want %s", c.raw, into, err, c.want)
		}
		var number any
		if err := decodePayload(json.RawMessage(`12345678901234567890`), &number); err != nil || number != json.Number("12345678901234567890") {
			t.Errorf("after %s a number is %v, %v", c.raw, number, err)
		}
	}
}
