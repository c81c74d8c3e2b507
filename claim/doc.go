// Package claim holds every statement that moves a job after its INSERT.
//
// # The state machine
//
//	               INSERT
//	                  │
//	                  ▼        claim: attempts + 1, new fence, lease
//	┌────────────► ready ─────────────────────────────────► running ──┐
//	│                                                         │  │  ▲ │ extend
//	│   retry     run_at later, attempt counts                │  │  └─┘
//	│   snooze    run_at later, attempt refunded              │  │
//	│   release   run_at kept, attempt counts                 │  │
//	│   return    run_at kept, attempt refunded               │  │
//	│   reap      run_at later, attempt counts                │  │
//	└─────────────────────────────────────────────────────────┘  │
//	                                                             │
//	  done, dead, cancelled; retry, release or reap              ▼
//	  of the last attempt: dead                              finished
//
// An operator's verbs, of which every one moves the fence: cancel (ready or
// running → finished), release (running → ready, the attempt counts), retry
// (finished → ready), delete (any → gone).
//
// ready and running are rows of the table jobs, told apart by status; "ready,
// but only later" is called scheduled, or retrying after a failure. A job that
// ends moves to the table finished in the statement that ends it.
//
// # Lease and fence
//
// A claim gives a lease, which ends at lease_until by the database's clock
// unless it is extended, and a fence, a number that is new with every claim
// and larger than all before it. Every way out of running moves the fence. So
// (id, fence) proves that a claim is still the caller's, and every write about
// a claim names both and changes nothing if they do not match. (The idea is
// that of fencing tokens, as Martin Kleppmann described them.)
//
// Fences are taken from the database's clock in microseconds, so that they do
// not repeat after a failover that lost commits, a restored copy or a dump.
//
// # Claims
//
// No index of jobs mentions what a claim or an extension changes, so that both
// leave all indexes alone. Therefore no index knows of leases. Each claim writes a
// row into the table claims, in the same statement: the ids of its jobs, and
// look_at, before which no lease of theirs ends. A tick looks into the rows
// whose time has come, and into those of dead workers, and finds their jobs by id.
//
// A row of claims only says where to look, and when. Whether a job runs, for whom
// and until when is in its own row alone. What has to hold is that each running
// job is named by a row whose look_at is no later than the end of its lease, or
// than a second from now: it is why the row comes with the claim, why look_at moves
// only to the earliest lease that is seen, and why a row is deleted only when
// nothing of it runs. For jobs of programs that know no claims there is Adopt.
//
// # Locks
//
// No statement here waits for a row that somebody else is seen to hold, except
// inside a transaction of the caller (CompleteTx) and for one row (Progress): the
// others skip it, so that a row which is held for long delays no other. Outcomes look
// at a row and delete it a moment later; who comes between is waited for, for a second
// at most, which ends a circle too.
//
// Each call is one transaction. Exchange makes one of outcomes and claims; its
// statements are those of Finish and Claim.
//
// # Use
//
// The package knows no goroutine: each call is one round trip on the
// connection it is given, bounded by the caller's context. It works in every
// query execution mode of pgx and behind a pooler in transaction mode.
//
// Only package fencepost, the fencepost command, the schema and its SQL
// functions are stable; this package may change with any minor version.
package claim
