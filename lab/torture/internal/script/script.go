// Package script says what a run consists of: who takes part, what the jobs
// are, and what is expected of each. It is what the harness, the processes that
// it starts, and the checker have in common.
package script

import (
	"fmt"
	"hash/crc32"
	"time"
)

// Role is what a process is in a run.
type Role string

const (
	Worker   Role = "worker"
	Producer Role = "producer"
	Zombie   Role = "zombie"
	Operator Role = "operator"
)

// Assignment is what a process is told at its start, as JSON on its standard
// input.
type Assignment struct {
	Role Role
	// Name is that of the process and of its history: role, number, and which
	// life of it, as in worker-2.1.
	Name string
	// Dir is where histories are written.
	Dir string
	// DSN is the way to the database, ListenDSN one for bells alone; "": the same.
	DSN, ListenDSN string
	// Seed decides what the process does when.
	Seed uint64

	// Of workers.
	Lease, Poll        time.Duration
	SoftStop, HardStop time.Duration
	Slots              map[string]int
	MaxConns           int // of the pool that handlers use

	// Of producers: jobs a second, in all kinds and ways, open loop. The load
	// begins at Start (history.Now) and ends when the process is told to stop.
	Rate  float64
	Start int64
	Mix   Mix
	// Bursts is the share of the jobs that come in bursts.
	Bursts float64

	// Break is the guard that a worker does without; "": none.
	Break string
}

// Mix is the load: what share of the jobs is of which kind. Its zero value
// stands for DefaultMix.
type Mix map[string]float64

// Kinds of jobs.
const (
	Short    = "short"    // 0 to 20 ms, done
	Long     = "long"     // 1 to 12 s, done: longer than a lease
	Fail     = "fail"     // fails Order.Times times, then done; some never
	Later    = "later"    // fails with RetryAfter
	Snooze   = "snooze"   // snoozes Order.Times times, then done
	Panic    = "panic"    // panics in its first attempt
	Exit     = "exit"     // ends its process in its first attempt
	Killer   = "killer"   // ends its process in every attempt; max_attempts 3, few of them
	Deaf     = "deaf"     // ignores its context, 2 to 8 s, then done
	Tx       = "tx"       // completes in its own transaction, with an effect
	SlowTx   = "slowtx"   // the same, with 1 to 8 s between CompleteTx and commit
	Rollback = "rollback" // the same, but its first attempt rolls back and fails
	Parent   = "parent"   // completes in a transaction that enqueues Order.Times children (short) with their rows
	Fenced   = "fenced"   // a fenced write to its business row (fencepost.Fenced) in each attempt; fails Order.Times times, then done
	Hopeless = "hopeless" // Dead
	Off      = "off"      // Cancel
	Progress = "progress" // SetProgress, fails once, checks it
)

// Queues: Main has most, Side some, and Bin keeps no done jobs.
const (
	Main = "main"
	Side = "side"
	Bin  = "bin"
)

// Order is the payload of every job.
type Order struct {
	// Token is the job's name, chosen by its producer, and the key of its
	// business row.
	Token string `json:"token"`
	// Millis is how long the handler takes.
	Millis int `json:"ms,omitempty"`
	// Times is how often the special thing of the kind happens.
	Times int `json:"times,omitempty"`
	// Delay, in milliseconds, is the pause of a retry or snooze.
	Delay int `json:"delay,omitempty"`
}

// Sum tells an order from any other: that of the handler is to be that of the
// producer.
func (o Order) Sum() uint32 { return crc32.ChecksumIEEE(fmt.Append(nil, o)) }

// FewAttempts is how many attempts a job has at most that is meant to use them
// up. All others have far more.
const FewAttempts = 4

// MayDie says that a job may be dead in the end by its script: by its own word,
// or because all of its few attempts fail. Those are the ones that its producer
// gave it: an operator's retry gives it one more.
func MayDie(kind string, maxAttempts int) bool {
	switch kind {
	case Hopeless:
		return true
	case Fail, Killer:
		return maxAttempts <= FewAttempts
	}
	return false
}

// RetryDelay is the curve of the workers: shorter than the default, so that a
// run sees many attempts. failures counts from 1.
func RetryDelay(failures int, _ error) time.Duration {
	return min(200*time.Millisecond<<min(failures-1, 10), 2*time.Second)
}

// Business is the schema of the business: made by the harness, beside ours.
//
// orders has one row for each job, inserted in the job's own transaction; fence
// is written by Fenced jobs. effects has one row for each completion in a
// handler's own transaction. A job's key must never be given to another, so
// keys is unique on both.
const Business = `
CREATE SCHEMA shop;
CREATE TABLE shop.orders (
    token text PRIMARY KEY,
    fence bigint NOT NULL DEFAULT 0,
    via text NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE shop.effects (
    token text NOT NULL,
    job bigint NOT NULL,
    fence bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
GRANT USAGE ON SCHEMA shop TO PUBLIC;
GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA shop TO PUBLIC;`
