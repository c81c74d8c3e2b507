package crew

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-go/fencepost/claim"
)

const (
	sampleEvery = 100 * time.Millisecond
	sampleSize  = 40
	// replayEvery and replaySize bound the attempts: 8 claims a second in up to
	// 12 ways each.
	replayEvery = 500 * time.Millisecond
	replaySize  = 4
	// mostMemories is how many claims a zombie remembers. More push out others.
	mostMemories = 1000
	// forget is when a claim is given up that has ended under its own fence, and
	// will not become stale unless an operator brings the job back.
	forget = 10 * time.Second
)

// rounds are the times between two replays of one claim, so that some meet the
// job while it waits, others under its next claims or after its end.
var rounds = []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second}

// memory is a claim that the zombie has seen. It takes it for its own.
type memory struct {
	id, fence int64
	token     string
	due       time.Time // when to look at it next
	round     int       // how often it was replayed
	ended     time.Time // when it was seen to have ended under its own fence

	// stale says that the job has been seen under a larger fence by this server.
	// Another one may have taken over and never got the newer fences: there the
	// claim may be valid again.
	stale bool
	// overwritten is the same of the business row.
	overwritten bool
}

// zombie is a process that has lost all its leases and does not know: it sees
// what others have claimed, waits until it is over, and then writes about it
// in every way there is. Every attempt is to be refused.
//
// It has one connection, and makes another when that breaks.
type zombie struct {
	member
	table    *claim.Table
	rng      *rand.Rand
	conn     *pgx.Conn
	server   time.Time // when it was started, which tells it from any other
	memories []*memory
	known    map[claim.Lease]bool
}

func haunt(ctx context.Context, m member) error {
	z := &zombie{
		member: m,
		table:  claim.In("fencepost"),
		rng:    rand.New(rand.NewPCG(m.Seed, m.Seed)),
		known:  make(map[claim.Lease]bool),
	}
	config, err := pgx.ParseConfig(m.DSN)
	if err != nil {
		return fmt.Errorf("read the DSN: %w", err)
	}
	config.RuntimeParams["application_name"] = m.Name
	config.ConnectTimeout = dialTimeout
	config.DefaultQueryExecMode = unnamed
	for ctx.Err() == nil {
		if z.conn, err = pgx.ConnectConfig(ctx, config); err == nil {
			err = z.roam(ctx)
			hangUp(z.conn)
		}
		if err != nil { // an outage
			_ = rest(ctx, 500*time.Millisecond)
		}
	}
	return nil
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // there is nothing left to do about it
}

// roam samples and replays until the connection breaks or ctx is done.
func (z *zombie) roam(ctx context.Context) error {
	replay := time.Now().Add(replayEvery)
	for {
		if err := rest(ctx, sampleEvery); err != nil {
			return nil
		}
		err := z.bounded(ctx, z.sample)
		if err == nil && time.Now().After(replay) {
			replay = time.Now().Add(replayEvery)
			err = z.bounded(ctx, z.haunt)
		}
		// What the server refuses is not the end of the connection. But one that
		// takes no writes is to be left.
		if err != nil && (z.conn.IsClosed() || errors.Is(err, claim.ErrReadOnly)) {
			return err
		}
	}
}

// bounded ends do by time alone: what has begun is not broken off by a stop.
func (z *zombie) bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return do(ctx)
}

// sample remembers claims that are in somebody's hands now.
func (z *zombie) sample(ctx context.Context) error {
	rows, err := z.conn.Query(ctx, `
SELECT id, fence, coalesce(payload ->> 'token', '') FROM fencepost.jobs WHERE status = 'running' ORDER BY random() LIMIT $1`, sampleSize)
	if err != nil {
		return err
	}
	due := time.Now().Add(rounds[0])
	var m memory
	_, err = pgx.ForEachRow(rows, []any{&m.id, &m.fence, &m.token}, func() error {
		z.remember(&memory{id: m.id, fence: m.fence, token: m.token, due: due})
		return nil
	})
	return err
}

func (m *memory) lease() claim.Lease { return claim.Lease{ID: m.id, Fence: m.fence} }

func (z *zombie) remember(m *memory) {
	if z.known[m.lease()] {
		return
	}
	z.known[m.lease()] = true
	if len(z.memories) < mostMemories {
		z.memories = append(z.memories, m)
		return
	}
	out := z.rng.IntN(mostMemories)
	delete(z.known, z.memories[out].lease())
	z.memories[out] = m
}

// haunt replays some of the claims that are due, if they are stale.
func (z *zombie) haunt(ctx context.Context) error {
	now := time.Now()
	var due []*memory
	for _, m := range z.memories {
		if m.due.Before(now) {
			due = append(due, m)
		}
	}
	z.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	due = due[:min(len(due), 25*replaySize)]
	if err := z.look(ctx, due); err != nil {
		return err
	}
	var stale []*memory
	for _, m := range due {
		switch {
		case !m.stale:
			m.due = now.Add(rounds[0])
		case len(stale) < replaySize:
			stale = append(stale, m)
			m.round++
			m.due = now.Add(rounds[min(m.round, len(rounds)-1)])
		}
	}
	z.memories = slices.DeleteFunc(z.memories, func(m *memory) bool {
		old := m.round > len(rounds) || !m.stale && !m.ended.IsZero() && now.Sub(m.ended) > forget
		if old {
			delete(z.known, m.lease())
		}
		return old
	})
	return z.replay(ctx, stale)
}

// look finds out which of the claims are stale for good: the job is, or has
// ended, under a larger fence, and no fence of a job ever goes back. One that
// has ended under this very fence is not: to say so again is no crime.
func (z *zombie) look(ctx context.Context, memories []*memory) error {
	if len(memories) == 0 {
		return nil
	}
	ids, names := make([]int64, len(memories)), make([]string, len(memories))
	for i, m := range memories {
		ids[i], names[i] = m.id, m.token
	}
	rows, err := z.conn.Query(ctx, `
SELECT o.n, coalesce(greatest((SELECT max(j.fence) FROM fencepost.jobs AS j WHERE j.id = o.id),
                              (SELECT max(f.fence) FROM fencepost.finished AS f WHERE f.id = o.id)), 0),
       coalesce((SELECT r.fence FROM shop.orders AS r WHERE r.token = o.token), 0),
       NOT EXISTS (SELECT FROM fencepost.jobs AS j WHERE j.id = o.id),
       pg_postmaster_start_time()
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS o (id, token, n)`, ids, names)
	if err != nil {
		return err
	}
	var n, fence, row int64
	var over bool
	var server time.Time
	_, err = pgx.ForEachRow(rows, []any{&n, &fence, &row, &over, &server}, func() error {
		z.at(server)
		m := memories[n-1]
		if over && m.ended.IsZero() {
			m.ended = time.Now()
		}
		m.stale = m.stale || fence > m.fence
		m.overwritten = m.overwritten || row > m.fence
		return nil
	})
	return err
}

// at forgets what another server has proved.
func (z *zombie) at(server time.Time) {
	if server.Equal(z.server) {
		return
	}
	z.server = server
	for _, m := range z.memories {
		m.stale, m.overwritten = false, false
	}
}
