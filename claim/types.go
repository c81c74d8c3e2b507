package claim

import (
	"encoding/json"
	"time"
)

// Lease names one claim in hand: which job, and under which fence. It is all
// that a worker needs to prove that the job is still its own.
type Lease struct {
	ID    int64
	Fence int64
}

// Row is a claimed job.
type Row struct {
	ID          int64
	Fence       int64
	Queue       string
	Kind        string
	Priority    int
	Payload     json.RawMessage
	Progress    json.RawMessage // what an earlier attempt left with Progress; nil if nothing
	RunAt       time.Time
	CreatedAt   time.Time
	Attempt     int // this attempt, counted from 1
	MaxAttempts int
	Claim       int64 // what was claimed together has the same; for Outcome.Closes
}

// Lease returns the claim under which the row is held.
func (r Row) Lease() Lease { return Lease{ID: r.ID, Fence: r.Fence} }

// Request asks for up to Limit due jobs of one queue.
type Request struct {
	Queue string
	Kinds []string // kinds that the caller can run; nil means every kind
	Limit int
	Look  Look // of Marks; zero: at all jobs
	// Teller tells the other processes if nothing is left that is due. Zero: they
	// are not told.
	Teller Teller
	// Into may be a slice that nobody needs any more: its memory is used for the
	// rows that are claimed.
	Into []Row
}

// Claimed is the answer to a Request.
type Claimed struct {
	// Rows are ordered by priority, run_at and id.
	Rows []Row
	// Next is the time until the earliest ready job of the queue that was not
	// taken is due, by the database's clock. It is zero or negative when that
	// job is due but somebody else holds its row. It is set only when fewer
	// rows came back than were asked for, and only if HasNext. It knows nothing
	// of jobs before Request.Look.From.
	Next    time.Duration
	HasNext bool
	// Walk is what it has cost the server to begin at Request.Look.From, for Marks.
	Walk time.Duration
	// Again, if not 0, is when to ask again even if nothing happens before: jobs
	// before Request.Look.From may be due, or others that were passed over. Claim
	// does not set it: Marks.Learn knows it.
	Again time.Duration
}

// Verb is what becomes of a claimed job.
type Verb string

const (
	// Done ends the job; it worked.
	Done Verb = "done"
	// Retry is a failed attempt: back to ready after Delay, or dead when it
	// was the last one.
	Retry Verb = "retry"
	// Dead ends the job; it will not be tried again.
	Dead Verb = "dead"
	// Cancelled ends the job; it was called off.
	Cancelled Verb = "cancelled"
	// Snooze puts the job back after Delay without counting the attempt.
	Snooze Verb = "snooze"
	// Release hands back a job whose handler had started: it is claimable at
	// once and the attempt counts, so on the last attempt the job is dead.
	Release Verb = "release"
	// Return hands back a job whose handler never started: it is claimable at
	// once and the attempt is refunded.
	Return Verb = "return"
)

// Outcome is one claim together with what became of it.
type Outcome struct {
	Lease
	Verb  Verb
	Delay time.Duration // for Retry and Snooze
	Error string        // for Retry, Dead, Cancelled and Release; cleaned and cut before it is stored
	// Closes is the Row.Claim of a claim of which this is the last outcome; 0:
	// others are to come. It saves others a look at jobs that have long ended, and
	// may be left out, or be wrong: a claim with a job that runs stays open.
	Closes int64
}

// Result says what the database made of an Outcome.
type Result uint8

const (
	// Lost means that the job is under another fence, or has ended under one:
	// nothing changed.
	Lost Result = iota
	// Stored means that this outcome, or an earlier one under the same fence,
	// has ended the claim.
	Stored
	// Busy means that another transaction holds the row right now: the handler's
	// own open CompleteTx, or for a moment a claim that had chosen the job just
	// before this one took it. Nothing changed; send it again.
	Busy
	// Gone means that there is no trace of the job, neither live nor ended:
	// nothing changed. It was deleted, or it is done and its queue keeps none.
	Gone
)

func (r Result) String() string {
	switch r {
	case Stored:
		return "stored"
	case Busy:
		return "busy"
	case Gone:
		return "gone"
	default:
		return "lost"
	}
}

// Loss is a claim that is over, and why.
type Loss struct {
	Lease
	Reason Reason
}

// Reason is what has become of a claim that its holder has not ended.
type Reason string

const (
	// ReasonTaken means that the job is under another fence: its lease ran
	// out, or an operator released it.
	ReasonTaken Reason = "taken"
	// ReasonGone means that there is no trace of the job.
	ReasonGone Reason = "gone"
	// ReasonCancelled means that an operator has cancelled the job under this
	// very claim.
	ReasonCancelled Reason = "cancelled"
)
