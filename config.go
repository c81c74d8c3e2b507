package fencepost

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/dispatcher"
)

// DefaultQueue is the queue of jobs that name none.
const DefaultQueue = "default"

// DefaultSchema is where Fencepost's tables are unless Config says otherwise.
const DefaultSchema = "fencepost"

// Config says how a Client behaves. The zero value is a good start: one queue,
// "default", with 10 slots. It is copied by New; later changes have no effect.
type Config struct {
	// Schema holds the tables; any name that PostgreSQL takes. Default
	// DefaultSchema.
	Schema string

	// Queues that Run works, by name. Default: DefaultQueue with the defaults
	// of Queue. Enqueueing is not limited to them.
	Queues map[string]Queue

	// Lease is how long a claimed job belongs to this process without news of
	// it. It is extended every third of it while the handler runs, and when it
	// is over another process may take the job. A shorter one means earlier
	// recovery from a death and less patience with pauses. Default 30 s, at
	// least 2 s, at most 24 h.
	Lease time.Duration

	// PollInterval is the time, ± 10 %, between two looks at the tables while
	// notifications are heard; without them a process looks every second.
	// Default 30 s, at least 1 s, at most 24 h.
	PollInterval time.Duration

	// JobTimeout ends the context of a handler that runs longer, with cause
	// ErrTimeout; the attempt has failed. WithTimeout overrides it per kind.
	// Default: none.
	JobTimeout time.Duration

	// RetryDelay returns the pause before the next attempt, given how many
	// attempts have failed (1 or more) and the error of the last one. Default
	// DefaultRetryDelay. It is called from handlers' goroutines. Attempts that
	// ended because their worker died are delayed by the default curve.
	RetryDelay func(failures int, err error) time.Duration

	// SoftStop is how long Run waits for running handlers once its context is
	// done, before it cancels theirs. Default 20 s; negative: not at all.
	SoftStop time.Duration

	// HardStop is how long Run then waits for the cancelled handlers before it
	// hands their jobs back without them. Default 5 s; negative: not at all.
	HardStop time.Duration

	// ListenConfig is the way to the database for the one connection that
	// listens, if the pool's way does not carry notifications, as a pooler in
	// transaction mode does not. Default: the pool's.
	ListenConfig *pgx.ConnConfig

	// Observer is told what happens inside. Default: nobody.
	Observer Observer

	// Logger gets what an operator should know. Default nil: no output.
	Logger *slog.Logger
}

// Queue says how this process works one queue.
type Queue struct {
	// Slots is how many jobs of the queue run at once here. Default 10.
	Slots int
	// Spares is how many slots may be opened in place of handlers that ignore
	// the end of their context: those still running one lease after their
	// timeout. Default 0: such a handler keeps its slot.
	Spares int
}

// Observer is a set of funcs that are called when something happens. Each may
// be nil. They are called from the client's own goroutines and must not block.
type Observer struct {
	// Refused is called when the outcome of a claim came too late: the job was
	// under another fence by then, and nothing was changed.
	Refused func(jobID, fence int64)
	// Cancelled is called when an operator has cancelled a job that was running
	// here.
	Cancelled func(jobID, fence int64)
	// Hearing is called when this process begins to hear notifications, and
	// with false when it does not hear them any more and polls every second.
	Hearing func(bool)
	// Died is called when this process has found that a worker is dead, without
	// waiting for its leases, and has taken that many of its running jobs from
	// it; several times if they were many. Whoever of the processes sees it
	// first is told.
	Died func(workerID string, jobs int)
}

// DefaultRetryDelay is the pause after the given number of failed attempts:
// 1 s × 2^(failures−1), ± 20 %, at most 1 h.
func DefaultRetryDelay(failures int, _ error) time.Duration {
	return dispatcher.DefaultCurve.Delay(failures)
}

const (
	minLease = 2 * time.Second
	minPoll  = time.Second
	maxSlots = 100_000
	maxName  = 128
)

// resolve returns the config with its defaults, or every reason why it cannot
// be used.
func (c Config) resolve() (Config, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.Schema = orDefault(c.Schema, DefaultSchema)
	if len(c.Schema) > 63 || strings.ContainsRune(c.Schema, 0) || strings.HasPrefix(c.Schema, "pg_") {
		fail("Schema %q: must be at most 63 bytes, without zero characters, and not begin with pg_", c.Schema)
	}

	queues := maps.Clone(c.Queues)
	if len(queues) == 0 {
		queues = map[string]Queue{DefaultQueue: {}}
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		q := queues[name]
		q.Slots = orDefault(q.Slots, 10)
		if err := checkName(name); err != nil {
			fail("Queues: queue %q: name %w", name, err)
		}
		if q.Slots < 1 || q.Slots > maxSlots {
			fail("Queues: queue %q: Slots is %d; must be between 1 and %d", name, q.Slots, maxSlots)
		}
		if q.Spares < 0 || q.Spares > maxSlots {
			fail("Queues: queue %q: Spares is %d; must be between 0 and %d", name, q.Spares, maxSlots)
		}
		queues[name] = q
	}
	c.Queues = queues

	c.Lease = orDefault(c.Lease, 30*time.Second)
	if c.Lease < minLease || c.Lease > 24*time.Hour {
		fail("Lease is %v; must be between %v and 24h", c.Lease, minLease)
	}
	c.PollInterval = orDefault(c.PollInterval, 30*time.Second)
	if c.PollInterval < minPoll || c.PollInterval > 24*time.Hour {
		fail("PollInterval is %v; must be between %v and 24h", c.PollInterval, minPoll)
	}
	if c.JobTimeout < 0 {
		fail("JobTimeout is %v; must not be negative", c.JobTimeout)
	}
	c.SoftStop = max(orDefault(c.SoftStop, 20*time.Second), 0)
	c.HardStop = max(orDefault(c.HardStop, 5*time.Second), 0)
	if c.RetryDelay == nil {
		c.RetryDelay = DefaultRetryDelay
	}
	if c.Observer.Refused == nil {
		c.Observer.Refused = func(int64, int64) {}
	}
	if c.Observer.Cancelled == nil {
		c.Observer.Cancelled = func(int64, int64) {}
	}
	if c.Observer.Hearing == nil {
		c.Observer.Hearing = func(bool) {}
	}
	if c.Observer.Died == nil {
		c.Observer.Died = func(string, int) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("fencepost config: %w", errors.Join(errs...))
	}
	return c, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// checkName says what is wrong with the name of a queue or a kind.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > maxName:
		return fmt.Errorf("is %d bytes long; at most %d", len(name), maxName)
	case !cleanText(name):
		return errors.New("is not valid UTF-8 text without zero characters")
	}
	return nil
}
