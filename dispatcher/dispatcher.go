package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

var (
	// ErrStopping is the cause of a handler's context that a stop has ended.
	ErrStopping = errors.New("worker is stopping")

	// ErrTimeout is the cause of a handler's context that the job's own
	// timeout has ended.
	ErrTimeout = errors.New("job timed out")

	// ErrCancelled is the cause of a handler's context when an operator has
	// cancelled the job.
	ErrCancelled = errors.New("job was cancelled")

	// ErrStuck is wrapped by the error of Run when something was left behind:
	// handlers that went on in spite of their cancelled context, outcomes that
	// could not be stored, a call of the Store that did not return.
	ErrStuck = errors.New("left behind at the end of the stop")
)

// Store is the dispatcher's way to the database.
type Store interface {
	// Exchange stores the outcomes of the trip and then makes its claims, if
	// possible in one commit. Each lane has a goroutine, which makes one call at a
	// time; calls of the two lanes must not wait for each other. It is bounded by deadlines of its own, about 5 s for each commit; a stop
	// does not cancel it before the very end.
	Exchange(ctx context.Context, trip Trip) Haul

	// OpenSecond makes the connection of the second lane, before its first trip
	// and again after one that did not work. CloseSecond says that none will
	// follow until then. They are called by the goroutine of that lane.
	OpenSecond(ctx context.Context) error
	CloseSecond()

	// Extend gives each lease its full length again, counted from now, and
	// returns those that are no longer ours. It is called by one goroutine, one
	// call at a time, at the same time as Exchange: it must not wait for a
	// connection that Exchange or a handler may hold.
	Extend(ctx context.Context, leases []claim.Lease) (lost []claim.Loss, err error)

	// Check returns what Extend would, and extends nothing. It is called by the
	// goroutine of Extend.
	Check(ctx context.Context, leases []claim.Lease) (lost []claim.Loss, err error)

	// Rest says that no lease is in hand: what Extend and Check have opened may
	// be closed until the next call. It is called by the goroutine of Extend.
	Rest()
}

// Want asks for up to Limit due jobs of a queue.
type Want struct {
	Queue string
	Limit int
}

// Trip is what one call of Exchange takes to the database. A lease is named
// in it, and in what is under way on the other lane, at most once. Its outcomes are
// good until Exchange has returned.
type Trip struct {
	Lane     int // 0, or 1 for the second one
	Outcomes []claim.Outcome
	Wants    []Want
}

func (t Trip) empty() bool { return len(t.Outcomes)+len(t.Wants) == 0 }

// Haul is what an Exchange brings back. Its memory is the Store's again when
// Exchange is called the next time on that lane.
type Haul struct {
	// Results are the answers to the outcomes, in their order.
	Results []claim.Result
	// FinishErr means that the outcomes may not be stored. Results and Claimed
	// mean nothing, and the same outcomes will be sent again. If it wraps
	// claim.ErrUnknown the claims may have been made: what they took comes back
	// when its lease is over.
	FinishErr error
	// Claimed are the answers to the wants, in their order. Rows in it are
	// committed as claimed by us, also next to a ClaimErr.
	Claimed []claim.Claimed
	// ClaimErr means that at least one of the claims did not work.
	ClaimErr error
}

// Queue is a queue to work on.
type Queue struct {
	Name string
	// Slots is how many jobs of the queue may run at once.
	Slots int
	// Spares is how many slots at most are opened in place of handlers that
	// are stuck: still running one lease after their timeout.
	Spares int
}

// Config is used as given; the root has checked it and filled in the defaults.
// Store, Handle, Delay, Lease and Logger are required, and each queue is named
// once. Funcs that may be nil are so marked.
type Config struct {
	Store  Store
	Queues []Queue

	// Handle runs one job, on a goroutine that others may run on before and after.
	Handle func(ctx context.Context, row claim.Row) error
	// Timeout is how long a job of the kind may run; 0 is for ever. May be
	// nil: no job has a timeout.
	Timeout func(kind string) time.Duration
	// Delay is the pause after the given attempt (counted from 1) has failed
	// with err; less than 0 counts as 0. It is called from many goroutines.
	Delay func(attempt int, err error) time.Duration

	// Lease is how long a claim or an extension lasts.
	Lease time.Duration
	// SoftStop is how long a stop waits for handlers before it cancels them.
	SoftStop time.Duration
	// HardStop is how long it then waits before it leaves them behind.
	HardStop time.Duration

	// Short is called when a claim has returned fewer jobs than it asked for
	// and the earliest ready job that it left is due in next. Zero or less:
	// that job is due, but somebody else holds its row. It must not block. May
	// be nil.
	Short func(queue string, next time.Duration)
	// Refused is called when an outcome came too late: the job was under
	// another fence, so nothing was changed. It must not block. May be nil.
	Refused func(lease claim.Lease, verb claim.Verb)
	// Cancelled is called when a job was cancelled by an operator while its
	// handler ran. It must not block. May be nil.
	Cancelled func(lease claim.Lease)

	Logger *slog.Logger
}

// Dispatcher runs the jobs of some queues. Its methods may be called from any
// goroutine.
type Dispatcher struct {
	cfg Config

	// rung holds a flag for each queue: woken since the loop last looked. The
	// map itself never changes.
	rung map[string]*atomic.Bool
	// along holds a flag for each queue: see Along. The map itself never changes.
	along map[string]*atomic.Bool
	// beside is how many other processes work the queues: see Beside.
	beside atomic.Int64
	// recalled: some of the jobs in hand may be ours no longer.
	recalled atomic.Bool
	// poke has room for one: the loop has flags to look at.
	poke chan struct{}

	stopNow  chan struct{}
	stopOnce sync.Once

	inHand atomic.Int64 // leases, as of the loop's last turn
}

// New returns a dispatcher that does nothing until Run.
func New(cfg Config) *Dispatcher {
	if cfg.Timeout == nil {
		cfg.Timeout = func(string) time.Duration { return 0 }
	}
	if cfg.Short == nil {
		cfg.Short = func(string, time.Duration) {}
	}
	if cfg.Refused == nil {
		cfg.Refused = func(claim.Lease, claim.Verb) {}
	}
	if cfg.Cancelled == nil {
		cfg.Cancelled = func(claim.Lease) {}
	}
	d := &Dispatcher{
		cfg:     cfg,
		rung:    make(map[string]*atomic.Bool, len(cfg.Queues)),
		along:   make(map[string]*atomic.Bool, len(cfg.Queues)),
		poke:    make(chan struct{}, 1),
		stopNow: make(chan struct{}),
	}
	for _, q := range cfg.Queues {
		d.rung[q.Name], d.along[q.Name] = new(atomic.Bool), new(atomic.Bool)
	}
	return d
}

// Wake says that the queue may have a job that is due. It never blocks and may
// be called before Run. The wake-up is kept until a claim, made after it, has
// found less than it asked for. A queue that is not worked on here is ignored.
func (d *Dispatcher) Wake(queue string) {
	if flag, ok := d.rung[queue]; ok {
		flag.Store(true)
		d.nudge()
	}
}

// WakeAll is Wake for every queue.
func (d *Dispatcher) WakeAll() {
	for _, flag := range d.rung {
		flag.Store(true)
	}
	d.nudge()
}

// Along says whether each trip that stores outcomes is to claim from the queue as
// well, whether it was woken or not: while it is looked at all the time anyway, a
// claim that goes along costs less than one of its own. It never blocks.
func (d *Dispatcher) Along(queue string, on bool) {
	if flag, ok := d.along[queue]; ok {
		flag.Store(on)
		d.nudge()
	}
}

// Beside says how many other processes work the same queues, those of the queue that
// has most. With many there are trips enough at once, and each process makes one
// at a time. It never blocks.
func (d *Dispatcher) Beside(processes int) {
	if n := int64(processes); d.beside.Swap(n) != n { // it is said with each tick
		d.nudge()
	}
}

// Recall says that somebody may have taken or cancelled jobs in hand: all of
// them are checked at once. It never blocks. Calls made before the check is
// sent are one; one made later is followed by another check.
func (d *Dispatcher) Recall() {
	d.recalled.Store(true)
	d.nudge()
}

func (d *Dispatcher) nudge() {
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// InHand returns how many jobs are in hand: claimed, and the database has not
// taken their outcome.
func (d *Dispatcher) InHand() int { return int(d.inHand.Load()) }

// StopNow ends the drain at once: running handlers are cancelled and HardStop
// begins. If the context of Run is not done yet, this comes true when it is.
// Calling it again changes nothing.
func (d *Dispatcher) StopNow() {
	d.stopOnce.Do(func() { close(d.stopNow) })
}
