// Package torture lets a test program watch a worker, and take one guard away
// from it, to see whether it would be missed. Only a program that is built with
// the tag "torture" can do either: in all others On and Removed are false for
// the compiler, and what hangs on them is left out.
//
// The package is internal and has no promise of stability.
package torture

// Guard is something without which a promise would not hold.
type Guard string

const (
	// FinishFence: an outcome changes nothing if the fence has moved.
	FinishFence Guard = "finish-fence"
	// ExtendFence: neither does an extension.
	ExtendFence Guard = "extend-fence"
	// CompleteFence: nor a completion in the handler's own transaction.
	CompleteFence Guard = "complete-fence"
	// ReapLock: what is taken from its worker is what was found to be over,
	// under the row's lock, in the same statement.
	ReapLock Guard = "reap-lock"
	// ClaimLock: a claim locks what it chooses, and skips what is locked.
	ClaimLock Guard = "claim-lock"
	// ClaimCounts: the attempt counts from the claim on.
	ClaimCounts Guard = "claim-counts"
	// ListenFirst: LISTEN is committed before the look.
	ListenFirst Guard = "listen-first"
	// ClaimRow: a claim writes down that its jobs run, where those look who look
	// for leases that are over.
	ClaimRow Guard = "claim-row"
	// ClockFence: fences come from the database's clock, not from a counter.
	ClockFence Guard = "clock-fence"
	// DrainExtends: leases are extended while a stop waits for handlers.
	DrainExtends Guard = "drain-extends"
	// StoredFirst: an outcome is settled when it is stored, not before.
	StoredFirst Guard = "stored-first"
	// Poll: an idle process looks at the tables from time to time.
	Poll Guard = "poll"
	// LookBelow: claims that begin at a mark look below it from time to time.
	LookBelow Guard = "look-below"
	// QuietLock: who ends a promise to look without bells waits for those who
	// were silent because of it.
	QuietLock Guard = "quiet-lock"
	// QuietLook: and looks once more when they are gone.
	QuietLook Guard = "quiet-look"
)

// Guards are all of them. Each has a control in lab/torture.
var Guards = []Guard{
	FinishFence, ExtendFence, CompleteFence, ReapLock, ClaimLock, ClaimCounts,
	ClaimRow, ListenFirst, ClockFence, DrainExtends, StoredFirst, Poll, LookBelow,
	QuietLock, QuietLook,
}

// Job is a claim as the tap sees it.
type Job struct {
	ID, Fence int64
	Attempt   int
	Queue     string
	Kind      string
	Verb      string // of an outcome
	Delay     int64  // of an outcome, in ns
	Result    string // what the database made of an outcome, or why a claim is lost
}

// Tap is told of each call between dispatcher and database, just before it is
// made; what it returns is called with the answer. Promise is told until when the
// process has promised to look into a queue without bells, in µs since 1970 by
// the database's clock; 0: it is about to end that. All funcs are required.
type Tap struct {
	Claim  func(worker, queue string, asked int) func(claimed []Job, err error)
	Finish func(outcomes []Job) func(outcomes []Job, err error)
	Extend func(leases []Job) func(lost []Job, err error)

	Promise func(queue string, until int64)
}
