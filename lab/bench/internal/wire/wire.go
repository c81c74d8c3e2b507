// Package wire is what the bench and the processes that it measures say to each
// other: one JSON object a line, a request on the child's standard input and
// its answer on standard output. Every queue, in Go or on Node, is a child that
// speaks it, so that all are driven and measured in the same way.
package wire

import "time"

// Options say which queue a child is to be, and how.
type Options struct {
	DSN string `json:"dsn"`
	// Best: the settings that the queue's own docs recommend for speed. False:
	// its defaults.
	Best bool `json:"best"`
	// Keep says whether done jobs are kept, where the queue lets one choose.
	Keep bool `json:"keep"`
	// Slots is how many jobs run at once; 0: the queue's default, or its best.
	Slots int `json:"slots"`
	// Batch is how many jobs a claim asks for at most; 0 as above.
	Batch int `json:"batch"`
	// Queues are worked by the worker. Default: the queue's default one.
	Queues []string `json:"queues,omitempty"`
}

// Described is what a child says of itself when it has been opened.
type Described struct {
	Version string `json:"version"`
	// Settings in words, with batch sizes and durability, for the report.
	Settings string `json:"settings"`
	// Address is where it answers HTTP, if it does.
	Address string `json:"address,omitempty"`
}

// Produce asks for jobs. Job number n, counted on from First, carries n.
type Produce struct {
	N     int `json:"n"`
	First int `json:"first"`
	// Bytes is the size of the payload as JSON.
	Bytes int `json:"bytes"`
	// Way: "one" enqueues each by itself, a commit each; "many" by the call for
	// several, Batch at a time, that returns ids if the queue has it; "copy" by
	// the fastest call, Batch at a time.
	Way   string `json:"way"`
	Batch int    `json:"batch"`
	// Clients enqueue at once.
	Clients int `json:"clients"`
	// Rate of jobs a second in all, at random distances: an open loop. 0: as
	// fast as it goes.
	Rate float64 `json:"rate"`
	// Gap is the distance between the two jobs of a pair; Rate is that of
	// pairs then. 0: no pairs. GapTo: a random distance between the two.
	Gap   time.Duration `json:"gap"`
	GapTo time.Duration `json:"gap_to"`
	// Delay makes each job due that much later; DelayTo: at random between the
	// two, in whole microseconds.
	Delay   time.Duration `json:"delay"`
	DelayTo time.Duration `json:"delay_to"`
	Queue   string        `json:"queue,omitempty"`
	Seed    uint64        `json:"seed"`
	// Log: remember when each call returned, also without a Rate or a Delay.
	Log bool `json:"log"`
}

// Produced says what became of it. All times are nanoseconds of Now. The slices
// are by job, in the order of their numbers, and filled if there is a Rate, a
// Delay or Log.
type Produced struct {
	Seconds float64 `json:"seconds"`
	// Scheduled is when the call was to be made.
	Scheduled []int64 `json:"scheduled,omitempty"`
	// Returned is when the call returned: the commit had been acknowledged.
	Returned []int64 `json:"returned,omitempty"`
	// Due is when the job was due, by the computer's clock in nanoseconds since
	// 1970; only with a Delay.
	Due []int64 `json:"due,omitempty"`
}

// Work starts the worker. It returns when it is ready for jobs.
type Work struct {
	// Sleep is how long each handler sleeps. 0: it does nothing.
	Sleep time.Duration `json:"sleep"`
	// FailEvery makes the first attempt of every such job fail, with a retry
	// after RetryAfter. 0: none.
	FailEvery  int           `json:"fail_every"`
	RetryAfter time.Duration `json:"retry_after"`
	// Log: remember when the handler of each job started and ended.
	Log bool `json:"log"`
	// Window counts handlers in steps of so many, for the course of a drain.
	Window int `json:"window"`
}

// Await waits until so many handlers have returned since Work, or for Seconds.
type Await struct {
	N       int     `json:"n"`
	Seconds float64 `json:"seconds"`
}

// Worked is the answer to Await, and to Stop.
type Worked struct {
	Done int `json:"done"`
	// First and Last are when the first handler started and the last returned,
	// in nanoseconds of Now.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Windows are when each window of handlers was full.
	Windows []int64 `json:"windows,omitempty"`
	// Starts and Ends are by job number, with the number; 0: not seen. Only with
	// Work.Log, and in the answer to Stop.
	Starts map[int]int64 `json:"starts,omitempty"`
	Ends   map[int]int64 `json:"ends,omitempty"`
	// StartsUnix are the same by the computer's clock, for scheduled jobs.
	StartsUnix map[int]int64 `json:"starts_unix,omitempty"`
}

// Usage is what the child's runtime says of itself, as totals.
type Usage struct {
	Allocs  uint64 `json:"allocs"` // objects; 0 on Node
	Bytes   uint64 `json:"bytes"`  // allocated; 0 on Node
	Heap    uint64 `json:"heap"`   // live after a collection
	Threads int    `json:"threads"`
}

// The verbs. Open must come first.
const (
	DoOpen    = "open"    // Options → Described: the schema is installed if it is missing
	DoProduce = "produce" // Produce → Produced
	DoWork    = "work"    // Work → {}
	DoAwait   = "await"   // Await → Worked
	DoStop    = "stop"    // {} → Worked: the worker is stopped, every outcome stored
	DoUsage   = "usage"   // {} → Usage
	DoClose   = "close"   // {} → {}: connections closed; the child ends
)

// Message is a request.
type Message struct {
	Do   string `json:"do"`
	With any    `json:"with,omitempty"`
}
