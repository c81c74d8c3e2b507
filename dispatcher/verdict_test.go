package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

var errPlain = errors.New("boom")

// typedNil has an Error method that cannot be called on nil.
type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// bomb panics when it is looked at.
type bomb struct{}

func (bomb) Error() string { panic("in Error") }

type asBomb struct{ error }

func (asBomb) As(any) bool { panic("in As") }

func TestOutcomes(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	const curve = 7 * time.Second // what Delay gives for attempt 7
	for name, test := range map[string]struct {
		ctx    context.Context
		handle func(context.Context) error
		verb   claim.Verb
		delay  time.Duration
		texts  []string // each is part of the error text; none: it is empty
	}{
		"nil":                            {handle: returns(nil), verb: claim.Done},
		"error":                          {handle: returns(errPlain), verb: claim.Retry, delay: curve, texts: []string{"boom"}},
		"cancel":                         {handle: returns(Cancel(errPlain)), verb: claim.Cancelled, texts: []string{"boom"}},
		"cancel, wrapped":                {handle: returns(fmt.Errorf("outer: %w", Cancel(errPlain))), verb: claim.Cancelled, texts: []string{"outer: boom"}},
		"cancel without reason":          {handle: returns(Cancel(nil)), verb: claim.Cancelled, texts: []string{"called off"}},
		"dead":                           {handle: returns(Dead(errPlain)), verb: claim.Dead, texts: []string{"boom"}},
		"dead, joined":                   {handle: returns(errors.Join(errPlain, Dead(errors.New("for good")))), verb: claim.Dead, texts: []string{"boom", "for good"}},
		"dead without reason":            {handle: returns(Dead(nil)), verb: claim.Dead, texts: []string{"given up"}},
		"retry after":                    {handle: returns(RetryAfter(time.Minute, errPlain)), verb: claim.Retry, delay: time.Minute, texts: []string{"boom"}},
		"retry after, wrapped":           {handle: returns(fmt.Errorf("outer: %w", RetryAfter(time.Minute, errPlain))), verb: claim.Retry, delay: time.Minute, texts: []string{"outer: boom"}},
		"retry after less than nothing":  {handle: returns(RetryAfter(-time.Minute, nil)), verb: claim.Retry, texts: []string{"again in 0s"}},
		"snooze":                         {handle: returns(Snooze(time.Hour)), verb: claim.Snooze, delay: time.Hour},
		"snooze, wrapped":                {handle: returns(fmt.Errorf("outer: %w", Snooze(time.Hour))), verb: claim.Snooze, delay: time.Hour},
		"snooze for less than nothing":   {handle: returns(Snooze(-time.Hour)), verb: claim.Snooze},
		"the outermost verdict wins":     {handle: returns(Cancel(Dead(errPlain))), verb: claim.Cancelled, texts: []string{"boom"}},
		"panic with a string":            {handle: panics("ouch"), verb: claim.Retry, delay: curve, texts: []string{"panic: ouch", "panics.func"}},
		"panic with an error":            {handle: panics(errPlain), verb: claim.Retry, delay: curve, texts: []string{"panic: boom", "panics.func"}},
		"panic with nil":                 {handle: panics(nil), verb: claim.Retry, delay: curve, texts: []string{"panic: panic called with nil", "panics.func"}},
		"panic with a verdict":           {handle: panics(Dead(errPlain)), verb: claim.Retry, delay: curve, texts: []string{"panic: boom", "panics.func"}},
		"runtime error":                  {handle: func(context.Context) error { var v any = 1; return v.(error) }, verb: claim.Retry, delay: curve, texts: []string{"interface conversion", "TestOutcomes.func"}},
		"Goexit":                         {handle: func(context.Context) error { runtime.Goexit(); return nil }, verb: claim.Retry, delay: curve, texts: []string{"runtime.Goexit", "TestOutcomes.func"}},
		"an error that is a nil pointer": {handle: returns((*typedNil)(nil)), verb: claim.Retry, delay: curve, texts: []string{"<nil>"}},
		"an error that panics":           {handle: returns(bomb{}), verb: claim.Retry, delay: curve, texts: []string{"in Error"}},
		"an error whose As panics":       {handle: returns(asBomb{errPlain}), verb: claim.Retry, delay: curve, texts: []string{"in As"}},
		"a panic value that panics":      {handle: panics(bomb{}), verb: claim.Retry, delay: curve, texts: []string{"in Error"}},

		"stopping: nil":           {ctx: ended(ErrStopping), handle: returns(nil), verb: claim.Done},
		"stopping: the context's": {ctx: ended(ErrStopping), handle: func(ctx context.Context) error { return ctx.Err() }, verb: claim.Release, texts: []string{"stopping", "context canceled"}},
		"stopping: any error":     {ctx: ended(ErrStopping), handle: returns(errPlain), verb: claim.Release, texts: []string{"stopping", "boom"}},
		"stopping: a verdict":     {ctx: ended(ErrStopping), handle: returns(Dead(errPlain)), verb: claim.Dead, texts: []string{"boom"}},
		"stopping: a panic":       {ctx: ended(ErrStopping), handle: panics("ouch"), verb: claim.Retry, delay: curve, texts: []string{"panic: ouch"}},
		"timeout: nil":            {ctx: ended(ErrTimeout), handle: returns(nil), verb: claim.Done},
		"timeout: an error":       {ctx: ended(ErrTimeout), handle: returns(errPlain), verb: claim.Retry, delay: curve, texts: []string{"job timed out after 1m0s", "boom"}},
		"timeout: a verdict":      {ctx: ended(ErrTimeout), handle: returns(Snooze(time.Hour)), verb: claim.Snooze, delay: time.Hour},
		"lease lost: nil":         {ctx: ended(claim.ErrLeaseLost), handle: returns(nil), verb: claim.Done},
		"lease lost: an error":    {ctx: ended(claim.ErrLeaseLost), handle: returns(errPlain), verb: claim.Retry, delay: curve, texts: []string{"lease lost", "boom"}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.ctx == nil {
				test.ctx = t.Context()
			}
			got := outcomeOf(t, test.ctx, Config{
				Handle: func(ctx context.Context, _ claim.Row) error { return test.handle(ctx) },
				Delay:  func(attempt int, _ error) time.Duration { return time.Duration(attempt) * time.Second },
			})
			if got.Lease != (claim.Lease{ID: 5, Fence: 9}) || got.Verb != test.verb || got.Delay != test.delay {
				t.Errorf("got %+v, want %s after %v", got, test.verb, test.delay)
			}
			for _, text := range test.texts {
				if !strings.Contains(got.Error, text) {
					t.Errorf("error text lacks %q: %s", text, got.Error)
				}
			}
			if len(test.texts) == 0 && got.Error != "" {
				t.Errorf("error text %q", got.Error)
			}
		})
	}
}

func TestErrorTextsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	for name, handle := range map[string]func(context.Context) error{
		"error": returns(errors.New(long)), "panic": panics(long), "dead": returns(Dead(errors.New(long))),
	} {
		got := outcomeOf(t, t.Context(), Config{
			Handle: func(ctx context.Context, _ claim.Row) error { return handle(ctx) },
			Delay:  func(int, error) time.Duration { return 0 },
		})
		if len(got.Error) > 8<<10 {
			t.Errorf("%s: a text of %d bytes", name, len(got.Error))
		}
		if name == "panic" && !strings.Contains(got.Error, "goroutine") {
			t.Errorf("a long panic leaves no room for its stack")
		}
	}
}

func TestADelayThatPanicsExitsOrIsNegativeCostsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		delay  func(int, error) time.Duration
		handle func(context.Context) error
		low    time.Duration
		high   time.Duration
	}{
		"panics after an error": {func(int, error) time.Duration { panic("curve") }, returns(errPlain), 51 * time.Second, 77 * time.Second},
		"panics after a panic":  {func(int, error) time.Duration { panic("curve") }, panics("ouch"), 51 * time.Second, 77 * time.Second},
		"exits after an error":  {func(int, error) time.Duration { runtime.Goexit(); return 0 }, returns(errPlain), 51 * time.Second, 77 * time.Second},
		"exits after a panic":   {func(int, error) time.Duration { runtime.Goexit(); return 0 }, panics("ouch"), 51 * time.Second, 77 * time.Second},
		"negative":              {func(int, error) time.Duration { return -time.Hour }, returns(errPlain), 0, 0},
	} {
		got := outcomeOf(t, t.Context(), Config{
			Handle: func(ctx context.Context, _ claim.Row) error { return test.handle(ctx) },
			Delay:  test.delay,
		})
		if got.Verb != claim.Retry || got.Delay < test.low || got.Delay > test.high {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func returns(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func panics(value any) func(context.Context) error {
	return func(context.Context) error { panic(value) }
}

// outcomeOf runs one handler, attempt 7 of job 5 under fence 9, with a timeout
// of a minute.
func outcomeOf(t *testing.T, ctx context.Context, cfg Config) claim.Outcome {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	reports := make(chan report)
	l := &loop{Dispatcher: New(cfg), reports: reports}
	go l.work(task{&held{row: claim.Row{ID: 5, Fence: 9, Attempt: 7}}, ctx, time.Minute})
	select {
	case r := <-reports:
		if r.lease != r.outcome.Lease {
			t.Errorf("report for %v has the outcome of %v", r.lease, r.outcome.Lease)
		}
		return r.outcome
	case <-time.After(30 * time.Second):
		t.Fatal("no report")
		panic("unreachable")
	}
}
