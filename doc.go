// Package fencepost is a job queue on PostgreSQL.
//
// An INSERT rings a bell (NOTIFY), a listener wakes the dispatcher, which
// claims jobs with FOR UPDATE SKIP LOCKED, runs their handlers, and stores
// what became of them. A slow ticker polls as a safety net. Every claim has a
// lease, so that a dead worker's jobs come back, and a fence, so that a worker
// which lost its lease cannot overwrite anything.
//
// A [Client] enqueues with [Client.Enqueue], or in a transaction of yours with
// [Client.In] and [Client.InSQL], thousands at a time with [Client.EnqueueCopy];
// it works jobs with [Client.Run], calling the
// handlers registered with [Handle].
//
// The promises, and the test that keeps each of them, are in
// docs/guarantees.md; how the parts work together is in docs/design.md. The
// tables are made by the command "fencepost migrate up" or by package
// migrations.
//
// The rooms claim, dispatcher, notify, poller and migrations are public for
// those who want to read or reuse them, but only this package, the command
// with its flags, and the schema with its SQL functions are stable.
package fencepost
