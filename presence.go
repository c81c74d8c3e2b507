package fencepost

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
	"github.com/fencepost-go/fencepost/internal/peer"
)

const (
	// pingEvery is how long the exchange's connection may be unused while jobs
	// are in hand. Less than the grace by enough to make another.
	pingEvery = time.Second
	// pingAgain is the pause after a ping that failed. New connections have a
	// pace of their own.
	pingAgain = 50 * time.Millisecond
	// registerEvery is the least time between two attempts to register on one
	// connection, when the first was refused.
	registerEvery = time.Minute
	// leaveTime bounds the last word of a process that stops.
	leaveTime = time.Second
)

// presence tells the other processes that this one lives: by a row in the table
// of workers, and by a lock that the exchange's connection holds and that ends
// with it. So the connection must not be lost without being noticed.
//
// Nothing depends on it. Without a row, or without the lock, jobs come back
// when their lease is over.
type presence struct {
	client   *Client
	worker   claim.Worker
	born     time.Time
	exchange *line
	busy     func() bool     // jobs are in hand
	drained  <-chan struct{} // closed when there will be none any more

	mu         sync.Mutex
	dialled    bool // once, at least
	redialled  time.Time
	pooled     bool
	registered bool      // on the connection that stands; others' rows may be read
	locked     bool      // it holds the lock
	again      bool      // the last attempt to register may work if it is repeated
	tried      time.Time // to register
	said       bool      // that it was refused
}

func newPresence(run *running) *presence {
	client := run.client
	slots := make(map[string]int)
	for name, q := range client.config.Queues {
		slots[name] = q.Slots
	}
	p := &presence{
		client:   client,
		worker:   claim.Worker{ID: client.workerID, Version: version(), Queues: slots, Kinds: run.store.kinds},
		born:     time.Now(),
		exchange: run.store.exchange,
		busy:     func() bool { return run.dispatcher.InHand() > 0 },
		drained:  run.drained,
	}
	p.exchange.opened = p.opened
	return p
}

// opened registers on a new connection of the exchange, before anything else
// uses it.
func (p *presence) opened(ctx context.Context, conn *pgx.Conn, server peer.Server) error {
	p.mu.Lock()
	if p.dialled {
		p.redialled = time.Now()
	}
	p.dialled, p.pooled = true, server.Pooled
	p.mu.Unlock()
	err := p.register(ctx, conn)
	if conn.IsClosed() || errors.Is(err, claim.ErrReadOnly) {
		return err // of no use for anything else either
	}
	return nil
}

// missed is called when a look did not find our row: it was deleted, or could
// not be written before.
func (p *presence) missed(ctx context.Context, conn *pgx.Conn) {
	p.mu.Lock()
	try := p.registered || time.Since(p.tried) > registerEvery
	p.mu.Unlock()
	if try {
		_ = p.register(ctx, conn) // it has said so
	}
}

// register is called while the exchange's connection is in use for it.
func (p *presence) register(ctx context.Context, conn *pgx.Conn) error {
	worker := p.worker
	worker.Age = time.Since(p.born)
	is, err := p.client.table.Register(ctx, conn, worker, !p.pooled)
	if err == nil {
		// Processes that die soon after their start must not fill the table.
		// And who may not do this may not look at the others either.
		_, err = p.client.table.Sweep(ctx, conn)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried, p.registered, p.locked = time.Now(), err == nil, is.Locked
	p.again = errors.Is(err, claim.ErrTryAgain) || errors.Is(err, claim.ErrUnknown)
	switch {
	case err != nil && !p.said:
		p.said = true
		p.client.config.Logger.WarnContext(ctx, "this process cannot watch others: of those that die, it takes over jobs only when their lease is over",
			"worker", worker.ID, "others notice its death", p.locked, "error", err)
	case err == nil:
		p.said = false
	}
	return err
}

// name is under which id others are looked at; "" if that is not possible.
func (p *presence) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.registered {
		return p.worker.ID
	}
	return ""
}

// lastRedial is when the connection was last made anew; zero: never.
func (p *presence) lastRedial() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.redialled
}

// holds says whether others would notice our death.
func (p *presence) holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.locked && p.exchange.up.Load()
}

// Run keeps the connection that holds the lock while jobs are in hand, so that
// one that broke is replaced before others take us for dead. A stop does not
// end it before the last job.
func (p *presence) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(p.keep(context.WithoutCancel(ctx)))
		case <-p.drained:
			<-ctx.Done() // which follows
			return nil
		}
	}
}

func (p *presence) keep(ctx context.Context) (next time.Duration) {
	p.mu.Lock()
	again := p.again
	byLeases := p.dialled && !p.locked // nobody would notice
	p.mu.Unlock()
	if again {
		// Our row still names the lock of a connection that is gone: others will
		// take us for dead.
		start := time.Now()
		p.registerAgain(ctx)
		// At once if it has waited for somebody. What fails without a wait is
		// paced.
		return max(pingAgain, pingEvery-time.Since(start))
	}
	if byLeases || !p.busy() {
		return pingEvery
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	next, err := p.exchange.ping(ctx, pingEvery)
	p.client.health.note(presenceLoop, err)
	if err != nil {
		return pingAgain
	}
	return next
}

// registerAgain repeats what was hindered, such as by somebody who holds our
// row.
func (p *presence) registerAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_ = p.exchange.use(ctx, func(conn *pgx.Conn) error {
		p.mu.Lock()
		again := p.again
		p.mu.Unlock()
		if !again {
			return nil // this connection is new, and has registered
		}
		return p.register(ctx, conn)
	})
}

// leave deletes the row of a process that has stopped.
func (p *presence) leave() {
	_ = p.exchange.useIfUp(func(conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		return p.client.table.Unregister(ctx, conn, p.worker.ID) // or somebody sweeps it away
	})
}

const modulePath = "github.com/fencepost-go/fencepost"

// version is that of this module in the program; "" if it is not known.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if build.Main.Path == modulePath {
		return build.Main.Version
	}
	for _, dep := range build.Deps {
		if dep.Path == modulePath {
			return dep.Version
		}
	}
	return ""
}
