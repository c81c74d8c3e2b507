package fencepost

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost-go/fencepost/internal/payload"
)

// Kinder is a payload that knows the kind of its jobs. Kind must return the
// same for every value of the type, also for the zero value.
type Kinder interface{ Kind() string }

// NewJob describes a job to enqueue. Only a kind is needed, which a payload
// that is a Kinder brings along.
type NewJob struct {
	// Kind says which handler runs the job. Default: Payload.Kind().
	Kind string
	// Payload is stored as JSON, at most 1 MiB of it. A json.RawMessage is
	// taken as it is. It is stored as jsonb, which keeps every digit of a
	// number but not the order of keys. Default: {}.
	Payload any
	// Queue is DefaultQueue by default.
	Queue string
	// Priority is between -2 and 2; lower runs first. Default 0.
	Priority int
	// RunAt is when the job is due, between the years 1970 and 9999. Default:
	// now, by the database's clock.
	RunAt time.Time
	// Delay is how long from now the job is due, by the database's clock. Set
	// it or RunAt, not both.
	Delay time.Duration
	// MaxAttempts is after how many failed attempts the job is dead. Default 20.
	MaxAttempts int
}

// Validate says whether the job can be enqueued: nil, or an error that wraps
// ErrInvalid and names every reason. Enqueue does the same for each job.
func (j NewJob) Validate() error {
	if _, err := j.row(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

const maxJobDelay = 100 * 365 * 24 * time.Hour

// row is a job as it is stored, checked and with its defaults.
type row struct {
	kind, queue string
	payload     json.RawMessage
	priority    int
	maxAttempts int
	runAt       time.Time     // zero: the delay from now
	delay       time.Duration // in whole microseconds
}

// row returns every reason why the job cannot be stored, if there is one.
func (j NewJob) row() (row, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	r := row{
		kind:        j.Kind,
		queue:       orDefault(j.Queue, DefaultQueue),
		priority:    j.Priority,
		maxAttempts: orDefault(j.MaxAttempts, 20),
		delay:       j.Delay.Truncate(time.Microsecond),
	}
	if v := reflect.ValueOf(j.Payload); v.Kind() == reflect.Pointer && v.IsNil() {
		fail("Payload is a nil %T", j.Payload)
	} else if k, ok := j.Payload.(Kinder); ok {
		if own := k.Kind(); r.kind == "" {
			r.kind = own
		} else if r.kind != own {
			fail("Kind is %q but its payload, %T, is of kind %q", r.kind, j.Payload, own)
		}
	}
	if err := checkName(r.kind); err != nil {
		fail("Kind %q %w", r.kind, err)
	}
	if err := checkName(r.queue); err != nil {
		fail("Queue %q %w", r.queue, err)
	}
	if j.Priority < -2 || j.Priority > 2 {
		fail("Priority is %d; must be between -2 and 2", j.Priority)
	}
	if r.maxAttempts < 1 || r.maxAttempts > 1_000_000 {
		fail("MaxAttempts is %d; must be between 1 and 1000000", r.maxAttempts)
	}
	if j.Delay < 0 || j.Delay > maxJobDelay {
		fail("Delay is %v; must be between 0 and 100 years", j.Delay)
	}
	if !j.RunAt.IsZero() {
		r.runAt = j.RunAt.UTC().Round(time.Microsecond) // as the database will
		if j.Delay != 0 {
			fail("RunAt and Delay are both set")
		}
		if year := r.runAt.Year(); year < 1970 || year > 9999 {
			fail("RunAt is in the year %d; must be between 1970 and 9999", year)
		}
	}
	raw, err := encodePayload(j.Payload)
	if err != nil {
		fail("Payload: %w", err)
	}
	r.payload = raw
	return r, errors.Join(errs...)
}

// encodePayload renders a payload as JSON that can be stored exactly.
func encodePayload(v any) (json.RawMessage, error) {
	var raw json.RawMessage
	switch v := v.(type) {
	case nil:
		return json.RawMessage("{}"), nil
	case json.RawMessage:
		raw = v
	default:
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return raw, payload.Check(raw)
}

func cleanText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
