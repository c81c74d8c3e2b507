// Package crew is the Go side of the children: what a queue has to offer, and
// the loop that drives it as the bench asks.
package crew

import (
	"context"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// Job is what is enqueued: a payload of the given size that carries N.
type Job struct {
	N       int
	Payload Payload
	RunAt   time.Time // zero: at once
	Queue   string    // "": the default
}

// Payload is the JSON of every job, whatever the queue.
type Payload struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// Handle is called by a queue's handler for each job. Its error fails the
// attempt; the queue then retries the job after the given pause.
type Handle func(ctx context.Context, p Payload) error

// Retry is the error of a Handle that wants the job again.
type Retry struct{ After time.Duration }

func (Retry) Error() string { return "once more" }

// Queue is one of the queues, used by its public API alone.
type Queue interface {
	// Open installs the schema if it is missing and says what it is.
	Open(ctx context.Context, o wire.Options) (wire.Described, error)
	// One enqueues a job in a commit of its own. It is called from several
	// goroutines.
	One(ctx context.Context, job Job) error
	// Many enqueues jobs in one commit, by the call that returns ids if there
	// is one. ErrNoWay: it has none.
	Many(ctx context.Context, jobs []Job) error
	// Copy enqueues jobs by the fastest way that there is.
	Copy(ctx context.Context, jobs []Job) error
	// Work works until ctx is done, then stores every outcome and returns. It
	// calls ready when jobs can come.
	Work(ctx context.Context, handle Handle, ready func()) error
	Close()
}
