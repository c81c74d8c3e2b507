package fencepost

import (
	"bytes"
	"encoding/json"
	"sync"
)

// decoder decodes one payload after the other. One made for each would cost more
// memory than all else that a small job needs.
type decoder struct {
	from bytes.Reader
	json *json.Decoder
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.json = json.NewDecoder(&d.from)
	d.json.UseNumber()
	return d
}}

// mostKept bounds the payload, in bytes, whose buffer is kept for others.
const mostKept = 64 << 10

func decodePayload(raw json.RawMessage, into any) error {
	if into, ok := into.(*json.RawMessage); ok {
		*into = raw
		return nil
	}
	d := decoders.Get().(*decoder)
	d.from.Reset(raw)
	begin := d.json.InputOffset()
	if err := d.json.Decode(into); err != nil {
		return err
	}
	// Only one that has read its payload to the last byte can read another.
	if d.json.InputOffset()-begin == int64(len(raw)) && len(raw) <= mostKept {
		d.from.Reset(nil)
		decoders.Put(d)
	}
	return nil
}
