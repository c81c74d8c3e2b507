// Package notify is everything that speaks LISTEN: the bells that tell of new
// jobs, and one listener per process with a connection of its own.
//
// A bell is a hint that may be lost, so the order is always: connect, LISTEN
// (committed), then look. And a connection on which LISTEN worked may still
// hear nothing: the socket can be half open, or a pooler can sit between. The
// one proof of hearing is a bell that the process rings for itself with its
// slow tick. While that bell is not heard, the listener says that it is deaf,
// and closes the connection and connects again, at a measured pace.
//
//	           Run
//	            │
//	            ▼           error, or 5 s
//	┌────▶ connecting ─────────────────────┐
//	│           │                          │
//	│           ▼           error, or 5 s  ▼
//	│        LISTEN ×2 ─────────────────▶ pause, deaf
//	│           │ Connected: look now      ▲   │
//	│           ▼                          │   │
//	│       listening ─────────────────────┤   │
//	│           │ own bell      lost, or   │   │
//	│           ▼               own bell   │   │
//	│        hearing ───────────not heard──┘   │
//	└──────────────────────────────────────────┘
//
// Only the API of the root package is stable; this one may change with any
// release.
package notify
