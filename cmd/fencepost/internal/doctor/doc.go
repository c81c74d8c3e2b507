// Package doctor looks at a queue and the server under it, and says what is
// wrong and what to do about it.
//
// A check is one small func with its statements; the list in doctor.go is what
// the doctor does, in its order. Each statement runs in a transaction of its
// own that reads only and is bounded in time, leaves nothing behind in a
// session, and needs no named statement: so it does no harm on a busy server,
// as any role, behind any pooler. None reads a whole table: what cannot be had
// from an index is looked for in a bounded part, and the message says so.
//
// Nothing that may be secret is read: no text of a query, no payload.
package doctor
