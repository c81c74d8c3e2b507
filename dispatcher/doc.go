// Package dispatcher is everything that runs user code: slots, handlers,
// leases in hand, outcomes and the retry curve.
//
// Only the root package, which wires the rooms, is stable for others to build
// on; this package is public to be read and may change.
//
//	        Wake, Recall, StopNow                 handler, one goroutine per job
//	                  │                             ▲ row, context   │ report
//	                  ▼                             │                ▼
//	┌──────────────────────────────── loop ────────────────────────────────────┐
//	│ desk: slots and sticky wake-ups,   leases: what is in hand,   stop: its  │
//	│ outcomes to send, what to claim    extend, lapse, stuck       phases     │
//	└────┬─────────────────────────▲───────────────────────┬──────────────▲────┘
//	     │ outcomes, wants         │ results, rows         │ leases       │ lost
//	     ▼                         │                       ▼              │
//	  exchange, for each of two lanes:              keeper: one extension or check at a time
//	  one round trip at a time
//
// One goroutine, the loop, owns all state. Its decisions are made by types
// that know no goroutine, no clock and no I/O (desk, leases, stop) and are
// tested as tables. What takes time happens on other goroutines: a round trip
// that stalls holds up neither handlers nor extensions nor a stop.
//
// What holds:
//
//   - Never more is claimed than slots are free, and what was claimed is run or
//     handed back: also rows that nobody asked for, rows that arrive with less
//     than half of their lease, and rows that arrive during a stop.
//   - A wake-up is kept until a claim that was sent after it has succeeded and
//     come back short. So a queue that is woken while its slots are full is
//     looked at when the first of them is free.
//   - Two trips are under way at once only out of a backlog, and while all goes
//     well. An outcome is in one of them at most.
//   - Outcomes go before claims. Those that come while a round trip is under way
//     share the next one; a lone one is sent at once, unless a backlog promises
//     it company within the time of a trip. They are kept and sent again until
//     the database has answered for each, and nothing is claimed while they
//     cannot be stored.
//   - A handler is told at the latest when its lease is over by this process's
//     monotonic clock, measured from before the claim or the extension was
//     sent. Its outcome is sent all the same: the fence decides.
//   - While leases in hand cannot be extended, nothing more is claimed.
//   - A recall is followed by a check of all that is in hand, and of what claims
//     bring that were under way. A job that an operator has cancelled ends its
//     handler's context with ErrCancelled; its outcome does not matter then.
//   - A slot is free when the handler has returned, not when its context ends.
//   - A stop ends within SoftStop + HardStop + 5 s, whatever handlers and the
//     database do, and says what it had to leave behind.
//
// A panic of the handler and runtime.Goexit are failed attempts. A panic on a
// goroutine that a handler has started ends the process, as it must in Go; the
// job comes back when its lease is over, and its attempt has been counted.
package dispatcher
