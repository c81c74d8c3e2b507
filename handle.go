package fencepost

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// handler is a registered func with its options.
type handler struct {
	run     func(ctx context.Context, row claim.Row) error
	timeout time.Duration // 0: the client's; negative: none
}

// HandlerOption is an option of Handle and its relatives.
type HandlerOption func(*handler)

// WithTimeout ends the context of a handler that runs longer, with cause
// ErrTimeout, instead of Config.JobTimeout. Negative: no timeout at all.
func WithTimeout(d time.Duration) HandlerOption {
	return func(h *handler) { h.timeout = d }
}

// Handle registers the handler of the kind that T names. A process claims only
// jobs of kinds it has a handler for.
//
// The handler's error decides what becomes of the job: nil is done; Cancel,
// Dead, RetryAfter and Snooze say it themselves; any other error, a panic, a
// runtime.Goexit and a payload that does not decode into T fail the attempt.
// A number decoded into an interface becomes a json.Number, so that no digit
// is lost.
//
// The handler must return when its context ends; context.Cause tells why:
// ErrTimeout, ErrLeaseLost, ErrCancelled or ErrStopping. Its goroutine may run
// another job after it: who calls runtime.LockOSThread unlocks the thread too.
//
// Like the registration of HTTP handlers it panics if the kind is empty or has
// a handler already, or if Run has begun.
func Handle[T Kinder](c *Client, fn func(ctx context.Context, job *Job[T]) error, opts ...HandlerOption) {
	var zero T
	HandleKind(c, zero.Kind(), fn, opts...)
}

// HandleKind is Handle for a payload type that does not know its kind.
func HandleKind[T any](c *Client, kind string, fn func(ctx context.Context, job *Job[T]) error, opts ...HandlerOption) {
	if err := checkName(kind); err != nil {
		panic(fmt.Sprintf("fencepost: handler for kind %q: kind %v", kind, err))
	}
	register(c, kind, fn, opts)
}

// HandleAny registers a handler for every kind that has none of its own. The
// process then claims jobs of every kind.
func HandleAny(c *Client, fn func(ctx context.Context, job *Job[json.RawMessage]) error, opts ...HandlerOption) {
	register(c, anyKind, fn, opts)
}

// anyKind is the key of the handler for every other kind; no kind is empty.
const anyKind = ""

func register[T any](c *Client, kind string, fn func(ctx context.Context, job *Job[T]) error, opts []HandlerOption) {
	h := handler{run: func(ctx context.Context, row claim.Row) error {
		job := &Job[T]{
			ID: row.ID, Queue: row.Queue, Kind: row.Kind, Priority: row.Priority,
			Attempt: row.Attempt, MaxAttempts: row.MaxAttempts, Fence: row.Fence,
			RunAt: row.RunAt, CreatedAt: row.CreatedAt,
			lease: row.Lease(), progress: row.Progress, client: c,
		}
		if err := decodePayload(row.Payload, &job.Payload); err != nil {
			return fmt.Errorf("payload of kind %q into %T: %w", row.Kind, job.Payload, err)
		}
		return fn(ctx, job)
	}}
	for _, opt := range opts {
		opt(&h)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		panic(fmt.Sprintf("fencepost: handler for kind %q registered after Run has begun", kind))
	}
	if _, twice := c.handlers[kind]; twice {
		panic(fmt.Sprintf("fencepost: two handlers for kind %q", kind))
	}
	c.handlers[kind] = h
}

// handlerOf returns the handler of a kind. Only kinds that have one are
// claimed.
func (c *Client) handlerOf(kind string) (handler, bool) {
	if h, ok := c.handlers[kind]; ok {
		return h, true
	}
	h, ok := c.handlers[anyKind]
	return h, ok
}

func (c *Client) handle(ctx context.Context, row claim.Row) error {
	h, ok := c.handlerOf(row.Kind)
	if !ok {
		return fmt.Errorf("no handler for kind %q", row.Kind)
	}
	return h.run(ctx, row)
}

func (c *Client) timeout(kind string) time.Duration {
	h, _ := c.handlerOf(kind)
	return max(orDefault(h.timeout, c.config.JobTimeout), 0)
}

// kinds lists what this process can run, nil for everything.
func (c *Client) kinds() []string {
	if _, any := c.handlers[anyKind]; any {
		return nil
	}
	return slices.Sorted(maps.Keys(c.handlers))
}
