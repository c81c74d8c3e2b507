package bench

import (
	"math"
	"slices"
	"time"
)

// Seen is what was measured. A measurement that could not be made has N = 0.
type Seen struct {
	Server Server

	RoundTrip Times // an empty statement
	Commit    Times // one small commit after the other, on one connection
	Commits   Rate  // the same as a rate
	Notify    Times // from sending NOTIFY alone to hearing it; without a row no disk is waited for
	Floor     Times // from the return of a commit to the end of one durable claim, by hand
	Wake      Times // from the return of a commit to the start of the handler
	One       Rate  // Enqueue from one client
	Sixteen   Rate  // Enqueue from 16 clients
	Bulk      Rate  // EnqueueCopy
	Drain     Rate  // jobs that do nothing, until their outcomes are stored

	// What the sessions of the bench did meanwhile.
	CommitWaits, SixteenWaits, DrainWaits Waits
}

// Server is what a client can know of the server.
type Server struct {
	Version           string
	SynchronousCommit string // what our sessions have
	Fsync             bool
	Standbys          string // synchronous_standby_names
	Pooled            bool   // a pooler sits between
}

// Times are quantiles of how long something took.
type Times struct {
	P50, P99 time.Duration
	N        int
}

func timesOf(took []time.Duration) Times {
	if len(took) == 0 {
		return Times{}
	}
	slices.Sort(took)
	at := func(p float64) time.Duration {
		return took[max(0, int(math.Ceil(p*float64(len(took))))-1)]
	}
	return Times{P50: at(0.50), P99: at(0.99), N: len(took)}
}

// Rate is how often something happened in a second.
type Rate struct {
	PerSecond float64
	N         int
}

func rateOf(n int, took time.Duration) Rate {
	if n == 0 || took <= 0 {
		return Rate{}
	}
	return Rate{PerSecond: float64(n) / took.Seconds(), N: n}
}

// Waits counts what the sessions of the bench were seen at, one look after the
// other.
type Waits struct {
	CPU     int // on a processor, or waiting for one
	Disk    int // for the WAL to be on disk, or for another file
	Standby int // for a synchronous standby
	Bell    int // for the lock that a commit with a notification takes
	Lock    int // for any other lock
	Idle    int // none had anything to do: the client was to act
}

// add counts n sessions that wait for an event of PostgreSQL's; no event means
// that they run.
func (w *Waits) add(kind, event string, n int) {
	switch {
	case kind == "":
		w.CPU += n
	case kind == "Client":
		w.Idle += n
	case kind == "IPC" && event == "SyncRep":
		w.Standby += n
	case kind == "IO", kind == "LWLock" && event == "WALWrite":
		w.Disk += n
	case kind == "Lock" && event == "object":
		w.Bell += n
	case kind == "Lock", kind == "LWLock":
		w.Lock += n
	default:
		w.CPU += n
	}
}

// most returns what the sessions were seen at most often, "" if they were never
// seen.
func (w Waits) most() (limit Limit) {
	seen := 0
	for _, c := range []struct {
		limit Limit
		n     int
	}{{Disk, w.Disk}, {Standby, w.Standby}, {Bell, w.Bell}, {Locks, w.Lock}, {CPU, w.CPU}, {Client, w.Idle}} {
		if c.n > seen {
			limit, seen = c.limit, c.n
		}
	}
	return limit
}
